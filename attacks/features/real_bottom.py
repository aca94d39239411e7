"""A feature party's published model, for `match-exact` alone: a label holder has no such thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

from treetap.attacks.features.record_space import Records, RecordSpace
from treetap.attacks.networks.own_network import published_bottom
from treetap.errors import BadInput
from treetap.neural.inputs import InputScaler
from treetap.neural.params import SplitnnParams
from treetap.tables.categories import Category
from treetap.tables.tensors import shape_text

Floats = npt.NDArray[np.float32]


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
    def bounded(self) -> npt.NDArray[np.bool_]:
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


def load_real_bottom(model: Path, params: SplitnnParams, party: str, job: str) -> RealBottom:
    """Load the published model of a feature party.

    Raises:
        DataError: there is no such model, or it is of another job or party.
    """
    described, bottom = published_bottom(model, params, party, job)
    return RealBottom(bottom, described.scaler, described.categories)


def _kind(name: str, scaler: InputScaler, categories: Mapping[str, Category]) -> str | None:
    """The kind of a column in words; None where there is no such column."""
    if name in scaler.images:
        return f"images of {shape_text(scaler.images[name].shape)}"
    if name in categories and not categories[name].of_dates:
        return "text"
    return "numbers" if name in scaler.columns else None


def _hot(
    values: npt.NDArray[np.float64], place: Mapping[str, int], category: Category, texts: tuple[str, ...]
) -> npt.NDArray[np.float64]:
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
