"""Tree growth at the label holder, common to all training protocols: choice of splits, children, leaves.

The label holder of a protocol uses this class, and adds the keys, the encrypted values, the criterion and the scores.
It begins every tree; the steps after that are those of this class.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from party.defences.checks import refuse_repair
from party.defences.reached_leaves import ReachedLeaves
from party.defences.released_sets import ReleasedSets
from party.growth.label_state import LabelState, keep_round
from party.growth.messages import leaf_paths, partition_messages, space_messages, take_children, won_messages
from party.growth.split_table import TreeColumns
from party.growth.stored_trees import StoredTrees
from party.runtime.context import StepContext, required
from party.runtime.messages import Rows
from party.runtime.step_order import NEXT_ROUND, NEXT_STAGE, SAME, THIS_ROUND, Next, Outcome, step
from treetap.errors import Malformed, OutOfOrder
from treetap.models.own_split import OwnSplit
from treetap.process.together import together
from treetap.protocols.growth import TreeSizes
from treetap.protocols.job_spec import taking_part
from treetap.trees.candidates import MARKS, Group
from treetap.trees.criterion import Criterion
from treetap.trees.ensemble import Tree
from treetap.trees.expansion import ExpansionRules
from treetap.trees.grower import Entry, finish
from treetap.trees.growing_tree import Choice, Floats, GrowingTree, Ints
from treetap.trees.tree_bins import left_sums_of
from treetap.trees.withholding import InformationLimit
from treetap.wire.v2 import control_pb2, growth_pb2, setup_pb2, types_pb2

OWN_WON = "it won a node itself"
OTHERS_WON = "other parties won all nodes that split"
NONE_SPLITS = "no node splits"
SHARED = "other parties may take part in the tree"
ALONE = "the label holder grows the tree alone"
SPLITTABLE = "a node may be split"
NONE_SPLITTABLE = "no node may be split"

#: After `begin_tree` of a protocol in which the label holder may grow trees alone.
AFTER_BEGINNING = (Next("choose_splits", THIS_ROUND, SHARED), Next("finish_tree", THIS_ROUND, ALONE))

#: Opens packed sums: (ciphertexts, groups) → the criterion's slots (groups, S).
OpenSums = Callable[[bytes, int], Awaitable[Ints]]


@dataclass
class PlantedTree:
    """A tree under construction, with the label holder's own columns and splits.

    `state`: the label state that its values update. `groups`: by feature party the places of sums over categories.
    """

    index: int
    growing: GrowingTree
    columns: TreeColumns
    state: LabelState
    splits: list[OwnSplit] = field(default_factory=list)
    groups: dict[str, list[Group]] = field(default_factory=dict)
    marks: dict[str, Ints] = field(default_factory=dict)  # of the feature parties with monotone constraints
    finished: Tree | None = None

    def enter(self, _: int, node: int, entry: Entry) -> int:
        """Enter a split of a part that the label holder grows alone; returns its handle."""
        self.splits.append(self.columns.enter(node, *entry))
        return self.splits[-1].handle


class LabelHolderGrowth:
    """The steps of the label holder from `choose_splits` to `store_tree`. It is party number 0 in ties."""

    def __init__(
        self,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        sizes: TreeSizes,
        stored: StoredTrees,
        reached: ReachedLeaves,
        open_sums: OpenSums,
    ) -> None:
        self._context, self._spec, self._sizes, self._stored, self._open_sums = context, spec, sizes, stored, open_sums
        self._reached = reached
        self._feature_parties = list(spec.feature_parties)
        self._parties = [spec.aggregator, *self._feature_parties]
        self._tree: PlantedTree | None = None
        self._released: ReleasedSets | None = None

    def account(self, released: ReleasedSets | None) -> None:
        """Account for the sets of records that feature parties come to know; None where labels are no classes."""
        self._released = released

    def plant(
        self,
        t: int,
        values: Ints,
        criterion: Criterion,
        columns: TreeColumns,
        state: LabelState,
        *,
        rules: ExpansionRules,
        subtract: bool,
        limit: InformationLimit | None = None,
        alone: bool = False,
    ) -> str:
        """Begin a tree; returns the outcome of `begin_tree` by `AFTER_BEGINNING`.

        `rules`: the order of splits, and their limits. `subtract`: derive the candidate sums of a sibling by
        subtraction from the parent's. `limit`: on what other parties may see. `alone`: no other party takes part.
        """
        growing = GrowingTree(values, criterion, rules, subtract=subtract, limit=limit, alone=alone)
        if alone:
            growing.constrain([columns.marks()])
        self._tree = PlantedTree(t, growing, columns, state)
        if self._released is not None:
            self._released.open_tree()
        return ALONE if alone else SHARED

    @step(
        Next("apply_splits", SAME, OWN_WON),
        Next("relay_children", SAME, OTHERS_WON),
        Next("finish_tree", THIS_ROUND, NONE_SPLITS),
    )
    async def choose_splits(self, request: control_pb2.StepRequest) -> Outcome:
        """Step 3 of a tree.

        1. Compute the candidate sums of the own columns, and decrypt those of the feature parties that take part.
        2. Choose the best split of every node that has one.
        3. Send each owner the places of its candidates that won, and partitions of its categories; no other process
           sees these.
        """
        t, stage = request.round, request.stage
        tree = self._growing(t)
        growing = tree.growing
        own = await self._context.offload(
            lambda: left_sums_of(tree.columns.bins, growing.values, growing.build, growing.summed())
        )
        offered, there = [own], taking_part(self._spec, t)
        for party in self._feature_parties:
            build = growing.build
            offered.append(await self._candidates_of(party, t, stage, build) if party in there else own[:, :0])
        if stage == 0:
            self._constrain(tree)
        groups = [tree.columns.candidates.groups, *(tree.groups.get(party, ()) for party in self._feature_parties)]
        growing.take_candidates(offered, groups)
        choices = await self._context.offload(growing.choose)
        await together(
            *(self._send_won(number, t, stage, choices) for number in sorted({c.party for c in choices if c.party})),
            *(self._send_partitions(party, t, stage, choices) for party in tree.groups),
        )
        decisions = [growth_pb2.Decision(node=c.node, owner=self._parties[c.party]) for c in choices]
        own_won = any(choice.party == 0 for choice in choices)
        return Outcome(
            OWN_WON if own_won else OTHERS_WON if choices else NONE_SPLITS,
            answer=growth_pb2.ChosenSplits(decisions=decisions),
        )

    @step(Next("relay_children", SAME))
    async def apply_splits(self, request: control_pb2.StepRequest) -> None:
        """Step 4 of a tree, for the nodes whose best split is the label holder's own."""
        tree = self._growing(request.round)
        for node, choice in tree.growing.choices.items():
            if choice.party == 0:
                split, left = tree.columns.split(node, tree.growing.rows[node], choice.candidates, choice.partitions)
                tree.splits.append(split)
                tree.growing.split(node, split.handle, left)

    @step(Next("choose_splits", NEXT_STAGE, SPLITTABLE), Next("finish_tree", THIS_ROUND, NONE_SPLITTABLE))
    async def relay_children(self, request: control_pb2.StepRequest) -> Outcome:
        """Step 5 of a tree: receive the owners' children, relay splittable ones to the parties that lack them."""
        t, stage = request.round, request.stage
        tree = self._growing(t)
        growing = tree.growing
        for number, party in enumerate(self._feature_parties, start=1):
            expected = {node for node, choice in growing.choices.items() if choice.party == number}
            if not expected:
                continue
            received = self._context.mailbox.series(party, "children", t, stage)
            children = await take_children(received, len(growing.values))
            if set(children) != expected:
                raise Malformed(f"{party} sent children of nodes {sorted(children)}, expected {sorted(expected)}")
            for node, (handle, left) in children.items():
                growing.split(node, handle, left)
        growing.next_stage()
        await self._context.offload(lambda: self._release(tree))
        if growing.build:
            for party in taking_part(self._spec, t):
                self._check_spaces(party, tree)
            await together(*(self._relay(party, t, stage + 1) for party in taking_part(self._spec, t)))
        return Outcome(
            SPLITTABLE if growing.build else NONE_SPLITTABLE,
            answer=growth_pb2.RelayedChildren(frontier=growing.frontier, build=growing.build),
        )

    @step(Next("store_tree", THIS_ROUND))
    async def finish_tree(self, request: control_pb2.StepRequest) -> growth_pb2.FinishedTree:
        """Step 6 of a tree: compute leaves and scores, send each feature party its branches on the leaf paths.

        Nodes that are withdrawn from the other parties are leaves to them; the label holder grows these further alone.
        """
        t = request.round
        tree = self._growing(t)
        growing, state = tree.growing, tree.state
        leaves = growing.leaves()
        finished, values = await self._context.offload(lambda: self._finished(tree))
        tree.finished = finished
        state.add(finished, values)
        if (released := self._released) is not None:
            await self._context.offload(lambda: released.close_tree(t))
        await together(
            *(
                self._context.outbox.send(party, "leaf_paths", leaf_paths(growing.made, number, leaves), round=t)
                for number, party in enumerate(self._feature_parties, start=1)
            )
        )
        return growth_pb2.FinishedTree(
            leaves=len(leaves),
            metrics=[types_pb2.NamedMetric(name=k, value=v) for k, v in state.metrics.items()],
            stop=state.stopped,
        )

    @step(Next("begin_tree", NEXT_ROUND), Next("publish"))
    async def store_tree(self, request: control_pb2.StepRequest) -> None:
        """Step 7 of a tree: store it and the scores after it before answering; the label holder stores last."""
        t = request.round
        tree = self._growing(t)
        growing, own = tree.growing, [split.to_dict() for split in tree.splits]
        self._reached.keep(t, {leaf: growing.rows[leaf] for leaf in growing.leaves()}, len(growing.values))
        self._stored.add(t, {"tree": required(tree.finished).to_dict(), "own": own})
        if metrics := tree.state.metrics:
            trees = tree.state.trees
            keep_round(self._context.store, trees // tree.state.trees_per_round - 1, trees, metrics)
        tree.state.save()
        self._tree = None
        self._context.mailbox.forget(t)

    def _finished(self, tree: PlantedTree) -> tuple[Tree, Floats]:
        """The tree with the subtrees of withdrawn nodes, and the values that it gives to the records."""
        outputs, own = tree.state.outputs(tree.index), tree.columns.bins
        return finish(tree.growing, tree.index, outputs, self._parties, own, tree.enter)

    async def _send_won(self, number: int, t: int, stage: int, choices: Sequence[Choice]) -> None:
        """Send a feature party the winning candidates of its nodes of the stage."""
        party, own = self._parties[number], {c.node: c.candidates for c in choices if c.party == number}
        await self._context.outbox.send(party, "won_splits", won_messages(party, own), round=t, stage=stage)

    async def _send_partitions(self, party: str, t: int, stage: int, choices: Sequence[Choice]) -> None:
        """Send a feature party the partitions of its nodes of the stage, if it won some."""
        won = {each.node: each.partitions for each in choices if self._parties[each.party] == party}
        if won:
            bodies = partition_messages(won, [group.size for group in self._growing(t).groups[party]])
            await self._context.outbox.send(party, "chosen_partitions", bodies, round=t, stage=stage)

    async def _candidates_of(self, party: str, t: int, stage: int, build: list[int]) -> Ints:
        """The decrypted candidate sums of one feature party: (nodes, candidates, slots) int64."""
        nodes: list[int] = []
        packed: list[bytes] = []
        candidates: int | None = None
        partitioned: list[int] = []
        async for message in self._context.mailbox.series(party, "candidate_sums", t, stage):
            body = message.growth.candidate_sums
            nodes += body.nodes
            packed.append(body.ciphertexts)
            partitioned += body.partitioned
            candidates = body.candidates if candidates is None else candidates
            if body.marks:
                self._take_marks(party, t, stage, candidates, list(body.marks))
            if body.candidates != candidates:
                raise Malformed(f"{party} changed its number of candidates within tree {t}, stage {stage}")
        if nodes != build or candidates is None:
            raise Malformed(f"{party} sent candidates of nodes {nodes}, expected {build}")
        self._sizes.offered[party] = t, candidates
        if partitioned:
            self._take_groups(party, t, stage, partitioned, candidates)
        try:
            sums = await self._open_sums(b"".join(packed), len(nodes) * candidates)
            offered = sums.reshape(len(nodes), candidates, sums.shape[1])
            await self._context.offload(lambda: self._growing(t).growing.check_offered(offered))
        except Malformed as failure:
            raise Malformed(f"{party} has offered what is no sum over its columns: {failure}") from None
        return offered

    def _take_groups(self, party: str, t: int, stage: int, sizes: Sequence[int], candidates: int) -> None:
        """Note which places of a feature party's candidates are sums over categories: the last ones.

        Raises:
            Malformed: there are not as many places, or it is not the root.
            Refused: the policy lets no party know how the labels put its categories in order.
        """
        first = candidates - sum(sizes)
        if stage or first < 0 or min(sizes) < 1:
            raise Malformed(f"{party} says that sums over {sum(sizes)} categories are among {candidates} of tree {t}")
        self._context.policy.check_partitioned(self._context.party, party)
        starts = accumulate(sizes, initial=first)
        self._growing(t).groups[party] = [Group(start, size) for start, size in zip(starts, sizes, strict=False)]

    def _take_marks(self, party: str, t: int, stage: int, candidates: int, marks: list[int]) -> None:
        """Take the marks of a party's candidates, which come once, at the root."""
        tree = self._growing(t)
        if stage or party in tree.marks or len(marks) != candidates or not set(marks) <= set(MARKS):
            raise Malformed(f"{party} has sent marks that are not those of its {candidates} candidates in tree {t}")
        tree.marks[party] = np.array(marks, dtype=np.int64)

    def _constrain(self, tree: PlantedTree) -> None:
        """Constrain the weights of a tree if a party that takes part has constraints.

        Raises:
            ConfigError: this party repairs leaves, whose new weights the bounds of the old ones do not fit.
        """
        marks = [tree.columns.marks(), *(tree.marks.get(party) for party in self._feature_parties)]
        constrained = [name for name, each in zip(self._parties, marks, strict=True) if each is not None]
        if not constrained:
            return
        if self._reached.kept:
            refuse_repair(constrained)
        tree.growing.constrain(marks)

    async def _relay(self, party: str, t: int, stage: int) -> None:
        """Send a feature party the instance spaces of the frontier that did not result from its own splits."""
        tree = self._growing(t)
        growing, total = tree.growing, len(tree.growing.values)
        spaces: list[tuple[int, Rows]] = [(node, growing.rows[node]) for node in self._relayed(party, growing)]
        await self._context.outbox.send(party, "instance_spaces", space_messages(spaces, total), round=t, stage=stage)

    def _relayed(self, party: str, growing: GrowingTree) -> list[int]:
        """The nodes of the frontier that a feature party does not know from its own splits."""
        number = self._parties.index(party)
        return [node for node in growing.frontier if growing.made[node >> 1].party != number]

    def _release(self, tree: PlantedTree) -> None:
        """Account for the sets that the parties come to know at the stage just begun, before any is relayed."""
        if self._released is None:
            return
        growing = tree.growing
        for party in taking_part(self._spec, tree.index):
            # what is known of records of an eval table depends on no label of theirs
            known = {node: growing.rows[node] for node in growing.known_to(self._parties.index(party))}
            sets = {node: rows[rows < tree.columns.training] for node, rows in known.items()}
            self._released.release(party, tree.index, sets)

    def _check_spaces(self, party: str, tree: PlantedTree) -> None:
        """`Refused` if a node that a feature party would know has too few records: one relayed, or the sibling of one.

        The party has the parent's records, hence also those of a sibling that is not relayed, as the difference. Those
        of an eval table do not count.
        """
        growing = tree.growing
        for parent in sorted({node >> 1 for node in self._relayed(party, growing)}):
            for child in (2 * parent, 2 * parent + 1):
                count = int((growing.rows[child] < tree.columns.training).sum())
                self._context.policy.check_space(self._context.party, party, child, count)

    def _growing(self, t: int) -> PlantedTree:
        if self._tree is None or self._tree.index != t:
            raise OutOfOrder(f"tree {t} is not being grown at {self._context.party}")
        return self._tree
