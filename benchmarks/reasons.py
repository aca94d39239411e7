"""Reasons on credit default: what differences of scores tell the label holder, and how long they take.

    python benchmarks/reasons.py [--trees 20] [--depth 1 2 3] [--requests 1 10 100] [--columns 2 8 32]

Needs TREETAP_DATA (the folder with credit_default.parquet). Cells: a partner has three columns, the label holder the
others. It knows which splits are of which column and in which order, as directions soon show (the worst case), and
tries all combinations of the partner's bins against score and differences. A cell is a bin as far as the model's splits
tell bins apart; it is read if all combinations that fit have the same one. Seconds: a model of a table of noise, served
by two parties on this host, the partner with so many columns; median of 20 requests for one id.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
from path_decode import HOLDER, LABEL, decide

import treetap
from treetap import terminal
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised import CentralModel, train
from treetap.trees.params import BoostingParams
from treetap.trees.paths import candidate_leaves

PARTNER, ITS, TRAINING = "partner", ("PAY_0", "PAY_AMT1", "BILL_AMT1"), 24_000


def scores(model: CentralModel, tables: dict[str, BinnedTable], n: int) -> npt.NDArray[np.float64]:
    """The scores (n,) of records in bins, in units of the 40 fraction bits that are summed."""
    left, total = partial(decide, model, tables), np.zeros(n)
    for tree in model.ensemble.trees:
        weights = np.round(np.array([leaf.weights[0] for leaf in tree.leaves]) * 2.0**40)
        total += weights[candidate_leaves(tree, n, left).argmax(axis=1)]
    return total


def cells_of(model: CentralModel, partner: BinnedTable) -> list[npt.NDArray[np.int64]]:
    """Of each column the cell of each bin."""
    splits = [split for tree in model.ensemble.trees for split in tree.splits if split.owner == PARTNER]
    found = []
    for j, feature in enumerate(partner.features):
        codes = np.zeros((feature.n_bins, len(ITS)), dtype=partner.codes.dtype)
        codes[:, j] = np.arange(feature.n_bins)
        every = {PARTNER: BinnedTable(codes, partner.features)}
        sides = [decide(model, every, split) for split in splits if model.entry(split)[0].feature == j]
        found.append(np.unique(np.array([*sides, np.zeros(feature.n_bins, bool)]).T, axis=0, return_inverse=True)[1])
    return found


def read(
    model: CentralModel, own: BinnedTable, partner: BinnedTable, median: npt.NDArray[np.int64]
) -> list[npt.NDArray[np.float64]]:
    """Of each record the shares of its cells that the score tells, and that score and differences tell."""
    cells = cells_of(model, partner)
    shape = [int(each.max()) + 1 for each in cells]
    grid = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    first = [np.array([np.flatnonzero(each == cell)[0] for cell in range(each.max() + 1)]) for each in cells]
    codes = np.stack([bins[grid[:, j]] for j, bins in enumerate(first)], axis=1).astype(partner.codes.dtype)
    combined, shares, ways = BinnedTable(codes, partner.features), [], []
    for j, each in enumerate(cells):
        replaced = grid.copy()
        replaced[:, j] = each[median[j]]
        ways.append(np.ravel_multi_index(tuple(replaced.T), shape))
    for record, its in zip(own.codes, partner.codes, strict=True):
        repeated = BinnedTable(np.repeat(record[np.newaxis], len(grid), axis=0), own.features)
        score = scores(model, {HOLDER: repeated, PARTNER: combined}, len(grid))
        truth = np.ravel_multi_index([each[code] for each, code in zip(cells, its, strict=True)], shape)
        by_score = score == score[truth]
        by_all = by_score & np.logical_and.reduce([score[way] == score[way[truth]] for way in ways])
        shares.append(np.array([np.mean(np.ptp(grid[fits], axis=0) == 0) for fits in (by_score, by_all)]))
    return shares


def seconds(columns: int) -> tuple[float, float]:
    """Of a request for one id without and with reasons, medians."""
    rng, n = np.random.default_rng(0), 2000
    x = rng.normal(size=(n, columns + 1))
    y = (x.sum(axis=1) + rng.normal(size=n) > 0).astype(int)
    ids = {"id": [f"r{place:05d}" for place in range(n)]}
    tables = {
        "bank": pd.DataFrame(ids | {"own": x[:, 0], "y": y}),
        PARTNER: pd.DataFrame(ids | {f"c{j}": x[:, 1 + j] for j in range(columns)}),
    }
    with treetap.federation(list(tables), serve=True) as running:
        model = treetap.FederatedClassifier(
            label_holder="bank", n_estimators=20, max_depth=4, scheme="lattice", id_column="id", federation=running
        )
        with model.fit(tables, "y").serve(tables, reasons=True) as served, served.client() as client:
            took: dict[int, list[float]] = {0: [], 4: []}
            for _ in range(20):
                for reasons, times in took.items():
                    began = time.perf_counter()
                    client.predict(["r00007"], reasons=reasons)
                    times.append(time.perf_counter() - began)
    return statistics.median(took[0]), statistics.median(took[4])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--columns", type=int, nargs="*", default=[2, 8, 32])
    given = parser.parse_args()
    data = pd.read_parquet(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet").sample(frac=1, random_state=0)
    blocks = {HOLDER: data.drop(columns=[LABEL, *ITS]), PARTNER: data[list(ITS)]}
    binned = [(name, bin_table(x[:TRAINING].to_numpy(float), list(x.columns), 16)) for name, x in blocks.items()]
    for depth in given.depth:
        params = BoostingParams(n_estimators=given.trees, max_depth=depth)
        model = train(binned, data[LABEL][:TRAINING].to_numpy(), params)
        tried = {
            name: each.encode(blocks[name][TRAINING : TRAINING + max(given.requests)].to_numpy(float))
            for name, each in binned
        }
        typical = blocks[PARTNER][:TRAINING].median().to_numpy(float)[np.newaxis]
        shares = read(model, tried[HOLDER], tried[PARTNER], dict(binned)[PARTNER].encode(typical).codes[0].astype(int))
        means = [np.mean(shares[:n], axis=0) for n in given.requests]
        told = ", ".join(f"{n}: {mean[0]:.0%} and {mean[1]:.0%}" for n, mean in zip(given.requests, means, strict=True))
        terminal.out.print(f"depth {depth}, cells read from scores and with differences after {told}")
    for columns in given.columns:
        terminal.out.print(f"{columns} columns of the partner: seconds without and with reasons {seconds(columns)}")


if __name__ == "__main__":
    main()
