"""Columns of a table as attributes: texts or numbers, however the table encodes them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from treetap.errors import BadInput
from treetap.tables.reading import Table
from treetap.tables.tensors import shape_text

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """A column of a file.

    Attributes:
        texts: the different texts of a column of text, in order; None of one of numbers.
        cells: (n,) numbers, or places in `texts`; NaN where missing.
    """

    name: str
    texts: tuple[str, ...] | None = field(repr=False)
    cells: Floats = field(repr=False)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """(n,) True where the cell is not missing."""
        return ~np.isnan(self.cells)

    def values(self) -> list[str | float | None]:
        """The cells as texts or numbers, None where missing."""
        if self.texts is None:
            return [None if np.isnan(cell) else float(cell) for cell in self.cells]
        return [None if np.isnan(cell) else self.texts[int(cell)] for cell in self.cells]

    def hot(self, texts: tuple[str, ...]) -> Floats:
        """A column of text as (n, texts) of 0 and 1, NaN where missing; all 0 for a text that is not among these."""
        place = {text: number for number, text in enumerate(texts)}
        places = np.array([place.get(text, -1) for text in self.texts or ()], dtype=np.int64)
        known = self.known
        flags = np.full((len(self.cells), len(texts)), np.nan)
        flags[known] = places[self.cells[known].astype(np.int64)][:, None] == np.arange(len(texts))
        return flags


def columns_of(table: Table) -> dict[str, Column]:
    """The columns of a table's file by name but those of images; the features of a one-hot column are one."""
    place = {name: number for number, name in enumerate(table.columns)}
    columns = {}
    for name in table.sources:
        if name in table.tensors:
            continue
        category = table.categories.get(name)
        if category is None or category.of_dates:
            columns[name] = Column(name, None, table.features[:, place[name]])
            continue
        cells = table.features[:, [place[feature] for feature in category.features]]
        if category.encode == "one-hot":
            at = np.nan_to_num(cells).argmax(axis=1) if cells.shape[1] else np.zeros(len(cells))
            cells = np.where((cells == 1).any(axis=1), at, np.nan)
        columns[name] = Column(name, tuple(category.values), cells.reshape(-1))
    return columns


def check_columns(table: Table, like: Table) -> None:
    """Check that a table has the columns of the auxiliary records, of the same kinds and shapes.

    Raises:
        BadInput: a column is missing, is text instead of numbers or the reverse, or its images have another shape.
    """
    have = columns_of(table)
    for name, wanted in columns_of(like).items():
        if name not in have:
            raise BadInput(f"{table.path}: has no column {name!r} of numbers or text, which {like.path} has")
        kinds = ["numbers" if column.texts is None else "text" for column in (have[name], wanted)]
        if kinds[0] != kinds[1]:
            raise BadInput(
                f"{table.path}: column {name!r} holds {kinds[0]}, and that of {like.path} {kinds[1]}: write both with "
                "one type"
            )
    for name, shape in like.shapes.items():
        shown = table.shapes.get(name)
        if shown != shape:
            held = "no images" if shown is None else f"images of {shape_text(shown)}"
            raise BadInput(
                f"{table.path}: column {name!r} holds {held}, and that of {like.path} images of {shape_text(shape)}: "
                "give both the same columns"
            )
