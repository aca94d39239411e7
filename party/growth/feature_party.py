"""Tree growth at a feature party, common to all training protocols: encrypted candidate sums of its columns.

The feature party of a protocol uses this class, and adds the columns of a tree, the ciphertexts to sum and the clean-up
after a tree.

Records that a label holder may show a feature party of a growing tree, by the seed and the rules of the job.

The party computes the draw itself. Of a node that it is shown it knows the parent's records, and the fewest drawn ones
that the job's rules leave on a side of a split and in a node that may be split (`TreeParams.fewest_drawn`). A label
holder that shows others could have sums over a record by itself. A draw by labels or gradients, as GOSS has it, could
not be compared: there is none.

Nothing is compared where sets of records are withheld. Below these sizes nothing is promised: labels choose which of
the possible sets is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from treetap.arrays import Bools, Words
from treetap.errors import Malformed, OutOfOrder
from treetap.models.line_file import Line
from treetap.models.own_split import OwnSplit
from treetap.party.growth.left_bits import AnsweredBits
from treetap.party.growth.messages import (
    SUMS_BYTES,
    child_messages,
    share_messages,
    take_partitions,
    take_spaces,
    take_won,
)
from treetap.party.growth.split_table import TreeColumns
from treetap.party.growth.stored_trees import StoredTrees
from treetap.party.runtime.context import RECORD_US, REMEDY, Rows, StepContext
from treetap.party.runtime.step_order import NEXT_ROUND, NEXT_STAGE, SAME, THIS_ROUND, Next, step
from treetap.trees.ensemble import ROOT
from treetap.trees.params import FewestDrawn
from treetap.wire.v2 import control_pb2, growth_pb2


class ExpectedRecords:
    """The records of one tree, as far as they can be compared.

    Args:
        sender: the label holder.
        tree: the tree's number.
        drawn: (N,) how often the job's seed draws each record, or a mask; of an eval table never.
        fewest: by the job's rules.
        max_depth: of the job.
        seeded: the draw is the job's seed's in the order of this party's records; else no draw is compared.
    """

    def __init__(
        self,
        sender: str,
        tree: int,
        drawn: Rows | Bools,
        fewest: FewestDrawn,
        max_depth: int,
        *,
        seeded: bool = True,
    ) -> None:
        self._seeded = seeded
        self._sender, self._tree, self._drawn = sender, tree, drawn
        self._fewest, self._max_depth = fewest, max_depth

    def check_draw(self, received: Rows, *, training: int | None = None) -> None:
        """Raise `Malformed` unless the received draw (N,), as times, is that of the job's seed.

        `training`: the number of its records, where also all of them may come, each once: ID-LMID counts undrawn ones.
        """
        if not self._seeded:
            return
        differs = int((received != self._drawn).sum())
        every = training is not None and bool((received == (np.arange(len(received)) < training)).all())
        if differs and not every:
            raise self._lie("build_histograms", f"a draw that differs from that of the job's seed in {differs} records")

    def check_shown(self, shown: Mapping[int, Rows], known: Mapping[int, Rows], compared: set[int]) -> None:
        """Raise `Malformed` unless nodes can have the records that are shown of them.

        `known`: node → its records, of those that the party knows already; `compared`: nodes whose sums it sent, or
        could derive as those of siblings.
        """
        within = np.zeros(len(self._drawn), dtype=bool)
        for node, rows in shown.items():
            parent, what = known.get(node >> 1), f"records of node {node}"
            if node in known:
                raise self._lie("build_histograms", f"{what}, which were known")
            if parent is None or node >> 1 not in compared:
                raise self._lie("build_histograms", f"{what}, whose parent was not to be split")
            if node.bit_length() > self._max_depth:
                raise self._lie("build_histograms", f"{what}, which is as deep as max_depth = {self._max_depth}")
            within[rows] = True
            inside = within[parent]
            within[rows] = False
            if int(inside.sum()) != len(rows):
                raise self._lie("build_histograms", f"{what} that are not among its parent's")
            sibling = shown.get(node ^ 1, known.get(node ^ 1))
            if sibling is not None and not np.array_equal(parent[~inside], sibling):
                raise self._lie("build_histograms", f"{what} that are not its parent's without its sibling's")
            count, whole = self._count(rows), self._count(parent)
            if count < self._fewest.to_split:
                raise self._lie("build_histograms", f"{what}, {self._few(count, self._fewest.to_split)}")
            if whole - count < self._fewest.of_side:
                raise self._lie(
                    "build_histograms",
                    f"{what} that leave node {node ^ 1} {self._few(whole - count, self._fewest.of_side)}",
                )

    def check_sides(self, node: int, sides: Sequence[Rows]) -> None:
        """Raise `Malformed` unless the job's rules let a won split of a node divide its records so."""
        count = min(map(self._count, sides))
        if count < self._fewest.of_side:
            raise self._lie(
                "apply_splits",
                f"a winning candidate of node {node} with a side of {self._few(count, self._fewest.of_side)}",
            )

    def not_to_be_split(self, node: int) -> Malformed:
        """The error for a winner at a node that was not compared, or is split already."""
        return self._lie("apply_splits", f"a winning candidate of node {node}, which is not to be split")

    def _count(self, rows: Rows) -> int:
        return int(self._drawn[rows].sum())

    def _few(self, count: int, least: int) -> str:
        return f"{count} drawn records, where the job's rules leave {least}"

    def _lie(self, step: str, what: str) -> Malformed:
        return Malformed(f"{self._sender} sent, in {step} of tree {self._tree}, {what}; {REMEDY.format(self._sender)}")


#: Conditions on a tree that a role's step order evaluates (`TreeParams.takes_part`).
TAKES_PART = "the party takes part in that tree"
SITS_OUT = "the party sits that tree out"

#: After the steps of a tree that a protocol's feature party adds. Of a tree that it sits out it does `store_tree` only.
AFTER_HISTOGRAMS = (
    Next("apply_splits", SAME),
    Next("build_histograms", NEXT_STAGE),
    Next("store_tree", THIS_ROUND),
)
AFTER_STORING = (
    Next("build_histograms", NEXT_ROUND, TAKES_PART),
    Next("store_tree", NEXT_ROUND, SITS_OUT),
    Next("publish"),
)


class Sums(NamedTuple):
    """The sums of all candidates of a stage's nodes, or of the next ones, as they are sent: `number` ciphertexts."""

    ciphertexts: bytes
    number: int
    second_halves: bytes = b""


class OwnTree:
    """A tree under construction: the instance spaces that this party has, and its own splits.

    `summed`: (N,) the records that its sums hold. `offered`: the nodes whose sums were sent. `shares`: of nodes, where
    sums are shared: this party's of the packed sums of every candidate, (candidates, words). `found`: of those, the
    nodes that it has won at the present stage, each with the candidate and the party's share of its score.
    """

    #: True if the label holder relays instance spaces.
    takes_spaces = True

    def __init__(self, index: int, columns: TreeColumns, summed: Bools, expected: ExpectedRecords) -> None:
        self.index, self.columns, self.total, self.summed = index, columns, len(summed), summed
        self.expected = expected
        self.rows: dict[int, Rows] = {ROOT: np.arange(self.total, dtype=np.int64)}
        self.splits: list[OwnSplit] = []
        self.offered: set[int] = set()
        self.shares: dict[int, Words] = {}
        self.found: dict[int, tuple[int, bytes]] | None = None

    def take(self, shown: Mapping[int, Rows]) -> None:
        """Take the records of nodes as the label holder shows them; `Malformed` where these cannot have them."""
        compared = {*self.offered, *(node ^ 1 for node in self.offered)}
        self.expected.check_shown(shown, self.rows, compared)
        self.rows.update(shown)

    def rows_of_won(self, node: int) -> Rows:
        """The records that the split of a node is to divide.

        Raises:
            Malformed: this party offered no candidates of the node, nor of its sibling, or the node is split already.
        """
        if not {node, node ^ 1} & self.offered or self._is_split(node):
            raise self.expected.not_to_be_split(node)
        return self.rows_of(node)

    def _is_split(self, node: int) -> bool:
        return not {2 * node, 2 * node + 1}.isdisjoint(self.rows)

    def divide(self, node: int, left: Rows) -> tuple[Rows, Rows]:
        """Divide these records of a node; returns those that go left, and the others."""
        self.rows[2 * node] = left
        self.rows[2 * node + 1] = np.setdiff1d(self.rows_of(node), left, assume_unique=True)
        return self.rows[2 * node], self.rows[2 * node + 1]

    def rows_of(self, node: int) -> Rows:
        """The instance space of a node, received or derived as the parent's records without the sibling's."""
        if node not in self.rows:
            if node >> 1 not in self.rows or node ^ 1 not in self.rows:
                raise OutOfOrder(f"the records of node {node} of tree {self.index} are not known at this party")
            self.rows[node] = np.setdiff1d(self.rows[node >> 1], self.rows[node ^ 1], assume_unique=True)
        return self.rows[node]


class FeaturePartyGrowth:
    """A growing tree at a feature party, from the root to the stored line of the shard."""

    def __init__(
        self,
        context: StepContext,
        label_holder: str,
        stored: StoredTrees,
        kind: type[OwnTree] = OwnTree,
        left_bits: AnsweredBits | None = None,
    ) -> None:
        """`kind`: of the trees. `left_bits`: answers for won nodes whose records it does not know."""
        self._context, self._label_holder, self._stored, self._kind = context, label_holder, stored, kind
        self._left_bits = left_bits
        self._tree: OwnTree | None = None

    def plant(self, t: int, columns: TreeColumns, summed: Bools, expected: ExpectedRecords) -> OwnTree:
        """Begin a tree; `summed`: (N,) the records that its sums hold; `expected`: what is compared of it.

        Raises:
            Refused: it is one more than the policy's limit.
        """
        self._context.policy.limits.check_tree(self._context.party, t)
        self._tree = self._kind(t, columns, summed, expected)
        return self._tree

    async def take_spaces(self, t: int, stage: int) -> OwnTree:
        """Receive the instance spaces that the label holder relayed.

        The instance space of a node that was not relayed is its parent's without its sibling's.

        Raises:
            Malformed: a node cannot have the records that are shown of it.
        """
        tree = self.growing(t)
        if tree.takes_spaces:
            relayed = self._context.mailbox.series(self._label_holder, "instance_spaces", t, stage)
            shown = await take_spaces(relayed, tree.total)
            await self._context.offload(lambda: tree.take(shown), us=RECORD_US * tree.total)
        return tree

    async def send_sums(self, tree: OwnTree, stage: int, nodes: list[int], sums: Sums | AsyncIterator[Sums]) -> None:
        """Send the candidate sums of these nodes, node by node, including empty candidates; many while more are made.

        At the root also the marks of the candidates of constrained columns, if this party has any, and the fewest
        records in a cell.
        """
        tree.offered.update(nodes)
        candidates = len(tree.columns.candidates)
        body = growth_pb2.CandidateSums(nodes=nodes, candidates=candidates)
        if stage == 0:
            marks = tree.columns.marks()
            body.marks.extend([] if marks is None else marks.tolist())
            body.partitioned.extend(tree.columns.group_sizes)
            body.min_cell_records = tree.columns.bins.min_cell_records
            body.missing_left = tree.columns.missing_left
        stream = self._context.outbox.open(self._label_holder, "candidate_sums", tree.index, stage)
        room = max(1, SUMS_BYTES - body.ByteSize())
        async for part in _at_once(sums) if isinstance(sums, Sums) else sums:
            self._context.costs.ciphertexts["candidate_sums"] += part.number
            for name, halves in (("ciphertexts", part.ciphertexts), ("second_halves", part.second_halves)):
                start = 0
                while start < len(halves):
                    if not room:
                        await stream.put(body)
                        body, room = growth_pb2.CandidateSums(candidates=candidates), SUMS_BYTES
                    some = halves[start : start + room]
                    setattr(body, name, getattr(body, name) + some)
                    start, room = start + len(some), room - len(some)
        await stream.put(body)
        await stream.close()

    @step(Next("build_histograms", NEXT_STAGE), Next("store_tree", THIS_ROUND))
    async def apply_splits(self, request: control_pb2.StepRequest) -> None:
        """Step 4 of a tree, for the nodes whose best split is this party's.

        1. Receive the winning candidates from the label holder, unless they were found on shares.
        2. Take the lowest of the tied ones, or the partition of categories that came with them, and enter the split in
           the split table under the next handle.
        3. Send the handle and the left instance space of each node to the label holder; or, where instance spaces are
           withheld, the reply to its choices of records; and of a split found on shares its share of the score.
        """
        t, stage = request.round, request.stage
        tree = self.growing(t)
        shared = tree.found  # on shares, of each node the candidate and the party's share of its score
        if shared is None:
            won = await take_won(self._context.mailbox.series(self._label_holder, "won_splits", t, stage))
        else:
            won = {node: [candidate] for node, (candidate, _) in shared.items()}
        chosen = self._context.mailbox.series(self._label_holder, "chosen_partitions", t, stage)
        # of a party that offered sums over categories
        partitions = await take_partitions(chosen, sizes) if (sizes := tree.columns.group_sizes) else {}
        choices = self._context.mailbox.series(self._label_holder, "left_choices", t, stage)
        children: list[tuple[int, int, Rows | bytes]] = []
        for node, candidates in won.items():
            rows = tree.rows_of_won(node)
            split, left = tree.columns.split(node, rows, candidates, partitions.get(node, []))
            tree.splits.append(split)
            sides = tree.divide(node, left)
            if self._left_bits is None:
                tree.expected.check_sides(node, sides)
                for child, side in zip((2 * node, 2 * node + 1), sides, strict=True):
                    count = int((side < tree.columns.table.training).sum())  # without those of an eval table
                    self._context.policy.check_space(self._context.party, self._label_holder, child, count)
                children.append((node, split.handle, left))
            else:  # which records are the node's is not known here
                reply = await self._left_bits.answer(choices, t, node, left, tree.total)
                children.append((node, split.handle, reply))
            if self._context.recorder.on:
                entry = tree.columns.own_record(split, *sides, tree.total)
                self._context.recorder.own(t, stage, self._context.attempt, entry)
        if self._left_bits is not None and children and await anext(choices, None) is not None:
            raise Malformed(f"{self._label_holder} sent choices for more nodes of tree {t} than it says were won")
        apart = tree.columns.table.apart
        missing_left = {split.node for split in tree.splits if split.missing_left and apart}
        sent = child_messages(children, tree.total, missing_left)
        await self._context.outbox.send(self._label_holder, "children", sent, round=t, stage=stage)
        if shared is not None:
            scores = share_messages(growth_pb2.WinnerShares, b"".join(score for _, score in shared.values()))
            await self._context.outbox.send(self._label_holder, "winner_shares", scores, round=t, stage=stage)

    async def store(self, t: int, kept: Line, *, takes_part: bool) -> None:
        """Store this party's part of a tree: its splits, its branches on the path to each leaf, and what rules keep."""
        splits = self.growing(t).splits if takes_part else []
        leaves: list[list[list[int]]] = []
        async for message in self._context.mailbox.series(self._label_holder, "leaf_paths", t, 0):
            leaves += [
                [[branch.handle, int(branch.left)] for branch in leaf.branches]
                for leaf in message.growth.leaf_paths.leaves
            ]
        line: Line = {"tree": t, "splits": [split.to_dict() for split in splits], "leaves": leaves}
        self._stored.add(t, line | kept)
        self._tree = None
        self._context.mailbox.forget(t)

    def growing(self, t: int) -> OwnTree:
        """The tree under construction; `OutOfOrder` if it is another one."""
        if self._tree is None or self._tree.index != t:
            raise OutOfOrder(f"tree {t} is not being grown at {self._context.party}")
        return self._tree


async def _at_once(sums: Sums) -> AsyncIterator[Sums]:
    yield sums


def nodes_of(request: control_pb2.StepRequest) -> list[int]:
    """The nodes whose candidate sums a step asks for.

    Raises:
        Malformed: there are none, or one comes twice; sums of many copies would take as long as of many nodes. Or
            there are others than the root at its stage.
    """
    nodes = list(request.growth.build_histograms.nodes)
    if not nodes or len(set(nodes)) < len(nodes):
        raise Malformed("build_histograms asks for no nodes, or for one of them twice")
    if not request.stage and nodes != [ROOT]:
        raise Malformed("build_histograms asks for other nodes than the root before its children are known")
    return nodes


def since(before: Mapping[str, int], now: Mapping[str, int]) -> Mapping[str, int]:
    """The operations between two counts."""
    return Counter({name: count - before.get(name, 0) for name, count in now.items()})
