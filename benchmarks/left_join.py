"""Processor time of a label holder whose K partners each lack records: join = "left" beside "inner", on a lattice.

    python benchmarks/left_join.py [--partners 1 2 4] [--records 10000] [--lacks 0.4] [--privacy published] [--repeat 3]

From the left each partner has a query of its own, with other secrets; with "inner" one goes to all. Columns are drawn,
five at each party; 5 trees of depth 3, 32 bins. CPU is the label holder's for a training of nine tenths of the records
and a prediction of the others, alignment included. With "inner" no partner lacks any.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from treetap import terminal
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.run import run_seed

HOLDER, OWN = "bank", 5


def cpu(join: str, partners: int, given: argparse.Namespace, folder: Path) -> float:
    """Seconds of the label holder in one run."""
    draw, names = np.random.default_rng(partners), [HOLDER, *(f"partner-{k}" for k in range(partners))]
    columns = {f"{name}_{j}": draw.normal(size=given.records) for name in names for j in range(OWN)}
    label = sum(columns.values()) > 0
    pq.write_table(pa.table({**columns, "y": np.asarray(label, dtype=np.int64)}), folder / "t.parquet")
    lacks = given.lacks if join == "left" else 0.0
    parties = [
        {"name": name, "columns": [f"{name}_*"], **({"labels": True} if name == HOLDER else {"lacks": lacks})}
        for name in names
    ]
    tree = {"n_estimators": 5, "max_depth": 3, "max_bin": 32}
    job = {"scheme": "lattice", "alignment": "psi", "privacy": given.privacy, "join": join, **tree}
    data = {"path": "t.parquet", "label": "y", "test_share": 0.1, "compare": False}
    experiment = ExperimentFile.model_validate({"data": data, "party": parties, "job": job, "audit": {"run": False}})
    return run_seed(experiment, read_table(experiment, folder), 0, folder / "run").cpu_seconds[HOLDER]


def main() -> None:
    """Print medians by number of partners."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partners", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--lacks", type=float, default=0.4, help="share of the records that each partner lacks")
    parser.add_argument("--privacy", default="published")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    table = Table("partners", "inner, CPU s", "left, CPU s", title=f"load {os.getloadavg()[0]:.1f}")
    for partners in given.partners:
        cells = []
        for join in ("inner", "left"):
            with tempfile.TemporaryDirectory(prefix="treetap-bench-") as held:
                places = [Path(held) / str(number) for number in range(given.repeat)]
                for place in places:
                    place.mkdir()
                cells.append(statistics.median(cpu(join, partners, given, place) for place in places))
        table.add_row(str(partners), *(f"{value:.2f}" for value in cells))
    terminal.out.print(table)


if __name__ == "__main__":
    main()
