"""Nodes of a level are divided, and every party learns the tree's shape (Algorithm 3, lines 1-5, 15, 27).

The winning split party names the places of the winning candidates to their source. The source divides the node, enters
the split under a new handle, and sends to all the handle and which children may be split; the records of these to all,
those of leaves to the parties that label them.

A party as source of candidates: adds up encrypted sums, hides their order, and divides nodes that it wins.

It never holds a plaintext sum of its candidates. Which of them are permitted it computes itself, since it knows its own
bins and which party labels which record.
"""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from treetap.additive.paillier.shared_sums import SharedSums
from treetap.arrays import Bools, Rows
from treetap.errors import Malformed
from treetap.models.own_split import OwnSplit
from treetap.party.growth.messages import space_items
from treetap.party.growth.split_table import TreeColumns
from treetap.party.pivodl.growing_tree import Division, GrowingTree
from treetap.party.pivodl.label_owner import SHARE_BYTES, LabelOwner, OwnSums, candidate_sets, own_bins
from treetap.party.pivodl.participant import Ownership, Participant, PartyKeys
from treetap.party.pivodl.split_party import SplitParty, Winner
from treetap.party.runtime.context import REMEDY, CountedBody, batches, counted_bodies
from treetap.process.together import together
from treetap.trees.pivodl_rules import permits, stopped_by
from treetap.trees.tree_bins import left_sums
from treetap.wire.records import rows_of
from treetap.wire.v2 import pivodl_pb2, types_pb2


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
        await me.context.outbox.send_each("forwarded_sums", bodies, tree.index, level)

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


log = logging.getLogger(__name__)
#: Node → its division, and the records of its children as far as this party knows them.
Made = dict[int, tuple[pivodl_pb2.DividedNode, dict[int, Rows]]]


class Divisions:
    """The splits of one tree at one party, level by level.

    Attributes:
        ended: the nodes of the last level that became leaves, and leaf children.
        open: the children that may be split.
        place: node → the place that its source has taken, of nodes that this party opened.
    """

    def __init__(
        self, me: Participant, ownership: Ownership, tree: GrowingTree, source: Source, split_party: SplitParty
    ) -> None:
        self._me, self._ownership, self._tree = me, ownership, tree
        self._source, self._split_party = source, split_party
        self.ended: list[int] = []
        self.open: list[int] = []
        self.place: dict[int, int] = {}

    async def divide(self, level: int) -> None:
        """Divide the open nodes that have a winner; the others become leaves.

        1. As split party: name the winning places to each source.
        2. As source: divide, and send shape and records.
        3. Receive the same from the other winning sources.
        """
        me, tree, winners = self._me, self._tree, self._split_party.winners
        self.open, self.place = [], {}
        won: defaultdict[str, list[int]] = defaultdict(list)
        for node, winner in sorted(winners.items()):
            won[winner.source].append(node)
        bodies: defaultdict[str, list[pivodl_pb2.WinningCandidate]] = defaultdict(list)
        for node, winner in sorted(winners.items()):
            if winner.opener == me.name:
                places = self._split_party.opened[node].best.places
                bodies[winner.source].append(pivodl_pb2.WinningCandidate(node=node, places=places))
        parts = {to: [pivodl_pb2.WinningCandidates(nodes=batch) for batch in batches(bodies[to])] for to in bodies}
        await me.context.outbox.send_each("winning_candidates", parts, tree.index, level)
        made: Made = {}
        if me.name in won:
            made = await self._divide_own(level, winners, won[me.name])
        for party, nodes in won.items():
            if party != me.name:
                made |= await self._received(level, party, nodes, winners)
        # every party makes the same leaves in the same order, since keepers follow from the splits above
        self.ended = [node for node in tree.open if node not in winners]
        for node in self.ended:
            tree.end(node)
        for node, (divided, rows) in sorted(made.items()):
            tree.divisions[node] = Division(winners[node].source, divided.handle, winners[node].opener)
            tree.rows |= rows
            for child, is_open in ((2 * node, divided.left_open), (2 * node + 1, divided.right_open)):
                if is_open:
                    self.open.append(child)
                else:
                    self.ended.append(child)
                    tree.end(child)

    async def _divide_own(self, level: int, winners: Mapping[int, Winner], nodes: list[int]) -> Made:
        me = self._me
        openers = [party for party in me.others if any(winners[node].opener == party for node in nodes)]
        places: dict[int, list[int]] = {}
        for opener in openers:
            async for message in me.received(opener, "winning_candidates", self._tree.index, level):
                places |= {won.node: list(won.places) for won in message.nodes}
        made: Made = {}
        taken = {}
        for node in nodes:
            split, left, right, place = self._source.divide(level, node, places.get(node, []))
            divided = pivodl_pb2.DividedNode(
                node=node,
                handle=split.handle,
                left_open=self._may_be_split(2 * node, left),
                right_open=self._may_be_split(2 * node + 1, right),
            )
            made[node] = divided, {2 * node: left, 2 * node + 1: right}
            taken[node] = place
        await together(*(self._send(level, party, made, winners, taken) for party in me.others))
        return made

    def _may_be_split(self, child: int, rows: Rows) -> bool:
        """False where the stopping rules make a leaf of a child: depth, records, labelled records."""
        params = self._me.params
        if child.bit_length() - 1 >= params.max_depth or len(rows) < params.min_samples:
            return False
        if params.as_published:
            return True
        stopped = stopped_by(self._ownership.counts(rows), params.instance_threshold)
        if stopped:
            log.info(
                "node %d of tree %d is not split: %s label fewer than %d of its records",
                child,
                self._tree.index,
                ", ".join(stopped),
                2 * params.instance_threshold,
            )
        return not stopped

    async def _send(
        self,
        level: int,
        party: str,
        made: Made,
        winners: Mapping[int, Winner],
        taken: Mapping[int, int],
    ) -> None:
        """Send a party the shape of this party's divisions, and the records that it may have."""
        t, send = self._tree.index, self._me.context.outbox.send
        shapes = []
        for node, (divided, _) in sorted(made.items()):
            shape = pivodl_pb2.DividedNode()
            shape.CopyFrom(divided)
            if winners[node].opener == party:
                shape.place = taken[node]
            shapes.append(shape)
        parts = [pivodl_pb2.DividedNodes(nodes=batch) for batch in batches(shapes)]
        await send(party, "divided_nodes", parts, round=t, stage=level)
        await send(party, "node_records", self._record_bodies(party, made), round=t, stage=level)

    def _record_bodies(self, party: str, made: Made) -> Iterator[CountedBody]:
        me, ownership = self._me, self._ownership

        def spaces() -> Iterator[tuple[int, Rows]]:
            for node, (divided, rows) in sorted(made.items()):
                for child, is_open in ((2 * node, divided.left_open), (2 * node + 1, divided.right_open)):
                    told = rows[child] if is_open else ownership.labelled_by(party, rows[child])
                    me.context.policy.check_space(me.name, party, child, len(told))
                    yield child, told

        items = space_items(spaces(), ownership.records)
        return counted_bodies(lambda spaces: pivodl_pb2.NodeRecords(spaces=spaces), items)

    async def _received(self, level: int, party: str, nodes: list[int], winners: Mapping[int, Winner]) -> Made:
        """The divisions of another source, checked: `Malformed` where they cannot be those of its nodes."""
        me, t = self._me, self._tree.index
        shapes: dict[int, pivodl_pb2.DividedNode] = {}
        async for message in me.received(party, "divided_nodes", t, level):
            shapes |= {divided.node: divided for divided in message.nodes}
        if sorted(shapes) != nodes:
            raise Malformed(f"{party} divides nodes {sorted(shapes)}; it has won {nodes}")
        chunks: defaultdict[int, list[types_pb2.RecordChunk]] = defaultdict(list)
        async for message in me.received(party, "node_records", t, level):
            for space in message.spaces:
                chunks[space.node].append(space.records)
        made: Made = {}
        for node, shape in shapes.items():
            rows = {child: rows_of(chunks[child], self._ownership.records) for child in (2 * node, 2 * node + 1)}
            self._check(party, node, shape, rows)
            self._check_sizes(party, node, shape, rows)
            made[node] = shape, rows
            if winners[node].opener == me.name:
                if not shape.HasField("place"):
                    raise Malformed(f"{party} does not say which winning candidate of node {node} it has taken")
                self.place[node] = shape.place
        return made

    def _check(self, party: str, node: int, shape: pivodl_pb2.DividedNode, rows: Mapping[int, Rows]) -> None:
        """`Malformed` unless the children's records, as far as this party is to know them, are those of the node."""
        parent = self._tree.rows[node]
        mine = self._ownership.labelled_by(self._me.name, parent)
        # of a leaf the party may know only the records that it labels itself
        known = {
            child: parent if is_open else mine
            for child, is_open in ((2 * node, shape.left_open), (2 * node + 1, shape.right_open))
        }
        if any(not np.isin(rows[child], allowed, assume_unique=True).all() for child, allowed in known.items()):
            raise Malformed(f"{party} sends records of node {node}'s children that are not to be there")
        whole = parent if shape.left_open and shape.right_open else mine
        both = np.concatenate([np.intersect1d(rows[child], whole, assume_unique=True) for child in known])
        if len(both) != len(whole) or len(np.unique(both)) != len(whole):
            raise Malformed(f"{party} does not divide the records of node {node}")
        deepest = node.bit_length() >= self._me.params.max_depth
        if (shape.left_open or shape.right_open) and deepest:
            raise Malformed(f"{party} lets children of node {node} be split, below the largest depth")

    def _check_sizes(self, party: str, node: int, shape: pivodl_pb2.DividedNode, rows: Mapping[int, Rows]) -> None:
        """`Malformed` where the thresholds permit no such split, or not these open children, as far as can be seen.

        Of two leaves this party sees the records that it labels. With an open child it knows all of both.
        """
        me, ownership, parent = self._me, self._ownership, self._tree.rows[node]
        opened = {2 * node: shape.left_open, 2 * node + 1: shape.right_open}
        sides = dict(rows)
        if any(opened.values()):
            for child, is_open in opened.items():
                if not is_open:
                    sides[child] = np.setdiff1d(parent, rows[child ^ 1], assume_unique=True)
            wrong = next((child for child in opened if self._may_be_split(child, sides[child]) != opened[child]), None)
            if wrong is not None:
                said = "may be split" if opened[wrong] else "is a leaf"
                raise self._lie(party, f"that node {wrong} {said}, which the stopping rules do not say of its records")
        threshold = me.params.instance_threshold
        whole, left = ownership.counts(parent), ownership.counts(sides[2 * node])
        seen = ownership.owners if any(opened.values()) else [owner for owner in ownership.owners if owner == me.name]
        for owner in [] if me.params.as_published else seen:
            if whole[owner] and not threshold <= left[owner] <= whole[owner] - threshold:
                raise self._lie(
                    party,
                    f"a split of node {node} with fewer than instance_threshold = {threshold} labelled records of "
                    f"{owner} on a side",
                )

    def _lie(self, party: str, what: str) -> Malformed:
        return Malformed(f"{party} sent, of tree {self._tree.index}, {what}; {REMEDY.format(party)}")
