"""Fills the table of the page on other systems from the results of benchmarks/peers.py.

Usage: python -m tools.renderers.peers; with --check nothing is written, and the exit status is 1 if the page has
another.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.renderers.rendering import MEASURED, ROOT, stale, with_tables, write

RESULTS = ROOT / "benchmarks" / "peers.jsonl"
#: The system whose seconds are 1.
OWN = "treetap, lattice"


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """CPU seconds, in brackets as often as those of `OWN`, by case and system; a reason where there are none."""
    cells = {(each["trial"]["case"], each["trial"]["system"]): each for each in results}
    cases, systems = (list(dict.fromkeys(each["trial"][name] for each in results)) for name in ("case", "system"))
    systems.sort(key=lambda system: not system.startswith("treetap"))
    lines = [f"| | {' | '.join(systems)} |\n", f"|---|{'---|' * len(systems)}\n"]
    for case in cases:
        own = cells.get((case, OWN), {}).get("cpu_s")
        lines.append(f"| {case} | {' | '.join(_cell(cells.get((case, system)), own) for system in systems)} |\n")
    return "".join(lines)


def _cell(found: Mapping[str, Any] | None, own: float | None) -> str:
    if found is None:
        return "not run"
    if "left" in found:
        return str(found["left"])
    seconds = float(found["cpu_s"])
    ratio = "" if own is None else f" ({seconds / own:.2g})"
    return f"{seconds:.1f}{ratio}" if seconds >= 1 else f"{seconds:.2f}{ratio}"


def main() -> int:
    """Fill, or compare; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fill the table of the page on other systems.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with status 1 if the page is stale")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    given = parser.parse_args()
    pages = with_tables(
        {"peers": table([json.loads(line) for line in given.results.read_text().splitlines()])}, MEASURED
    )
    if given.check:
        for path in stale(pages):
            print(f"{path} is stale: run python -m tools.renderers.peers", file=sys.stderr)
        return int(bool(stale(pages)))
    write(pages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
