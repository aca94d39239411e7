"""The constants of `treetap.trees.screening`: what partners' columns add to an own score's AUC, by their gains at the root.

    python benchmarks/screening.py [--splits 8]

Ten tables of two classes, or the most frequent one against the others, at most 8,000 records. Of each, columns are
dealt to a label holder and a partner at random. The truth is the AUC out of fold of a model of both's columns less that
of the label holder's alone. Of partners with something found, d² that was added is fitted as FACTOR · distance^POWER;
LOW and HIGH leave 1 in 20 outside at either end. *Covered*: how often intervals by the constants of the nine other
tables hold the truth. Some ten minutes of a processor.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from beaten_tables import table_of
from bins import LABELS, Floats, Ints, public

from treetap.trees import screening
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.metrics import auc
from treetap.trees.screening import Own, cells_of, column_of, distance, own_of, own_scores, screened, squared, values_of
from treetap.trees.tree_bins import GlobalBins, left_sums_of


class Row(NamedTuple):
    """A partner in whom something is found; `area`: of a model with its columns."""

    table: str
    own: Own
    gain: float
    error: float
    area: float


def measured(name: str, columns: Floats, labels: Ints, splits: int) -> Iterator[Row]:
    """Draws of a table's records and columns, (N, d)."""
    draw, bad = np.random.default_rng(7), labels != np.bincount(labels).argmax()
    for split in range(splits):
        rows = draw.permutation(len(labels))[: (1500, 3000, 5000, 8000)[split % 4]]
        order, y = draw.permutation(columns.shape[1]), bad[rows].astype(np.int64)
        held = int(draw.integers(2, max(3, int(0.6 * len(order)))))
        dealt = order[: held + int(draw.integers(1, len(order) - held + 1))]
        names = [str(number) for number in range(len(dealt))]
        both = bin_table(columns[rows][:, dealt], names, 32, may_be_constant=names)
        second = GlobalBins(both, np.arange(held, len(dealt)))
        scores = own_scores(BinnedTable(both.codes[:, :held], both.features[:held]), y)
        values = values_of(scores, y)
        own, sums = own_of(scores, values), left_sums_of(second, values, [1], [np.arange(len(y))])[0]
        cells = cells_of(second.candidates.shapes, sums, values.sum(axis=0))
        its = screened("partner", [column_of(1 + at, "", of, own) for at, of in enumerate(cells)], own)
        if its.added_auc is not None:
            gain, error = sum(of.gain_beyond for of in its.columns), math.hypot(*(of.error for of in its.columns))
            row = Row(name, own, gain, error, auc(own_scores(both, y), y))
            print(f"{row}: {its.said}; it adds {row.area - own.auc:+.3f}", flush=True)
            yield row


def fitted(rows: list[Row]) -> tuple[float, float, float, float]:
    """FACTOR, LOW, HIGH and POWER."""
    added = np.array([squared(row.area) - squared(row.own.auc) for row in rows])
    at = {z: np.array([max(distance(row.own, row.gain + z * row.error), 1e-9) for row in rows]) for z in (-1.645, 0, 1.645)}
    power = float(np.polyfit(np.log(at[0]), np.log(np.maximum(added, 1e-4)), 1)[0])
    ends = ((0, 0.5), (-1.645, 0.05), (1.645, 0.95))
    middle, low, high = (float(np.quantile(added / at[z] ** power, share)) for z, share in ends)
    return middle, max(low, 0.0), high, power


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=8, metavar="N")
    splits = parser.parse_args().splits
    tables = {name: public(name) for name in LABELS}
    tables |= {name: (it.columns, it.labels) for name in ("breast_cancer", "loans") for it in [table_of(name, 5000)]}
    rows = [row for name, table in tables.items() for row in measured(name, *table, splits)]
    hits: dict[str, list[bool]] = {}
    for name in {row.table for row in rows}:
        others = fitted([row for row in rows if row.table != name])
        screening.FACTOR, screening.LOW, screening.HIGH, screening.POWER = others
        for row in (row for row in rows if row.table == name):
            _, low, high = screening.added_auc(row.own, row.gain, row.error)
            hits.setdefault(name, []).append(low <= max(row.area - row.own.auc, 0.0) <= high)
    for name, held in hits.items():
        print(f"{name}: {sum(held)} of {len(held)} covered")
    print(f"covered: {np.mean([hit for held in hits.values() for hit in held]):.3f} of {len(rows)}, {len(hits)} tables")
    print("FACTOR, LOW, HIGH, POWER =", ", ".join(f"{it:.3f}" for it in fitted(rows)))


if __name__ == "__main__":
    main()
