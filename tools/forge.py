"""Check the files that a forge reads, against their published schemas and for known faults of security: `make lint`.

    python -m tools.forge [--root FOLDER]

Workflows, forms, dependabot's settings and CITATION.cff are read by check-jsonschema, which brings their schemas;
workflows also by zizmor (passwords that are kept, permissions, actions that are not pinned, words of strangers in
commands). Neither asks the network.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Schema of check-jsonschema → the files that must fit it.
SCHEMAS = {
    "vendor.github-workflows": (".github/workflows/*.yml",),
    "custom.github-workflows-require-timeout": (".github/workflows/*.yml",),
    "vendor.dependabot": (".github/dependabot.yml",),
    "vendor.github-issue-config": (".github/ISSUE_TEMPLATE/config.yml",),
    "vendor.github-issue-forms": (".github/ISSUE_TEMPLATE/[!c]*.yml",),
    "vendor.citation-file-format": ("CITATION.cff",),
}


def commands(root: Path) -> Iterator[list[str]]:
    """The checks of a folder's files, as commands.

    Raises:
        FileNotFoundError: there is no file for a schema.
    """
    programs = Path(sys.executable).parent
    for schema, patterns in SCHEMAS.items():
        files = [str(path) for pattern in patterns for path in sorted(root.glob(pattern))]
        if not files:
            raise FileNotFoundError(f"{root}: no file {' or '.join(patterns)}")
        yield [str(programs / "check-jsonschema"), "--builtin-schema", schema, *files]
    quiet = ["--quiet", "--no-progress", "--offline", "--color", "never", "--min-severity", "medium"]
    yield [str(programs / "zizmor"), *quiet, str(root / ".github")]


def main() -> int:
    """Run all; status 1 where one finds something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of the clone")
    given = parser.parse_args()
    checks = list(commands(given.root))
    if absent := sorted({Path(check[0]).name for check in checks if not Path(check[0]).exists()}):
        print(f"{', '.join(absent)}: not installed beside {sys.executable}: make .venv/.dev", file=sys.stderr)
        return 2
    ended = [subprocess.run(command, check=False).returncode for command in checks]  # noqa: S603
    return int(any(ended))


if __name__ == "__main__":
    sys.exit(main())
