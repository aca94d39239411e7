"""Nodes of a level are divided, and every party learns the tree's shape (Algorithm 3, lines 1-5, 15, 27).

The winning split party names the places of the winning candidates to their source. The source divides the node, enters
the split under a new handle, and sends to all the handle and which children may be split; the records of these to all,
those of leaves to the parties that label them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from treetap.arrays import Rows
from treetap.errors import Malformed
from treetap.party.growth.messages import space_items
from treetap.party.pivodl.growing_tree import Division, GrowingTree
from treetap.party.pivodl.labels import Ownership
from treetap.party.pivodl.participant import Participant
from treetap.party.pivodl.source import Source
from treetap.party.pivodl.split_party import SplitParty, Winner
from treetap.party.runtime.messages import REMEDY, CountedBody, batches, counted_bodies
from treetap.process.together import together
from treetap.trees.pivodl_rules import stopped_by
from treetap.wire.records import rows_of
from treetap.wire.v2 import pivodl_pb2, types_pb2

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

    async def divide(self, level: int, winners: Mapping[int, Winner]) -> None:
        """Divide the open nodes that have a winner; the others become leaves.

        1. As split party: name the winning places to each source.
        2. As source: divide, and send shape and records.
        3. Receive the same from the other winning sources.
        """
        me, tree = self._me, self._tree
        self.open, self.place = [], {}
        won: defaultdict[str, list[int]] = defaultdict(list)
        for node, winner in sorted(winners.items()):
            won[winner.source].append(node)
        await self._name_places(level, winners)
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

    async def _name_places(self, level: int, winners: Mapping[int, Winner]) -> None:
        me, tree = self._me, self._tree
        bodies: defaultdict[str, list[pivodl_pb2.WinningCandidate]] = defaultdict(list)
        for node, winner in sorted(winners.items()):
            if winner.opener == me.name:
                places = self._split_party.opened[node].best.places
                bodies[winner.source].append(pivodl_pb2.WinningCandidate(node=node, places=places))
        for source, nodes in bodies.items():
            parts = [pivodl_pb2.WinningCandidates(nodes=batch) for batch in batches(nodes)]
            await me.context.outbox.send(source, "winning_candidates", parts, round=tree.index, stage=level)

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
