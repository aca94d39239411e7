"""Party-wise Dropout and DIMIP (the paper on unexpected quitting of parties), ours beside the paper's figures.

    python benchmarks/reproductions/splitnn/networks.py figure-3 figure-4 figure-5 figure-6 weights both
    python benchmarks/reproductions/splitnn/networks.py figure-5 --seeds 0 --only drive obesity
    python benchmarks/reproductions/splitnn/networks.py figure-4 --resnet --seeds 0
    python benchmarks/reproductions/splitnn/networks.py page

figure-3  quitting on Fashion-MNIST: by chance of dropout, the label holder alone, a further head
figure-4  the same on CIFAR-10 (Table 1 and Figure 3 of the paper); --resnet with ResNet-18, in hours
figure-5  the same on tables
figure-6  DIMIP on Fashion-MNIST, its ablation, the four baselines, active completion; clusters of gradients
weights   DIMIP on CIFAR-10 by λ
both      each defence and each pair of defences, against completion and against attacks on gradients
advised   each defence on tables, against the same attacks: what the audit of a network advises by
floors    completion of an untrained bottom, and training from scratch
federation  a cell of each figure by a federation of processes: its weights are those of the centralised code
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
from keyed_cells import unique  # noqa: E402
from network_catalogue import SETS  # noqa: E402
from network_cells import ADVISED, ATTACKED, FEDERATED, FEDERATED_SCALE, SWEEPS, Cell, Scale  # noqa: E402
from resumable import Results  # noqa: E402

RESULTS = HERE / "results.jsonl"
FLOORS, FEDERATION, PAGE = "floors", "federation", "page"
COMMANDS = (*SWEEPS, FLOORS, FEDERATION, PAGE)


def main() -> None:
    """Run what is missing, then draw the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", choices=COMMANDS, metavar="SWEEP", help=", ".join(COMMANDS))
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="by default 0 to 2, of `weights`, `both` 0")
    parser.add_argument("--only", nargs="+", choices=SETS, metavar="SET", help=f"of {', '.join(SETS)}")
    parser.add_argument("--resnet", action="store_true", help="ResNet-18 for images")
    parser.add_argument("--records", type=int, metavar="N", help="at most that many of each part, for a trial")
    parser.add_argument("--epochs", type=int, metavar="N", help="in the place of those of the set, for a trial")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what trainings leave at the feature party")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="results, a JSON line each")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="for the page and its pictures")
    given = parser.parse_args()
    results, scale = Results(given.json), Scale(given.records, given.epochs, given.resnet)
    for sweep in given.sweeps:
        if sweep != PAGE:
            _run(sweep, _cells(sweep, given.seeds, given.only), scale, results, given.keep)
    from network_page import PAGE as page

    show_path(page.write(results, given.out))


def _cells(sweep: str, seeds: list[int] | None, only: list[str] | None) -> list[Cell]:
    if sweep == FLOORS:
        cells = [Cell(name, seed) for name in ("fashion", "cifar10", *ADVISED) for seed in seeds or (0,)]
    elif sweep == FEDERATION:
        cells = [replace(cell, seed=seed) for seed in seeds or (0,) for cell in FEDERATED]
    else:
        made, count = SWEEPS[sweep]
        cells = made(seeds or range(count))
    return unique(cell for cell in cells if not only or cell.set in only)


def _run(sweep: str, cells: list[Cell], scale: Scale, results: Results, keep: Path | None) -> None:
    from network_work import Work

    small = sweep == FEDERATION and not scale.key()
    work = Work(FEDERATED_SCALE if small else scale, results, keep)
    asks = {FLOORS: work.floors, FEDERATION: work.federate} | dict.fromkeys(ATTACKED, work.attack)
    run_cells(sweep, cells, asks.get(sweep, work.train))


if __name__ == "__main__":
    ended(main, "networks.py")
