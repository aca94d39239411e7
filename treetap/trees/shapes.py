"""The shape of a column, from which follow the sums that a party makes of it in every node, in number and order.

A column of numbers has left sums of its cuts. A column of categories has either the left sums of every category against
the rest, or, where the label holder divides its categories into two sets (`treetap.trees.partitions`), the sums over
every category.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """The splits of a column."""

    NUMBERS = 0
    ONE_HOT = 1
    PARTITIONS = 2


class Shape(NamedTuple):
    """`n_bins` bins of present values, a bin for missing ones if training `has_missing`, and the splits."""

    n_bins: int
    has_missing: bool
    kind: Kind = Kind.NUMBERS

    @property
    def sums(self) -> int:
        """The number of sums of a node."""
        if self.kind is Kind.NUMBERS:
            return 2 * self.n_bins - 1 if self.has_missing else self.n_bins - 1
        return 2 * self.n_bins if self.kind is Kind.ONE_HOT and self.has_missing else self.n_bins

    @property
    def products(self) -> int:
        """The most products of ciphertexts that turn a node's bins into these sums.

        One against the rest takes the products of the categories before and behind each, and the product of both.
        """
        if self.kind is Kind.PARTITIONS:
            return 0
        return self.sums if self.kind is Kind.NUMBERS else self.sums + 2 * self.n_bins
