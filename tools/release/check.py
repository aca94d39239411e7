"""Say what must not be left when a release is published: `make check-release`.

    python -m tools.release.check [--tag NAME]

Addresses and names that only the publisher can fill in stand for themselves with the domain `treetap.invalid`, which
no one can have (RFC 2606), and the package's classifier `Private :: Do Not Upload`, which the index refuses too.
Actions of workflows are pinned by the digest of a commit; one of zeros could not be looked up. Version and date are
the same in `pyproject.toml`, CITATION.cff, the changelog and the tag. Needs the standard library alone.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Files that a publisher fills in, all of which a release has.
FILLED = ("pyproject.toml", "CITATION.cff", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "README.md")
PLACEHOLDER = re.compile(r"treetap\.invalid|Private :: Do Not Upload")
USES = re.compile(r"\buses:\s*([^\s#]+)")
PINNED = re.compile(r"[\w.-]+/[\w./-]+@(?!0{40}$)[0-9a-f]{40}$")
HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)
CITED = re.compile(r'^(version|date-released): *"?([^"\s]+)"?$', re.MULTILINE)


def left(root: Path) -> Iterator[str]:
    """Lines with a placeholder, and actions that are not pinned by a digest that was looked up."""
    yield from (f"{name}: is not there" for name in FILLED if not (root / name).is_file())
    files = [root / name for name in FILLED if (root / name).is_file()]
    files += sorted(path for path in (root / ".github").rglob("*") if path.is_file())
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            place = f"{path.relative_to(root)}:{number}"
            if placeholder := PLACEHOLDER.search(line):
                yield f"{place}: {placeholder[0]} is a placeholder: fill it in, or take the line out"
            action = USES.search(line) if path.suffix == ".yml" else None
            if action and not action[1].startswith("./") and not PINNED.match(action[1]):
                yield f"{place}: {action[1]} has no digest that was looked up: pin the commit of its release"


def versions(root: Path, tag: str | None) -> Iterator[str]:
    """Places with another version than `pyproject.toml`, or with another date than the changelog."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    newest = HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    number, date = newest.groups() if newest else (None, None)
    if number != version or date is None:
        yield f"CHANGELOG.md: its newest heading is {number!r} of {date}: write ## [{version}] - YYYY-MM-DD"
    cited = dict(CITED.findall((root / "CITATION.cff").read_text(encoding="utf-8")))
    for key, value in {"version": version, "date-released": date}.items():
        if cited.get(key) != value:
            yield f"CITATION.cff: {key} is {cited.get(key)}, and {value} elsewhere"
    if tag is not None and tag != f"v{version}":
        yield f"the tag is {tag!r}, and pyproject.toml has {version}: tag v{version}, or set the version"


def main() -> int:
    """Print what is left, a line each; status 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", help="the tag that is published: vVERSION")
    given = parser.parse_args()
    faults = [*left(ROOT), *versions(ROOT, given.tag)]
    print("\n".join(faults) or "nothing is left to fill in")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
