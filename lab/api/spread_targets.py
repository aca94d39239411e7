"""Labels of the caller: all of them the label holder's, or, where no party has all, a part of them each party's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.utils._missing import is_pandas_na, is_scalar_nan

from treetap.lab.api.errors import InvalidInput
from treetap.lab.api.frames import Rows, array_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class SpreadTargets:
    """`targets` (n,): the labels. `places`: party → the number of its rows, and those of them that it labels, in the
    order of `targets`; None: the label holder labels all rows.
    """

    targets: Array
    places: Mapping[str, tuple[int, Array]] | None = None

    def by_party(self, column: pa.Array, label_holder: str) -> dict[str, pa.Array]:
        """The labels (n,) as the column of each party that has some, null where it has none."""
        if self.places is None:
            return {label_holder: column}
        columns, start = {}, 0
        for party, (count, rows) in self.places.items():
            at = np.full(count, -1, dtype=np.int64)
            at[rows] = np.arange(start, start + len(rows))
            start += len(rows)
            columns[party] = column.take(pa.array(at, mask=at < 0))
        return columns


def spread(labels: Mapping[str, Any], rows_of: Mapping[str, Rows]) -> tuple[Array, dict[str, tuple[int, Array]]]:
    """The labels (n,) of all parties, one after the other, and where they belong.

    `labels`: by party, an empty cell where it labels no record. `rows_of`: by party.

    Raises:
        InvalidInput: a party is unknown, its labels are not as many as its records, or those of other ones.
    """
    known: list[Array] = []
    places = {}
    for party, given in labels.items():
        if party not in rows_of:
            raise InvalidInput(f"y names {party!r}, which is none of {', '.join(rows_of)}")
        own = np.asarray(rows_of[party].aligned(given, f"y[{party!r}]"))
        if own.shape != (count := len(rows_of[party].ids),):
            raise InvalidInput(f"y of {party} has shape {own.shape}, and its table {count} records")
        rows_with = np.flatnonzero(~missing_in(own))
        places[party] = len(own), rows_with
        held = own[rows_with]
        known += [array_of(held.tolist()) if held.dtype.kind == "O" else held] if len(held) else []
    if not known:
        raise InvalidInput("y has no label of any party")
    try:
        targets = np.concatenate(known)
    except TypeError:
        targets = np.empty(0)
    if targets.tolist() != [label for own in known for label in own.tolist()]:
        raise InvalidInput("y: the parties' labels have types that are not one: give all of them in one type")
    return targets, places


def missing_in(labels: Array) -> npt.NDArray[np.bool_]:
    """True of the labels (n,) that are absent, as libraries say it."""
    if labels.dtype.kind in "mM":
        return np.isnat(labels)
    absent = (label is None or is_scalar_nan(label) or is_pandas_na(label) for label in labels.tolist())
    return np.fromiter(absent, dtype=np.bool_, count=len(labels))
