"""The canonical order of split candidates, which plaintext and encrypted sums share.

Feature by feature. A feature without missing values offers v = 0..n_bins−2: left are the bins ≤ v, and a missing value
met later goes right, as in XGBoost. One with missing values offers, for v = 0..n_bins−1, (v, missing right) and then,
if v < n_bins−1, (v, missing left).

Categories, one against the rest: category c goes right, all others go left, so does one that training has not seen.
For c = 0..n_bins−1 first (c, missing left), which XGBoost has also where no value is missing, then, with missing
values, (c, missing right). Where a column's categories are partitioned its places hold the sums over each
category instead, of which `treetap.trees.partitions` makes the candidates of a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.trees.partitions import Group, Partition
from treetap.trees.shapes import Kind, Shape

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Candidate:
    """A possible split: bins ≤ `bin` of column `feature` go left; missing values go left if `missing_left`.

    A split of categories has `right`: the codes of the categories that go right, ascending; all others go left, those
    that training has not seen too. `bin` is then the first of them. These are XGBoost's `categories` of a node, and
    `missing_left` is its `default_left`.
    """

    feature: int
    bin: int
    missing_left: bool
    right: tuple[int, ...] | None = None


class CandidateList:
    """All candidates of features with the given shapes, in canonical order.

    As arrays, each (len,): `feature`, `bin`, `missing_left`. `first[f]` is the first candidate of feature f and
    `first[d]` the number of candidates. `cell[f]` is where the n_bins + 1 cells of feature f start in a histogram that
    lays all features end to end, `cell[d]` its width; the last cell of a feature counts the missing. `groups`: the
    places with sums over single categories, which are no candidates; `grouped` (len,) is their mask, `one_hot` (len,)
    that of categories against the rest.
    """

    def __init__(self, shapes: Sequence[tuple[int, bool] | Shape]) -> None:
        self.shapes = tuple(Shape(*each) for each in shapes)
        feature: list[npt.NDArray[np.int64]] = []
        bins: list[npt.NDArray[np.int64]] = []
        left: list[Bools] = []
        for f, shape in enumerate(self.shapes):
            k = np.arange(shape.sums)
            twice = shape.has_missing and shape.kind is not Kind.PARTITIONS
            bins.append(k // 2 if twice else k)
            if shape.kind is Kind.NUMBERS:
                left.append(twice & (k % 2 == 1))
            else:
                left.append((k % 2 == 0) if twice else np.full(len(k), shape.kind is Kind.ONE_HOT))
            feature.append(np.full(len(k), f))
        none = np.zeros(0, dtype=np.int64)
        self.feature = np.concatenate([none, *feature])
        self.bin = np.concatenate([none, *bins])
        self.missing_left: Bools = np.concatenate([none.astype(bool), *left])
        self.first = np.concatenate([[0], np.cumsum([len(part) for part in feature], dtype=np.int64)])
        self.cell = np.concatenate([[0], np.cumsum([shape.n_bins + 1 for shape in self.shapes], dtype=np.int64)])
        self.one_hot = self._of_kind(Kind.ONE_HOT)
        self.grouped = self._of_kind(Kind.PARTITIONS)
        self.groups = tuple(
            Group(int(first), shape.n_bins)
            for first, shape in zip(self.first, self.shapes, strict=False)
            if shape.kind is Kind.PARTITIONS
        )

    def __len__(self) -> int:
        return len(self.feature)

    def at(self, k: int) -> Candidate:
        """Candidate number k. Raises IndexError outside 0..len−1, and for the sum over a category."""
        if not 0 <= k < len(self) or self.grouped[k]:
            raise IndexError(f"candidate {k} of {len(self)}")
        right = (int(self.bin[k]),) if self.one_hot[k] else None
        return Candidate(int(self.feature[k]), int(self.bin[k]), bool(self.missing_left[k]), right)

    def of(self, place: int | Partition) -> Candidate:
        """The candidate of a place, or a partition of one of the `groups`."""
        if not isinstance(place, Partition):
            return self.at(place)
        feature = int(self.feature[self.groups[place.group].first])
        return Candidate(feature, place.right[0], place.missing_left, place.right)

    def goes_left(self, codes: npt.NDArray[Any], candidate: Candidate) -> Bools:
        """The mask (n,) of those records with bin numbers codes (n, d) that go left."""
        return column_goes_left(codes[:, candidate.feature], candidate, self.shapes[candidate.feature].n_bins)

    def _of_kind(self, kind: Kind) -> Bools:
        found: Bools = np.array([shape.kind is kind for shape in self.shapes], dtype=bool)[self.feature]
        return found


def column_goes_left(column: npt.NDArray[Any], candidate: Candidate, n_bins: int) -> Bools:
    """The mask (n,) of records that go left, given the bin numbers (n,) of the candidate's own feature."""
    if candidate.right is not None:
        among: Bools = ~np.isin(column, candidate.right)
        return np.where(column == n_bins, candidate.missing_left, among)
    left: Bools = column <= candidate.bin  # a missing value has code n_bins, which is above every candidate's bin
    return left | (column == n_bins) if candidate.missing_left else left
