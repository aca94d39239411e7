"""Tree growth at the label holder, common to all training protocols: its steps, from the choice of splits to leaves.

The label holder of a protocol uses this class, and adds the keys, the encrypted values, the criterion and the scores.
It begins every tree; the steps after that are those of this class.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from treetap.arrays import Ints, Rows
from treetap.errors import Malformed, OutOfOrder
from treetap.models.own_split import OwnSplit
from treetap.party.growth.label_holder_job import LabelHolderJob
from treetap.party.growth.messages import leaf_paths, take_children
from treetap.party.growth.offered_candidates import OfferedCandidates, OpenSums, RecordedSums
from treetap.party.growth.rule import Summed
from treetap.party.growth.split_table import TreeColumns
from treetap.party.growth.stored_trees import LabelState, ended_round
from treetap.party.growth.withheld import ShownSpaces
from treetap.party.runtime.context import RECORD_US, SUM_US, StepContext, required
from treetap.party.runtime.step_order import NEXT_ROUND, NEXT_STAGE, SAME, THIS_ROUND, Next, Outcome, step
from treetap.process.together import together
from treetap.protocols.job_spec import params_as, taking_part
from treetap.trees.centralised import Entry, finish
from treetap.trees.ensemble import Tree
from treetap.trees.expansion import ExpansionRules
from treetap.trees.growing_tree import Choice, GrowingTree, with_zeros
from treetap.trees.noised_sums import Criterion
from treetap.trees.params import TreeParams
from treetap.trees.tree_bins import left_sums_of
from treetap.wire.v2 import control_pb2, growth_pb2, setup_pb2

SHARED = "other parties may take part in the tree"
ALONE = "the label holder grows the tree alone"
OTHERS_WON = "other parties won nodes"
SPLITTABLE = "a node may be split"
NONE_SPLITTABLE = "no node may be split"

#: After the children of a stage are known.
AFTER_RELAYING = (Next("choose_splits", NEXT_STAGE, SPLITTABLE), Next("store_tree", THIS_ROUND, NONE_SPLITTABLE))

#: After `begin_tree` of a protocol in which the label holder may grow trees alone.
AFTER_BEGINNING = (Next("choose_splits", THIS_ROUND, SHARED), Next("store_tree", THIS_ROUND, ALONE))


#: Encrypts and sends the values of the nodes to build: (tree, stage, the records of each node).
EncryptNodes = Callable[[int, int, Mapping[int, Rows]], Awaitable[None]]


@dataclass
class PlantedTree:
    """A tree under construction, with the label holder's own columns and splits.

    `state`: the label state that its values update. `offered`: the feature parties' candidates. `missing_left`: nodes
    that others split, at which records go left that the owner lacks.
    """

    index: int
    growing: GrowingTree
    columns: TreeColumns
    state: LabelState
    offered: OfferedCandidates
    splits: list[OwnSplit] = field(default_factory=list)
    finished: Tree | None = None
    missing_left: list[int] = field(default_factory=list)

    def enter(self, _: int, node: int, entry: Entry) -> int:
        """Enter a split of a part that the label holder grows alone; returns its handle."""
        self.splits.append(self.columns.table.keep(node, *entry))
        return self.splits[-1].handle


class LabelHolderGrowth:
    """The steps of the label holder from `choose_splits` to `store_tree`. It is party number 0 in ties.

    Attributes:
        shown: what the feature parties come to know of the records.
    """

    def __init__(
        self,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        job: LabelHolderJob,
        open_sums: OpenSums,
        encrypt: EncryptNodes | None = None,
    ) -> None:
        """`encrypt`: encrypts the values of the nodes to build below the root, if the root's do not serve them."""
        self._context, self._spec, self._job, self._open_sums, self._encrypt = context, spec, job, open_sums, encrypt
        self._feature_parties = list(spec.feature_parties)
        self._parties = [spec.aggregator, *self._feature_parties]
        self._tree: PlantedTree | None = None
        self._params = params_as(spec, TreeParams)  # type: ignore[type-abstract] # of either protocol
        self.shown = ShownSpaces(context, spec, job.rules, job.common)
        self._recorded = RecordedSums(context, opened=job.choice is None)

    async def plant(
        self,
        t: int,
        summed: Summed,
        criterion: Criterion,
        columns: TreeColumns,
        state: LabelState,
        *,
        rules: ExpansionRules,
        subtract: bool,
    ) -> Outcome:
        """Begin a tree, and grow it where that is done alone; returns the outcome of `begin_tree`.

        `summed`: of the training's records. `rules`: the order of splits, and their limits. `subtract`: derive the
        candidate sums of a sibling by subtraction from the parent's.
        """
        values = with_zeros(summed.values, self._job.sizes.records)
        growing = GrowingTree(
            values,
            criterion,
            rules,
            subtract=subtract,
            limit=summed.limit,
            alone=summed.alone,
            left_first=summed.left_first,
            padded=summed.padded,
            width=summed.width,
        )
        growing.lacking = {
            number: lacks
            for number, party in enumerate(self._feature_parties, start=1)
            if (lacks := self._job.common[party].lacks) is not None
        }
        if summed.alone:
            growing.constrain([columns.marks()])
        for rule in self._job.rules:
            rule.planted(growing, alone=summed.alone)
        offered = OfferedCandidates(self._context, self._job.sizes, self._open_sums, growing, self._job.choice)
        self._tree = PlantedTree(t, growing, columns, state, offered)
        if summed.alone:
            return await self._finish(t, ALONE)
        self._recorded.values(t, values)
        return Outcome(SHARED)

    @step(Next("relay_children", SAME, OTHERS_WON), *AFTER_RELAYING)
    async def choose_splits(self, request: control_pb2.StepRequest) -> Outcome:
        """Step 3 of a tree.

        1. Compute the candidate sums of the own columns, and decrypt those of the feature parties that take part.
        2. Choose the best split of every node that has one.
        3. Send each owner the places of its candidates that won, and partitions of its categories; no other process
           sees these. Of shared sums the owners have found theirs. Where instance spaces are withheld, choose the
           records of which it is to say who goes left. If there is none, go on with step 5.
        """
        t, stage = request.round, request.stage
        tree = self._growing(t)
        growing = tree.growing
        there = taking_part(self._spec, t)
        # one after the other: once sums are refused, those of no further party are opened
        taken = {party: await self._taken(tree, party, stage) for party in self._feature_parties if party in there}
        if any([await rule.opened(growing, taken) for rule in self._job.rules]):
            return await self.relay_children(request)
        if stage == 0:
            self._constrain(tree)
        shapes, (records, slots) = tree.columns.candidates.shapes, growing.values.shape
        own = slots * len(growing.build) * sum(shape.sums for shape in shapes)
        count = own + sum(sums.size for sums in taken.values())
        us = RECORD_US * records * (1 + len(shapes) / 4) + 2 * SUM_US * count
        shared = self._job.choice
        opened = {} if shared else taken
        choices = await self._context.offload(lambda: self._chosen(tree, opened), us=us)
        if shared is not None:
            owners = await shared.choose(t, stage, growing, taken)
            choices = growing.take_owners({node: self._parties.index(party) for node, party in owners.items()})
        won = {party: [c for c in choices if self._parties[c.party] == party] for party in self._feature_parties}
        self._recorded.won(t, stage, won)
        padded = growing.padded
        winners = there if padded else [party for party in won if won[party]]
        if shared is None:
            await together(*(tree.offered.send_won(party, t, stage, won[party]) for party in winners))
        if self._job.left_bits is not None:
            await self._job.left_bits.choose(t, stage, growing, won, self._job.common)
        decisions = [growth_pb2.Decision(node=c.node, owner=self._parties[c.party]) for c in choices if not padded]
        if winners:
            return Outcome(OTHERS_WON, answer=growth_pb2.ChosenSplits(decisions=decisions))
        return await self.relay_children(request, decisions)

    @step(*AFTER_RELAYING)
    async def relay_children(
        self, request: control_pb2.StepRequest, decisions: Sequence[growth_pb2.Decision] = ()
    ) -> Outcome:
        """Step 5 of a tree.

        1. Split the nodes that the label holder won itself, and receive the children of the others from their owners.
        2. Relay splittable ones to the parties that lack them. Under a lattice, encrypt the values of the nodes to
           build. If no node may be split, finish the tree.
        """
        t, stage = request.round, request.stage
        tree = self._growing(t)
        growing, there = tree.growing, taking_part(self._spec, t)
        for node, choice in growing.choices.items():
            if choice.party == 0:
                split, left = tree.columns.split(node, growing.rows[node], choice.candidates, choice.partitions)
                tree.splits.append(split)
                growing.split(node, split.handle, left)
                self._recorded.own_split(t, stage, split, tree.columns, growing)
        for number, party in enumerate(self._feature_parties, start=1):
            expected = {node for node, choice in growing.choices.items() if choice.party == number}
            if not expected and not (growing.padded and party in there):
                continue
            received = self._context.mailbox.series(party, "children", t, stage)
            bits = self._job.left_bits
            opened = None if bits is None else partial(bits.opened, t, stage)
            whole = partial(self._whole, tree, party)
            nodes, children = await take_children(received, len(self._job.common[party]), opened, whole)
            if nodes != expected:
                raise Malformed(f"{party} sent children of nodes {sorted(nodes)}, expected {sorted(expected)}")
            for node, handle, left in children:
                growing.split(node, handle, left)
            if self._job.choice is not None:
                await self._job.choice.check(t, stage, party, growing, sorted(expected))
        growing.next_stage()
        asked = growing.asked
        if self._encrypt is not None and asked:
            await self._encrypt(t, stage + 1, {node: growing.rows_asked(node) for node in asked})
        await self.shown.show(t, stage + 1, growing, tree.columns.table.training)
        if not asked:
            return await self._finish(t, NONE_SPLITTABLE, decisions)
        frontier = [] if growing.padded else growing.frontier
        answer = growth_pb2.RelayedChildren(frontier=frontier, build=asked, decisions=decisions)
        return Outcome(SPLITTABLE, answer=answer)

    async def _finish(self, t: int, why: str, decisions: Sequence[growth_pb2.Decision] = ()) -> Outcome:
        """Compute a tree's leaves and scores, send each feature party its branches on the leaf paths.

        Nodes that are withdrawn from the other parties are leaves to them; the label holder grows these further alone.
        """
        tree = self._growing(t)
        growing, state = tree.growing, tree.state
        depth = self._params.max_depth
        leaves = [*range(1 << depth, 2 << depth)] if growing.padded else growing.leaves()
        outputs, own, members = state.outputs(t), tree.columns.bins, self._parties

        def ended() -> None:
            finished, values = finish(growing, t, outputs, members, own, tree.enter)
            tree.finished = replace(finished, missing_left=tuple(sorted(tree.missing_left)))
            state.add(tree.finished, values)
            if self._spec.screen:  # there is no model to measure
                state.metrics = {}
            for rule in self._job.rules:
                rule.finish(t, growing)

        await self._context.offload(ended, whole=True)
        numbers = {party: number for number, party in enumerate(self._feature_parties, start=1)}
        paths = {party: leaf_paths(growing.made, number, leaves) for party, number in numbers.items()}
        await self._context.outbox.send_each("leaf_paths", paths, t)
        metrics = self._job.data.metrics(state.metrics)
        told = growth_pb2.FinishedTree(leaves=len(leaves), metrics=metrics, stop=state.stopped, decisions=decisions)
        return Outcome(why, answer=told)

    @step(Next("begin_tree", NEXT_ROUND), Next("publish"))
    async def store_tree(self, request: control_pb2.StepRequest) -> None:
        """Step 6 of a tree: store it and the scores after it before answering; the label holder stores last."""
        t = request.round
        tree = self._growing(t)
        own = [split.to_dict() for split in tree.splits]
        line = {"tree": required(tree.finished).to_dict(), "own": own, **tree.offered.kept()}
        arrays = tree.state.state()
        for rule in self._job.rules:
            line |= rule.kept()
            arrays |= rule.arrays()
        if metrics := tree.state.metrics:
            trees = tree.state.trees
            line |= ended_round(trees // tree.state.trees_per_round - 1, trees, metrics)
        await self._context.offload(lambda: self._job.stored.add(t, line, arrays), whole=True)
        self._tree = None
        self._context.mailbox.forget(t)

    def _whole(self, tree: PlantedTree, party: str, node: int, left: Rows, missing_left: bool) -> Rows:
        """The records that go left at a node split by a party, by those that it has."""
        if missing_left:
            tree.missing_left.append(node)
        return self._job.common[party].left_of(tree.growing.rows[node], left, missing_left=missing_left)

    async def _taken(self, tree: PlantedTree, party: str, stage: int) -> Ints:
        """The decrypted candidate sums of a feature party at a stage."""
        sums = await tree.offered.take(party, tree.index, stage)
        sizes = [*map(len, tree.offered.groups[party])]
        self._recorded.offered(tree.index, stage, party, tree.growing.build, sums, sizes)
        return sums

    def _chosen(self, tree: PlantedTree, taken: Mapping[str, Ints]) -> list[Choice]:
        """The choices of a stage. `taken`: the sums of the feature parties that take part."""
        growing, parties = tree.growing, self._feature_parties
        own = left_sums_of(tree.columns.bins, growing.values, growing.build, growing.summed())
        groups = [tree.columns.candidates.groups, *(tree.offered.groups[party] for party in parties)]
        # places of parties are their numbers in ties, so that one that sits the tree out offers none of its own
        growing.take_candidates([own, *(taken.get(party, own[:, :0]) for party in parties)], groups)
        return growing.choose()

    def _constrain(self, tree: PlantedTree) -> None:
        """Constrain the weights of a tree if a party that takes part has constraints.

        Raises:
            ConfigError: a rule does not go with bounds of weights.
        """
        marks = [tree.columns.marks(), *(tree.offered.marks.get(party) for party in self._feature_parties)]
        constrained = [name for name, mark in zip(self._parties, marks, strict=True) if mark is not None]
        if not constrained:
            return
        for rule in self._job.rules:
            rule.constrained(constrained)
        tree.growing.constrain(marks)

    def _growing(self, t: int) -> PlantedTree:
        if self._tree is None or self._tree.index != t:
            raise OutOfOrder(f"tree {t} is not being grown at {self._context.party}")
        return self._tree
