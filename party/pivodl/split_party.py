"""A party as split party: opens the sums of a source's candidates, and knows no record of them.

The sums come in an order that their source keeps secret. Of all candidates that it opens at a node it announces the
best gain (Algorithm 2, lines 35-40), or compares it with those of the other split parties in secret.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treetap.arrays import Ints
from treetap.errors import Malformed
from treetap.party.growth.recorded_sums import RecordedSums
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.participant import Participant
from treetap.party.pivodl.party_keys import PartyKeys
from treetap.trees.pivodl_rules import Best, best_of, least_gain
from treetap.wire.v2 import pivodl_pb2


@dataclass(frozen=True)
class Opened:
    """The best candidates that this party has opened at a node: of one source, with the sums (2K,) left of each."""

    source: str
    best: Best
    left: dict[int, Ints]


class Winner(NamedTuple):
    """The source of a node's best split, and the split party that opened it."""

    source: str
    opener: str


class SplitParty:
    """The sums that this party has opened at the open nodes of the level.

    Args:
        scale: of g, see `treetap.trees.shared_label_loss`.
    """

    def __init__(self, me: Participant, keys: PartyKeys, tree: GrowingTree, scale: float) -> None:
        self._me, self._keys, self._tree, self._scale = me, keys, tree, scale
        self._recorded = RecordedSums(me.context)
        self.opened: dict[int, Opened] = {}

    async def open(self, level: int) -> None:
        """Receive and open the candidates of every source that has this party drawn at some open node."""
        me, tree = self._me, self._tree
        self.opened = {}
        for source in me.others:
            mine = [node for node in tree.open if tree.split_party(node, source) == me.name]
            if not mine:
                continue
            for node, left in (await self._received(source, mine, level)).items():
                if node not in tree.sums:
                    raise Malformed(f"the sums of node {node} did not come before its candidates")
                best = best_of(left, tree.sums[node], self._scale, me.params)
                # Sources come in the order of ties, so that a later one has to be better.
                if best is not None and (node not in self.opened or best.gain > self.opened[node].best.gain):
                    chosen = {place: left[place] for place in best.places}
                    self.opened[node] = Opened(source, best, chosen)

    async def _received(self, source: str, nodes: list[int], level: int) -> dict[int, Ints]:
        """Opened sums (candidates, 2K) by node."""
        me = self._me
        counts: dict[int, int] = {}
        parts: defaultdict[int, list[bytes]] = defaultdict(list)
        async for message in me.received(source, "forwarded_sums", self._tree.index, level):
            if message.node not in nodes or counts.setdefault(message.node, message.candidates) != message.candidates:
                raise Malformed(f"{source} sent sums of node {message.node}, which are not for this party")
            parts[message.node].append(message.ciphertexts)
        if sorted(parts) != sorted(nodes):
            raise Malformed(f"{source} sent sums of nodes {sorted(parts)}, not of {sorted(nodes)}")
        width = 2 * me.params.width
        opened = {}
        for node in nodes:
            packed = b"".join(parts[node])
            empty = np.zeros((0, width), dtype=np.int64)
            opened[node] = await self._keys.holder.open(packed, counts[node]) if counts[node] else empty
            self._recorded.offered(self._tree.index, level, source, [node], opened[node][np.newaxis], [])
            me.context.costs.operations["decryptions"] += len(packed) // self._keys.of(me.name).ciphertext_bytes
        return opened

    async def announce(self, level: int) -> dict[int, Winner]:
        """Send the best gains to all, receive the others', and return the winner of every node that is split.

        Raises:
            Malformed: a party announces a gain of a source that it does not open candidates for, or one too small.
        """
        me, tree = self._me, self._tree
        gains = [
            pivodl_pb2.BestGain(node=node, source=opened.source, gain=opened.best.gain)
            for node, opened in sorted(self.opened.items())
        ]
        body = pivodl_pb2.BestGains(gains=gains)
        if any(me.name in tree.split_parties(node) for node in tree.open):
            await me.broadcast("best_gains", [body], tree.index, level)
        best = {node: (opened.best.gain, Winner(opened.source, me.name)) for node, opened in self.opened.items()}

        def rank(gain: float, winner: Winner) -> tuple[float, int]:  # the larger gain wins, or the lower source
            return gain, -me.parties.index(winner.source)

        for party in me.others:
            if not any(party in tree.split_parties(node) for node in tree.open):
                continue
            # what was announced is checked against the draws: a party cannot win a node that it does not open
            for announced in (await me.received_once(party, "best_gains", tree.index, level)).gains:
                self._check(party, announced)
                theirs = announced.gain, Winner(announced.source, party)
                if announced.node not in best or rank(*theirs) > rank(*best[announced.node]):
                    best[announced.node] = theirs
        return {node: winner for node, (_, winner) in best.items()}

    def _check(self, party: str, announced: pivodl_pb2.BestGain) -> None:
        me, tree = self._me, self._tree
        if announced.node not in tree.open or announced.source not in me.parties:
            raise Malformed(f"{party} announces a gain of node {announced.node}, which is not open")
        if tree.split_party(announced.node, announced.source) != party:
            raise Malformed(f"{party} announces a gain of {announced.source}'s, for which it opens nothing")
        if announced.gain < least_gain(me.params):
            raise Malformed(f"{party} announces a gain that is too small for a split of node {announced.node}")
