"""Handles number a party's own splits: each tree continues after the stored ones, so a regrown tree gets the same."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate


class Handles:
    """The first handle of each tree, from the number of own splits of each stored tree."""

    def __init__(self, stored: Iterable[int] = ()) -> None:
        self._first = [0, *accumulate(stored)]

    def first_of(self, tree: int) -> int:
        """The first handle of a tree; all trees before it are stored."""
        return self._first[tree]

    def stored(self, tree: int, splits: int) -> None:
        """Note that a tree with this number of own splits is stored, and none after it."""
        self._first[tree + 1 :] = [self._first[tree] + splits]
