"""The evidence of a label holder on one feature party's columns: embeddings, and the columns of auxiliary records.

For `match-exact` alone the party's published model: a label holder has no such thing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from treetap.arrays import Bools, Floats, Singles
from treetap.attacks.features.record_space import Records, RecordSpace
from treetap.attacks.networks.schema import FeatureSettings, Scale
from treetap.errors import BadInput
from treetap.neural.inputs import InputScaler
from treetap.neural.params import Bottom
from treetap.tables.categories import Category
from treetap.tables.cells import shape_text
from treetap.tables.reading import Table

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
