"""A party as source of candidates: adds up encrypted sums, hides their order, and divides nodes that it wins.

It never holds a plaintext sum of its candidates. Which of them are permitted it computes itself, since it knows its own
bins and which party labels which record.
"""

from __future__ import annotations

import secrets
from collections import defaultdict

import numpy as np

from treetap.additive.paillier.shared_sums import SharedSums
from treetap.arrays import Bools, Rows
from treetap.errors import Malformed
from treetap.models.own_split import OwnSplit
from treetap.party.growth.split_table import TreeColumns
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.label_owner import SHARE_BYTES, LabelOwner, OwnSums, candidate_sets, own_bins
from treetap.party.pivodl.labels import Ownership
from treetap.party.pivodl.participant import Participant
from treetap.party.pivodl.party_keys import PartyKeys
from treetap.trees.pivodl_rules import permits
from treetap.trees.tree_bins import left_sums
from treetap.wire.v2 import pivodl_pb2


class Source:
    """This party's candidates in the tree under construction."""

    def __init__(
        self,
        me: Participant,
        keys: PartyKeys,
        sums: SharedSums,
        ownership: Ownership,
        tree: GrowingTree,
        columns: TreeColumns,
    ) -> None:
        self._me, self._keys, self._sums, self._ownership = me, keys, sums, ownership
        self._tree, self._columns = tree, columns
        self._offered: dict[int, Rows] = {}  # node → canonical number of the candidate at each place

    async def send_lists(self, level: int) -> None:
        """As published: send each party with labels its records left of every candidate."""
        me, tree = self._me, self._tree
        open_nodes = [node for node in tree.open if tree.split_party(node, me.name) is not None]
        for party in self._ownership.owners:
            if party == me.name or not open_nodes:
                continue
            labelled = self._ownership.rows[party]
            bins = own_bins(self._columns, labelled)
            nodes = [(node, np.flatnonzero(np.isin(labelled, tree.rows[node]))) for node in open_nodes]
            sets = candidate_sets(bins, nodes)
            await me.context.outbox.send(party, "candidate_records", sets, round=tree.index, stage=level)

    async def forward(self, owner: LabelOwner, level: int) -> None:
        """Send each open node's split party the sums of all parties, in a secret order.

        1. Receive the ciphertexts of every other party with labels.
        2. Keep the candidates that every party permits; add this party's own sums.
        3. Shuffle, pack, re-randomise with standard obfuscators, send.
        """
        me, tree = self._me, self._tree
        self._offered = {}
        mine = await owner.own_sums(tree, me.name, level)
        shares = {
            party: await self._received(party, level, bool(mine))
            for party in self._ownership.owners
            if party != me.name
        }
        bodies: defaultdict[str, list[pivodl_pb2.ForwardedSums]] = defaultdict(list)
        for node, sums in mine.items():
            to = str(tree.split_party(node, me.name))
            bodies[to] += await self._forwarded(node, to, sums, shares)
        for to, parts in bodies.items():
            await me.context.outbox.send(to, "forwarded_sums", parts, round=tree.index, stage=level)

    async def _received(self, party: str, level: int, expected: bool) -> dict[int, bytes]:
        """Ciphertexts of a party by node."""
        by_node: defaultdict[int, list[bytes]] = defaultdict(list)
        if expected:
            async for message in self._me.received(party, "candidate_shares", self._tree.index, level):
                by_node[message.node].append(message.ciphertexts)
        return {node: b"".join(parts) for node, parts in by_node.items()}

    async def _forwarded(
        self,
        node: int,
        to: str,
        mine: OwnSums,
        shares: dict[str, dict[int, bytes]],
    ) -> list[pivodl_pb2.ForwardedSums]:
        key, slots = self._keys.of(to), self._keys.slots
        masks = self._masks(node)
        joint = np.ones(len(self._columns.candidates), dtype=bool)
        for mask in masks.values():
            joint &= mask
        chosen = np.flatnonzero(joint)
        width = key.ciphertext_bytes
        parts = []
        for party, by_node in shares.items():
            mask = masks.get(party, np.zeros(0, dtype=bool))
            sent = by_node.get(node, b"")
            if len(sent) != int(mask.sum()) * width:
                raise Malformed(f"{party} sent sums of other candidates of node {node} than its threshold permits")
            place = np.cumsum(mask) - 1  # of each permitted candidate among the ciphertexts sent
            parts.append(b"".join(sent[at * width : (at + 1) * width] for at in place[chosen].tolist()))
        own = slots.encode([np.ascontiguousarray(column) for column in mine.left[chosen].T])
        order = list(range(len(chosen)))
        secrets.SystemRandom().shuffle(order)
        self._offered[node] = chosen[order]
        groups = slots.groups_per_plaintext(key.plain_bits)
        packed = await self._sums.add(key, parts, slots.bits, groups, order, own) if order else b""
        self._me.context.costs.ciphertexts["forwarded_sums"] += len(packed) // width
        step = SHARE_BYTES // width * width
        return [
            pivodl_pb2.ForwardedSums(node=node, candidates=len(order), ciphertexts=packed[start : start + step])
            for start in range(0, max(len(packed), 1), step)
        ]

    def _masks(self, node: int) -> dict[str, Bools]:
        """The candidates that each party's threshold permits at a node, from the own bins and the parties' records."""
        me, params, ownership, columns = self._me, self._me.params, self._ownership, self._columns
        inside = np.zeros(ownership.records, dtype=bool)
        inside[self._tree.rows[node]] = True
        ones = np.ones((ownership.records, 1), dtype=np.int64)
        asked = [party for party in ownership.owners if not (params.as_published and party == me.name)]
        rows = [labelled[inside[labelled]] for labelled in (ownership.rows[party] for party in asked)]
        counts = left_sums(columns.codes, columns.candidates, ones, rows)[:, :, 0]
        return {
            party: permits(count, len(labelled), params.instance_threshold, as_published=params.as_published)
            for party, labelled, count in zip(asked, rows, counts, strict=True)
        }

    def divide(self, level: int, node: int, places: list[int]) -> tuple[OwnSplit, Rows, Rows, int]:
        """Enter the lowest of the tied winners in the split table; returns it, the rows on both sides, its place."""
        offered = self._offered.get(node)
        if offered is None or not places or max(places) >= len(offered) or len(set(places)) < len(places):
            raise Malformed(f"node {node}: the winning candidates are not among those that were offered")
        place = min(places, key=lambda tied: int(offered[tied]))
        tree, context = self._tree, self._me.context
        split, left = self._columns.split(node, tree.rows[node], [int(offered[place])])
        tree.splits.append(split)
        right = np.setdiff1d(tree.rows[node], left, assume_unique=True)
        if context.recorder.on:
            entry = self._columns.own_record(split, left, right, self._ownership.records)
            context.recorder.own(tree.index, level, context.attempt, entry)
        return split, left, right, place
