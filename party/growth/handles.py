"""Numbers of a party's own splits: each tree numbers on from the stored ones, so that a regrown tree repeats them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate


class Handles:
    """For each tree its first handle; given the number of own splits of each stored tree."""

    def __init__(self, stored: Iterable[int] = ()) -> None:
        self._first = [0, *accumulate(stored)]

    def first_of(self, tree: int) -> int:
        """The first handle of a tree; all trees before it are stored."""
        return self._first[tree]

    def stored(self, tree: int, splits: int) -> None:
        """Note that a tree with so many own splits is on disk now, and none after it."""
        self._first[tree + 1 :] = [self._first[tree] + splits]
