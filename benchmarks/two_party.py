"""Credit default, 30,000 records, two parties with 12 and 11 columns, 5 trees of depth 3: a whole training.

    python benchmarks/two_party.py [--scheme NAME] [--arithmetic gmpy2 auto …] [--repeat 3] [--json]

Needs TREETAP_DATA (the folder with credit_default.parquet) and the `bench` extra. 32 bins, learning rate 0.3, λ 1, keys
of 2048 bits, Paillier by default, `short-exponent`, `sorted-ids`. The names after --arithmetic, gmpy2 and auto by
default, are measured in turn, with ratios to gmpy2; docs/deploy.md lists them. Wall: prepare, bin, train, publish. CPU:
all processes, the whole job with keys. Both are also scaled to a product of gmpy2 modulo 4,096 bits of 4.15 µs, which
is measured before each.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from backends import add_arithmetic, backends, machine, print_machine
from measured_trainings import measured, print_medians

from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table
from treetap.protocols.key_options import LATTICE, PAILLIER, SCHEMES

LABEL = "default.payment.next.month"
LABEL_HOLDER, FEATURE_PARTY = "label-holder", "feature-b"
#: Columns of the label holder, the first of the table; the feature party has the other 11.
OWN = 12
RECORDS = 30_000
#: Records beside those to train on: an experiment holds some out.
HELD_OUT = 1000
NOISE, FEW = 0.05, 32


def setting(path: Path, columns: list[str], records: int, trees: int, scheme: str = PAILLIER) -> ExperimentFile:
    """The federation that trains on `records` records of the table in a file."""
    parties = {LABEL_HOLDER: columns[:OWN], FEATURE_PARTY: columns[OWN:]}
    return ExperimentFile.model_validate(
        {
            "data": {"path": str(path), "label": LABEL, "test_share": HELD_OUT / (records + HELD_OUT)},
            "party": [{"name": name, "columns": own, "labels": name == LABEL_HOLDER} for name, own in parties.items()],
            "job": {
                "n_estimators": trees,
                "max_depth": 3,
                "max_bin": 32,
                "learning_rate": 0.3,
                "reg_lambda": 1.0,
                **({} if scheme == LATTICE else {"key_bits": 2048, "obfuscation": "short-exponent"}),
                "scheme": scheme,
                "alignment": "sorted-ids",
            },
        }
    )


def grown(table: pa.Table, records: int) -> pa.Table:
    """The table with further records, drawn from it and changed a little, or its first ones."""
    more = max(0, records - table.num_rows)
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.arange(min(records, table.num_rows)), rng.integers(0, table.num_rows, more)])
    columns = {}
    for name in table.column_names:
        values = table.column(name).to_numpy()
        drawn = values[rows]
        if name != LABEL and len(np.unique(values)) > FEW:
            drawn = drawn.astype(np.float64)
            drawn[records - more :] += rng.normal(0.0, NOISE * values.std(), more)
        columns[name] = drawn
    return pa.table(columns)


def run(given: argparse.Namespace, records: int) -> list[dict[str, Any]]:
    """Trainings on `records` records by each backend."""
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet")
    columns = [name for name in table.column_names if name not in ("ID", LABEL)]
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
        path = Path(folder) / "table.parquet"
        pq.write_table(grown(table.select([*columns, LABEL]), records + HELD_OUT), path)
        experiment = setting(path, columns, records, given.trees, given.scheme)
        return [
            {"trees": given.trees, **measured(experiment, read_table(experiment, Path()), backend)}
            for _ in range(given.repeat)
            for backend in backends(given.arithmetic)
        ]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arithmetic(parser)
    parser.add_argument("--scheme", choices=list(SCHEMES), default=PAILLIER)
    parser.add_argument("--trees", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("two_party: set TREETAP_DATA to the folder with credit_default.parquet")
    runs = run(given, RECORDS)
    if given.as_json:
        print(json.dumps({"machine": machine(given.arithmetic), "runs": runs}, indent=1))
        return
    print_machine(given.arithmetic)
    print_medians(runs, ("records", "trees", "arithmetic"))


if __name__ == "__main__":
    main()
