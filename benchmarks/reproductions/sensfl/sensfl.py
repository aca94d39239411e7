"""SensFL, DP-SGD and the attacks of the label holder on columns, ours beside the paper's figures.

    python benchmarks/reproductions/sensfl/sensfl.py table-1 table-2 table-3 residual widths sweep
    python benchmarks/reproductions/sensfl/sensfl.py table-2 --only bank --seeds 0
    python benchmarks/reproductions/sensfl/sensfl.py projections federation
    python benchmarks/reproductions/sensfl/sensfl.py page

table-1   images: decode, match and match-exact without a defence, under SensFL in both readings of its norm and DP-SGD
table-2   tables: attributes under the same
residual  images by residual blocks and width, and by such that end in the average over places
table-3   two and three clients
widths    images by width of the embedding
sweep     tables by hidden layers, width, ε and norm
projections  what one random projection makes of the norm, for each network
federation  a cell of each table by a federation of processes: its weights are those of the centralised code
page      nothing is run: README.md and the pictures are made of the results at hand

Every result is in the file at once, and the same command goes on after an interruption. Needs TREETAP_DATA and the
extras neural and audit.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2])]

from cell_commands import ended, run_cells, show_path  # noqa: E402
from keyed_cells import KeyedScale, unique  # noqa: E402
from resumable import Results  # noqa: E402
from sensfl_cells import (  # noqa: E402
    FEDERATED,
    FEDERATED_SCALE,
    IMAGES,
    SWEEPS,
    TABLES,
    Cell,
    projected,
)

RESULTS = HERE / "results.jsonl"
FEDERATION, PROJECTIONS, PAGE = "federation", "projections", "page"
COMMANDS = (*SWEEPS, PROJECTIONS, FEDERATION, PAGE)
SETS = (*IMAGES, *TABLES)


def main() -> None:
    """Run what is missing, then draw the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", choices=COMMANDS, metavar="SWEEP", help=", ".join(COMMANDS))
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="by default 0 to 2 of table-1 and -2, else 0")
    parser.add_argument("--only", nargs="+", choices=SETS, metavar="SET", help=f"of {', '.join(SETS)}")
    parser.add_argument("--depths", nargs="+", type=int, choices=(1, 2, 3), metavar="N", help="of M1, M2, M3")
    parser.add_argument("--dp-sgd", action="store_true", help="of these sweeps only what is under DP-SGD")
    parser.add_argument("--records", type=int, metavar="N", help="at most that many of each part, for a trial")
    parser.add_argument("--epochs", type=int, metavar="N", help="in the place of those of the set, for a trial")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="results, a JSON line each")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="for the page and its pictures")
    given = parser.parse_args()
    results, scale = Results(given.json), KeyedScale(given.records, given.epochs)
    for sweep in given.sweeps:
        if sweep != PAGE:
            cells = [cell for cell in _cells(sweep, given.seeds) if not given.only or cell.set in given.only]
            cells = [cell for cell in cells if cell.noise or not given.dp_sgd]
            _run(sweep, [cell for cell in cells if not given.depths or cell.depth in given.depths], scale, results)
    from sensfl_page import PAGE as page

    show_path(page.write(results, given.out))


def _cells(sweep: str, seeds: list[int] | None) -> list[Cell]:
    if sweep == FEDERATION:
        return [replace(cell, seed=seed) for seed in seeds or (0,) for cell in FEDERATED]
    if sweep == PROJECTIONS:
        return projected(seeds or (0,))
    made, count = SWEEPS[sweep]
    return unique(made(seeds or range(count)))


def _run(sweep: str, cells: list[Cell], scale: KeyedScale, results: Results) -> None:
    from sensfl_work import Work

    small = sweep == FEDERATION and not scale.key()
    work = Work(FEDERATED_SCALE if small else scale, results)
    asks = {FEDERATION: work.federate, PROJECTIONS: work.project}
    run_cells(sweep, cells, asks.get(sweep, work.attack))


if __name__ == "__main__":
    ended(main, "sensfl.py")
