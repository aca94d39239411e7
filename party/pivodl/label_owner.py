"""A party as owner of labels: sums of its gradients by the candidates of every source, under split parties' keys.

It sees bins of the records that it labels, and no sum of another party.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treetap.additive.paillier.shared_sums import SharedSums
from treetap.arrays import Ints
from treetap.party.growth.split_table import TreeColumns
from treetap.party.pivodl.candidate_bins import SourceBins, left_sums_of_sets, own_bins, receive_bins, send_bins
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.labels import Ownership, OwnLabels
from treetap.party.pivodl.participant import Participant
from treetap.party.pivodl.party_keys import PartyKeys
from treetap.process.together import together
from treetap.trees.pivodl_rules import permits
from treetap.trees.tree_bins import left_sums
from treetap.wire.v2 import pivodl_pb2

#: Bytes of ciphertexts in one message.
SHARE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class OwnSums:
    """This party's part of a source's candidates at a node.

    Attributes:
        left: (candidates, 2K) sums of g and h left of each.
        counts: (candidates,) labelled records left of each.
        total: labelled records in the node.
    """

    left: Ints
    counts: Ints
    total: int


async def share_bins(
    me: Participant, ownership: Ownership, own: OwnLabels, columns: TreeColumns
) -> dict[str, SourceBins]:
    """Exchange bins: as source send each party with labels those of its records, as owner receive them, by source.

    As published nothing is sent now, and a party has its own bins alone.
    """
    bins = {me.name: own_bins(columns, own.rows)}
    if me.params.as_published:
        return bins
    owners = [party for party in ownership.owners if party != me.name]
    await together(*(send_bins(me, columns, party, ownership.rows[party]) for party in owners))
    if len(own.rows):
        for source in me.others:
            bins[source] = await receive_bins(me, source, len(own.rows))
    return bins


class LabelOwner:
    """Sums over the records that this party labels.

    Args:
        bins: those of its records by source, see `share_bins`.
    """

    def __init__(
        self, me: Participant, keys: PartyKeys, sums: SharedSums, own: OwnLabels, bins: Mapping[str, SourceBins]
    ) -> None:
        self._me, self._keys, self._sums, self._own, self._bins = me, keys, sums, own, bins

    async def own_sums(self, tree: GrowingTree, source: str, level: int) -> dict[int, OwnSums]:
        """The sums by a source's candidates, by node, of the open nodes where some party opens them."""
        me, own = self._me, self._own
        nodes = [
            (node, own.places(tree.rows[node])) for node in tree.open if tree.split_party(node, source) is not None
        ]
        if not nodes:
            return {}  # the source has sent nothing either
        values = np.concatenate([own.derivatives, np.ones((len(own.rows), 1), dtype=np.int64)], axis=1)
        if source != me.name and me.params.as_published:
            lists = me.received(source, "candidate_records", tree.index, level)
            lefts = await left_sums_of_sets(lists, source, values, nodes)
        else:
            bins = self._bins[source]
            lefts = list(left_sums(bins.codes, bins.candidates, values, [places for _, places in nodes]))
        return {
            node: OwnSums(left[:, :-1], left[:, -1], len(places))
            for (node, places), left in zip(nodes, lefts, strict=True)
        }

    async def send_shares(self, tree: GrowingTree, level: int) -> None:
        """Send every other source this party's sums of each open node, a ciphertext for each permitted candidate."""
        for source in self._me.others:
            await self._send_to(tree, source, level)

    async def _send_to(self, tree: GrowingTree, source: str, level: int) -> None:
        me = self._me
        by_node = await self.own_sums(tree, source, level)
        if not by_node:
            return
        series = me.context.outbox.open(source, "candidate_shares", tree.index, level)
        for node, sums in by_node.items():
            to = str(tree.split_party(node, source))
            # only candidates that this party's threshold permits
            params = me.params
            mask = permits(sums.counts, sums.total, params.instance_threshold, as_published=params.as_published)
            columns = [np.ascontiguousarray(sums.left[mask, slot]) for slot in range(sums.left.shape[1])]
            key = self._keys.of(to)
            if to == me.name:  # encrypts faster with the secret key
                blocks = [block async for _, block in self._keys.holder.encrypt_blocks(columns)]
                ciphertexts = b"".join(blocks)
                me.context.costs.operations["encryptions"] += len(columns[0])
            else:
                ciphertexts = await self._sums.encrypt(key, self._keys.slots.encode(columns))
            me.context.costs.ciphertexts["candidate_shares"] += len(columns[0])
            step = SHARE_BYTES // key.ciphertext_bytes * key.ciphertext_bytes
            for start in range(0, max(len(ciphertexts), 1), step):
                part = ciphertexts[start : start + step]
                await series.put(pivodl_pb2.CandidateShares(node=node, ciphertexts=part))
        await series.close()
