"""Growth of a training's costs by records, columns, trees, depth and parties, each alone, by real processes.

    python benchmarks/growth.py [--only records columns trees depth parties] [--results benchmarks/growth.jsonl]
    python -m tools.renderers.growth

Each line of the results is one training on generated tables (`large_training.py`): 32 bins, by the lattice, and beside
what is varied `BASE`. Lines that are there are not measured again, so that a run that was interrupted goes on; the
second command draws docs/growth.svg and fills the tables of its page. Linux only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "reproductions"))
from generated_tables import Plan
from large_training import Training, run
from resumable import Results

from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.protocols.key_options import LATTICE

RESULTS = Path(__file__).with_name("growth.jsonl")
#: What is not varied.
BASE: Mapping[str, int] = {"records": 16_000, "columns": 32, "trees": 3, "depth": 3, "parties": 2}
VARIED: Mapping[str, Sequence[int]] = {
    "records": (16_000, 64_000, 256_000),
    "columns": (32, 128, 512),
    "trees": (3, 9, 27),
    "depth": (3, 5, 7),
    "parties": (2, 4, 8),
}
#: Figures of a training that a result keeps.
KEPT = ("wall_s", "cpu_s", "largest_process_mib", "peak_mib", "cpu_s_by_process", "bytes", "load", "product_us")


def trials(only: Sequence[str]) -> list[dict[str, int]]:
    """The trainings to measure, none twice."""
    asked = [{**BASE, name: value} for name in only for value in VARIED[name]]
    return [dict(pairs) for pairs in dict.fromkeys(tuple(trial.items()) for trial in asked)]


def measure(trial: dict[str, int]) -> dict[str, Any]:
    """The result of one training."""
    plan = Plan(trial["records"], trial["columns"], trial["parties"])
    training = Training(plan, trial["trees"], trial["depth"], LATTICE)
    title = ", ".join(f"{value} {name}" for name, value in trial.items())
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder, progress_view.live(title) as show:
        found = run(training, Path(folder), show)
    return {"trial": trial, **{name: found[name] for name in KEPT}}


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(VARIED), default=list(VARIED))
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    given = parser.parse_args()
    results = Results(given.results)
    for trial in trials(given.only):
        if results.get(trial) is None:
            results.add(found := measure(trial))
            seconds = f"{found['wall_s']:.1f} s, CPU {found['cpu_s']:.1f} s"
            terminal.out.print(f"{trial}: {seconds}, load {found['load']:.1f}")


if __name__ == "__main__":
    main()
