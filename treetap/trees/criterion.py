"""The interface between a tree's growth and its gains, stopping rules and leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.candidates import PartitionRule


class Criterion(Protocol):
    """Gains, stopping and leaves of one tree. Sums are int64 with slots, the last of which counts records."""

    @property
    def partitions(self) -> PartitionRule | None:
        """The partitions of categories; None where no column has any."""
        ...

    def ranges(self, slots: int) -> tuple[Ints, Ints]:
        """The least and the largest value of one record in each of the slots but the last, whatever its label."""
        ...

    def gains(self, left: Ints, parent: Ints) -> Floats:
        """Gain of every candidate, −∞ where it is not allowed: left (nodes, candidates, S), parent (nodes, S)."""
        ...

    def choose(self, gains: Sequence[Floats]) -> tuple[int, Ints] | None:
        """The winning party and all its tied candidates, ascending, of each party's gains (candidates,); or a leaf."""
        ...

    def shown(self, gain: float) -> float:
        """A gain in the units in which it is reported."""
        ...

    def may_split(self, sums: Ints) -> bool:
        """True if a node with these sums (S,) could have an allowed split."""
        ...

    def leaf(self, sums: Ints) -> Floats:
        """The value of a leaf with these sums (S,): (outputs,)."""
        ...

    def cover(self, sums: Ints) -> float:
        """The weight of a node's sampled records."""
        ...


def largest(gains: Sequence[Floats]) -> tuple[int, Ints, float] | None:
    """The lowest party that has the largest gain exactly, its candidates that have it, and the gain; None: no gains."""
    best = [float(part.max(initial=-np.inf)) for part in gains]
    top = max(best, default=-np.inf)
    if top == -np.inf:
        return None
    party = best.index(top)
    return party, np.flatnonzero(gains[party] == top), top
