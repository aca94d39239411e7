"""Sums of the children that continue, and weights of leaves, from the party that opened them (Algorithms 3 and 4).

The party that opened a split's winner knows the sums of both children. Those of a child that may be split go to the
split parties that are drawn for it. Of a leaf it keeps the weight in its received look-up table, and sends it to the
parties with labels, to the source of the split with noise: partial differential privacy (§III-C).

The noised weights that this party has released are in a ledger, written before the first send. Two draws of noise for
one weight would average out, and each would count against ε. A weight is drawn once: its noised value is on disk before
any party can have it, and a retry, a resume or a tree that is grown again sends the same bytes. The ledger lies beside
the job's progress and goes with it when the model is published. The line of a finished tree has its keeper's released
values beside the exact ones, for predictions with noised weights; no other party's shard has any.
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.errors import Malformed
from treetap.party.defences.budgets import LabelBudget
from treetap.party.pivodl.division import Divisions
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.participant import OwnLabels, Participant
from treetap.party.pivodl.split_party import Opened
from treetap.party.runtime.context import batches
from treetap.party.runtime.job_store import JobStore
from treetap.party.runtime.ledger import Kind
from treetap.privacy.discrete_gaussian import RandBelow, discrete_gaussian
from treetap.privacy.zcdp import LeafWeightPrivacy
from treetap.trees.pivodl_rules import weights_of
from treetap.trees.slots import Slots
from treetap.wire.v2 import pivodl_pb2

#: The file, a line each: tree, leaf, weight (K numbers).
NOISED_WEIGHTS = "noised_weights.jsonl"
#: A weight is a whole number of units of ηC · 2^-40, rounded up to a power of two.
UNIT_BITS = 40


class Settlement:
    """The ends of the levels of one tree, at one party."""

    def __init__(
        self,
        me: Participant,
        slots: Slots,
        own: OwnLabels,
        owners: Sequence[str],
        noise: NoiseLedger | None,
        tree: GrowingTree,
    ) -> None:
        self._me, self._slots, self._own, self._owners = me, slots, own, owners
        self._noise, self._tree = noise, tree

    async def settle(self, level: int, divisions: Divisions, opened: Mapping[int, Opened]) -> None:
        """Send what this party has opened of the children, and receive what it is to have.

        1. Compute the children's sums from the winning candidates.
        2. Send the sums of open children to their split parties, weights of leaves to the parties with labels.
        3. Receive the same from the other parties.
        """
        tree = self._tree
        for node, place in divisions.place.items():
            left = opened[node].left.get(place)
            if left is None:
                raise Malformed(f"node {node}: its source has taken a candidate that is not among the winners")
            tree.sums[2 * node], tree.sums[2 * node + 1] = left, tree.sums[node] - left
        await self._send_sums(level, divisions.open)
        await self._send_weights(level, divisions.ended)
        me = self._me
        mine = [child for child in divisions.open if me.name in self._receivers(child)]
        for sender in me.others:
            expected = sorted(child for child in mine if tree.keeper(child) == sender)
            if expected:
                sums = await received_sums(me, self._slots, sender, tree.index, level + 1)
                if sorted(sums) != expected:
                    raise Malformed(f"{sender} sent sums of nodes {sorted(sums)}, not of {expected}")
                tree.sums |= sums
        await self._receive_weights(level, divisions.ended)
        self._tree.open = sorted(divisions.open)

    def _receivers(self, child: int) -> list[str]:
        """The parties that are to know the sums of an open child."""
        return self._me.parties if self._me.params.as_published else self._tree.split_parties(child)

    async def _send_sums(self, level: int, children: list[int]) -> None:
        me, tree = self._me, self._tree
        bodies: defaultdict[str, list[pivodl_pb2.SumsOfNode]] = defaultdict(list)
        for child in sorted(children):
            if tree.keeper(child) != me.name:
                continue
            for party in self._receivers(child):
                if party != me.name:
                    sums = [int(number) for number in tree.sums[child]]
                    bodies[party].append(pivodl_pb2.SumsOfNode(node=child, sums=sums))
        parts = {to: [pivodl_pb2.NodeSums(nodes=batch) for batch in batches(bodies[to])] for to in bodies}
        await me.context.outbox.send_each("node_sums", parts, tree.index, level + 1)

    async def _send_weights(self, level: int, leaves: list[int]) -> None:
        me, tree = self._me, self._tree
        bodies: defaultdict[str, list[pivodl_pb2.LeafWeight]] = defaultdict(list)
        for leaf in sorted(leaves):
            if tree.keeper(leaf) != me.name:
                continue
            weight = weights_of(tree.sums[leaf], self._own.loss.scale, me.params)
            tree.weights[leaf] = weight
            source = tree.source_above(leaf)
            noised = self._released(leaf, weight) if source is not None else weight
            for party in self._owners:
                value = noised if party == source else weight
                if party == me.name:
                    self._own.add(self._own.places(tree.rows[leaf]), value)
                else:
                    bodies[party].append(pivodl_pb2.LeafWeight(node=leaf, weight=[float(number) for number in value]))
        parts = {to: [pivodl_pb2.LeafWeights(leaves=batch) for batch in batches(bodies[to])] for to in bodies}
        await me.context.outbox.send_each("leaf_weights", parts, tree.index, level)

    def _released(self, leaf: int, weight: Floats) -> Floats:
        """The weight with the noise with which the source gets it, drawn once for a leaf of the job."""
        if self._noise is None:
            return weight
        params = self._me.params
        if not self._noise.draws:  # all of a job cost its ε together, drawn once over its attempts
            check_budget(self._me)
            self._me.context.ledger.enter(Kind.NOISED_WEIGHTS, params.epsilon or 0.0, delta=params.delta)
        released = self._noise.released(self._tree.index, leaf, weight)
        self._tree.released[leaf] = released
        return released

    async def _receive_weights(self, level: int, leaves: list[int]) -> None:
        me, tree = self._me, self._tree
        if me.name not in self._owners:
            return
        for sender in me.others:
            # all parties know who keeps which leaf, so that no sender can leave one out
            expected = sorted(leaf for leaf in leaves if tree.keeper(leaf) == sender)
            if not expected:
                continue
            weights: dict[int, Floats] = {}
            async for message in me.received(sender, "leaf_weights", tree.index, level):
                weights |= {leaf.node: np.array(leaf.weight, dtype=np.float64) for leaf in message.leaves}
            if sorted(weights) != expected:
                raise Malformed(f"{sender} sent weights of leaves {sorted(weights)}, not of {expected}")
            for leaf, weight in weights.items():
                if weight.shape != (me.params.width,) or not np.isfinite(weight).all():
                    raise Malformed(f"{sender} sent a weight of leaf {leaf} that is none")
                self._own.add(self._own.places(tree.rows[leaf]), weight)


def check_budget(me: Participant) -> None:
    """`Refused` if the noise of a job that has drawn none costs more ε than the policy's `label_budget` leaves."""
    context, epsilon = me.context, me.params.epsilon
    if epsilon is not None and not context.store.lines(NOISED_WEIGHTS).read():
        budget = LabelBudget(context.ledger.ledger.path.parent, context.policy.labels.label_budget)
        budget.check(me.name, epsilon, "noise of leaf weights")


async def received_sums(me: Participant, slots: Slots, sender: str, t: int, stage: int) -> dict[int, Ints]:
    """Sums by node that another party has opened; `Malformed` where they cannot be sums over the common records."""
    by_node: dict[int, Ints] = {}
    widths = slots.widths
    async for message in me.received(sender, "node_sums", t, stage):
        for told in message.nodes:
            if len(told.sums) != len(widths) or any(
                abs(value) >= 1 << (width - 1) for value, width in zip(told.sums, widths, strict=True)
            ):
                raise Malformed(f"{sender} sent sums of node {told.node} that no records of this job have")
            by_node[told.node] = np.array(told.sums, dtype=np.int64)
    return by_node


class NoiseLedger:
    """Releases each leaf weight of one party once.

    Args:
        store: of the job.
        privacy: of the job; its clip, rate and σ.
        randbelow: uniform whole numbers, of the operating system outside tests.
    """

    def __init__(self, store: JobStore, privacy: LeafWeightPrivacy, randbelow: RandBelow = secrets.randbelow) -> None:
        self._lines = store.lines(NOISED_WEIGHTS)
        self._randbelow = randbelow
        self._unit = math.ldexp(1.0, math.frexp(privacy.sent_clip)[1] - UNIT_BITS)
        self._clip = math.floor(Fraction(privacy.sent_clip) / Fraction(self._unit))
        self._variance = (Fraction(privacy.deviation) / Fraction(self._unit)) ** 2
        self._held: dict[tuple[int, int], list[float]] | None = None

    @property
    def draws(self) -> int:
        """The weights of this job that this party has drawn noise for, in all attempts."""
        return len(self._known())

    def released(self, tree: int, leaf: int, weight: Floats) -> Floats:
        """clip(w, ηC) + N(0, (2ηCσ)²) of a leaf's weight w = ηW (K,), drawn at the first call, the same (K,) after it.

        On disk when this returns. Raises `DataError` if the file is damaged, `OSError` if it cannot be written.
        """
        known = self._known()
        if (tree, leaf) not in known:
            noised = [
                float((units + discrete_gaussian(self._variance, self._randbelow)) * Fraction(self._unit))
                for units in clipped(weight, self._unit, self._clip)
            ]
            try:
                self._lines.put({"tree": tree, "leaf": leaf, "weight": noised}, len(known))
            except BaseException:
                self._held = None  # the line may be on disk: it is read before another one is drawn
                raise
            known[tree, leaf] = noised
        return np.array(known[tree, leaf], dtype=np.float64)

    def _known(self) -> dict[tuple[int, int], list[float]]:
        if self._held is None:
            lines = self._lines.read()
            self._held = {(line["tree"], line["leaf"]): [float(number) for number in line["weight"]] for line in lines}
        return self._held


def clipped(weight: Floats, unit: float, clip: int) -> list[int]:
    """A weight (K,) in whole units towards zero, its ℓ2 norm at most `clip` units: exact, no rounding can exceed it."""
    units = [int(Fraction(float(number)) / Fraction(unit)) for number in weight]
    squares = sum(count * count for count in units)
    if squares <= clip * clip:
        return units
    norm = math.isqrt(squares) + 1
    return [int(math.copysign(1, count)) * (abs(count) * clip // norm) for count in units]
