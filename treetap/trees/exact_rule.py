"""The integer rule by which candidates of a node are compared, the same for opened and for shared sums.

Of a candidate's left records x_k (K numbers) and y are sums, of the node X_k and Y; all are integers. With a penalty
λ′ and A = Y + 2λ′ the candidate's score is

    Σ_k x_k²/(y+λ′) + Σ_k (X_k−x_k)²/(Y−y+λ′) = Num/Den,
    Num = A·Σ_k x_k² + (y+λ′)·Σ_k X_k·(X_k−2·x_k),    Den = (y+λ′)·(A−(y+λ′)).

| | x | y | λ′ | lightest side c |
|---|---|---|---|---|
| boosting, one output a tree | Σg | Σh | max(1, rint(λ·2^32)) | max(1, ⌈`min_child_weight`·2^32⌉) |
| forest, classes | draws of class k | draws | 0 | `min_samples_leaf` |
| forest, numbers | Σ of targets | draws | 0 | `min_samples_leaf` |

1. Both sides must have y ≥ c. In a node with Y ≥ 2c that is Den ≥ T, with T = (c+λ′)·(A−(c+λ′)).
2. The score must exceed N0/D0, with D0 the least multiple s·(Y+λ′) that is at least T, and
   N0 = s·Σ_k X_k² + ⌈t·D0⌉ − 1: the gain score − Σ_k X_k²/(Y+λ′) is then at least t, to one part in D0. t is the least
   gain in units of the score: `gamma`, more than 1e-6, or for a forest more than its `LEAST_GAIN`, which of classes
   is less than a part up to 10^6 draws: there any gain above 0 does.
3. The largest score wins. Of equal ones that of the lowest party, then the lowest candidate.

Floats decide where they can: two gains that differ by more than 2^-45 of the scores are those of different scores in
this order. A float's λ is not λ′, by up to 2^-33, or 2^-32 where λ = 0; the margin counts that too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.candidates import largest
from treetap.trees.params import BoostingParams, ForestParams

#: Relative size of the margin within which integers decide, of gains that are the sums of few quotients.
MARGIN = 2.0**-45


class NodeBound(NamedTuple):
    """A node as scores are made and compared in it: A, X_k, T, and the fraction N0/D0 that a score must exceed."""

    A: int
    G: tuple[int, ...]
    T: int
    N0: int
    D0: int


class SumBits(NamedTuple):
    """Σ_k |x_k| < 2^g, and y + λ′ < 2^h on both sides, so that Num and N0 < 2^(2g+h+1), and Den, T and D0 < 2^2h."""

    g: int
    h: int


def sum_bits(params: BoostingParams | ForestParams, outputs: int, records: int) -> SumBits:
    """Bits of the sums over so many draws of records, in trees with so many outputs, one output in boosting."""
    bounds = [*params.slot_bounds(outputs), 1]
    return SumBits(
        (records * bounds[0]).bit_length(), (records * bounds[outputs] + params.largest_penalty(records)).bit_length()
    )


@dataclass(frozen=True)
class ExactRule:
    """The rule for one tree.

    Attributes:
        outputs: K; the first slots of sums are x_1..x_K and y.
        penalty: λ′.
        lightest: c.
        unit: what a difference of scores of 1 is worth as a gain; `averaged`: and divided by Y.
        least: the least gain of a split, as a float.
        inexact: by how much, relative to the scores, float scores may be wrong besides rounding.
    """

    outputs: int
    penalty: int
    lightest: int
    unit: Fraction
    averaged: bool
    least: float
    inexact: float = 0.0

    def bound(self, whole: Ints) -> NodeBound:
        """The bound of a node with these sums (S,), which has Y ≥ 2c: rules 1 and 2."""
        *G, Y = map(int, whole[: self.outputs + 1])
        A, side = Y + 2 * self.penalty, self.lightest + self.penalty
        T = side * (A - side)
        scale = -(-T // (Y + self.penalty))
        D0 = scale * (Y + self.penalty)
        least, one = self._least
        least *= D0 * Y if self.averaged else D0
        return NodeBound(A, tuple(G), T, scale * sum(g * g for g in G) - (-least // one) - 1, D0)

    def to_beat(self, whole: Ints, own: Ints | None, bits: SumBits) -> NodeBound:
        """What a candidate of another party must exceed at a node, in shared sums.

        `whole` (S,): the node's sums. `own` (S,): the left sums of the label holder's best candidate, if it splits the
        node when nobody else does. Where no candidate may win, because the node is too light or the least gain too
        large, T is 1 and N0/D0 at least as large as any score.
        """
        *G, Y = map(int, whole[: self.outputs + 1])
        cap = (1 << 2 * bits.g + bits.h + 1) - 1
        none = NodeBound(Y + 2 * self.penalty, tuple(G), 1, cap, 1)
        if 2 * self.lightest > Y:
            return none
        bound = self.bound(whole)
        if own is not None:
            num, den = self.score(bound, own)
            return bound._replace(N0=num, D0=den)
        return bound if cap >= bound.N0 else none

    def score(self, bound: NodeBound, left: Sequence[int] | Ints) -> tuple[int, int]:
        """Num and Den of a candidate with these left sums (S,)."""
        *x, y = map(int, left[: self.outputs + 1])
        side = y + self.penalty
        squares = sum(part * part for part in x)
        crossed = sum(g * (g - 2 * part) for g, part in zip(bound.G, x, strict=True))
        return bound.A * squares + side * crossed, side * (bound.A - side)

    def lighter_side(self, node: NodeBound, num: int, den: int) -> tuple[int, int] | None:
        """x and y of the lighter side of a candidate that scores num/den, with one output; None: no sums do.

        Den = (y+λ′)·(A−(y+λ′)) has one such y, and Num = A·x² + (y+λ′)·X·(X−2x) at most two x.
        """
        (G,) = node.G
        side = (node.A - math.isqrt(max(node.A**2 - 4 * den, 0))) // 2
        apart = math.isqrt(max((side * G) ** 2 - node.A * (side * G**2 - num), 0))
        tried = [((side * G + way) // node.A, side - self.penalty) for way in (apart, -apart)]
        return next((left for left in tried if self.score(node, left) == (num, den)), None)

    def best(self, gains: Sequence[Floats], lefts: Sequence[Ints], whole: Ints) -> tuple[int, Ints] | None:
        """The best split of a node: the lowest party that has it, and all its candidates with that score, ascending.

        Gains (candidates,) by party, −∞ where a candidate is not allowed, left sums (candidates, S), and the node's own
        (S,). None: no candidate exceeds the bound.
        """
        first = largest(gains)
        if first is None:
            return None
        party, tied, top = first
        *G, Y = whole[: self.outputs + 1].tolist()
        part = self._worth / (Y if self.averaged else 1) / (Y + self.penalty)  # at least what one in D0 is worth
        margin = (self._margin + 4 * self.inexact) * (top + sum([g * g for g in G]) * part)
        if top < self.least - margin - part:
            return None
        if top > self.least + margin and sum([np.count_nonzero(of_party >= top - margin) for of_party in gains]) == 1:
            return party, tied
        near = [np.flatnonzero(of_party >= top - margin) for of_party in gains]
        if self.inexact:
            # Those of near candidates (n,) by party whose float scores, with λ′, are near the best.
            of_parties = []
            for places, left in zip(near, lefts, strict=True):
                total = np.zeros(len(places))
                for side in (left[places], whole - left[places]):
                    x, y = side[:, : self.outputs].astype(np.float64), side[:, self.outputs].astype(np.float64)
                    total += (x * x).sum(axis=1) / (y + self.penalty)
                of_parties.append(total)
            least = max(total.max(initial=0.0) for total in of_parties) * (1 - self._margin)
            near = [places[total >= least] for places, total in zip(near, of_parties, strict=True)]
        return self._exactly(near, lefts, self.bound(whole))

    def _exactly(self, near: Sequence[Ints], lefts: Sequence[Ints], bound: NodeBound) -> tuple[int, Ints] | None:
        """The same by integers, of the candidates that are near enough to the best, (n,) by party."""
        num, den = bound.N0, bound.D0
        winner, tied, alike = -1, [0], [[0]]
        whole = [*bound.G, bound.A - 2 * self.penalty]
        for party, places in enumerate(near):
            for place, left in zip(places.tolist(), lefts[party][places, : len(whole)].tolist(), strict=True):
                lead = 0
                if left not in alike:  # else of the winner's records or of all others: equal
                    own_num, own_den = self.score(bound, left)
                    lead = own_num * den - num * own_den
                    if lead > 0:
                        num, den, winner, tied = own_num, own_den, party, []
                        alike = [left, [total - part for total, part in zip(whole, left, strict=True)]]
                if lead >= 0 and winner == party:
                    tied.append(place)
        return None if winner < 0 else (winner, np.array(tied))

    @cached_property
    def _margin(self) -> float:
        """`MARGIN` for scores that are sums of few numbers, more for those of many outputs."""
        return MARGIN * (1 + self.outputs / 32)

    @cached_property
    def _least(self) -> tuple[int, int]:
        """t as a fraction, before it is multiplied by Y where gains are divided by it."""
        return (Fraction(self.least) / self.unit).as_integer_ratio()

    @cached_property
    def _worth(self) -> float:
        """`unit`, in floats."""
        return float(self.unit)
