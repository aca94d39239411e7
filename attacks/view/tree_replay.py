"""One tree in a transcript as it was grown in one attempt: its messages in order, and the view that they give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treetap.arrays import Ints
from treetap.attacks.view.kept_messages import MemoryBudget, Series
from treetap.attacks.view.known_trees import OwnSplit, TreeView, WholeCut, known_nodes
from treetap.attacks.view.opened_sums import OpenedEntries, Place
from treetap.errors import Malformed
from treetap.wire.frame import content_of
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, transcript_pb2, types_pb2

#: The messages of one kind from one sender for one stage.
Messages = Series[exchange_pb2.PeerMessage]
#: A set of records as it was sent: chunks, in the order of the messages.
Chunks = list[types_pb2.RecordChunk]


@dataclass
class TreeReplay:
    """One tree as it was grown in one attempt. `stored`: this party was asked to store it on disk."""

    index: int
    attempt: int
    series: dict[tuple[str, str, int], Messages] = field(default_factory=dict)
    sent: dict[tuple[str, str, int], Messages] = field(default_factory=dict)
    own: dict[int, transcript_pb2.OwnSplit] = field(default_factory=dict)
    opened: OpenedEntries = field(default_factory=OpenedEntries)
    stored: bool = False

    def totals(self) -> set[int]:
        """The numbers of records N according to the sets of this tree, the end of each set's last chunk, and others."""
        sets = [chunks for _, chunks in self._sets()]
        for split in self.own.values():
            sets += [list(split.left), list(split.right)]
        return {chunks[-1].start + chunks[-1].span for chunks in sets if chunks} | self.opened.records

    def of(self, step: str, *, sent: bool = False) -> list[tuple[str, int, Messages]]:
        """Peer, stage and messages of each complete series of one step."""
        series = self.sent if sent else self.series
        of_step = [(peer, stage, line) for (peer, name, stage), line in sorted(series.items()) if name == step]
        return [line for line in of_step if line[2].whole]

    def spaces(self, step: str) -> Iterator[tuple[int, Chunks]]:
        """(node, chunks) of the complete series of one step."""
        for _, _, series in self.of(step):
            by_node: defaultdict[int, Chunks] = defaultdict(list)
            for message in series.in_order():
                content: Any = content_of(message, step)
                for space in content.spaces:
                    by_node[space.node].append(space.records)
            yield from by_node.items()

    def children(self) -> dict[Place, dict[int, Chunks]]:
        """The records that feature parties sent left, as their label holder gets them: by party and stage, by node."""
        children: dict[Place, dict[int, Chunks]] = {}
        for peer, stage, series in self.of("children"):
            by_node = children.setdefault((peer, stage), {})
            for message in series.in_order():
                for child in message.growth.children.children:
                    by_node.setdefault(child.node, []).append(child.left)
        return children

    def view(self, everybody: Ints, budget: MemoryBudget, *, withheld: bool = False, holder: bool = False) -> TreeView:
        """The party's view of this tree among all records, which `everybody` holds.

        `withheld`: instance spaces are, so that a feature party answered for all records where it won; `holder`: the
        party is the label holder.

        Raises Malformed if the tree contradicts itself, and BadInput if it does not fit the memory budget.
        """
        total = len(everybody)
        try:
            parts = [*self.series.items()] if self.stored else []
            if lost := [where for where, series in parts if not series.whole]:
                peer, step, stage = lost[0]
                raise Malformed(f"messages of the {step} that {peer} sent for stage {stage} are missing")
            drawn: Ints | None = None
            received: dict[int, Ints] = {}
            for node, chunks in self._sets(children=not withheld):
                if node is None:
                    if drawn is None:
                        drawn = np.zeros(total, dtype=np.int64)
                        budget.take(drawn.nbytes)
                    drawn[rows_of(chunks, total)] += 1
                else:
                    rows = rows_of(chunks, total)
                    budget.take(rows.nbytes)
                    if not np.array_equal(received.setdefault(node, rows), rows):
                        raise Malformed(f"node {node} is said to hold different records")
            own = [(_own(it), rows_of(it.left, total), rows_of(it.right, total)) for it in self.own.values()]
            for _, left, right in own:
                budget.take(left.nbytes + right.nbytes)
            cuts = list[WholeCut]()
            if withheld:
                cuts = self._answered(total, budget) if holder else [_whole(it, total) for it in own]
                own = own if holder else []
            nodes = known_nodes(everybody, received, own, budget, cuts)
        except Malformed as fault:
            raise Malformed(f"tree {self.index}, attempt {self.attempt}: {fault}") from None
        by_node = sorted(cuts, key=lambda cut: cut.node)
        return TreeView(self.index, self.attempt, self.stored, total, nodes, drawn, tuple(by_node))

    def _answered(self, total: int, budget: MemoryBudget) -> list[WholeCut]:
        """The splits that feature parties answered for all records, as their label holder gets them."""
        cuts = dict[int, WholeCut]()
        for sent_left in self.children().values():
            for node, chunks in sent_left.items():
                cut = WholeCut(node, rows_of(chunks, total))
                budget.take(cut.left.nbytes)
                if not np.array_equal(cuts.setdefault(node, cut).left, cut.left):
                    raise Malformed(f"node {node} was split twice")
        return list(cuts.values())

    def _sets(self, *, children: bool = True) -> Iterator[tuple[int | None, Chunks]]:
        """(node, chunks) of the received spaces; node None: the sample. Incomplete series are left out.

        `children`: those that feature parties sent a label holder are among them.

        A sample with replacement comes as several sets: the records drawn at least once, at least twice, and so on.
        """
        if sum(step == "sampled_records" for _, step, _ in self.series) > 1:
            raise Malformed("the sample was sent twice")
        for _, _, series in self.of("sampled_records"):
            sets: list[Chunks] = []
            sampled = (message.growth.sampled_records for message in series.in_order())
            for chunk in (chunk for part in sampled for chunk in part.chunks):
                if chunk.start == 0 or not sets:  # every set begins with the first record
                    sets.append([])
                sets[-1].append(chunk)
            yield from ((None, chunks) for chunks in sets)
        yield from self.spaces("instance_spaces")
        for sent_left in self.children().values() if children else ():
            yield from ((2 * node, chunks) for node, chunks in sent_left.items())
        may_be_split = self._may_be_split()
        yield from ((node, chunks) for node, chunks in self.spaces("node_records") if node in may_be_split)

    def _may_be_split(self) -> set[int]:
        """Children of PIVODL's splits whose records all parties are told; of leaves each is told its own."""
        nodes = set[int]()
        for _, _, series in self.of("divided_nodes"):
            for message in series.in_order():
                content: Any = content_of(message, "divided_nodes")
                for split in content.nodes:
                    nodes |= {2 * split.node} if split.left_open else set()
                    nodes |= {2 * split.node + 1} if split.right_open else set()
        return nodes


def _own(it: transcript_pb2.OwnSplit) -> OwnSplit:
    return OwnSplit(
        it.node,
        it.handle,
        it.feature,
        it.feature_name,
        it.bin,
        it.threshold,
        it.missing_left,
        tuple(it.categories),
    )


def _whole(own: tuple[OwnSplit, Ints, Ints], total: int) -> WholeCut:
    """The cut of an own split. Malformed if it does not place every record once."""
    split, left, right = own
    sides = np.zeros(total, dtype=np.int64)
    sides[left] += 1
    sides[right] += 1
    if not (sides == 1).all():
        raise Malformed(f"the split of node {split.node} does not send each of the {total} records to one side")
    return WholeCut(split.node, left, split)
