"""Sets of records and trees that a label holder withholds from the other parties while a tree grows.

ID-LMID (Takahashi, Liu, Liu 2023, Algorithm 5) shows no set of records whose class shares diverge from those of all
records by more than ξ nats (Eq. 6). In Reduced-Leakage (Cheng et al. 2021) the label holder grows the first trees
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.errors import ConfigError
from treetap.trees.information import class_counts, node_bounds


@dataclass(frozen=True)
class Withholding:
    """Settings for a job.

    Attributes:
        own_trees: trees from the first that the label holder grows alone.
        xi: ξ in nats; None: every set may be shown.
        shown: True: Eq. 6 counts every record of a set that is shown; False: those that the tree draws, as in the
            paper's experiments.
    """

    own_trees: int = 0
    xi: float | None = None
    shown: bool = True

    def grows_alone(self, tree: int) -> bool:
        """True for a tree that the label holder grows alone."""
        return tree < self.own_trees

    def check_leaves(self, max_leaves: int) -> None:
        """Raise `ConfigError` if a job limits the leaves of a tree (0: it does not) and ξ withdraws some."""
        if self.xi is not None and max_leaves:
            raise ConfigError(
                f"max_leaves = {max_leaves} and ID-LMID do not go together: leaves that the label holder grows alone "
                "count too, and what is left for other nodes would show the other parties how many those are; set "
                "max_leaves = 0, or leave id_lmid and on_max_leakage out"
            )

    def counted(
        self, values: Ints, labels: Ints, classes: int, sampled: Bools, *, has_counts: bool = False
    ) -> tuple[Ints, InformationLimit | None]:
        """The summands of a tree with slots for the classes that Eq. 6 counts, and the limit on their sums.

        Args:
            values: (N, S) the criterion's summands.
            labels: class numbers (N,).
            sampled: (N,) the records that the tree draws.
            has_counts: the criterion's first C slots are the classes of the drawn records.
        """
        if self.xi is None:
            return values, None
        totals, width = class_counts(labels, classes), values.shape[1]
        if has_counts and not self.shown:
            return values, InformationLimit(self.xi, totals, 0, width)
        hot: Ints = (labels[:, None] == np.arange(classes)).astype(np.int64)
        if not self.shown:
            hot[~sampled] = 0
        return np.concatenate([values, hot], axis=1), InformationLimit(self.xi, totals, width, width)


#: Every set of records may be shown, and every tree is grown by all parties.
NOTHING = Withholding()


@dataclass(frozen=True)
class InformationLimit:
    """Eq. 6 as a condition on both children of a split.

    Attributes:
        xi: ξ in nats.
        totals: class counts N^c of all records (C,).
        first_slot: where the C class counts of a set begin among the slots of its sums.
        width: the number of slots that are the criterion's, the first ones.
    """

    xi: float
    totals: Ints
    first_slot: int
    width: int

    def allows(self, left: Ints, whole: Ints) -> Bools:
        """For left sums (n, S) of candidates of one node with the sums (S,): may both children be shown (n,)."""
        of_left, of_whole = self._counts(left), self._counts(whole[None])
        left_bound = node_bounds(of_left, self.totals).larger
        right_bound = node_bounds(of_whole - of_left, self.totals).larger
        return np.maximum(left_bound, right_bound) <= self.xi

    def forbid(self, gains: Sequence[Floats], lefts: Sequence[Ints], whole: Ints) -> list[Floats]:
        """Algorithm 5, lines 2 to 4, for one node with the sums (S,).

        Gains (candidates,) by party, −∞ for candidates of all parties but the first that have a child that breaks
        Eq. 6; `lefts`: left sums (candidates, S) by party.
        """
        others = zip(gains[1:], lefts[1:], strict=True)
        return [gains[0], *(np.where(self.allows(left, whole), part, -np.inf) for part, left in others)]

    def _counts(self, sums: Ints) -> Ints:
        return sums[:, self.first_slot : self.first_slot + len(self.totals)]
