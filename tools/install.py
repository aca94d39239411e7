"""Installs what a target of make needs beside the Python that runs this, and says how far it is.

    .venv/bin/python tools/install.py demo,test              treetap from this clone, with these extras
    .venv/bin/python tools/install.py docs --alone           the extra's own packages, without treetap

`--no-compile` is pip's: Python then compiles what it imports of the packages, when it first does. A terminal has one
line that changes, anything else a line a stage. At the end: megabytes, the line's rate, seconds, processor seconds.
Where pip fails, its last words and its status are those of this program. Sizes are those that pip names (MB = 10^6
bytes).
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import time
import tomllib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: A file that pip fetches; a package's metadata come apart, and are not counted.
FILE = re.compile(r"^ *(Downloading|Using cached) \S*?([^/\s]+)\.(?:whl|tar\.gz|zip) \(([\d.]+) (bytes|kB|MB|GB)\)")
UNITS = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
#: Begin of pip's line → what it does then.
STAGES = {"  Building": "building treetap, with its kernels", "Installing": "installing {} packages"}
FETCHING = "finding and fetching packages"
#: Lines of pip that are shown where it fails.
LAST = 20


@dataclass
class Progress:
    """How far pip is: what it does, and packages and megabytes fetched until then, `taken` from its cache apart."""

    stage: str = FETCHING
    now: str = ""
    files: int = 0
    megabytes: float = 0.0
    taken: float = 0.0

    def after(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines of pip as they come, each once it is counted."""
        for line in lines:
            if file := FILE.match(line):
                how, name, amount, unit = file.groups()
                size = float(amount) * UNITS[unit]
                self.files, self.now = self.files + 1, f"{name.split('-')[0]}, {size:.1f} MB"
                self.taken += size if how == "Using cached" else 0.0
                self.megabytes += size if how == "Downloading" else 0.0
            for begin, stage in STAGES.items():
                if line.startswith(begin):
                    self.stage, self.now = stage.format(line.count(",") + 1), ""
            yield line

    def __str__(self) -> str:
        now = f"; now {self.now}" if self.now else ""
        return f"  {self.stage}: {self.files} files, {self.megabytes + self.taken:.0f} MB so far{now}"


def wanted(extra: str) -> list[str]:
    """The packages of an extra itself. Raises SystemExit: there is none, or it names treetap, which is on no index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages: list[str] = project["optional-dependencies"].get(extra, [])
    if not packages or any(package.startswith(project["name"]) for package in packages):
        sys.exit(f"pyproject.toml: the extra {extra!r} has no packages of its own alone: leave out --alone")
    return packages


def main() -> int:
    """Run pip; returns its status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", help="names of extras, with commas between them")
    parser.add_argument("--alone", action="store_true", help="one extra's packages, without treetap")
    parser.add_argument("--no-compile", action="store_true", help="as pip's")
    given = parser.parse_args()
    asked = wanted(given.extras) if given.alone else ["--editable", f"{ROOT}[{given.extras}]"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off", *asked]
    pip += ["--no-compile"] if given.no_compile else []
    begun, fetched, last, progress = time.monotonic(), 0.0, deque[str](maxlen=LAST), Progress()
    running = subprocess.Popen(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")  # noqa: S603
    assert running.stdout is not None
    shown, terminal = "", sys.stdout.isatty()
    for line in progress.after(running.stdout):
        last.append(line)
        if not fetched and progress.stage != FETCHING:
            fetched = time.monotonic() - begun
        if terminal:
            print(f"\r\x1b[K{progress!s:.79}", end="", flush=True)
        elif progress.stage != shown:
            print(f"  {progress.stage} …", flush=True)
        shown = progress.stage
    print("\r\x1b[K" * terminal, end="", flush=True)
    if status := running.wait():
        print("".join(last), end="", file=sys.stderr)
        return status
    seconds, used = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    rate = f" in {fetched:.0f} s ({progress.megabytes / fetched:.1f} MB/s)" if fetched and progress.megabytes else ""
    cached = f", {progress.taken:.0f} MB of pip's cache" if progress.taken else ""
    processor = f"{used.ru_utime + used.ru_stime:.0f} processor seconds"
    print(f"  {progress.megabytes:.0f} MB fetched{rate}{cached}; {seconds:.0f} s in all, {processor}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
