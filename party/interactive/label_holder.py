"""Multi-interactive inference (the SecureBoost baseline), stage by stage: `batched` or `per-tree`.

The label holder asks no owner that is away: at its splits records go both ways, weighted by the covers.

`batched` takes a block of records down all trees at once, so that a stage is a depth. `per-tree`, the published form,
takes one tree after the other, and stages run on from tree to tree.

The nodes that a stage asks about follow from the trees, never from the records. Records that stand at a split of
another party have passed the same number of such splits in their tree. That number is the stage at which the node's
owner is asked, even if no record stands there: the owners that are asked, how often, and about which nodes, reveal
nothing of a record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from treetap.arrays import Bools
from treetap.errors import Malformed
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.prediction.batch import BatchPrediction
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.steps import (
    ANSWERED,
    LOOKED_FOR,
    NAMES,
    OPENING_ROWS,
    REQUESTED,
    after_block,
    conditions_of,
    first_block,
    looked_up_block,
    requested_block,
    steps_asked_for,
)
from treetap.party.prediction.tree_model import TreeScoring
from treetap.party.runtime.context import CountedItem, Rows, counted_bodies, required
from treetap.party.runtime.step_order import (
    NEXT_ROUND,
    NEXT_STAGE,
    SAME,
    THIS_ROUND,
    Next,
    Outcome,
    role,
    step,
    steps_of,
)
from treetap.process.together import together
from treetap.protocols.interactive import InteractiveSizes, asked_stages
from treetap.trees.ensemble import ROOT, Split, Tree
from treetap.trees.paths import Guesses, Places, Walk
from treetap.wire import records
from treetap.wire.records import ChunkCache, most_bytes
from treetap.wire.v2 import control_pb2, interactive_pb2


@dataclass(frozen=True)
class StageNodes:
    """The nodes of one owner in one tree that a stage asks about.

    `tree`: its number among the used trees. `at_once`: at how many of the nodes one record can stand; more than one
    below splits of parties that are away, where it goes both ways.
    """

    tree: int
    splits: tuple[Split, ...]
    at_once: int


#: Owner → its nodes, tree by tree.
Stage = Mapping[str, Sequence[StageNodes]]


#: (number of the tree, split, places in the block of the records that stand there).
Query = tuple[int, Split, Places]


#: Outcome of `ask_directions`.
ASKED = "the stage has splits of other parties"


@role(
    {
        **OPENING_ROWS,
        NAMES: first_block("ask_directions"),
        "await_requests": (
            *requested_block("ask_directions"),
            Next("route_block", THIS_ROUND, REQUESTED),
            Next("look_up", THIS_ROUND, LOOKED_FOR),
        ),
        "look_up": looked_up_block("ask_directions", "route_block"),
    },
    OpenedModel,
    BatchPrediction,
)
class LabelHolder:
    """The label holder: takes records from the roots to the leaves."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises BadInput: see `OpenedModel`."""
        self._context, self._opening = job.context, job.opening
        self.sizes = InteractiveSizes(members=job.members, block=max(1, job.opening.block))
        self._scoring = TreeScoring(job, self.sizes, shows_directions=True)
        trees = self._scoring.trees.public.trees
        self.sizes.directions = sum(len(tree.splits) for tree in trees) if job.opening.away else len(trees)
        self.sizes.stages = asked_stages(len(trees))
        self._standing: _Standing | None = None
        steps = steps_of(
            self,
            self._scoring.opened,
            self._scoring.records,
            phases=self._scoring.phases,
            conditions=conditions_of(job.opening),
        )
        self.steps = steps_asked_for(job.opening, steps, served=["route_block"], looked_up=["look_up"])

    @step(Next("take_directions", SAME, ASKED), *after_block("ask_directions"))
    async def ask_directions(self, request: control_pb2.StepRequest) -> Outcome:
        """Follow the own splits, then query each owner about the records that stand at its splits of this stage."""
        asked, blocks = await self._ask(request.round, request.stage)
        if not asked:
            self._score()
        progress = self._context.progress
        return Outcome(
            ASKED if asked else self._scoring.records.after_block(request.round),
            answer=interactive_pb2.AskedDirections(
                asked=asked, blocks=blocks, done=progress.done, total=progress.total
            ),
        )

    @step(Next("ask_directions", NEXT_STAGE))
    async def take_directions(self, request: control_pb2.StepRequest) -> None:
        """Move the records down by the owners' answers."""
        await self._take(request.round, request.stage)

    @step(Next("await_requests", NEXT_ROUND, ANSWERED))
    async def route_block(self, request: control_pb2.StepRequest) -> Outcome:
        """Ask and take stage after stage, then score the block: all of the steps above in one."""
        block, stages = request.round, list[list[str]]()
        while True:
            asked, blocks = await self._ask(block, len(stages))
            if not asked:
                break
            await self._take(block, len(stages))
            stages.append(asked)
        self._score()
        owners, progress = [interactive_pb2.StageOwners(asked=stage) for stage in stages], self._context.progress
        routed = interactive_pb2.RoutedBlock(stages=owners, blocks=blocks, done=progress.done, total=progress.total)
        return Outcome(self._scoring.records.after_block(block), answer=routed)

    async def _ask(self, block: int, level: int) -> tuple[list[str], int]:
        """Query the owners of a stage; returns them, none after the last stage, and the number of blocks."""
        ensemble = self._scoring.trees.ensemble
        rows, blocks = self._scoring.records.block(block)
        if level == 0:
            self._standing = _Standing(rows, ensemble.used_trees, self._opening.away, self._scoring.opened.common)
        standing = required(self._standing)
        stage = self._stages[level] if level < len(self._stages) else {}
        self._follow_own(standing, sorted({nodes.tree for of_owner in stage.values() for nodes in of_owner}))
        standing.ask(stage)
        asked = [party for party in self._opening.feature_parties if party in stage]

        async def ask(party: str) -> None:
            def body(queries: list[interactive_pb2.RouteQuery]) -> interactive_pb2.RouteQueries:
                return interactive_pb2.RouteQueries(queries=queries, answers=standing.answers[party])

            bodies = counted_bodies(body, _items(standing, stage[party], self._scoring.opened.common[party]))
            await self._context.outbox.send(party, "route_queries", bodies, round=block, stage=level)

        await together(*map(ask, asked))
        return asked, blocks

    async def _take(self, block: int, level: int) -> None:
        """Move the records down by the answers to the queries of a stage."""
        standing = required(self._standing)
        for party, queries in standing.queries.items():
            parts, none = [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=bool)]
            async for message in self._context.mailbox.series(party, "route_answers", block, level):
                answers = message.protocol.interactive.route_answers
                parts.append(records.unpack_bits(answers.left, answers.count))
                spent = answers.spent or bytes(len(answers.left))
                none.append(records.unpack_bits(spent, answers.count))
            bits, left_out = np.concatenate(parts), np.concatenate(none)
            common, trees = self._scoring.opened.common[party], self._scoring.trees.ensemble.used_trees
            asked = [(query, common.placed(standing.rows[query[2]])) for query in queries]
            named = sum(len(own) for _, (own, _) in asked)
            if len(bits) != standing.answers[party] or bits[named:].any():
                raise Malformed(f"{party} answered {len(bits)} bits, not those of the queries")
            start = 0
            for (tree, split, places), (own, among) in asked:
                answered = slice(start, start + len(own))
                left = np.full(len(places), split.node in trees[tree].missing_left)
                left[among] = bits[answered]
                standing.walks[tree].move(split.node, left)
                standing.spent.update(dict.fromkeys(places[among[left_out[answered]]].tolist(), party))
                start += len(own)
        self._context.mailbox.forget(block)

    def _score(self) -> None:
        """Follow the own splits to the leaves, and keep the scores of the block."""
        standing = required(self._standing)
        self._follow_own(standing, range(len(standing.walks)))
        values = (walk.values(partial(self._own_left, standing)) for walk in standing.walks)
        leaves = (walk.open_leaves() for walk in standing.walks)
        self._scoring.records.leave_out(standing.spent)
        sums = self._scoring.trees.ensemble.summed(values, len(standing.rows))
        self._scoring.keep(standing.rows, sums, standing.guesses.share(), leaves=leaves)

    @cached_property
    def _stages(self) -> list[Stage]:
        """The stages of every block."""
        per_tree = self._opening.parameters.interactive.form == "per-tree"
        trees, away = self._scoring.trees.public.used_trees, self._opening.away
        return stages_of(trees, self._context.party, away, per_tree=per_tree)

    def _follow_own(self, standing: _Standing, trees: Iterable[int]) -> None:
        """Move records through own splits, to leaves or splits of other parties."""
        for tree in trees:
            walk = standing.walks[tree]
            while own := [(split, places) for split, places in walk.waiting() if split.owner == self._context.party]:
                for split, places in own:
                    walk.move(split.node, self._own_left(standing, split, places))

    def _own_left(self, standing: _Standing, split: Split, places: Places) -> Bools:
        """The records at these places that go left at an own split, of the shape or of a local subtree."""
        return self._scoring.trees.own.goes_left(split.handle, standing.rows[places])


class _Standing:
    """The node of each tree where each record of a block stands; `rows` (n,) are places."""

    def __init__(
        self, rows: Rows, trees: Sequence[Tree], away: Collection[str], common: Mapping[str, PartnerRecords]
    ) -> None:
        """`common`: by feature party, the records that it has."""
        self.rows = rows
        self.had = {party: len(of_party.among(rows)) for party, of_party in common.items()}  # of the block
        self.guesses = Guesses(len(rows))
        self.walks = [Walk(tree, len(rows), self.guesses, away) for tree in trees]
        self.queries: dict[str, list[Query]] = {}  # of the current stage, by owner
        self.spent: dict[int, str] = {}  # place of a record → the owner that permits no further query of it
        self.answers: dict[str, int] = {}  # bits of each owner's answer: the most that its queries can need

    def ask(self, stage: Stage) -> None:
        """Begin a stage: note the queries of each owner."""
        self.queries = {
            owner: [
                (nodes.tree, split, self.walks[nodes.tree].at(split.node)) for nodes in asked for split in nodes.splits
            ]
            for owner, asked in stage.items()
        }
        self.answers = {
            owner: self.had[owner] * sum(nodes.at_once for nodes in asked) for owner, asked in stage.items()
        }


def _items(
    standing: _Standing, asked: Iterable[StageNodes], common: PartnerRecords
) -> Iterator[CountedItem[interactive_pb2.RouteQuery]]:
    """The queries of one owner, of its records; those of a tree count as all that can stand at its nodes."""
    block, total = len(common.among(standing.rows)), len(common)
    one = most_bytes(block, total)
    chunks = ChunkCache(total)
    for nodes in asked:
        count = len(nodes.splits)
        share, more = divmod(min(count * one, most_bytes(block * nodes.at_once, total, count)), count)
        for place, split in enumerate(nodes.splits):
            rows, _ = common.placed(standing.rows[standing.walks[nodes.tree].at(split.node)])
            for chunk, counting in chunks.pairs(rows, share + (place < more)):
                counted = interactive_pb2.RouteQuery(handle=split.handle, records=counting)
                item = interactive_pb2.RouteQuery(handle=split.handle, records=chunk)
                yield item, counted, counted.ByteSize() + one


def stages_of(trees: Sequence[Tree], asking: str, away: Collection[str], *, per_tree: bool) -> list[Stage]:
    """The stages in their order: of all trees at once, or of one tree after the other.

    `asking`: the label holder, which follows its own splits by itself.
    """
    if per_tree:
        return [stage for number, tree in enumerate(trees) for stage in _stages({number: tree}, asking, away)]
    return _stages(dict(enumerate(trees)), asking, away)


def _stages(trees: Mapping[int, Tree], asking: str, away: Collection[str]) -> list[Stage]:
    stages: list[defaultdict[str, list[StageNodes]]] = []
    for number, tree in trees.items():
        for stage, by_owner in enumerate(_asked(tree, asking, away)):
            if stage == len(stages):
                stages.append(defaultdict(list))
            for owner, splits in by_owner.items():
                at_once = _at_once(tree, {split.node for split in splits}, away)
                stages[stage][owner].append(StageNodes(number, tuple(splits), at_once))
    return list(stages)


def _asked(tree: Tree, asking: str, away: Collection[str]) -> list[dict[str, list[Split]]]:
    """Splits of one tree by stage and owner, in the order of their nodes."""
    stages: list[dict[str, list[Split]]] = []
    passed = {ROOT: 0}  # node → splits of asked parties above it
    for split in sorted(tree.splits, key=lambda split: split.node):
        stage = passed[split.node]
        asked = split.owner != asking and split.owner not in away
        if asked:
            if stage == len(stages):
                stages.append({})
            stages[stage].setdefault(split.owner, []).append(split)
        passed[2 * split.node] = passed[2 * split.node + 1] = stage + asked
    return stages


def _at_once(tree: Tree, nodes: Collection[int], away: Collection[str]) -> int:
    """The most of these nodes that one record can stand at, if none of them is above another."""
    splits = {split.node: split for split in tree.splits}

    def most(node: int) -> int:
        if node in nodes or node not in splits:
            return int(node in nodes)
        below = most(2 * node), most(2 * node + 1)
        return sum(below) if splits[node].owner in away else max(below)

    return most(ROOT)
