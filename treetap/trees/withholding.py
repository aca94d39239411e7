"""What a label holder withholds from the other parties while a tree grows.

ID-LMID (Takahashi, Liu, Liu 2023, Algorithm 5) shows no set of records whose class shares diverge from those of all
records by more than ξ nats (Eq. 6). In Reduced-Leakage (Cheng et al. 2021) the label holder grows the first trees
alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treetap.trees.information import class_counts, node_bounds

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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

    def hot(self, labels: Ints, classes: int, sampled: Bools) -> Ints:
        """The slots (N, C) for class numbers (N,) whose sums Eq. 6 takes; 0 for records that do not count."""
        found: Ints = (labels[:, None] == np.arange(classes)).astype(np.int64)
        if not self.shown:
            found[~sampled] = 0
        return found

    def limit(
        self, labels: npt.NDArray[np.int64], classes: int, first_slot: int, width: int
    ) -> InformationLimit | None:
        """Eq. 6 for class numbers (N,), counted in C slots from `first_slot`; the criterion has the first `width`."""
        if self.xi is None:
            return None
        return InformationLimit(self.xi, class_counts(labels, classes), first_slot, width)


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
        found: Bools = np.maximum(left_bound, right_bound) <= self.xi
        return found

    def _counts(self, sums: Ints) -> Ints:
        return sums[:, self.first_slot : self.first_slot + len(self.totals)]
