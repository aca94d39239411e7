"""AUC, or RMSE, on held-out records by boosting whose g and h have few bits, beside exact ones.

    python benchmarks/gradient_bits.py [--set breast_cancer diabetes credit obesity] [--bits 5 3 2] [--draws 10]
        [--trees 100] [--depth 6] [--records 5000] [--json]

breast_cancer and diabetes (RMSE) come with scikit-learn; credit and obesity (macro AUC of seven classes, text by its
place in the alphabet) need TREETAP_DATA, the folder with credit_default.parquet and obesity.parquet. A draw sets a
fifth of the records aside and seeds the rounding; exact numbers and those of each number of bits are trained on the
same records by the centralised trainer, whose trees are the federation's, with the job's defaults. The difference is
the mean over draws, with its standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from treetap import terminal
from treetap.trees import metrics
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

Floats = npt.NDArray[np.float64]
#: Tables of TREETAP_DATA by name: file, label.
FILES = {
    "credit": ("credit_default.parquet", "default.payment.next.month"),
    "obesity": ("obesity.parquet", "NObeyesdad"),
}
SETS = ("breast_cancer", "diabetes", *FILES)
PARTIES = ("label-holder", "feature-party")


def numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column as numbers: text by its place in the alphabet."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)[1]
    return np.asarray(column.to_numpy())


def table_of(name: str, records: int) -> tuple[Floats, npt.NDArray[Any], str]:
    """Columns (N, d), labels (N,) and objective of a set, of at most so many records."""
    from sklearn import datasets

    if name == "breast_cancer":
        return *datasets.load_breast_cancer(return_X_y=True), "binary:logistic"
    if name == "diabetes":
        return *datasets.load_diabetes(return_X_y=True), "reg:squarederror"
    if "TREETAP_DATA" not in os.environ:
        sys.exit("gradient_bits: set TREETAP_DATA to the folder with credit_default.parquet and obesity.parquet")
    file, label = FILES[name]
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / file).slice(0, records)
    columns = [numbers(table.column(column)) for column in table.column_names if column != label]
    labels = numbers(table.column(label)).astype(np.int64)
    return (
        np.stack(columns, axis=1).astype(np.float64),
        labels,
        "multi:softprob" if labels.max() > 1 else "binary:logistic",
    )


def scored(inputs: Floats, labels: npt.NDArray[Any], held_out: npt.NDArray[np.bool_], params: BoostingParams) -> float:
    """AUC or RMSE of the records that are held out; each party has half of the columns."""
    half = inputs.shape[1] // 2
    parts = dict(zip(PARTIES, (inputs[:, :half], inputs[:, half:]), strict=True))
    bins = {
        party: bin_table(part[~held_out], [str(place) for place in range(part.shape[1])], params.max_bin)
        for party, part in parts.items()
    }
    classes = int(labels.max()) + 1 if params.objective == "multi:softprob" else 2
    model = train(list(bins.items()), labels[~held_out], params, classes)
    scores = model.predict([(party, bins[party].encode(part[held_out])) for party, part in parts.items()])
    measured = metrics.evaluate(params.objective, model.ensemble.outcome(scores), labels[held_out])
    return measured["rmse" if params.objective == "reg:squarederror" else "auc"]


def compare(name: str, bits: list[int], draws: int, records: int, params: BoostingParams) -> dict[str, Any]:
    """The figures of a set: of exact numbers, and of each number of bits."""
    inputs, labels, objective = table_of(name, records)
    rows = []
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        held_out = np.zeros(len(labels), dtype=bool)
        held_out[rng.permutation(len(labels))[: len(labels) // 5]] = True
        own = replace(params, objective=objective, seed=draw)
        rows.append([scored(inputs, labels, held_out, replace(own, gradient_bits=few)) for few in (None, *bits)])
    measured = np.array(rows)
    differences = measured[:, 1:] - measured[:, :1]
    return {
        "set": name,
        "records": len(labels),
        "measure": "RMSE" if objective == "reg:squarederror" else "AUC",
        "exact": float(measured[:, 0].mean()),
        "bits": {
            few: {
                "difference": float(own.mean()),
                "error": float(own.std(ddof=1) / np.sqrt(draws)) if draws > 1 else None,
            }
            for few, own in zip(bits, differences.T, strict=True)
        },
    }


def report(rows: list[dict[str, Any]]) -> None:
    """The figures for a person."""
    bits = list(rows[0]["bits"])
    table = terminal.table("set", "records", "measure", "exact", *(f"{few} bits" for few in bits))
    for row in rows:
        cells = []
        for own in row["bits"].values():
            error = "" if own["error"] is None else f" ± {own['error']:.4f}"
            cells.append(f"{own['difference']:+.4f}{error}")
        table.add_row(row["set"], f"{row['records']:,}", row["measure"], f"{row['exact']:.4f}", *cells)
    terminal.out.print(table)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", default=list(SETS), choices=SETS, dest="sets")
    parser.add_argument("--bits", nargs="+", type=int, default=[5, 3, 2])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--records", type=int, default=5000, help="of credit and obesity, at most")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    params = BoostingParams(n_estimators=given.trees, max_depth=given.depth)
    rows = [compare(name, given.bits, given.draws, given.records, params) for name in given.sets]
    if given.as_json:
        print(json.dumps({"trees": given.trees, "depth": given.depth, "draws": given.draws, "rows": rows}, indent=1))
    else:
        report(rows)


if __name__ == "__main__":
    main()
