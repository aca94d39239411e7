"""The reference values of a party's columns: what a record has in a column's place where its part in a score is asked.

Of numbers and dates the median of the training's records, of categories the most frequent one, the first of several.
"""

from __future__ import annotations

import numpy as np

from treetap.arrays import Floats
from treetap.tables.binned import JobRecords
from treetap.usage import half_of_memory


def reference_values(records: JobRecords) -> list[float | None]:
    """The part that each feature has in them; None: the training's records have no value.

    A table that streams is read anew for as many of its features as a quarter of the memory holds.
    """
    known = records.table.take(np.arange(records.training))
    encodings = {
        name: category.encode
        for category in known.categories.values()
        for name in category.features
        if not category.of_dates
    }
    typical: dict[str, float] = {}
    at_once = max(1, half_of_memory() // (16 * records.training))  # numbers of eight bytes
    for first in range(0, len(known.columns), at_once):
        names = known.columns[first : first + at_once]
        parts = known.values.batches(known.rows, range(first, first + len(names)))
        values = np.concatenate([part for _, part in parts])
        typical |= {name: _typical(column, encodings.get(name)) for name, column in zip(names, values.T, strict=True)}
    for category in known.categories.values():
        if category.encode == "one-hot":
            most = np.nanargmax([typical[name] for name in category.features])
            typical |= {name: float(place == most) for place, name in enumerate(category.features)}
    return [None if np.isnan(value) else value for value in typical.values()]


def _typical(values: Floats, encode: str | None) -> float:
    """Of numbers (n,) the median, of places of categories the most frequent one, of 0 and 1 how often there is 1."""
    held = values[~np.isnan(values)]
    if encode is None:
        return float(np.median(held)) if len(held) else np.nan
    return float(held.sum() if encode == "one-hot" else np.bincount(held.astype(np.int64), minlength=1).argmax())
