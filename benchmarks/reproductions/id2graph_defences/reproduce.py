"""The defences of the ID2Graph paper (Takahashi, Liu and Liu 2023, sections 4 and 5.2), ours beside the paper's.

    python benchmarks/reproductions/id2graph_defences/reproduce.py figure-8 figure-10
    python benchmarks/reproductions/id2graph_defences/reproduce.py figure-8 --sets breastcancer --seeds 42 43
    python benchmarks/reproductions/id2graph_defences/reproduce.py wire
    python benchmarks/reproductions/id2graph_defences/reproduce.py page

figure-8   Figures 8 and 9 and Table 3: AUC, V-measure and ciphertexts of every defence, half of the columns each
figure-10  the same where the label holder has no columns
wire       ciphertexts of real federations on breast cancer, beside those counted from the trees
page       nothing is run: README.md and the pictures are made of the results at hand

Every result is in the file at once, and the same command goes on after an interruption. Needs TREETAP_DATA.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2])]

from defended_cells import MODELS, MORE_SETS, SEEDS, SETS, Cell, cells  # noqa: E402
from resumable import Results  # noqa: E402

from treetap import terminal  # noqa: E402
from treetap.commands.jobs import progress_view  # noqa: E402
from treetap.errors import BadInput, TreetapError  # noqa: E402

RESULTS = HERE / "results.jsonl"
EVERY_SET = (*SETS, *MORE_SETS)
SWEEPS = ("figure-8", "figure-10", "wire")


def main() -> int:
    """Run what is missing, then draw the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "sweeps", nargs="+", choices=[*SWEEPS, "page"], metavar="SWEEP", help=", ".join(SWEEPS) + ", page"
    )
    parser.add_argument(
        "--sets", nargs="+", choices=EVERY_SET, default=list(SETS), metavar="SET", help=", ".join(EVERY_SET)
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL", help="one only")
    parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=list(SEEDS), help="of 42 to 46")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="results, a JSON line each")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="for the page and its pictures")
    given = parser.parse_args()
    results = Results(given.json)
    for sweep in given.sweeps:
        if sweep == "wire":
            from federations import federations

            federations(results)
        elif sweep != "page":
            own = sweep == "figure-8"
            _run(sweep, list(cells(given.sets, given.models, given.seeds, own=own)), results)
    from defences_page import write_page

    terminal.out.print(str(write_page(results, given.out)), highlight=False)
    return 0


def _run(sweep: str, asked: list[Cell], results: Results) -> None:
    from defended_cell import run

    missing = [cell for cell in asked if results.get(cell.key()) is None]
    started = time.monotonic()
    terminal.err.print(f"{sweep}: {len(asked)} trainings, {len(missing)} of them missing", highlight=False)
    with progress_view.steps(sweep) as progress:
        for number, cell in enumerate(missing):
            progress(number, len(missing), cell.name())
            results.add(run(cell))
    terminal.err.print(f"{sweep}: {time.monotonic() - started:.0f} s", highlight=False)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        terminal.err.print("stopped; the same command goes on with the trainings that are missing", highlight=False)
        sys.exit(130)
    except TreetapError as failure:
        terminal.err.print(f"reproduce.py: {failure}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2 if isinstance(failure, BadInput) else 1)
