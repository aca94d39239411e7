"""The evidence of a label holder on one feature party's columns: embeddings, and the columns of auxiliary records.

For `match-exact` alone the party's published model: a label holder has no such thing.

Columns of a table as attributes, and records as numbers that are guessed and scored.

An attribute is a text or a number, however the table encodes it. The numbers of a record are standardised numbers, 0 or
1 for each text, and pixels in [0, 1]: their space is that of the auxiliary records, whose means, deviations, texts and
shapes of images it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import nn

from treetap.arrays import Bools, Floats, Singles
from treetap.attacks.networks.schema import FeatureSettings, Scale
from treetap.errors import BadInput
from treetap.neural.inputs import Inputs, InputScaler
from treetap.neural.params import Bottom
from treetap.tables.categories import Category, one_hot_names
from treetap.tables.cells import shape_text
from treetap.tables.features import Held
from treetap.tables.reading import Table


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
    def known(self) -> Bools:
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


_PIXEL = 255.0


@dataclass(frozen=True)
class Records:
    """Records of a space.

    Attributes:
        numbers: (n, columns), NaN where missing.
        images: by column, (n, channels, height, width).
    """

    numbers: Singles = field(repr=False)
    images: dict[str, Singles] = field(repr=False)

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
    def bounded(self) -> Bools:
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


# A feature party's published model, for `match-exact` alone: a label holder has no such thing.


@dataclass(frozen=True)
class RealBottom:
    """A party's own model with its weights, and how it reads and scales its table.

    Attributes:
        bottom: keeps its weights and its statistics of batch normalisation.
        categories: encoding of each column of text.
    """

    bottom: nn.Module = field(repr=False)
    scaler: InputScaler
    categories: Mapping[str, Category]

    def __post_init__(self) -> None:
        self.bottom.eval()
        for weight in self.bottom.parameters():
            weight.requires_grad_(False)

    @property
    def bounded(self) -> Bools:
        """(columns,) True of the features that are 0 or 1."""
        made = {
            name for category in self.categories.values() if category.encode == "one-hot" for name in category.features
        }
        return np.array([name in made for name in self.scaler.columns], dtype=bool)

    def check(self, space: RecordSpace) -> None:
        """Raise BadInput where a column of the space has another kind or shape than the party's, or it has none."""
        auxiliary, shared = space.table, 0
        for name in auxiliary.sources:
            wanted = _kind(name, space.scaler, auxiliary.categories)
            if (own := _kind(name, self.scaler, self.categories)) is None:
                continue
            shared += 1
            if own != wanted:
                raise BadInput(
                    f"{auxiliary.path}: column {name!r} holds {wanted}, and the feature party's model takes {own}: "
                    "give auxiliary the party's own columns, or leave model out"
                )
        if not shared:
            raise BadInput(
                f"{auxiliary.path}: has no column of the feature party's model: correct it, or leave model out"
            )

    def in_space(self, own: Records, space: RecordSpace) -> Records:
        """Records of the party's own scaler in the attacker's space; the floor where the party has no such column."""
        floor = space.floor(len(own.numbers))
        numbers = floor.numbers.copy()
        place = {name: number for number, name in enumerate(self.scaler.columns)}
        values = own.numbers * np.array(self.scaler.deviation) + np.array(self.scaler.mean)
        start = 0
        for name in space.table.sources:
            if name in space.table.tensors:
                continue
            texts, category = space.texts.get(name), self.categories.get(name)
            # a column of text takes a number for each of its texts in the space, however the party encodes it
            size = 1 if texts is None else len(texts)
            if texts is not None and category is not None:
                numbers[:, start : start + size] = _hot(values, place, category, texts)
            elif texts is None and (category is None or category.of_dates) and name in place:
                mean, deviation = space.scaler.mean[start], space.scaler.deviation[start]
                numbers[:, start] = (values[:, place[name]] - mean) / deviation
            start += size
        images = {name: own.images.get(name, image) for name, image in floor.images.items()}
        return Records(numbers, images)


def _kind(name: str, scaler: InputScaler, categories: Mapping[str, Category]) -> str | None:
    """The kind of a column in words; None where there is no such column."""
    if name in scaler.images:
        return f"images of {shape_text(scaler.images[name].shape)}"
    if name in categories and not categories[name].of_dates:
        return "text"
    return "numbers" if name in scaler.columns else None


def _hot(values: Floats, place: Mapping[str, int], category: Category, texts: tuple[str, ...]) -> Floats:
    """(n, texts) of 0 to 1 for the texts of a column, 0 for a text that the party does not have."""
    flags = np.zeros((len(values), len(texts)))
    for number, text in enumerate(texts):
        if text not in category.values:
            continue
        code = category.values.index(text)
        if category.encode == "one-hot":
            flags[:, number] = values[:, place[category.features[code]]]
        else:
            flags[:, number] = np.rint(values[:, place[category.features[0]]]) == code
    return flags


SCALES: tuple[Scale, Scale] = ("raw", "standardised")
#: A deviation below this share of the mean is rounding.
_ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Scaling:
    """The change (e − mean) / deviation of each coordinate of an embedding, both (width,) float64."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, scale: Scale, known: Singles) -> Scaling:
        """The scaling by embeddings (n, width) of auxiliary records: of `raw` none.

        A coordinate that is constant, or varies by no more than rounding, has deviation 1.
        """
        width = known.shape[1]
        if scale == "raw":
            return cls(np.zeros(width), np.ones(width))
        values = known.astype(np.float64)
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        constant = deviation <= _ROUNDING * np.abs(mean)
        return cls(mean, np.where(constant, 1.0, deviation))

    def apply(self, embeddings: Singles) -> torch.Tensor:
        """Embeddings (n, width) on this scale, as float32."""
        return torch.from_numpy(((embeddings - self.mean) / self.deviation).astype(np.float32))

    def of_tensor(self, embeddings: torch.Tensor) -> torch.Tensor:
        """The same of a tensor in a graph."""
        mean, deviation = (torch.from_numpy(part.astype(np.float32)) for part in (self.mean, self.deviation))
        return (embeddings - mean) / deviation


@dataclass(frozen=True)
class FeatureEvidence:
    """All that attacks on the columns of one feature party use.

    Attributes:
        party: the feature party.
        bottom: the settings of its own model, which every party reads in the job.
        auxiliary: the auxiliary records with the columns that the label holder knows of them.
        known: (a, width) their embeddings, row by row.
        victims: (v) ids of the records whose columns are guessed.
        embeddings: (v, width) their embeddings, row by row.
        attributes: the columns that are guessed one by one; None: all that are no images.

    Raises:
        BadInput: on construction; auxiliary records are among the victims, there are none of either, an attribute is
            no column of theirs, or embeddings are not of the same records or not finite.
    """

    party: str
    bottom: Bottom
    auxiliary: Table = field(repr=False)
    known: Singles = field(repr=False)
    victims: Sequence[str] = field(repr=False)
    embeddings: Singles = field(repr=False)
    settings: FeatureSettings
    attributes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if both := sorted(set(self.auxiliary.ids).intersection(self.victims)):
            raise BadInput(
                f"{self.auxiliary.path}: {len(both)} records are among the victims, such as {both[0]!r}: an attack "
                "that is given what it guesses measures nothing; leave them out of one of the two"
            )
        for what, count, values in (
            ("auxiliary records", len(self.auxiliary.ids), self.known),
            ("victims", len(self.victims), self.embeddings),
        ):
            if not count:
                raise BadInput(
                    f"{self.auxiliary.path}: there are no {what} among the records with embeddings of {self.party}"
                )
            if values.shape != (count, self.bottom.width):
                raise BadInput(
                    f"{self.party}: embeddings of shape {values.shape} for {count} {what} and width {self.bottom.width}"
                )
            if not np.isfinite(values).all():
                raise BadInput(f"{self.party}: embeddings of {what} are not finite, which no attack can use")
        # images are guessed as whole records alone
        have = [name for name in self.auxiliary.sources if name not in self.auxiliary.tensors]
        if strangers := [name for name in self.attributes or () if name not in have]:
            raise BadInput(
                f"{self.auxiliary.path}: has no column {strangers[0]!r} to guess as an attribute; "
                + (f"it has: {', '.join(have)}" if have else "it has none but images: leave attributes out")
            )
