"""Sums of the children that continue, and weights of leaves, from the party that opened them (Algorithms 3 and 4).

The party that opened a split's winner knows the sums of both children. Those of a child that may be split go to the
split parties that are drawn for it. Of a leaf it keeps the weight in its received look-up table, and sends it to the
parties with labels, to the source of the split with noise: partial differential privacy (§III-C).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from party.pivodl.division import Divisions
from party.pivodl.noise_ledger import NoiseLedger
from party.pivodl.own_labels import OwnLabels
from party.pivodl.setting import Setting
from party.pivodl.split_party import SplitParty
from party.runtime.messages import batches
from treetap.errors import Malformed
from treetap.trees.fixed_gains import weights_of
from treetap.wire.v2 import pivodl_pb2

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Settlement:
    """The end of a level, at one party."""

    def __init__(self, setting: Setting, own: OwnLabels, noise: NoiseLedger | None) -> None:
        self._setting, self._own, self._noise = setting, own, noise

    async def settle(self, level: int, divisions: Divisions, split_party: SplitParty) -> None:
        """Send what this party has opened of the children, and receive what it is to have.

        1. Compute the children's sums from the winning candidates.
        2. Send the sums of open children to their split parties, weights of leaves to the parties with labels.
        3. Receive the same from the other parties.
        """
        self._open_children(divisions, split_party)
        await self._send_sums(level, divisions.open)
        await self._send_weights(level, divisions.ended)
        await self._receive_sums(level, divisions.open)
        await self._receive_weights(level, divisions.ended)
        self._setting.tree.open = sorted(divisions.open)

    def _open_children(self, divisions: Divisions, split_party: SplitParty) -> None:
        tree = self._setting.tree
        for node, place in divisions.place.items():
            left = split_party.opened[node].left.get(place)
            if left is None:
                raise Malformed(f"node {node}: its source has taken a candidate that is not among the winners")
            tree.sums[2 * node], tree.sums[2 * node + 1] = left, tree.sums[node] - left

    def _receivers(self, child: int) -> list[str]:
        """The parties that are to know the sums of an open child."""
        setting = self._setting
        return setting.parties if setting.params.child_sums == "paper" else setting.split_parties(child)

    async def _send_sums(self, level: int, children: list[int]) -> None:
        setting, tree = self._setting, self._setting.tree
        bodies: defaultdict[str, list[pivodl_pb2.SumsOfNode]] = defaultdict(list)
        for child in sorted(children):
            if tree.keeper(child) != setting.me:
                continue
            for party in self._receivers(child):
                if party != setting.me:
                    sums = [int(each) for each in tree.sums[child]]
                    bodies[party].append(pivodl_pb2.SumsOfNode(node=child, sums=sums))
        for party, nodes in bodies.items():
            parts = [pivodl_pb2.NodeSums(nodes=batch) for batch in batches(nodes)]
            await setting.context.outbox.send(party, "node_sums", parts, round=tree.index, stage=level + 1)

    async def _receive_sums(self, level: int, children: list[int]) -> None:
        setting, tree = self._setting, self._setting.tree
        mine = [child for child in children if setting.me in self._receivers(child)]
        for sender in setting.others:
            expected = sorted(child for child in mine if tree.keeper(child) == sender)
            if expected:
                found = await received_sums(setting, sender, level + 1)
                if sorted(found) != expected:
                    raise Malformed(f"{sender} sent sums of nodes {sorted(found)}, not of {expected}")
                tree.sums |= found

    async def _send_weights(self, level: int, leaves: list[int]) -> None:
        setting, tree = self._setting, self._setting.tree
        bodies: defaultdict[str, list[pivodl_pb2.LeafWeight]] = defaultdict(list)
        for leaf in sorted(leaves):
            if tree.keeper(leaf) != setting.me:
                continue
            weight = weights_of(tree.sums[leaf], setting.loss.scale, setting.params)
            tree.weights[leaf] = weight
            source = tree.source_above(leaf)
            noised = self._released(leaf, weight) if source is not None else weight
            for party in setting.owners:
                value = noised if party == source else weight
                if party == setting.me:
                    self._own.add(self._own.places(tree.rows[leaf]), value)
                else:
                    bodies[party].append(pivodl_pb2.LeafWeight(node=leaf, weight=[float(each) for each in value]))
        for party, found in bodies.items():
            parts = [pivodl_pb2.LeafWeights(leaves=batch) for batch in batches(found)]
            await setting.context.outbox.send(party, "leaf_weights", parts, round=tree.index, stage=level)

    def _released(self, leaf: int, weight: Floats) -> Floats:
        """The weight with the noise with which the source gets it, drawn once for a leaf of the job."""
        if self._noise is None:
            return weight
        released = self._noise.released(self._setting.tree.index, leaf, weight)
        self._setting.tree.released[leaf] = released
        return released

    async def _receive_weights(self, level: int, leaves: list[int]) -> None:
        setting, tree = self._setting, self._setting.tree
        if setting.me not in setting.owners:
            return
        for sender in setting.others:
            expected = sorted(leaf for leaf in leaves if tree.keeper(leaf) == sender)
            if not expected:
                continue
            found: dict[int, Floats] = {}
            async for message in setting.received(sender, "leaf_weights", tree.index, level):
                found |= {each.node: np.array(each.weight, dtype=np.float64) for each in message.leaves}
            if sorted(found) != expected:
                raise Malformed(f"{sender} sent weights of leaves {sorted(found)}, not of {expected}")
            for leaf, weight in found.items():
                if weight.shape != (setting.params.width,) or not np.isfinite(weight).all():
                    raise Malformed(f"{sender} sent a weight of leaf {leaf} that is none")
                self._own.add(self._own.places(tree.rows[leaf]), weight)


async def received_sums(setting: Setting, sender: str, stage: int) -> dict[int, Ints]:
    """Sums by node that another party has opened; `Malformed` where they cannot be sums over the common records."""
    found: dict[int, Ints] = {}
    widths = setting.slots().widths
    async for message in setting.received(sender, "node_sums", setting.tree.index, stage):
        for each in message.nodes:
            if len(each.sums) != len(widths) or any(
                abs(value) >= 1 << (width - 1) for value, width in zip(each.sums, widths, strict=True)
            ):
                raise Malformed(f"{sender} sent sums of node {each.node} that no records of this job have")
            found[each.node] = np.array(each.sums, dtype=np.int64)
    return found
