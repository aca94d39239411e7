"""Rules of PIVODL that its parties and the trainer on a joined table share: thresholds, draws of parties, gains.

Thresholds    Which candidates and nodes the parties' numbers of labelled records permit (Algorithm 2, line 24). With a
              sum over very few of its labelled records a party would show their labels. The paper compares the left
              side of a candidate, at parties other than the source. Here both sides count, since a right side is the
              node without the left one, and the source counts too: its split party could otherwise open sums over a
              single record of the source.
Draws         Who adds up and opens the root's sums of a tree, and who opens whose candidates at a node: SHAKE-256 of
              the job's seed, one nonce of every party, and the draw's name, never of an attempt. The author of a job
              cannot fix the draws, and a tree that is grown again has the same ones (a second split party would
              otherwise get the same sums).
Gains         Whole numbers of 64 bits, in units of 2^-24, so that comparing them openly and comparing them under
              encryption agree. Rounding is monotonic; gains closer than that are ties, which go to the lowest source,
              and within a source to the lowest candidate.

The loss of a job whose labels are spread over parties: every scale is public, so that each computes the same alone.

The labels of a regression are scaled, (y − base_score) / label_scale, and scores, gradients, weights and the clip bound
are in these units. Gradients of a regression are fixed point at a scale of 2^12 for every party, those of a classifier
at 1; see `treetap.trees.loss`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.errors import DataError
from treetap.trees.boosting_criterion import LEAST_LOSS_CHANGE, leaf_weights, loss_changes
from treetap.trees.ensemble import ROOT
from treetap.trees.loss import UNIT, loss_for, power_of_two_scale
from treetap.trees.pivodl_params import GRADIENT_SCALE, PivodlParams

#: Largest label that the secure sums of y and y² take.
LARGEST_LABEL = 2.0**40


@dataclass(frozen=True)
class Moments:
    """Exact sums of labels in fixed point: Σ rint(y · 2^32), the sum of the squares of these, and how many."""

    total: int
    squares: int
    count: int

    @staticmethod
    def of(labels: Floats) -> Moments:
        """The moments of some labels; `DataError` counts those that are too large, and names none."""
        if over := int((~(np.abs(labels) <= LARGEST_LABEL)).sum()):
            raise DataError(
                f"{over} of {len(labels)} labels are beyond ±{LARGEST_LABEL:g}; state label_scale and base_score in "
                "the job, or use a smaller unit"
            )
        whole = [round(float(label) * UNIT) for label in labels]
        return Moments(sum(whole), sum(number * number for number in whole), len(whole))

    def mean(self) -> float:
        """The mean label, correctly rounded."""
        return float(Fraction(self.total, self.count * UNIT))

    def scale(self) -> float:
        """The smallest power of two that is not below the labels' standard deviation."""
        variance = Fraction(self.squares, self.count) - Fraction(self.total, self.count) ** 2
        return power_of_two_scale(np.array([math.sqrt(float(variance / UNIT**2))]))


class SharedLabelLoss:
    """Gradients at one party, whichever records it labels.

    Attributes:
        scale: of fixed-point g; public.
        base: the score before the first tree, (outputs,), in scaled units.
        label_scale, base_score: of a regression; 1 and 0 of a classifier.
        moments: those of all labels, where these two follow from them.
    """

    def __init__(self, params: PivodlParams, moments: Moments | None = None) -> None:
        """`moments`: of all labels, where the parameters leave scale or base of a regression open."""
        self.params, self.moments = params, moments
        self._loss = loss_for(params.objective, max(len(params.class_names), 2))
        self.label_scale, self.base_score, self.scale = 1.0, 0.0, 1.0
        if params.regression:
            self.scale = GRADIENT_SCALE
            self.label_scale = params.label_scale if params.label_scale is not None else _known(moments).scale()
            self.base_score = params.base_score if params.base_score is not None else _known(moments).mean()
            self.base: Floats = np.zeros(1)
        else:
            self.base = self._loss.base_margin(params.base_score, np.zeros(0))

    def scaled(self, labels: Array) -> Array:
        """Labels (n,) in the units of scores; `DataError` counts those too large for a gradient, and names none."""
        if not self.params.regression:
            return labels
        scaled = (np.asarray(labels, dtype=np.float64) - self.base_score) / self.label_scale
        self._check(scaled, "labels")
        return scaled

    def gradients(self, scores: Floats, labels: Array) -> Ints:
        """g and h in fixed point, (n, 2K), of scaled labels (n,) at scores (n, K)."""
        g, h = self._loss.gradients(scores, labels)
        if self.params.regression:
            self._check(g, "gradients")
        fixed_g = np.rint(g / self.scale * UNIT).astype(np.int64)
        return np.concatenate([fixed_g, np.maximum(np.rint(h * UNIT).astype(np.int64), 1)], axis=1)

    def figures(self, scores: Floats, labels: Array) -> tuple[float, float]:
        """Sums over records of losses (log-loss, or squared error of scaled labels) and of correct classes."""
        if not len(labels):
            return 0.0, 0.0
        if self.params.regression:
            return float(((scores[:, 0] - labels) ** 2).sum()), 0.0
        outcome = self._loss.transform(scores)
        if self.params.width == 1:
            right = np.where(np.asarray(labels) == 1, outcome, 1.0 - outcome)
            correct = (outcome >= 0.5) == (np.asarray(labels) == 1)
        else:
            right = outcome[np.arange(len(labels)), np.asarray(labels)]
            correct = outcome.argmax(axis=1) == np.asarray(labels)
        return float(-np.log(np.maximum(right, 1e-15)).sum()), float(correct.sum())

    def outcome(self, scores: Floats) -> Floats:
        """Scores (n, K) as P(second class) (n,), class probabilities (n, C), or values in the label's own unit (n,)."""
        outcome = self._loss.transform(scores)
        return outcome * self.label_scale + self.base_score if self.params.regression else outcome

    def _check(self, values: Floats, what: str) -> None:
        if over := int((~(np.abs(values) <= self.scale)).sum()):
            raise DataError(
                f"{over} of {len(values)} {what} are beyond ±{self.scale:g} in units of label_scale = "
                f"{self.label_scale:g}; use a larger label_scale"
            )


def _known(moments: Moments | None) -> Moments:
    assert moments is not None, "the moments of the labels have not been shared"
    return moments


#: Bytes of a party's nonce, and of a draw: modulo a few parties the bias is below 2^-250.
NONCE_BYTES = 32
#: Fractional bits of a gain.
GAIN_BITS = 24
#: Bits of a gain with its sign; larger gains count as the largest.
WIDTH = 64
LARGEST = 2 ** (WIDTH - 2)
#: Stands for no gain: below every allowed one.
NO_GAIN = -1

# ---- thresholds


def permits(left: Ints, total: int, threshold: int, *, as_published: bool = False) -> Bools:
    """The mask (candidates,) of those that one party's threshold permits.

    Args:
        left: (candidates,) the party's labelled records on the left side of each.
        total: its labelled records in the node; a party without any permits all.
        as_published: compare left sides alone, and have a party without labelled records permit none.
    """
    if as_published:
        return left >= threshold
    if total == 0:
        return np.ones(len(left), dtype=bool)
    return (left >= threshold) & (total - left >= threshold)


def admissible(
    lefts: Mapping[str, Ints], totals: Mapping[str, int], source: str, threshold: int, *, as_published: bool = False
) -> Bools:
    """The mask (candidates,) of a source's candidates that all parties with labels permit.

    Args:
        lefts, totals: as `left` and `total` of `permits`, by party with labels.
    """
    asked = [party for party in lefts if not (as_published and party == source)]
    by_all = np.ones(len(next(iter(lefts.values()))), dtype=bool)
    for party in asked:
        by_all &= permits(lefts[party], totals[party], threshold, as_published=as_published)
    return by_all


def stopped_by(totals: Mapping[str, int], threshold: int) -> list[str]:
    """The parties with labelled records in a node, but too few for both sides of any candidate."""
    return [party for party, total in totals.items() if 0 < total < 2 * threshold]


# ---- draws


def commitment(party: str, nonce: bytes) -> bytes:
    """SHA-256 that binds a party to its nonce before any nonce is opened."""
    return hashlib.sha256(b"treetap pivodl nonce\x1f" + party.encode() + b"\x1f" + nonce).digest()


class RoleDraws:
    """The parties' roles in one job.

    Args:
        parties: all parties, in the order of the job.
        nonces: the nonce of each.
    """

    def __init__(self, seed: int, parties: Sequence[str], nonces: Mapping[str, bytes]) -> None:
        self.parties = list(parties)
        parts = [f"i:{seed}".encode()]
        for party in parties:
            parts += [party.encode(), nonces[party].hex().encode()]
        self._seed = b"\x1f".join(parts)

    def aggregation_party(self, tree: int) -> str:
        """The party that adds up the encrypted sums of the root, and the metrics, of a tree."""
        return self._drawn(self.parties, "aggregation", tree)

    def encryption_party(self, tree: int) -> str:
        """The party under whose key the root's sums are encrypted; another than the aggregation party."""
        aggregator = self.aggregation_party(tree)
        return self._drawn([party for party in self.parties if party != aggregator], "encryption", tree)

    def split_party(self, tree: int, node: int, source: str, barred: Collection[str]) -> str | None:
        """The party that opens a source's candidates at a node (Algorithm 2, line 7); None if no party may."""
        able = [party for party in self.parties if party != source and party not in barred]
        return self._drawn(able, "split", tree, node, source) if able else None

    def _drawn(self, parties: Sequence[str], *name: str | int) -> str:
        named = "\x1f".join(f"s:{part}" if isinstance(part, str) else f"i:{part}" for part in name).encode()
        digest = hashlib.shake_256(self._seed + b"\x1e" + named).digest(NONCE_BYTES)
        return parties[int.from_bytes(digest, "big") % len(parties)]


def barred(node: int, sources: Mapping[int, str], leaves: Collection[int]) -> frozenset[str]:
    """Parties that must not learn the sums of a node, since with them they could tell a leaf's exact weight.

    A source that split an ancestor, one child of which is a leaf, gets that leaf's weight with noise; from the sums
    of the other child, or of what lies below, and those of the ancestor it could compute it.

    Args:
        sources: the source of each node that was split.
        leaves: the nodes that are known to be leaves.
    """
    knowing = set()
    while node > ROOT:
        if node ^ 1 in leaves:
            knowing.add(sources[node >> 1])
        node >>= 1
    return frozenset(knowing)


def able_sources(
    parties: Sequence[str], node: int, sources: Mapping[int, str], leaves: Collection[int], *, guarded: bool
) -> list[str]:
    """The sources for which some party may open candidates at a node; the others offer none there."""
    out = barred(node, sources, leaves) if guarded else frozenset()
    return [source for source in parties if any(party != source and party not in out for party in parties)]


# ---- gains


def least_gain(params: PivodlParams) -> int:
    """The least gain that a split needs: `gamma`, and more than the rounding noise of XGBoost's 1e-6."""
    return max(_fixed(params.gamma), _fixed(LEAST_LOSS_CHANGE) + 1)


def _fixed(gain: float) -> int:
    return int(min(round(gain * 2.0**GAIN_BITS), LARGEST))


@dataclass(frozen=True)
class Best:
    """The best candidates of one source at a node: their gain in units of 2^-24, and the places of all that have it."""

    gain: int
    places: list[int]


def best_of(left: Ints, total: Ints, scale: float, params: PivodlParams) -> Best | None:
    """The best of a source's candidates whose gain is enough.

    Args:
        left: (candidates, 2K) sums of g and h.
        total: (2K,) those of the node.
        scale: of g, see `treetap.trees.pivodl_rules`.
    """
    if not len(left):
        return None
    gains = gains_of(left, total, scale, params)
    top = int(gains.max())
    if top < least_gain(params):
        return None
    return Best(top, [int(place) for place in np.flatnonzero(gains == top)])


def gains_of(left: Ints, total: Ints, scale: float, params: PivodlParams) -> Ints:
    """Loss changes in units of 2^-24 of candidates (candidates, 2K) of a node (2K,); `NO_GAIN` where not allowed."""
    changes = loss_changes(_counted(left, 1)[np.newaxis], _counted(total, 2)[np.newaxis], scale, params)[0]
    allowed = np.isfinite(changes)
    fixed = np.rint(np.where(allowed, changes, 0.0) * 2.0**GAIN_BITS)
    return np.where(allowed, np.minimum(fixed, float(LARGEST)), NO_GAIN).astype(np.int64)


def weights_of(total: Ints, scale: float, params: PivodlParams) -> Floats:
    """The weight (K,) of a leaf with the sums (2K,)."""
    return leaf_weights(_counted(total, 2), scale, params)


def _counted(sums: Ints, count: int) -> Ints:
    """Sums with a slot for the number of records, which no party adds up: each side of a candidate has some."""
    return np.concatenate([sums, np.full((*sums.shape[:-1], 1), count, dtype=np.int64)], axis=-1)
