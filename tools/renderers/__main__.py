"""Writes all of docs/ that follows from the code: tables of pages, pictures, and docs/reference/.

python -m tools.renderers [NAME …]            write it, or only what these make
python -m tools.renderers [NAME …] --check    write nothing; status 1 if something is stale
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from tools.renderers.rendering import DOCS, stale, write

#: Modules of which each has `rendered(docs)`: file → its text.
NAMES = (
    *("threats", "orders", "roles", "exclusions", "register", "one_gradient", "carried_out", "commands", "keys"),
    *("api", "watch", "paper"),
)


def main() -> int:
    """Write, or compare; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.renderers", description="Write what docs/ has from the code."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a file is stale")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in NAMES]:
        parser.error(f"no {', '.join(unknown)}: the names are {', '.join(NAMES)}")
    status = 0
    for name in given.names or NAMES:
        try:
            files = importlib.import_module(f"tools.renderers.{name}").rendered(given.docs)
        except ValueError as fault:
            print(f"{name}: {fault}", file=sys.stderr)
            status = 1
            continue
        if not given.check:
            write(files)
        for path in stale(files):
            print(f"{path} is stale: run make reference", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
