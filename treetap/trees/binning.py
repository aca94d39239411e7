"""Quantile bins of a party's features, made once per job.

A feature with n bins has n − 1 ascending cuts. The bin of x is the number of cuts ≤ x, so x < cuts[v] is the same as
bin ≤ v. A missing value (NaN) has the code n, one past the last bin.

A column of categories has whole numbers from 0, each a bin of its own whatever `max_bin` is, as in XGBoost, and no
cuts. A category that training has not seen has the code n + 1.

Cuts of a column that is too long for memory come from a deterministic summary of it, `QuantileSketch`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.arrays import Array, Floats, Ints
from treetap.errors import DataError, refuse
from treetap.trees.candidates import Kind, Shape

Codes = npt.NDArray[np.integer[Any]]
#: Values of a block: with it the bound is 10⁻⁴ for up to 2⁴¹ values, and a column takes up 0.5 MB per level.
BLOCK = 1 << 16


@dataclass(frozen=True)
class FeatureBins:
    """The bins of one feature: cuts (n_bins − 1,) float64 ascending; `has_missing`: training had a NaN.

    `categories`: their number in a column of categories, which has no cuts, and `kind` the splits of the column.
    """

    cuts: Floats
    has_missing: bool
    categories: int = 0
    kind: Kind = Kind.NUMBERS

    @property
    def n_bins(self) -> int:
        """Bins of present values."""
        return self.categories or len(self.cuts) + 1

    @property
    def shape(self) -> Shape:
        """The input of the canonical candidate order."""
        return Shape(self.n_bins, self.has_missing, self.kind)

    def codes(self, values: Array) -> npt.NDArray[np.int32]:
        """Bin numbers (N,) of values (N,); n_bins for NaN, also where training had none."""
        x = np.asarray(values, dtype=np.float64)
        if self.categories:
            code = np.where(x < self.categories, np.nan_to_num(x), self.n_bins + 1).astype(np.int32)
        else:
            code = np.searchsorted(self.cuts, x, side="right").astype(np.int32)
        code[np.isnan(x)] = self.n_bins
        return code


@dataclass(frozen=True)
class BinnedTable:
    """A party's columns as bin numbers: codes (N, d) in the type of `code_type`, and the d features' bins.

    `directions`: (d,) 1 for a column in which predictions may only increase, -1 where they may only decrease, else 0;
    None: no column has such a constraint.
    """

    codes: Codes
    features: list[FeatureBins]
    directions: Ints | None = None

    @property
    def shapes(self) -> list[Shape]:
        """The shape of each feature."""
        return [feature.shape for feature in self.features]

    def encode(self, X: Array) -> BinnedTable:
        """Other records X (N', d) in these bins. Raises DataError if the number of columns differs."""
        return encode(X, self.features)


def fit(values: Array, max_bin: int, name: str = "feature", *, may_be_constant: bool = False) -> FeatureBins:
    """Bins of a column (N,): one per distinct value, and of more than `max_bin` these that `quantile_cuts` makes.

    Cuts lie midway between adjacent distinct values. Raises DataError naming the column if it holds an infinity, or,
    unless it `may_be_constant`, no value at all or one value and nothing missing.
    """
    x = np.asarray(values, dtype=np.float64)
    absent = np.isnan(x)
    present, count = np.unique(x[~absent], return_counts=True)
    refuse(
        (len(present) == 0 and not may_be_constant, f"column {name!r} has no value at all: leave it out"),
        (np.isinf(present).any(), f"column {name!r} holds an infinite value: mark it missing or clip it"),
        kind=DataError,
    )
    has_missing = bool(absent.any())
    if len(present) == 1 and not has_missing and not may_be_constant:
        raise DataError(f"column {name!r} is constant: leave it out")
    return FeatureBins(quantile_cuts(present, count, max_bin), has_missing)


def category_bins(categories: int, max_cat_to_onehot: int, *, has_missing: bool) -> FeatureBins:
    """A bin for each of the categories 0..`categories`−1 of a column.

    Fewer than `max_cat_to_onehot` categories are split one against the rest, others by partitions.
    """
    return FeatureBins(np.empty(0), has_missing, categories, kind_of(categories, max_cat_to_onehot))


def kind_of(categories: int, max_cat_to_onehot: int) -> Kind:
    """The kind of splits of a column with this number of categories."""
    return Kind.ONE_HOT if categories < max_cat_to_onehot else Kind.PARTITIONS


def quantile_cuts(present: Floats, count: npt.NDArray[np.integer[Any]], max_bin: int) -> Floats:
    """Cuts of `max_bin` bins between distinct values `present`, ascending, of which there are `count` each.

    With fewer values than that there is one between any two.
    """
    last = _last_values(count, max_bin)
    lower, upper = present[last], present[last + 1]
    # lower < cut ≤ upper: the midpoint of neighbouring floats may round onto `lower`
    middle = lower * 0.5 + upper * 0.5
    cuts: Floats = np.where((middle > lower) & (middle <= upper), middle, upper)
    return cuts


def _last_values(count: npt.NDArray[np.integer[Any]], bins: int) -> npt.NDArray[np.integer[Any]]:
    """The places of the last values of all bins but the highest one; of values, ascending, there are `count` each.

    As many values as bins have one each. Of more, those with a bin's share of the records, 1/`bins`, are *spikes*. Each
    has a bin of its own, hence a cut on both sides, and divides the others into stretches; where bins are too few for
    one in each, the lightest spikes are none, of equal ones the highest. Every further bin goes to the stretch that has
    the most records per bin, of equal ones the lowest, and the same rule makes the bins of each stretch. Without a
    spike the k-th bin ends with the first value that k/`bins` of the records do not exceed.
    """
    if len(count) <= bins:
        return np.arange(len(count) - 1)
    total = int(count.sum())
    spikes = np.flatnonzero(count * bins >= total)
    spikes = spikes[np.argsort(-count[spikes], kind="stable")]

    def parted(heaviest: int) -> npt.NDArray[np.integer[Any]]:
        """The first value of each spike and stretch."""
        own = spikes[:heaviest]
        first = np.unique(np.concatenate([[0], own, own + 1]))
        return first[first < len(count)]

    kept = bisect_right(range(len(spikes) + 1), bins, key=lambda heaviest: len(parted(heaviest))) - 1
    if not kept:
        return np.searchsorted(np.cumsum(count) * bins, np.arange(1, bins) * total, side="left")
    first = parted(kept)
    values = np.diff(first, append=len(count))
    most = np.minimum(values, bins)
    part = np.repeat(np.arange(len(first)), most)
    before = np.arange(len(part)) - np.repeat(np.cumsum(most) - most, most)  # bins that the part has already
    wanting = np.add.reduceat(count, first)[part] / np.maximum(before, 1)
    order = np.lexsort((part, -wanting, before > 0))  # of the first bins each part has one
    given = np.bincount(part[order[:bins]])
    shared = [(at, at + n, own) for at, n, own in zip(first, values, given, strict=True) if own > 1]
    inside = [at + _last_values(count[at:end], own) for at, end, own in shared]
    return np.sort(np.concatenate([first[1:] - 1, *inside]))


def bin_table(
    X: Array,
    names: Sequence[str],
    max_bin: int,
    may_be_constant: Collection[str] = (),
    categories: Mapping[str, int] | None = None,
    max_cat_to_onehot: int = 4,
) -> BinnedTable:
    """Fit bins to every column of X (N, d), NaN where missing, and encode it.

    `categories`: the columns of categories, and how many each has; see `category_bins`.

    Raises DataError as `fit` does, or if `names` does not name every column.
    """
    table = _columns(X)
    if table.shape[1] != len(names):
        raise DataError(f"{table.shape[1]} columns but {len(names)} names")
    counted = categories or {}
    features = [
        category_bins(counted[name], max_cat_to_onehot, has_missing=bool(np.isnan(table[:, j]).any()))
        if counted.get(name)
        else fit(table[:, j], max_bin, name, may_be_constant=name in may_be_constant)
        for j, name in enumerate(names)
    ]
    return encode(table, features)


def encode(X: Array, features: Sequence[FeatureBins]) -> BinnedTable:
    """Records X (N, d) in bins fitted before. Raises DataError if the number of columns differs."""
    table = _columns(X)
    if table.shape[1] != len(features):
        raise DataError(f"{table.shape[1]} columns but bins for {len(features)}")
    codes: Codes = np.empty(table.shape, dtype=code_type(features), order="F")  # histograms read it column by column
    for j, feature in enumerate(features):
        codes[:, j] = feature.codes(table[:, j])
    return BinnedTable(codes, list(features))


def code_type(features: Sequence[FeatureBins]) -> np.dtype[Any]:
    """The narrowest type of all codes that records can have, also such as the training lacks: one byte for 255 bins."""
    return np.min_scalar_type(max([0, *(feature.n_bins + bool(feature.categories) for feature in features)]))


def _columns(X: Array) -> Floats:
    table = np.asarray(X, dtype=np.float64)
    if table.ndim != 2:
        raise DataError(f"a table of records by columns is needed, not an array of shape {table.shape}")
    return table


class QuantileSketch:
    """A summary of a column's present values, from which its cuts follow.

    Quantiles in bounded memory (Manku, Rajagopalan, Lindsay 1998): sorted blocks of `size` values; two blocks of one
    weight are *collapsed* into one of twice the weight, which keeps every other value of both together. Neither chance
    nor the ways in which values come in batches decide anything: the same values in the same order have the same
    summary.

    The estimate of the number of values ≤ t, for every t at once, and of those < t, is off by at most `rank_error(n)`
    of the n values, that is by (L + 2) / (4·size), with L = ⌊log₂(n / size)⌋ levels above the first.

    Proof: a collapse of 2·size values of weight w = 2ˡ keeps ⌈c/2⌉ or ⌊c/2⌋ of the c values ≤ t, each with weight 2w,
    which is w too much or too little if c is odd; a level has at most n / (2·size·w) collapses, which keep the even
    places and the odd ones in turn, so that their errors have opposite signs and all of them together are at most
    n / (4·size) + w/2. The sum over L levels is L·n / (4·size) + 2ᴸ/2, and 2ᴸ·size ≤ n.

    The distinct values are kept besides while they are at most `few`; the cuts between these are exact. So are least
    and largest value: each that no block has any more takes the place of one value of the outermost that stands for
    several. Between these the estimate was off by one at least, hence is no worse.
    """

    def __init__(self, few: int, size: int) -> None:
        self.count = 0
        self.least, self.largest = math.inf, -math.inf
        self._few_most, self._size = few, size
        self._few: Floats | None = np.empty(0)
        self._open = np.empty(size)  # values that have not come to a block
        self._filled = 0
        self._levels: list[Floats | None] = []  # at level l a block of weight 2^l
        self._odd: list[bool] = []  # places that the next collapse of the level keeps

    def add(self, values: Array) -> None:
        """Further values (n,), none of them NaN."""
        first = 0
        while first < len(values):
            part = values[first : first + self._size - self._filled]
            self._open[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            first += len(part)
            if self._filled == self._size:
                block = np.sort(self._open)
                self._keep_few(block)
                self._push(block)
                self._filled = 0
        if len(values):
            self.least = min(self.least, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
        self.count += len(values)

    def distinct(self) -> Floats | None:
        """The distinct values, ascending, where they are few; else None."""
        self._keep_few(self._open[: self._filled])
        return self._few

    def weighted(self) -> tuple[Floats, Ints]:
        """Values of the column, ascending and distinct, with the numbers of values for which each stands."""
        blocks = [self._open[: self._filled], *self._levels]
        held = [(1 << max(number - 1, 0), block) for number, block in enumerate(blocks) if block is not None]
        values = np.concatenate([block for _, block in held])
        weights = np.repeat([weight for weight, _ in held], [len(block) for _, block in held])
        present, place = np.unique(values, return_inverse=True)
        counts = np.zeros(len(present), dtype=np.int64)
        np.add.at(counts, place, weights)
        heavy = np.flatnonzero(counts > 1)
        ends = ((self.least, 0), (self.largest, -1)) if self.count else ()
        gone = {end: giver for end, giver in ends if end not in present}
        for giver in gone.values():
            counts[heavy[giver]] -= 1
        present = np.append(present, list(gone))
        order = np.argsort(present)
        return present[order], np.append(counts, np.ones(len(gone), dtype=np.int64))[order]

    def _keep_few(self, values: Floats) -> None:
        if self._few is not None:
            kept = np.union1d(self._few, values)
            self._few = kept if len(kept) <= self._few_most else None

    def _push(self, block: Floats, level: int = 0) -> None:
        """A sorted block of a level, collapsed with the one that is there, and so on."""
        while True:
            while len(self._levels) <= level:
                self._levels.append(None)
                self._odd.append(False)
            held = self._levels[level]
            if held is None:
                self._levels[level] = block
                return
            both = np.concatenate([held, block])
            both.sort(kind="stable")  # two ascending runs
            block = both[int(self._odd[level]) :: 2].copy()
            self._odd[level], self._levels[level] = not self._odd[level], None
            level += 1
