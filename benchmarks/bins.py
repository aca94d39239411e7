"""AUC by treetap's bins, by plain quantiles of all records and by XGBoost's `hist`, with as many bins of each column.

    python benchmarks/bins.py [--max-bin 32] [--tables 10] [--json]

*Drawn* tables: 12 columns, of which 80, 90, 95 or 99 % of the values are zeros and the others have both signs, beside
two without zeros; the label follows signs and sizes. *Public* ones: all tables of TREETAP_DATA, at most 20,000 records
of each, texts by their numbers; the label of appliances is whether they use more than the median. Every second record
trains; AUC is that of the others, of several classes the mean of each against the rest. 30 trees of depth 4, of several
classes 10 for each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import xgboost

from treetap.trees.binning import BinnedTable, FeatureBins, bin_table, encode
from treetap.trees.centralised import train
from treetap.trees.metrics import auc, macro_auc
from treetap.trees.params import BoostingParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SHARES = (0.8, 0.9, 0.95, 0.99)
RECORDS, COLUMNS, DENSE = 20_000, 12, 2
LABELS = {
    "appliances_energy": "Appliances",
    "bank_marketing": "y",
    "credit_default": "default.payment.next.month",
    "fars": "target",
    "give_me_some_credit": "SeriousDlqin2yrs",
    "obesity": "NObeyesdad",
    "pucrio_har_partial": "class",
    "sensorless_drive_subset": "class",
}


def drawn(share: float, seed: int) -> tuple[Floats, Ints]:
    """Columns (N, d) of which a share is zero, and labels (N,)."""
    draw = np.random.default_rng([seed, round(share * 100)])
    x = draw.choice([-1.0, 1.0], (RECORDS, COLUMNS)) * draw.lognormal(size=(RECORDS, COLUMNS))
    x[draw.random(x.shape) < share] = 0.0
    dense = draw.normal(size=(RECORDS, DENSE))
    score = np.sign(x) @ draw.normal(size=COLUMNS) + np.sign(x) * np.log1p(np.abs(x)) @ draw.normal(size=COLUMNS)
    score += dense @ draw.normal(size=DENSE)
    return np.hstack([x, dense]), (score + draw.logistic(size=RECORDS) > 0).astype(np.int64)


def public(name: str) -> tuple[Floats, Ints]:
    """Columns and classes of a table, every record of one class or, of a large table, a draw of all."""
    table, draw = pq.read_table(Path(os.environ["TREETAP_DATA"]) / f"{name}.parquet"), np.random.default_rng(0)
    table = table.take(draw.permutation(table.num_rows)[:RECORDS])
    columns = []
    for cells in table.columns:
        held = cells.to_pylist()
        texts = {text: code for code, text in enumerate(sorted({cell for cell in held if isinstance(cell, str)}))}
        columns.append(np.array([texts.get(cell, cell) for cell in held], dtype=np.float64))
    x = np.stack(columns, axis=1)
    label = table.column_names.index(LABELS[name])
    y = x[:, label] > np.median(x[:, label]) if name == "appliances_energy" else x[:, label]
    return np.delete(x, label, axis=1), np.unique(y, return_inverse=True)[1]


def by_quantiles(x: Floats, most: int) -> list[FeatureBins]:
    """Bins of plain quantiles: the k-th ends with the first value that k/`most` of the records do not exceed."""
    found = []
    for column in x.T:
        present, count = np.unique(column[~np.isnan(column)], return_counts=True)
        last = np.arange(len(present) - 1)
        if len(present) > most:
            last = np.unique(np.searchsorted(np.cumsum(count) * most, np.arange(1, most) * count.sum()))
            last = last[last < len(present) - 1]
        found.append(FeatureBins((present[last] + present[last + 1]) / 2, bool(np.isnan(column).any())))
    return found


def compared(x: Floats, y: Ints, most: int) -> dict[str, float]:
    """The AUC of each on the second half of the records."""
    classes, half = int(y.max()) + 1, np.arange(len(y)) % 2 == 0
    objective = "binary:logistic" if classes == 2 else "multi:softprob"
    rounds = 30 if classes == 2 else 10
    params = BoostingParams(objective=objective, n_estimators=rounds, max_depth=4, max_bin=most, learning_rate=0.3)
    names = [str(column) for column in range(x.shape[1])]
    tables = {
        "treetap": bin_table(x[half], names, most, may_be_constant=names),
        "quantiles": encode(x[half], by_quantiles(x[half], most)),
    }
    found = {name: _auc(_scores(table, x[~half], y[half], params, classes), y[~half]) for name, table in tables.items()}
    settings = {
        "objective": objective,
        "max_depth": 4,
        "eta": 0.3,
        "max_bin": most,
        "tree_method": "hist",
        "nthread": 1,
    }
    settings |= {"base_score": 0.5, "min_child_weight": params.min_child_weight}
    settings |= {"num_class": classes} if classes > 2 else {}
    booster = xgboost.train(settings, xgboost.DMatrix(x[half], y[half]), rounds)
    theirs = booster.predict(xgboost.DMatrix(x[~half]), output_margin=True).reshape(len(y) - half.sum(), -1)
    return {**found, "xgboost": _auc(theirs, y[~half])}


def _scores(table: BinnedTable, new: Floats, y: Ints, params: BoostingParams, classes: int) -> Floats:
    model = train([("party", table)], y, params, classes)
    return model.predict([("party", table.encode(new))])


def _auc(scores: Floats, y: Ints) -> float:
    if scores.shape[1] == 1:
        return auc(scores[:, 0], y == 1)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return macro_auc(odds / odds.sum(axis=1, keepdims=True), y)


def measured(most: int, count: int) -> Iterator[dict[str, str | float]]:
    """A row for each table."""
    for share in SHARES:
        for seed in range(count):
            yield {"table": f"{share:.0%} zeros", "seed": seed, **compared(*drawn(share, seed), most)}
    for name in LABELS if "TREETAP_DATA" in os.environ else ():
        yield {"table": name, "seed": 0, **compared(*public(name), most)}


def main() -> None:
    """Print a line of JSON for each table, or means of those of one kind and the range of differences from XGBoost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-bin", type=int, default=32)
    parser.add_argument("--tables", type=int, default=10, help="drawn tables of each share of zeros")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for row in measured(asked.max_bin, asked.tables):
        rows.append(row)
        if asked.json:
            print(json.dumps(row), flush=True)
    if asked.json:
        return
    for table in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == table]
        means = {way: statistics.fmean(float(row[way]) for row in own) for way in ("treetap", "quantiles", "xgboost")}
        apart = [float(row["treetap"]) - float(row["xgboost"]) for row in own]
        line = ", ".join(f"{way} {mean:.4f}" for way, mean in means.items())
        print(f"{table:24} {line}; treetap less xgboost {min(apart):+.4f} to {max(apart):+.4f}")


if __name__ == "__main__":
    main()
