"""Cells of other parties' columns that each party of a PIVODL job reads: figures of measured/pivodl-columns.md.

    python benchmarks/pivodl_columns.py [--set breast_cancer credit] [--records 5000] [--parties 3] [--trees 20]
        [--depth 3] [--bins 32] [--threshold 10] [--json]

breast_cancer comes with scikit-learn; credit needs TREETAP_DATA (the folder with credit_default.parquet), of which the
first --records are taken. Columns go to the parties in equal runs, each label to one of them at random. All parties run
in one process, by the simulator of the tests, whose cipher hides nothing and changes no plaintext message; they keep
their transcripts with `record_sums`. The attack is `source_columns` of `treetap audit`, on each party's transcript.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
from treetap import terminal
from treetap.attacks.pivodl.evidence import SharedLabelEvidence, source_columns
from treetap.lab.local_federation import working_folder
from treetap.tables.labels import Labels
from treetap.trees.binning import bin_table
from treetap.trees.pivodl_params import PivodlParams

HEADS = (
    *("set", "reader", "source", "bins received", "by left sets", "by all", "wrong of claims"),
    *("sums opened", "told apart", "best rank correlation", "CPU s"),
)


def table_of(name: str, records: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Columns (N, d) and labels 0 and 1 (N,) of a set's first records."""
    if name == "breast_cancer":
        from sklearn import datasets

        inputs, labels = datasets.load_breast_cancer(return_X_y=True)
        return inputs[:records], labels[:records].astype(np.int64)
    if "TREETAP_DATA" not in os.environ:
        sys.exit("pivodl_columns: set TREETAP_DATA to the folder with credit_default.parquet")
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet").slice(0, records)
    *columns, label = table.column_names
    inputs = np.stack([table.column(column).to_numpy() for column in columns], axis=1).astype(np.float64)
    return inputs, table.column(label).to_numpy().astype(np.int64)


def measured(name: str, records: int, parties: int, params: PivodlParams) -> list[dict[str, Any]]:
    """Train, and attack from each party's transcript; a row for each reader and source."""
    worlds, pivodl = import_module("tests.worlds"), import_module("tests.attacks.pivodl")
    inputs, labels = table_of(name, records)
    blocks = [inputs[:, part] for part in np.array_split(np.arange(inputs.shape[1]), parties)]
    ids, tables = [f"r{i:05d}" for i in range(len(labels))], {}
    for party, block in zip(worlds.SIX, blocks, strict=False):
        columns = [f"x{j}" for j in range(block.shape[1])]
        table = pa.table({"id": ids, **dict(zip(columns, block.T, strict=True))})
        tables[party] = (columns, {"train": table})
    here = worlds.World(tables, blocks, labels, blocks, 2)
    here = worlds.spread(here, np.random.default_rng(0).integers(0, parties, len(labels)))
    with working_folder(None, "treetap-") as folder:
        views = pivodl.views(pivodl.trained(folder, here, params, people={"record_sums": True}))
    truth = {
        party: bin_table(block, [str(j) for j in range(block.shape[1])], params.max_bin).codes.astype(np.int64)
        for party, block in here.parties
    }
    rows = []
    for reader, view in views.items():
        begun = time.process_time()
        evidence = SharedLabelEvidence(view.pivodl, view.records, None, Labels(labels, ["0", "1"]), {}, truth)
        read = source_columns(evidence)
        used = time.process_time() - begun
        for source, figures in read.sources.items():
            rows.append({"set": name, "reader": reader, "source": source, **figures.plain(), "cpu_seconds": used})
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    """The figures for a person."""
    table = terminal.table(*HEADS)
    for row in rows:
        cells, every = row["cells"], row["cells"] + row["received"]
        table.add_row(
            *(row["set"], row["reader"], row["source"], f"{row['received'] / every:.0%}"),
            *(f"{row['by_left_sets'] / cells:.2%}", f"{row['placed'] / cells:.2%}"),
            *(f"{row['wrong']} of {row['placed']}", f"{row['opened']:,}", str(row["linked"])),
            *(
                "–" if row["rank_correlation"] is None else f"{row['rank_correlation']:.2f}",
                f"{row['cpu_seconds']:.0f}",
            ),
        )
    terminal.out.print(table)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ("breast_cancer", "credit")
    parser.add_argument("--set", nargs="+", default=list(sets), choices=sets, dest="sets")
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--parties", type=int, default=3)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--threshold", type=int, default=10)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    params = PivodlParams(
        n_estimators=given.trees, max_depth=given.depth, max_bin=given.bins, instance_threshold=given.threshold
    )
    rows = [row for name in given.sets for row in measured(name, given.records, given.parties, params)]
    if given.as_json:
        print(json.dumps({"params": params.to_dict(), "rows": rows}, indent=1))
    else:
        report(rows)


if __name__ == "__main__":
    main()
