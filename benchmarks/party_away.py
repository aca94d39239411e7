"""Credit default while a feature party is away: test AUC with and without it, and with party-wise dropout in training.

    python benchmarks/party_away.py [--trees 100] [--depth 4] [--dropout 0.2 0.5] [--seeds 5] [--json]

Needs TREETAP_DATA (the folder with credit_default.parquet). The models are the centralised trainer's, which the
federation's equal split for split, dropouts included; predictions without a party are those that the label holder makes
of the same covers (treetap/trees/paths.py). So nothing is encrypted here and the figures are the federation's.

The label holder has the five columns about the person, `status` the six of repayment status, `amounts` the twelve of
bills and payments. A fifth of the records, drawn per class and afresh for each seed, is for the test.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from tests.library.trees.absent import scores_without
from treetap import terminal
from treetap.trees import metrics
from treetap.trees.binning import bin_table
from treetap.trees.centralised import Tables, train
from treetap.trees.params import BoostingParams

LABEL = "default.payment.next.month"
HOLDER = "label-holder"
COLUMNS = {
    HOLDER: ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"],
    "status": ["PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"],
    "amounts": [f"{kind}_AMT{month}" for kind in ("BILL", "PAY") for month in range(1, 7)],
}
Floats = npt.NDArray[np.float64]
#: (how it was trained, who is there when it predicts) → AUC by seed.
Found = dict[tuple[str, str], list[float]]


class World:
    """One draw of training and test records, in the bins of the training ones."""

    def __init__(self, seed: int, params: BoostingParams) -> None:
        table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet")
        labels = table.column(LABEL).to_numpy()
        draw = np.random.default_rng(seed)
        test = np.zeros(len(labels), dtype=bool)
        for label in np.unique(labels):
            rows = np.flatnonzero(labels == label)
            test[draw.choice(rows, size=len(rows) // 5, replace=False)] = True
        self.y, self.truth = labels[~test], labels[test]
        self.training: list[Any] = []
        self.test: list[Any] = []
        for party, names in COLUMNS.items():
            raw = np.stack([table.column(name).to_numpy() for name in names], axis=1).astype(np.float64)
            binned = bin_table(raw[~test], names, params.max_bin)
            self.training.append((party, binned))
            self.test.append((party, binned.encode(raw[test])))

    def auc(self, scores: Floats) -> float:
        """Of the test records; the order of the scores is all that counts."""
        return metrics.evaluate("binary:logistic", 1 / (1 + np.exp(-scores[:, 0])), self.truth)["auc"]


def _of(tables: Tables, parties: Sequence[str]) -> Tables:
    return [(name, table) for name, table in tables if name in parties]


def measure(seed: int, params: BoostingParams, dropout: Sequence[float]) -> Iterator[tuple[tuple[str, str], float]]:
    """One seed: how it was trained, who is there, AUC."""
    world, everybody, others = World(seed, params), list(COLUMNS), list(COLUMNS)[1:]
    for rate in (0.0, *dropout):
        shares = dict.fromkeys(others, rate)
        changed = BoostingParams(**{**vars(params), "seed": seed, "party_dropout": shares})
        model = train(world.training, world.y, changed)
        for gone in ([], *([party] for party in others), others):
            there = [party for party in everybody if party not in gone]
            scores, _ = scores_without(model.ensemble, *model.router(_of(world.test, there)), gone)
            yield (f"by all, dropout {rate:g}", " + ".join(there)), world.auc(scores)
    for there in ([HOLDER, "amounts"], [HOLDER, "status"], [HOLDER]):
        model = train(_of(world.training, there), world.y, params)
        yield ("by those who are there", " + ".join(there)), world.auc(model.predict(_of(world.test, there)))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, nargs="*", default=[0.2, 0.5])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    params = BoostingParams(n_estimators=options.trees, max_depth=options.depth, learning_rate=options.learning_rate)
    found: Found = defaultdict(list)
    for seed in range(options.seeds):
        for key, auc in measure(seed, params, options.dropout):
            found[key].append(auc)
    if options.json:
        rows = [{"trained": trained, "there": there, "auc": each} for (trained, there), each in found.items()]
        print(json.dumps({"seeds": options.seeds, "params": vars(params), "rows": rows}, indent=1, default=str))
        return 0
    table = terminal.table("trained", "there when it predicts", "test AUC", "lowest", "highest")
    for (trained, there), each in found.items():
        table.add_row(trained, there, *(f"{value:.4f}" for value in (statistics.mean(each), min(each), max(each))))
    terminal.out.print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
