"""Records as numbers that are guessed and scored: standardised numbers, 0 or 1 for each text, and pixels in [0, 1].

The space is that of the auxiliary records: their means, deviations, texts and shapes of images.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from attacks.features.columns import columns_of
from treetap.errors import BadInput
from treetap.neural.inputs import Inputs, InputScaler
from treetap.tables.categories import Category, one_hot_names
from treetap.tables.features import Held
from treetap.tables.reading import Table

Floats = npt.NDArray[np.float32]
_PIXEL = 255.0


@dataclass(frozen=True)
class Records:
    """Records of a space.

    Attributes:
        numbers: (n, columns), NaN where missing.
        images: by column, (n, channels, height, width).
    """

    numbers: Floats = field(repr=False)
    images: dict[str, Floats] = field(repr=False)

    def first(self, count: int) -> Records:
        """The first of them."""
        return Records(self.numbers[:count], {name: image[:count] for name, image in self.images.items()})


@dataclass(frozen=True)
class RecordSpace:
    """The space of a table of auxiliary records, whose columns of text are one-hot.

    Attributes:
        scaler: of these records, as a party fits one to its own.
    """

    table: Table = field(repr=False)
    scaler: InputScaler

    @classmethod
    def of(cls, auxiliary: Table) -> RecordSpace:
        """The space of these records; `DataError` where a column's numbers are too large for a mean."""
        texts = {name: column.texts for name, column in columns_of(auxiliary).items() if column.texts is not None}
        table = _one_hot(auxiliary, auxiliary, texts)
        return cls(table, InputScaler.fit(table, np.arange(len(table.ids), dtype=np.int64)))

    @property
    def inputs(self) -> Inputs:
        """The auxiliary records as inputs of a bottom model."""
        return self.scaler.apply(self.table)

    @property
    def texts(self) -> dict[str, tuple[str, ...]]:
        """Column of text → its texts."""
        return {name: tuple(category.values) for name, category in self.table.categories.items()}

    @property
    def bounded(self) -> npt.NDArray[np.bool_]:
        """(columns,) True of those between 0 and 1, which stand for a text each."""
        made = self.table.made
        return np.array([name in made for name in self.scaler.columns], dtype=bool)

    def auxiliary(self) -> Records:
        """The auxiliary records."""
        return self._records(self.table)

    def records(self, table: Table) -> Records:
        """Records of another table, which has the same columns: see `check_columns`.

        Raises:
            BadInput: a number is too large for the deviation of its column.
        """
        return self._records(_one_hot(table, self.table, self.texts))

    def floor(self, count: int) -> Records:
        """The mean auxiliary record, repeated: what is guessed without an embedding."""
        mean = self._mean
        return Records(
            np.repeat(mean.numbers, count, axis=0),
            {name: np.repeat(image, count, axis=0) for name, image in mean.images.items()},
        )

    @cached_property
    def _mean(self) -> Records:
        own = self.auxiliary()
        known = ~np.isnan(own.numbers)
        mean = np.where(known, own.numbers, 0.0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
        return Records(
            mean.astype(np.float32)[None],
            {
                name: arrays.mean(axis=0, dtype=np.float64).astype(np.float32)[None]
                for name, arrays in own.images.items()
            },
        )

    def _records(self, table: Table) -> Records:
        values = (table.features - np.array(self.scaler.mean)) / np.array(self.scaler.deviation)
        with np.errstate(over="ignore"):
            numbers = values.astype(np.float32)
        if np.isinf(numbers).any():
            raise BadInput(
                f"{table.path}: has a number too far from those of {self.table.path}: correct or leave it out"
            )
        images = {
            name: cells.reshape(len(cells), *self.scaler.images[name].shape).astype(np.float32) / _PIXEL
            for name, cells in table.tensors.items()
        }
        return Records(numbers, images)


def _one_hot(table: Table, like: Table, texts: dict[str, tuple[str, ...]]) -> Table:
    """A table's columns as another one has them, those of text as one column of 0 and 1 for each of `texts`."""
    have = columns_of(table)
    names: list[str] = []
    blocks = [np.empty((len(table.ids), 0))]
    categories = {}
    for name in columns_of(like):
        if name not in texts:
            names.append(name)
            blocks.append(have[name].cells[:, None])
            continue
        values = list(texts[name])
        categories[name] = Category("one-hot", values, one_hot_names(name, values))
        names += categories[name].features
        blocks.append(have[name].hot(texts[name]))
    return replace(
        table,
        columns=names,
        values=Held(np.hstack(blocks)),
        categories=categories,
        sources=list(like.sources),
        tensors={name: table.tensors[name] for name in like.tensors},
    )
