"""Gradient rows of one epoch by record, as one feature party received them, and their directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from treetap.neural.draws import Draws

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]
#: Most numbers of the rows that several epochs give together.
_MOST_NUMBERS = 1 << 27


@dataclass(frozen=True)
class GradientRows:
    """Gradients of one epoch.

    Attributes:
        epoch: its number, from 0; None: several epochs together.
        records: (n,) places of the records, ascending; a record of a batch that the party sat out has no row.
        values: (n, width) the gradients.
    """

    epoch: int | None
    records: Ints = field(repr=False)
    values: Rows = field(repr=False)

    def of(self, records: Ints) -> GradientRows:
        """The rows of those of these records, ascending, that have one."""
        kept = np.isin(self.records, records)
        return GradientRows(self.epoch, self.records[kept], self.values[kept])

    @property
    def directions(self) -> Rows:
        """The rows at unit length; a row of zeros stays one."""
        return unit(self.values)


def unit(values: Rows) -> Rows:
    """Rows (n, width) divided by their length; those of length 0 as they are."""
    wide = values.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(length > 0, length, 1.0), dtype=np.float32)


def together(epochs: Sequence[GradientRows]) -> GradientRows | None:
    """The directions of all epochs side by side, of the records with a row in each; None of fewer than two epochs.

    None too where no record has a row in each, or the numbers would be more than `_MOST_NUMBERS`.
    """
    if len(epochs) < 2:
        return None
    shared = epochs[0].records
    for rows in epochs[1:]:
        shared = np.intersect1d(shared, rows.records, assume_unique=True)
    if not len(shared) or len(shared) * sum(rows.values.shape[1] for rows in epochs) > _MOST_NUMBERS:
        return None
    return GradientRows(None, shared, np.hstack([rows.of(shared).directions for rows in epochs]))


def attack_draws(seed: int) -> Draws:
    """Draws of the attacks with a seed, apart from those of any job and the same at each repetition."""
    return Draws(f"attack {int(seed)}".encode())


def some_of(records: Ints, most: int, draws: Draws, *path: str | int) -> Ints:
    """At most `most` of the records, drawn without replacement, ascending."""
    if len(records) <= most:
        return np.sort(records)
    return np.sort(records[draws.order(len(records), *path)[:most]])
