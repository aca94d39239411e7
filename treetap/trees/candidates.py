"""The canonical order of split candidates, which plaintext and encrypted sums share.

Feature by feature. A feature without missing values offers v = 0..n_bins−2: left are the bins ≤ v, and a missing value
met later goes right, as in XGBoost. One with missing values offers, for v = 0..n_bins−1, (v, missing right) and then,
if v < n_bins−1, (v, missing left).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Candidate:
    """A possible split: bins ≤ `bin` of column `feature` go left; missing values go left if `missing_left`."""

    feature: int
    bin: int
    missing_left: bool


class CandidateList:
    """All candidates of features with the given shapes (n_bins, has_missing), in canonical order.

    As arrays, each (len,): `feature`, `bin`, `missing_left`. `first[f]` is the first candidate of feature f and
    `first[d]` the number of candidates. `cell[f]` is where the n_bins + 1 cells of feature f start in a histogram that
    lays all features end to end, `cell[d]` its width; the last cell of a feature counts the missing.
    """

    def __init__(self, shapes: Sequence[tuple[int, bool]]) -> None:
        self.shapes = tuple((int(n_bins), bool(has_missing)) for n_bins, has_missing in shapes)
        feature: list[npt.NDArray[np.int64]] = []
        bins: list[npt.NDArray[np.int64]] = []
        left: list[Bools] = []
        for f, (n_bins, has_missing) in enumerate(self.shapes):
            if has_missing:
                k = np.arange(2 * n_bins - 1)
                bins.append(k // 2)
                left.append(k % 2 == 1)
            else:
                bins.append(np.arange(n_bins - 1))
                left.append(np.zeros(n_bins - 1, dtype=bool))
            feature.append(np.full(len(bins[-1]), f))
        none = np.zeros(0, dtype=np.int64)
        self.feature = np.concatenate([none, *feature])
        self.bin = np.concatenate([none, *bins])
        self.missing_left: Bools = np.concatenate([none.astype(bool), *left])
        self.first = np.concatenate([[0], np.cumsum([len(part) for part in feature], dtype=np.int64)])
        self.cell = np.concatenate([[0], np.cumsum([n_bins + 1 for n_bins, _ in self.shapes], dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.feature)

    def at(self, k: int) -> Candidate:
        """Candidate number k. Raises IndexError outside 0..len−1."""
        if not 0 <= k < len(self):
            raise IndexError(f"candidate {k} of {len(self)}")
        return Candidate(int(self.feature[k]), int(self.bin[k]), bool(self.missing_left[k]))

    def goes_left(self, codes: npt.NDArray[Any], candidate: Candidate) -> Bools:
        """The mask (n,) of those records with bin numbers codes (n, d) that go left."""
        return column_goes_left(codes[:, candidate.feature], candidate, self.shapes[candidate.feature][0])


def column_goes_left(column: npt.NDArray[Any], candidate: Candidate, n_bins: int) -> Bools:
    """The mask (n,) of records that go left, given the bin numbers (n,) of the candidate's own feature."""
    left: Bools = column <= candidate.bin  # a missing value has code n_bins, which is above every candidate's bin
    return left | (column == n_bins) if candidate.missing_left else left
