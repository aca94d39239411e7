"""Rows by which records are told apart: the sets that each is in, and columns. Equal ones are kept once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treetap.arrays import Floats, Ints, Singles

#: Numbers of sparse rows that are written out together: 16 MB.
_WRITTEN = 4_000_000


class Members(NamedTuple):
    """Which of n records are in which of m sets, as a sparse matrix whose unlike rows are kept: u of them.

    Attributes:
        alike: (n,) the row of each record, below u.
        ends: (u + 1,) where the entries of each row begin and end.
        sets, values: (E,) the set of each entry, and its weight.
        width: m.
    """

    alike: Ints
    ends: Ints
    sets: Ints
    values: Singles
    width: int

    @classmethod
    def of(cls, sets: Sequence[Ints], weights: npt.ArrayLike, records: int, *, unit: bool = False) -> Members:
        """By the records of each set, and its weight, or one of all; `unit`: rows have length 1."""
        at = np.concatenate([np.zeros(0, dtype=np.int64), *sets])
        number = np.repeat(np.arange(len(sets)), [len(some) for some in sets])
        # equal rows have equal sums, and others do not
        told = np.bincount(at, np.random.default_rng(0).random(len(sets))[number], records)
        first, alike = np.unique(told, return_index=True, return_inverse=True)[1:]
        place = np.full(records, -1)
        place[first] = np.arange(len(first))
        kept = np.flatnonzero(place[at] >= 0)
        kept = kept[np.argsort(place[at[kept]], kind="stable")]
        row, number = place[at[kept]], number[kept]
        values = np.broadcast_to(np.asarray(weights, dtype=np.float64), len(sets))[number]
        if unit:
            values = values / np.sqrt(np.bincount(row, values**2))[row]
        ends = np.searchsorted(row, np.arange(len(first) + 1))
        return cls(alike, ends, number, values.astype(np.float32), len(sets))

    def rows(self, places: Ints) -> Singles:
        """Some of the unlike rows (k, m)."""
        lengths = self.ends[places + 1] - self.ends[places]
        at = np.repeat(np.arange(len(places)), lengths)
        entry = np.arange(len(at)) + np.repeat(self.ends[places] - np.cumsum(lengths) + lengths, lengths)
        rows = np.zeros((len(places), self.width), dtype=np.float32)
        rows[at, self.sets[entry]] = self.values[entry]
        return rows

    def blocks(self) -> Iterator[tuple[slice, Singles]]:
        """All unlike rows, some at a time."""
        together, many = max(1, _WRITTEN // max(1, self.width)), len(self.ends) - 1
        for start in range(0, many, together):
            yield slice(start, start + together), self.rows(np.arange(start, min(many, start + together)))


class Rows(NamedTuple):
    """Rows of n records by sets and by columns, of which u are unlike.

    Attributes:
        alike: (n,) the number of the set of equal rows that each is in, below u.
        members: the sets.
        which: (u,) the row of `members` of each unlike one.
        own: (u, d) the columns.
        lengths: (u, 1) squared.
    """

    alike: Ints
    members: Members
    which: Ints
    own: Floats
    lengths: Floats

    @classmethod
    def of(cls, members: Members | None, own: Floats) -> Rows:
        """The rows by sets, none of them if None, beside columns (n, d), of which there may be none."""
        members = members or Members.of([], 1.0, len(own))
        told = np.unique(own @ np.random.default_rng(0).random(own.shape[1]), return_inverse=True)[1]
        pairs = members.alike * len(own) + told
        first, alike = np.unique(pairs, return_index=True, return_inverse=True)[1:]
        which, unlike = members.alike[first], own[first]
        of_sets = np.add.reduceat(np.append(members.values.astype(np.float64) ** 2, 0), members.ends[:-1])
        of_sets[np.diff(members.ends) == 0] = 0
        lengths = of_sets[which] + (unlike**2).sum(axis=1)
        return cls(alike, members, which, unlike, lengths[:, None].astype(own.dtype))

    def of_records(self, places: Ints) -> Floats:
        """The rows (k, m + d) of some records."""
        unlike = self.alike[places]
        return np.hstack([self.members.rows(self.which[unlike]), self.own[unlike]])

    def times(self, weights: Floats, together: int) -> Iterator[tuple[slice, Floats]]:
        """The products with weights (m + d, k) of `together` unlike rows at a time, and which these are."""
        split = self.members.width
        of_sets = np.concatenate([rows @ weights[:split] for _, rows in self.members.blocks()])
        for start in range(0, len(self.which), together):
            some = slice(start, start + together)
            products = self.own[some] @ weights[split:]
            if split:
                products += of_sets[self.which[some]]
            yield some, products
