"""Loss change of a split and weight of a leaf, in one stated order of float64 operations (docs/xgboost.md).

Sums are int64 with slots (g_0..g_{K−1}, h_0..h_{K−1}, count). In this order, which the oracle shares:

1. G_k = float(Σg_k) · (scale · 2^-32) and H_k = float(Σh_k) · 2^-32; both factors are powers of two.
2. T_k = G_k moved towards 0 by α, at most to 0; w_k = −T_k/(H_k+λ), moved to ±δ if its magnitude exceeds δ > 0.
3. gain(node) = 0 + gain_0 + gain_1 + …, an output with H_k ≤ 0 or H_k < min_child_weight giving 0. With δ = 0 gain_k is
   T_k·T_k/(H_k+λ); else, as XGBoost has it, −(2·G_k·w_k + (H_k+λ)·(w_k·w_k)) in a tree of one output, −(T_k·w_k) in
   one of several. Of these XGBoost before 3.4 leaves out the 2·α·|w_k| that the penalty would add.
4. loss change = (gain(L) + gain(R)) − gain(parent).

In a tree with monotone constraints, of one output, w_k is then moved into the node's bounds, and gain_k is always that
of w_k: XGBoost's −(2·G_k·w_k + (H_k+λ)·(w_k·w_k)).

α is `reg_alpha`, λ `reg_lambda` and δ `max_delta_step`.

Where two loss changes nearly tie `treetap.trees.exact_rule` decides, but for trees of several outputs, α, δ, bounded
weights and noise.

Rules taken from XGBoost 3.2 and 3.3 (each pinned by a test; 3.4 changed some, see docs/xgboost.md): a split is kept if
its loss change is > 1e-6 and ≥ gamma, before growing on (nothing is pruned afterwards); a tree of one output refuses a
side with H < min_child_weight; a multi-output tree does not, it gives every output with H_k < min_child_weight gain 0
and weight 0.

Difference: XGBoost before 3.4 makes a node a leaf if the best candidate has a side with H = 0; here such a candidate is
left out. With the losses of `loss` H = 0 means no record of a factor above 0, hence G = 0 and a loss change of 0, so no
model shows the difference.
Among cuts that empty bins make equal, XGBoost takes the highest if missing values go left; here ties go to the lowest.

Monotone constraints while a tree grows, as in XGBoost: marks of candidates, and bounds of the weights of nodes.

A candidate of an increasing column is refused if its left weight exceeds its right one, of a decreasing column if it is
below it; both weights lie within the bounds of the node. A split by such a column bounds the weights of all nodes below
it: on one side from above, on the other from below, by the mean of the children's weights. All weights are those before
the learning rate. Once any column of a tree is constrained, all of its gains are those of bounded weights.

So constraints hold: two records that differ in a constrained column part at a split by it, and all leaves on either
side of that lie within bounds that meet at its middle.

Where the present values of a constrained column go left and the missing ones right, the two sides may be admissible the
other way round only. XGBoost tries that too. Such mirror images are candidates beyond the n of their party: n + k is
that of candidate k, and has its right sums as left ones.

The party that chooses splits does not know which of several tied candidates their owner takes, and has to know its
direction. So of tied candidates those of increasing columns come first, then those of decreasing ones; XGBoost takes
the lowest column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.trees.candidates import DECREASING, INCREASING, NodeCandidates, PartitionRule, largest
from treetap.trees.ensemble import ROOT
from treetap.trees.exact_rule import ExactRule
from treetap.trees.loss import UNIT, record_bounds
from treetap.trees.params import BoostingParams

if TYPE_CHECKING:
    from treetap.trees.pivodl_params import PivodlParams

    #: What gains and weights depend on has one name and meaning in both.
    GainParams = BoostingParams | PivodlParams

# XGBoost's kRtEps: a loss change of this or less is rounding noise.
LEAST_LOSS_CHANGE = 1e-6


#: Bounds of the weights of a node and its children, of a tree of one output.
Within = tuple[float, float]
FREE: Within = (-np.inf, np.inf)


def open_sums(sums: Ints, scale: float) -> tuple[Floats, Floats, Ints]:
    """Sums (..., 2K+1) as G (..., K), H (..., K) in the loss's own units and the count (...)."""
    outputs = (sums.shape[-1] - 1) // 2
    G = sums[..., :outputs].astype(np.float64) * (scale / UNIT)
    H = sums[..., outputs : 2 * outputs].astype(np.float64) * (1.0 / UNIT)
    return G, H, sums[..., -1]


def node_gain(G: Floats, H: Floats, params: GainParams, within: Within | None = None) -> Floats:
    """Σ_k gain_k over the last axis, in order: rule 3 of this module."""
    total = np.zeros(G.shape[:-1])
    for k in range(G.shape[-1]):
        g, h = G[..., k], H[..., k]
        counts = _counting(h, params)
        shrunk, whole = _shrunk(g, params), np.where(counts, h + params.reg_lambda, 1.0)
        if params.largest_step == 0 and within is None:
            gain = shrunk * shrunk / whole
        else:
            w = _bounded(-shrunk / whole, params, within)
            gain = -(2.0 * g * w + whole * (w * w)) if G.shape[-1] == 1 else -(shrunk * w)
        total = total + np.where(counts, gain, 0.0)
    return total


def _counting(H: Floats, params: GainParams) -> Bools:
    """The outputs that are heavy enough to count."""
    return (H > 0) & (params.min_child_weight <= H)


def _shrunk(G: Floats, params: GainParams) -> Floats:
    """T: G moved towards 0 by α."""
    return np.sign(G) * np.maximum(np.abs(G) - params.reg_alpha, 0.0)


def _bounded(weights: Floats, params: GainParams, within: Within | None) -> Floats:
    """Weights before the learning rate, none beyond ±δ, nor beyond the bounds."""
    step = params.largest_step
    stepped = weights if step == 0 else np.clip(weights, -step, step)
    return stepped if within is None else np.clip(stepped, *within)


def loss_changes(left: Ints, parent: Ints, scale: float, params: GainParams, within: Within | None = None) -> Floats:
    """XGBoost's loss change of every candidate, −∞ where the split is not allowed.

    left (nodes, candidates, 2K+1), parent (nodes, 2K+1); returns (nodes, candidates). Not allowed: a side without
    records, a side with H = 0 in every output, and, if K = 1, a side with H < min_child_weight. `within`: of all these
    nodes.
    """
    whole = parent[:, None, :]
    G_L, H_L, n_L = open_sums(left, scale)
    G_R, H_R, n_R = open_sums(whole - left, scale)
    G, H, _ = open_sums(whole, scale)
    change = (node_gain(G_L, H_L, params, within) + node_gain(G_R, H_R, params, within)) - node_gain(
        G, H, params, within
    )
    allowed = (n_L > 0) & (n_R > 0) & (H_L > 0).any(axis=-1) & (H_R > 0).any(axis=-1)
    if G.shape[-1] == 1:
        least = math.ceil(params.min_child_weight * UNIT)
        allowed &= (left[..., 1] >= least) & ((whole - left)[..., 1] >= least)
    return np.where(allowed, change, -np.inf)


def node_weights(sums: Ints, scale: float, params: GainParams, within: Within | None = None) -> Floats:
    """w_k, 0 where H_k ≤ 0 or H_k < min_child_weight: sums (..., 2K+1) → (..., K)."""
    G, H, _ = open_sums(sums, scale)
    counts = _counting(H, params)
    whole = np.where(counts, H + params.reg_lambda, 1.0)
    return np.where(counts, _bounded(-_shrunk(G, params) / whole, params, within), 0.0)


def leaf_weights(sums: Ints, scale: float, params: GainParams, within: Within | None = None) -> Floats:
    """w_k · learning_rate: sums (..., 2K+1) → (..., K)."""
    return node_weights(sums, scale, params, within) * params.learning_rate + 0.0  # −0.0 becomes 0.0


def category_order(sums: Ints, scale: float, params: BoostingParams) -> Ints:
    """The order of categories by the weights that leaves of each would have: sums (K, 3) → (K,), ascending and stable.

    XGBoost before 3.4 orders by these weights too, so that a category with H < min_child_weight has weight 0.
    """
    return np.argsort(node_weights(sums, scale, params)[:, 0], kind="stable")


@dataclass(frozen=True)
class BoostingCriterion:
    """These formulas for one tree, whose g were divided by `scale`.

    Where h was divided by a unit of its own, a power of two, all of it is in this unit: `scale` and `params` are those
    of `of`, and gains and cover are multiplied by `unit`. No float is rounded otherwise than without.

    Sums are int64 with slots, the last of which counts records; growth asks the same of every criterion
    (`treetap.trees.noised_sums.Criterion`).
    """

    scale: float
    params: BoostingParams
    unit: float = 1.0
    of_records: Callable[[Ints], Floats] | None = None

    @classmethod
    def of(cls, scale: float, unit: float, params: BoostingParams, of_records: Any = None) -> BoostingCriterion:
        """The criterion of a job with these parameters, whose h were divided by `unit`.

        `of_records`: gives a leaf's value (outputs,) by the numbers of its records, where no sums do.
        """
        return cls(scale / unit, params.in_units(unit), unit, of_records)

    @property
    def partitions(self) -> PartitionRule:
        """The partitions of categories."""
        return lambda sums: category_order(sums, self.scale, self.params), self.params.max_cat_threshold

    def ranges(self, slots: int) -> tuple[Ints, Ints]:
        """The least and the largest value of one record in each of the slots but the last, whatever its label.

        ±|g| and 0..h of the loss, as slot widths assume.
        """
        g, h = record_bounds(self.params.objective, self.params.largest_factor)
        outputs = (slots - 1) // 2
        return np.repeat(np.array([-g, 0]), outputs), np.repeat(np.array([g, h]), outputs)

    def gains(self, left: Ints, parent: Ints) -> Floats:
        """Gain of every candidate, −∞ where it is not allowed: left (nodes, candidates, S), parent (nodes, S)."""
        return loss_changes(left, parent, self.scale, self.params) * self.unit

    def exact_rule(self, slots: int) -> ExactRule | None:
        """The integers that decide between candidates; None: the options have no such form, and floats decide."""
        params = self.params
        if slots != 3 or params.reg_alpha or params.largest_step:
            return None
        unit, penalty = Fraction(self.scale) ** 2 * Fraction(self.unit) / UNIT, params.penalty / UNIT
        lightest = max(params.min_child_weight, 1 / UNIT) + min(params.reg_lambda, penalty)
        inexact = abs(params.reg_lambda - penalty) / lightest
        least = max(params.gamma, math.nextafter(LEAST_LOSS_CHANGE, 1.0))
        return ExactRule(1, params.penalty, params.lightest_side, unit, False, least, inexact)

    def choose(self, gains: Sequence[Floats]) -> tuple[int, Ints] | None:
        """The best split of one node by floats, of each party's gains (candidates,) in tie order; None for a leaf.

        The lowest party that has the best gain exactly, and all its candidates that have it, ascending: their owner
        takes its lowest.
        """
        best = largest(gains)
        if best is None or not (best[2] > LEAST_LOSS_CHANGE and best[2] >= self.params.gamma):
            return None
        return best[:2]

    def shown(self, gain: float) -> float:
        """A gain in the units in which it is reported: a loss change as it is."""
        return gain

    def may_split(self, sums: Ints) -> bool:
        """True if a node with these sums (2K+1,) could have an allowed split with a loss change above 0.

        False only where no candidate can pass: fewer than two records; in a tree of one output H < 2·min_child_weight
        (both sides need it); in a multi-output tree no output with H_k ≥ min_child_weight (every gain is then 0).
        """
        _, H, count = open_sums(sums, self.scale)
        least = self.params.min_child_weight
        return bool(count >= 2 and (H[0] >= 2 * least if len(H) == 1 else (least <= H).any()))

    def leaf(self, sums: Ints, rows: Ints | None = None) -> Floats:
        """The value of a leaf with these sums (S,) and records: (outputs,)."""
        if self.of_records is not None and rows is not None:
            return self.of_records(rows)
        return leaf_weights(sums, self.scale, self.params)

    def cover(self, sums: Ints) -> float:
        """XGBoost's cover: Σ_k H_k of the sampled records, added in the order of k."""
        return float(np.cumsum(open_sums(sums, self.scale)[1])[-1]) * self.unit


@dataclass
class Monotone:
    """The constraints of one tree of one output.

    Attributes:
        criterion: the tree's.
        marks: by party the mark of each candidate, (n,); None: the party has no constraints, and no mirror images.
    """

    criterion: BoostingCriterion
    marks: Sequence[Ints | None]
    _within: dict[int, Within] = field(default_factory=lambda: {ROOT: FREE})

    def of_first(self) -> Monotone:
        """The same constraints, of the first party's candidates alone."""
        return Monotone(self.criterion, self.marks[:1], self._within)

    def gains(self, node: int, candidates: NodeCandidates, whole: Ints) -> Floats:
        """Gain of every candidate at a node, −∞ where it is not allowed: whole (3,) the node's sums."""
        scale, params, within = self.criterion.scale, self.criterion.params, self._within[node]
        left = candidates.lefts[:, : len(whole)]
        changes = loss_changes(left[np.newaxis], whole[np.newaxis], scale, params, within)[0] * self.criterion.unit
        left_weight = node_weights(left, scale, params, within)[:, 0]
        right_weight = node_weights(whole - left, scale, params, within)[:, 0]
        return np.where(candidates.refused(left_weight, right_weight), -np.inf, changes)

    def divide(self, node: int, direction: int, left: Ints, whole: Ints) -> None:
        """Bound the children of a node that is split: its direction, and sums of the left one and of the node, (3,)."""
        scale, params, within = self.criterion.scale, self.criterion.params, self._within[node]
        weights = [float(node_weights(sums, scale, params, within)[0]) for sums in (left, whole - left)]
        middle = (weights[0] + weights[1]) / 2.0
        below, above = (within[0], middle), (middle, within[1])
        children = {INCREASING: (below, above), DECREASING: (above, below), 0: (within, within)}[direction]
        self._within[2 * node], self._within[2 * node + 1] = children

    def leaf(self, node: int, sums: Ints) -> Floats:
        """The weight (1,) of a leaf with these sums (3,)."""
        return leaf_weights(sums, self.criterion.scale, self.criterion.params, self._within[node])
