"""A party as split party: opens the sums of a source's candidates, and knows no record of them.

The sums come in an order that their source keeps secret. Of all candidates that it opens at a node it announces the
best gain (Algorithm 2, lines 35-40), or compares it with those of the other split parties in secret.

The order of the best gains of a node's split parties, without the gains: `gain_comparison = "secure"`.

A gain and its source make one number: 16 times the gain, plus what places a lower source first; 0 stands for no gain
that is enough. No two split parties of a node can have the same number but 0, since each source has one split party.

The first split party of a node, in the order of the job, is its champion. In each turn the champion of every open node
is compared with its next split party (`treetap.additive.sums.comparison`), and all parties learn which of the two
stays. The last champion names its source, or none: gains below `least_gain`, which is public, lose to ending the node.

All parties send the outcomes of every turn, if only that they have none, so that none is more than a turn ahead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treetap.additive.sums.comparison import GainComparison
from treetap.arrays import Ints
from treetap.errors import Malformed
from treetap.party.growth.offered_candidates import RecordedSums
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.participant import Participant, PartyKeys
from treetap.protocols.pivodl import PLACES, RANK_BITS, stage_of
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


def rank_of(opened: Opened | None, parties: Sequence[str]) -> int:
    """The number that stands for a best gain and its source; 0 for none."""
    return 0 if opened is None else opened.best.gain * PLACES + PLACES - 1 - parties.index(opened.source)


class SplitParty:
    """The sums that this party has opened at the open nodes of the level, and the winners that all parties know of.

    Args:
        scale: of g, see `treetap.trees.pivodl_rules`.
    """

    def __init__(self, me: Participant, keys: PartyKeys, tree: GrowingTree, scale: float) -> None:
        self._me, self._keys, self._tree, self._scale = me, keys, tree, scale
        self._comparison = GainComparison(me.context.engine, keys.holder, RANK_BITS)
        self._recorded = RecordedSums(me.context)
        self.opened: dict[int, Opened] = {}
        self.winners: Mapping[int, Winner] = {}

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

    async def announce(self, level: int) -> None:
        """Send the best gains to all, receive the others', and find the winner of every node that is split.

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
            for announced in (await me.context.mailbox.only(party, "best_gains", tree.index, level)).gains:
                if announced.node not in tree.open or announced.source not in me.parties:
                    raise Malformed(f"{party} announces a gain of node {announced.node}, which is not open")
                if tree.split_party(announced.node, announced.source) != party:
                    raise Malformed(f"{party} announces a gain of {announced.source}'s, for which it opens nothing")
                if announced.gain < least_gain(me.params):
                    raise Malformed(f"{party} announces a gain that is too small for a split of node {announced.node}")
                theirs = announced.gain, Winner(announced.source, party)
                if announced.node not in best or rank(*theirs) > rank(*best[announced.node]):
                    best[announced.node] = theirs
        self.winners = {node: winner for node, (_, winner) in best.items()}

    async def compare(self, level: int) -> None:
        """Find the winner of every open node that is split in secret, the same at all parties as with announced gains.

        Raises:
            Malformed: a party speaks of nodes that are not its own, or sends no comparison.
        """
        tree = self._tree
        chains = {node: chain for node in tree.open if (chain := tree.split_parties(node))}
        champions = {node: chain[0] for node, chain in chains.items()}
        ranks = {node: rank_of(self.opened.get(node), self._me.parties) for node in chains}
        for turn in range(1, max(map(len, chains.values()), default=0)):
            challengers = {node: chain[turn] for node, chain in chains.items() if len(chain) > turn}
            stays = await self._turn(stage_of(level, turn), champions, challengers, ranks)
            champions |= {node: party for node, party in challengers.items() if not stays[node]}
        self.winners = await self._sources(level, champions)

    async def _turn(
        self, stage: int, champions: Mapping[int, str], challengers: Mapping[int, str], ranks: Mapping[int, int]
    ) -> dict[int, bool]:
        """For each node with a challenger whether its champion stays.

        1. As challenger: send encrypted bits to the champions.
        2. As champion: send the blinded differences back.
        3. As challenger: open them, and send the outcomes to all.
        """
        me, tree = self._me, self._tree
        against, defended = defaultdict(list), defaultdict(list)
        for node, challenger in sorted(challengers.items()):
            if challenger == me.name:
                against[champions[node]].append(node)
            elif champions[node] == me.name:
                defended[challenger].append(node)
        await self._send_bits(stage, against, ranks)
        for challenger, nodes in defended.items():
            await self._answer(stage, challenger, nodes, ranks)
        stays: dict[int, bool] = {}
        for champion, nodes in against.items():
            blocks = await self._blocks(champion, "blinded_gains", stage, nodes)
            stays |= zip(nodes, await self._comparison.outcomes(self._keys.of(me.name), blocks), strict=True)
            me.context.costs.operations["decryptions"] += RANK_BITS * len(nodes)
        # sent without any outcome too: so no party is more than a turn ahead
        orders = [pivodl_pb2.GainOrder(node=node, champion_stays=stay) for node, stay in sorted(stays.items())]
        await me.broadcast("gain_orders", [pivodl_pb2.GainOrders(nodes=orders)], tree.index, stage)
        for party in me.others:
            told = (await me.context.mailbox.only(party, "gain_orders", tree.index, stage)).nodes
            expected = sorted(node for node, challenger in challengers.items() if challenger == party)
            if [order.node for order in told] != expected:
                raise Malformed(f"{party} tells outcomes of other nodes than {expected}, where it is the challenger")
            stays |= {order.node: order.champion_stays for order in told}
        return stays

    async def _send_bits(self, stage: int, against: Mapping[str, Sequence[int]], ranks: Mapping[int, int]) -> None:
        bodies = {}
        for champion, nodes in against.items():
            bits = await self._comparison.encrypted_bits([ranks[node] for node in nodes])
            bodies[champion] = [
                pivodl_pb2.GainBits(node=node, ciphertexts=of_node) for node, of_node in zip(nodes, bits, strict=True)
            ]
        await self._me.context.outbox.send_each("gain_bits", bodies, self._tree.index, stage)
        self._count("gain_bits", "encryptions", sum(map(len, against.values())))

    async def _answer(self, stage: int, challenger: str, nodes: Sequence[int], ranks: Mapping[int, int]) -> None:
        blocks = await self._blocks(challenger, "gain_bits", stage, nodes)
        key = self._keys.of(challenger)
        tasks = [(key, bits, ranks[node]) for node, bits in zip(nodes, blocks, strict=True)]
        blinded = zip(nodes, await self._comparison.blinded(tasks), strict=True)
        bodies = [pivodl_pb2.BlindedGains(node=node, ciphertexts=of_node) for node, of_node in blinded]
        t = self._tree.index
        await self._me.context.outbox.send(challenger, "blinded_gains", bodies, round=t, stage=stage)
        self._count("blinded_gains", "obfuscators", len(nodes))

    async def _blocks(self, party: str, kind: str, stage: int, nodes: Sequence[int]) -> list[bytes]:
        """The ciphertexts of each of these nodes, in order."""
        contents = [content async for content in self._me.received(party, kind, self._tree.index, stage)]
        told = [content.node for content in contents]
        if told != list(nodes):
            raise Malformed(f"{party} sent {kind} of nodes {told}, not of {list(nodes)}")
        return [content.ciphertexts for content in contents]

    async def _sources(self, level: int, champions: Mapping[int, str]) -> dict[int, Winner]:
        """The winners that the last champions name."""
        me, t, opened = self._me, self._tree.index, self.opened
        winners: dict[int, Winner] = {}
        mine = sorted(node for node, champion in champions.items() if champion == me.name)
        if mine:
            sources = {node: opened[node].source if node in opened else "" for node in mine}
            bodies = [pivodl_pb2.WinningSource(node=node, source=source) for node, source in sources.items()]
            await me.broadcast("winning_sources", [pivodl_pb2.WinningSources(nodes=bodies)], t, level)
            winners |= {node: Winner(source, me.name) for node, source in sources.items() if source}
        for party in me.others:
            # a champion speaks for its nodes alone, if only to say that none of its gains is enough
            expected = sorted(node for node, champion in champions.items() if champion == party)
            if not expected:
                continue
            told = (await me.context.mailbox.only(party, "winning_sources", t, level)).nodes
            if [named.node for named in told] != expected:
                raise Malformed(f"{party} names winners of other nodes than {expected}, which it has won")
            for node, source in ((named.node, named.source) for named in told if named.source):
                if source not in me.parties or self._tree.split_party(node, source) != party:
                    raise Malformed(f"{party} names {source}, for which it opens nothing at node {node}")
                winners[node] = Winner(source, party)
        return winners

    def _count(self, kind: str, operation: str, comparisons: int) -> None:
        costs = self._me.context.costs
        costs.operations[operation] += RANK_BITS * comparisons
        costs.ciphertexts[kind] += RANK_BITS * comparisons
