"""What partners' columns add to an own score's AUC beside what a screening says, and LOW and HIGH of its interval.

    python benchmarks/screening.py

Ten tables of two classes, or the most frequent one against the others, at most 8,000 records. Of each, columns are
dealt to a label holder and a partner at random, eight times. The truth is the AUC out of fold of a model of both's
columns less that of the label holder's. LOW and HIGH leave 1 in 100 of the partners in whom something is found outside
at either end; *covered*: how often intervals by those of the nine other tables hold the truth. Some ten minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from beaten_tables import table_of
from bins import LABELS, Floats, Ints, public

from treetap.trees import screening
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.metrics import auc
from treetap.trees.screening import (
    NINE_IN_TEN,
    Own,
    cells_of,
    column_of,
    distance,
    own_of,
    own_scores,
    screened,
    squared,
    values_of,
)
from treetap.trees.tree_bins import GlobalBins, left_sums_of


class Row(NamedTuple):
    """A partner in whom something is found; `area`: of a model with its columns."""

    table: str
    own: Own
    gain: float
    error: float
    area: float


def measured(name: str, columns: Floats, labels: Ints) -> Iterator[Row]:
    """Draws of a table's records and columns, (N, d)."""
    draw, bad = np.random.default_rng(7), labels != np.bincount(labels).argmax()
    for split in range(8):
        rows = draw.permutation(len(labels))[: (1500, 3000, 5000, 8000)[split % 4]]
        order, y = draw.permutation(columns.shape[1]), bad[rows].astype(np.int64)
        held = int(draw.integers(2, max(3, int(0.6 * len(order)))))
        dealt = order[: held + int(draw.integers(1, len(order) - held + 1))]
        both = bin_table(columns[rows][:, dealt], (names := [*map(str, range(len(dealt)))]), 32, may_be_constant=names)
        second = GlobalBins(both, np.arange(held, len(dealt)))
        scores = own_scores(BinnedTable(both.codes[:, :held], both.features[:held]), y)
        values = values_of(scores, y)
        own, sums = own_of(scores, values), left_sums_of(second, values, [1], [np.arange(len(y))])[0]
        cells = cells_of(second.candidates.shapes, sums, values.sum(axis=0))
        its = screened("partner", [column_of(1 + at, "", of, own) for at, of in enumerate(cells)], own)
        if its.added_auc is not None:
            gains = sum(of.gain_beyond for of in its.columns), math.hypot(*(of.error for of in its.columns))
            row = Row(name, own, *gains, auc(own_scores(both, y), y))
            print(f"{row}: {its.said}; it adds {row.area - own.auc:+.3f}", flush=True)
            yield row


def fitted(rows: list[Row]) -> tuple[float, float]:
    """LOW and HIGH."""
    added = np.array([squared(row.area) - squared(row.own.auc) for row in rows])
    low, high = (
        np.quantile(
            added / [max(distance(it.own, it.gain + z * it.error), 1e-9) for it in rows], 0.5 + 0.49 * np.sign(z)
        )
        for z in (-NINE_IN_TEN, NINE_IN_TEN)
    )
    return max(float(low), 0.0), float(high)


def main() -> None:
    tables = {name: public(name) for name in LABELS}
    tables |= {name: (it.columns, it.labels) for name in ("breast_cancer", "loans") for it in [table_of(name, 5000)]}
    rows = [row for name, table in tables.items() for row in measured(name, *table)]
    covered = dict.fromkeys(tables, 0)
    for name in tables:
        screening.LOW, screening.HIGH = fitted([row for row in rows if row.table != name])
        for row in (row for row in rows if row.table == name):
            _, low, high = screening.added_auc(row.own, row.gain, row.error)
            covered[name] += low <= max(row.area - row.own.auc, 0.0) <= high
    factors = [(squared(it.area) - squared(it.own.auc)) / distance(it.own, it.gain) for it in rows]
    print(f"covered: {sum(covered.values())} of {len(rows)}: {covered}; median factor {np.median(factors):.2f}")
    print("LOW, HIGH = {:.3f}, {:.2f}".format(*fitted(rows)))


if __name__ == "__main__":
    main()
