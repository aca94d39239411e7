"""The reverse sum attack's gradients: marks of records in the low bits of g and h, at a label holder that crafts them.

Weng et al., "Practical Privacy Attacks on Vertical Federated Learning" (arXiv 2011.09290), have a label holder hide
numbers of its choice in digits of g that a model does not need; a sum then tells which records are in it. Here g and h
keep `KEPT_BITS` bits below their bounds, and each bit under those is a *mark* of one record: 1 in its g or h, 0 in all
others'. Such values are in the job's range, and sums of marks do not reach the kept bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.loss import record_bounds
from treetap.trees.params import BoostingParams

Ints = npt.NDArray[np.int64]
#: Bits of |g| and h, of the largest that the loss permits, that stay as they are, for the model.
KEPT_BITS = 12
#: Marks of a tree that go to the same records in all trees, by which candidates are known again; a quarter of few.
ANCHORS = 10


@dataclass(frozen=True)
class ReverseSum:
    """Marks of the records of a job's trees.

    Attributes:
        bounds: (2K,) the largest |g_k| and h_k of a record.
        outputs: K.
    """

    bounds: tuple[int, ...]
    outputs: int

    @classmethod
    def of(cls, params: BoostingParams, outputs: int) -> ReverseSum:
        """The marks of a job whose trees have that many outputs."""
        g, h = record_bounds(params.objective, params.largest_factor)
        return cls((*[g] * outputs, *[h] * outputs), outputs)

    @property
    def spare(self) -> tuple[int, ...]:
        """(2K,) the bits of each slot that hold marks."""
        return tuple(bound.bit_length() - KEPT_BITS for bound in self.bounds)

    @property
    def marks(self) -> int:
        """Records that a tree marks."""
        return sum(self.spare)

    def crafted(self, values: Ints, tree: int) -> Ints:
        """Summands (N, 2K + 1) of a tree with marks: of drawn records, the same anchors and then others in turn.

        g and h are rounded to what is kept, so that they stay within their bounds with a mark.
        """
        marked = values.copy()
        drawn = np.flatnonzero(values[:, 2 * self.outputs] > 0)
        places = [(slot, bit) for slot, spare in enumerate(self.spare) for bit in range(spare)]
        for slot, (bound, spare) in enumerate(zip(self.bounds, self.spare, strict=True)):
            most = (bound >> spare) - 1
            least = -(bound >> spare) if slot < self.outputs else 0
            kept = (values[drawn, slot] + (1 << spare >> 1)) >> spare
            marked[drawn, slot] = np.clip(kept, least, most) << spare
        for (slot, bit), row in zip(places, self._turn(drawn, tree), strict=False):
            marked[row, slot] += 1 << bit
        return marked

    def _turn(self, drawn: Ints, tree: int) -> Ints:
        """The records that a tree marks, of those that it draws: as many as there are marks, or all."""
        anchors = drawn[:: max(1, len(drawn) // ANCHORS)][:ANCHORS]
        others, rest = np.setdiff1d(drawn, anchors), self.marks - ANCHORS
        if len(others) > rest:
            others = others[(tree * rest + np.arange(rest)) % len(others)]
        return np.concatenate([anchors, others])


class CraftedRounds(BoostingRounds):
    """Rounds of a label holder that marks records in each tree's summands; a party's where it makes its own."""

    def derivatives(self, tree: int) -> tuple[Ints, float, npt.NDArray[np.bool_]]:
        values, scale, sampled = super().derivatives(tree)
        return ReverseSum.of(self._params, values.shape[1] // 2).crafted(values, tree), scale, sampled
