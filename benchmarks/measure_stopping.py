"""Bits that the time of a stop by `max_column_leakage` tells of the columns: figures of docs/threats.md.

    TREETAP_DATA=FOLDER python benchmarks/measure_stopping.py

A job stops before the sums that would let more than a share L of a feature party's cells be read. The moment depends on
the columns, so that its tree and stage tell of them. Here the label holder's table, the labels and the job are fixed,
and the party's table is drawn from a family: the stop is a function of the table, and the entropy of the stop is its
mutual information with the table. Trees are those of the centralised trainer, which the federation equals.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from sklearn.datasets import load_breast_cancer

from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised import train
from treetap.trees.ensemble import ROOT
from treetap.trees.params import BoostingParams
from treetap.trees.small_groups import cells_of_sums
from treetap.trees.tree_bins import Bins, GlobalBins, left_sums_of

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: (tree, stage) before whose sums a job stops; None: it does not.
Stop = tuple[int, int] | None
LIMITS = (0.05, 0.1, 0.2, 0.4)
TABLES = 100


class Passed(Exception):
    """The largest limit is passed: nothing further is measured."""


class Stops:
    """Counts a party's cells while trees grow, and notes at which sums each limit would be passed."""

    def __init__(self, columns: BinnedTable) -> None:
        self.of: dict[float, Stop] = dict.fromkeys(LIMITS)
        self._columns, self._counted = columns, np.zeros(columns.codes.shape, dtype=bool)
        self._spaces: dict[int, Rows] = {}
        self._tree = self._stage = -1

    def sums(self, bins: Bins, values: Any, nodes: Sequence[int], rows: Sequence[Rows]) -> Any:
        """The trainer's sums over nodes, which are counted if they are of this party's columns."""
        if isinstance(bins, GlobalBins) and bins.all_codes is self._columns.codes:
            self._count(bins, nodes, rows)
        return left_sums_of(bins, values, nodes, rows)

    def _count(self, bins: Bins, nodes: Sequence[int], rows: Sequence[Rows]) -> None:
        self._stage += 1
        if nodes[0] == ROOT:
            self._tree, self._stage, self._spaces = self._tree + 1, 0, {}
        self._spaces |= dict(zip(nodes, rows, strict=True))
        for node in nodes:
            if node != ROOT and node ^ 1 not in self._spaces:
                self._spaces[node ^ 1] = np.setdiff1d(self._spaces[node >> 1], self._spaces[node])
        for column, cells in cells_of_sums(bins, nodes, self._spaces, np.ones(len(self._counted), dtype=bool)):
            self._counted[cells, column] = True
        share = self._counted.mean()
        for limit, stop in self.of.items():
            if stop is None and share > limit:
                self.of[limit] = self._tree, self._stage
        if None not in self.of.values():
            raise Passed


def stops(own: Floats, theirs: Floats, y: Rows, params: BoostingParams) -> dict[float, Stop]:
    """The stop for each limit; `own` (N, d), `theirs` (N, D), labels `y` (N,)."""
    bank, shop = (bin_table(part, [str(j) for j in range(part.shape[1])], params.max_bin) for part in (own, theirs))
    counting = Stops(shop)
    with patch("treetap.trees.grower.left_sums_of", counting.sums), suppress(Passed):
        train([("bank", bank), ("shop", shop)], y, params)
    return counting.of


def families(theirs: Floats, rng: np.random.Generator) -> Iterator[tuple[str, list[Floats]]]:
    """Families of tables (N, D): what is drawn, and draws of it."""
    n, d = theirs.shape
    yield "the values of one record", [_with_one(theirs, *rng.integers(0, n, 2)) for _ in range(TABLES)]
    yield "which half of the columns", [theirs[:, rng.permutation(d)[: d // 2]] for _ in range(TABLES)]
    yield "whose record is whose", [theirs[rng.permutation(n)] for _ in range(TABLES)]


def _with_one(table: Floats, record: int, values_of: int) -> Floats:
    changed = table.copy()
    changed[record] = table[values_of]
    return changed


def _credit() -> tuple[Floats, Rows]:
    """The first 5,000 records of credit_default: 23 columns, and labels."""
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet").slice(0, 5000)
    *columns, label = [table.column(name).to_numpy() for name in table.column_names if name.lower() != "id"]
    return np.column_stack(columns).astype(np.float64), label.astype(np.int64)


def entropy(outcomes: Sequence[Stop]) -> float:
    """In bits, plug-in."""
    share = np.array(list(Counter(outcomes).values())) / len(outcomes)
    return abs(float((share * np.log2(share)).sum()))


def main() -> None:
    """Print a line for each table, family and limit."""
    X, y = load_breast_cancer(return_X_y=True)
    for name, table, labels, half in (("breast cancer", X, y, 10), ("credit default", *_credit(), 11)):
        for family, drawn in families(table[:, half:], np.random.default_rng(1)):
            ends = [stops(table[:, :half], theirs, labels, BoostingParams(n_estimators=30)) for theirs in drawn]
            for limit in LIMITS:
                at = [end[limit] for end in ends]
                most = Counter(at).most_common(1)[0]
                told = f"{entropy(at):5.2f} bits  {len(set(at)):3} stops, most often {most}"
                print(f"{name}  {family:26}  L = {limit:4}  {told}", flush=True)


if __name__ == "__main__":
    main()
