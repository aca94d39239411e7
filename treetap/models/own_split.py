"""A row of a party's split table: the meaning of a split handle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from treetap.tables.config import DAYS
from treetap.tables.dates import date_text
from treetap.trees.candidates import Candidate
from treetap.trees.paths import condition

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True)
class OwnSplit:
    """A row of a party's split table: a handle's meaning. Left: value < threshold, or missing if `missing_left`.

    A split of categories has `categories`, and no threshold (∞): the codes that go right, ascending, by their places in
    the `values` of the column's encoding in the manifest. All others go left, so does one that training has not seen.
    None: a split of numbers.
    """

    handle: int
    node: int
    feature: int
    bin: int
    threshold: float
    missing_left: bool
    categories: tuple[int, ...] | None = None

    def goes_left(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Bools:
        """The mask of those raw values (n,) of the split's column that go left."""
        if self.categories is not None:
            return np.where(np.isnan(values), self.missing_left, ~np.isin(values, self.categories))
        return np.where(np.isnan(values), self.missing_left, values < self.threshold)

    def feature_name(self, manifest: Mapping[str, Any]) -> str:
        """The name of the split's column in its party's manifest."""
        return str(manifest["columns"][self.feature])

    def right_categories(self, manifest: Mapping[str, Any]) -> list[str] | None:
        """The texts of the categories that go right, from the party's manifest; None of a split of numbers."""
        if self.categories is None:
            return None
        values = manifest["categories"][self.feature_name(manifest)]["values"]
        return [str(values[code]) for code in self.categories]

    def condition(self, manifest: Mapping[str, Any], *, left: bool) -> str:
        """The condition for taking a side, with names from the party's manifest."""
        name, right = self.feature_name(manifest), self.right_categories(manifest)
        encoding = manifest["categories"].get(name, {})
        if encoding.get("encode") != DAYS:
            return condition(name, self.threshold, self.missing_left, left, right)
        shown = partial(date_text, utc=bool(encoding.get("utc")))
        return condition(name, self.threshold, self.missing_left, left, shown=shown)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; an infinite threshold, which separates missing cells from the others, is null."""
        content = {**vars(self), "threshold": None if math.isinf(self.threshold) else self.threshold}
        del content["categories"]
        return content if self.categories is None else {**content, "categories": list(self.categories)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> OwnSplit:
        """Back from JSON types."""
        threshold, categories = content["threshold"], content.get("categories")
        if threshold is None:  # a split of categories, or missing cells are on one side alone
            threshold = -math.inf if content["missing_left"] and categories is None else math.inf
        return cls(
            **{**content, "threshold": threshold, "categories": None if categories is None else tuple(categories)}
        )

    @classmethod
    def of(cls, handle: int, node: int, candidate: Candidate, threshold: float) -> OwnSplit:
        """The row of a candidate, its feature numbered among all the party's columns."""
        it = candidate
        return cls(handle, node, it.feature, it.bin, threshold, it.missing_left, it.right)

    @property
    def candidate(self) -> Candidate:
        """The inverse of `of`."""
        return Candidate(self.feature, self.bin, self.missing_left, self.categories)
