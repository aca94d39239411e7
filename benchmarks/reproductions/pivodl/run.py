"""The experiments of the PIVODL paper (Zhu et al. 2023, section V), ours beside the paper's.

    python benchmarks/reproductions/pivodl/run.py credit figures tables scaling traffic times plain secure
    python benchmarks/reproductions/pivodl/run.py times --repeats 1
    python benchmarks/reproductions/pivodl/run.py page

credit   the default setting of the credit set: time, traffic and measures with keys of 512 and 2048 bits
figures  Figures 6 to 9: test measures by parties, depth, trees and epsilon
tables   Table IV and Figure 16: all labels with one party, by three systems
scaling  time over 3 to 10 parties and 2 to 6 trees
traffic  Figures 13 to 15, and the form of the wire that the paper prints
times    Figures 10 to 12: time (and traffic) by parties, depth and trees, of all sets
plain    Figures 10 to 12, panels (b): time without encryption, in one process
secure   gains announced against gains compared in secret
page     nothing is run: README.md and the plots are made of the results at hand

Every result is in the file at once, and the same command goes on after an interruption. Needs TREETAP_DATA.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2])]

from cells import SWEEPS  # noqa: E402
from resumable import Results  # noqa: E402
from trainings import run  # noqa: E402

from treetap import terminal  # noqa: E402
from treetap.commands.jobs import progress_view  # noqa: E402
from treetap.errors import BadInput, TreetapError  # noqa: E402

RESULTS = HERE / "results.jsonl"


def main() -> int:
    """Run what is missing, then draw the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "sweeps", nargs="+", choices=[*SWEEPS, "page"], metavar="SWEEP", help=f"{', '.join(SWEEPS)}, page"
    )
    parser.add_argument("--repeats", type=int, default=5, choices=range(1, 6), metavar="N", help="seeds, 1 to 5")
    parser.add_argument("--sets", nargs="+", choices=("credit", "bank", "energy"), help="only these")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="results, a JSON line each")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="for the page and its plots")
    given = parser.parse_args()
    results = Results(given.json)
    for sweep in given.sweeps:
        if sweep == "page":
            continue
        cells = [cell for cell in SWEEPS[sweep](range(given.repeats)) if not given.sets or cell.set in given.sets]
        missing = [cell for cell in cells if results.get(cell.key()) is None]
        started = time.monotonic()
        terminal.err.print(f"{sweep}: {len(cells)} cells, {len(missing)} of them missing", highlight=False)
        with progress_view.steps(sweep) as progress:
            for number, cell in enumerate(missing):
                progress(number, len(missing), cell.name())
                results.add(run(cell))
        terminal.err.print(f"{sweep}: {time.monotonic() - started:.0f} s", highlight=False)
    from page import PAGE as page

    terminal.out.print(str(page.write(results, given.out)), highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        terminal.err.print("stopped; the same command goes on with the cells that are missing", highlight=False)
        sys.exit(130)
    except TreetapError as failure:
        terminal.err.print(f"run.py: {failure}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2 if isinstance(failure, BadInput) else 1)
