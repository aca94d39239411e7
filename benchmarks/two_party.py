"""Credit default, 30,000 records, two parties with 12 and 11 columns, 5 trees of depth 3: a whole training.

    python benchmarks/two_party.py [--scheme NAME] [--arithmetic gmpy2 auto …] [--repeat 3] [--json]
    python benchmarks/two_party.py growth [--records 30000 100000 300000 1000000] [--trees 5] [--out FILE] [--json]

Needs TREETAP_DATA (the folder with credit_default.parquet) and the `bench` extra. 32 bins, learning rate 0.3, λ 1, keys
of 2048 bits, Paillier by default, `short-exponent`, `sorted-ids`. The names after --arithmetic, gmpy2 and auto by
default, are measured in turn, with ratios to gmpy2; docs/deploy.md lists them. Wall: prepare, bin, train, publish. CPU:
all processes, the whole job with keys. Both are also scaled to a product of gmpy2 modulo 4,096 bits of 4.15 µs, which
is measured before each.

`growth` trains on more records and draws seconds and memory. They are made from the same table: drawn from it with
repetition by seed 0, and to each number of a column with more than 32 different ones some noise is added (normal, a
twentieth of the column's standard deviation), so that bins are as full as the table's and hold different numbers. The
table's own records come first.
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

from treetap import terminal
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
OUT = Path("runs/training-growth.svg")
COLORS = {"gmpy2": "#2166ac", "ifma": "#b2182b", "avx512": "#ef8a62", "avx2": "#1b7837", "plain": "#762a83"}


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


def run(given: argparse.Namespace, records: int, trees: int) -> list[dict[str, Any]]:
    """Trainings on `records` records by each backend."""
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet")
    columns = [name for name in table.column_names if name not in ("ID", LABEL)]
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
        path = Path(folder) / "table.parquet"
        pq.write_table(grown(table.select([*columns, LABEL]), records + HELD_OUT), path)
        experiment = setting(path, columns, records, trees, given.scheme)
        joined = read_table(experiment, Path())
        return [
            {"trees": trees, **measured(experiment, joined, backend)}
            for _ in range(given.repeat)
            for backend in backends(given.arithmetic)
        ]


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Seconds by records, on logarithmic axes beside a line of slope 1 through the first CPU seconds, and MiB."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    times, memory = figure.subplots(1, 2)
    trees = runs[0]["trees"]
    for backend in dict.fromkeys(run["arithmetic"] for run in runs):
        some = sorted((run for run in runs if run["arithmetic"] == backend), key=lambda run: int(run["records"]))
        records, color = [run["records"] for run in some], COLORS[backend]
        for what, name, style in (("CPU", "cpu_s", "o-"), ("wall", "wall_s", "s--")):
            times.plot(records, [run[name] for run in some], style, color=color, label=f"{what}, {backend}")
        slope = some[0]["cpu_s"] / records[0]
        times.plot(records, [slope * count for count in records], ":", color="#777777", label="linear")
        for party, style in ((FEATURE_PARTY, "o-"), (LABEL_HOLDER, "s--")):
            sums = [run["party_mb"][party] for run in some]
            memory.plot(records, sums, style, color=color, label=f"{party}, all processes, {backend}")
        largest = [run["largest_process_mb"] for run in some]
        memory.plot(records, largest, "^:", color=color, label=f"largest process, {backend}")
    times.set(
        xscale="log", yscale="log", xlabel="records", ylabel=f"seconds, {trees} {'trees' if trees > 1 else 'tree'}"
    )
    memory.set(xlabel="records", ylabel="MiB", ylim=(0, None))
    times.set_xticks(records, [f"{count / 1000:,.0f} k" for count in records], minor=False)
    times.minorticks_off()
    memory.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} k")
    for axes in (times, memory):
        axes.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["training", "growth"], default="training")
    add_arithmetic(parser)
    parser.add_argument("--scheme", choices=list(SCHEMES), default=PAILLIER)
    parser.add_argument("--records", nargs="+", type=int, default=[30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--trees", type=int, default=5)
    parser.add_argument("--repeat", type=int, help="runs of each; 3 of the training, 1 of growth unless told")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help=f"the picture of growth (default: {OUT})")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("two_party: set TREETAP_DATA to the folder with credit_default.parquet")
    grows = given.what == "growth"
    given.repeat = given.repeat or (1 if grows else 3)
    runs = [one for records in (given.records if grows else [RECORDS]) for one in run(given, records, given.trees)]
    if grows:
        draw(runs, given.out)
    if given.as_json:
        picture = str(given.out) if grows else None
        print(json.dumps({"machine": machine(given.arithmetic), "runs": runs, "picture": picture}, indent=1))
        return
    print_machine(given.arithmetic)
    print_medians(runs, ("records", "trees", "arithmetic"))
    if grows:
        terminal.out.print(f"picture: {given.out}")


if __name__ == "__main__":
    main()
