"""Multi-interactive inference (the SecureBoost baseline), stage by stage: `batched` or `per-tree`.

The label holder asks no owner that is away: at its splits records go both ways, weighted by the covers.

`batched` takes a block of records down all trees at once, so that a stage is a depth. `per-tree`, the published form,
takes one tree after the other, and stages run on from tree to tree. The shape of the trees alone says which nodes a
stage asks about (`party.interactive.stages`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from party.config import PartyConfig
from party.interactive.feature_party import asked_stages
from party.interactive.stages import Stage, StageNodes, stages_of
from party.prediction.batch import Beside
from party.prediction.feature_names import NAMES
from party.prediction.opened_model import OpenedModel
from party.prediction.records import record_source
from party.prediction.step_rows import (
    ANSWERED,
    OPENING_ROWS,
    REQUESTED,
    after_block,
    first_block,
    record_rows,
)
from party.prediction.tree_model import TreeModel, open_trees
from party.prediction.tree_results import TreeResults
from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import BLOCKS, Expected, Receives
from party.runtime.job_store import Store
from party.runtime.messages import CountedItem, Rows, counted_bodies
from party.runtime.step_order import NEXT_ROUND, NEXT_STAGE, SAME, THIS_ROUND, Next, StepTable
from party.runtime.steps import Step
from party.serving.registry import ServedModels
from treetap.errors import Malformed
from treetap.process.together import together
from treetap.protocols.prediction import present
from treetap.trees.ensemble import Split, Tree
from treetap.trees.missing_party import Guesses, Places, Walk
from treetap.wire import records
from treetap.wire.frame import result
from treetap.wire.records import ChunkCache, most_bytes
from treetap.wire.v2 import control_pb2, interactive_pb2, prediction_pb2

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
#: (number of the tree, split, places in the block of the records that stand there).
Query = tuple[int, Split, Places]


#: Outcome of `ask_directions`.
ASKED = "the stage has splits of other parties"

_RECORD_ROWS = record_rows("ask_directions")
STEPS: StepTable = {
    **OPENING_ROWS,
    NAMES: first_block("ask_directions"),
    "ask_directions": (Next("take_directions", SAME, ASKED), *after_block("ask_directions")),
    "take_directions": (Next("ask_directions", NEXT_STAGE),),
    **_RECORD_ROWS,
    "await_requests": (*_RECORD_ROWS["await_requests"], Next("route_block", THIS_ROUND, REQUESTED)),
    "route_block": (Next("await_requests", NEXT_ROUND, ANSWERED),),
}


class LabelHolder:
    """The label holder: takes records from the roots to the leaves."""

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        served_models: ServedModels,
    ) -> None:
        """`served_models`: the registry that clients ask. Raises BadInput: see `OpenedModel`."""
        self._context, self._opening = context, opening
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._model = TreeModel(self._opened)
        beside: list[Beside] = []
        self._records = record_source(config, store, context, opening, self._opened, served_models, beside)
        there = present(opening)
        self._results = TreeResults(context, opening, self._opened, self._model, self._records, there)
        beside.append(self._results.write)
        self._stages: list[Stage] | None = None
        self._standing: _Standing | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._opened.steps,
            "ask_directions": self.ask_directions,
            "take_directions": self.take_directions,
            **({"route_block": self.route_block} if opening.serve else {}),
            **self._records.steps,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`: a bit of each record in each tree; at each split where a party is away."""
        trees = self._model.public.trees
        bits = sum(len(tree.splits) for tree in trees) if self._opening.away else len(trees)
        stages = asked_stages(len(trees))
        answers = Expected(present(self._opening), lambda: bits * (self._records.size + 8) // 8, BLOCKS, stages)
        return {**self._opened.receives, "route_answers": answers}

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load the table and begin to align it; report the number of trees."""
        self._opened.order.check(request)
        return await open_trees(self._opened, self._records, self._model, request)

    async def ask_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Follow the own splits, then query each owner about the records that stand at its splits of this stage."""
        self._opened.order.check(request)
        asked, blocks = await self._ask(request.round, request.stage)
        if asked:
            self._opened.order.done(request, ASKED)
        else:
            self._score()
            self._opened.order.done(request, self._records.after_block(request.round))
        progress = self._context.progress
        return result(
            interactive_pb2.AskedDirections(asked=asked, blocks=blocks, done=progress.done, total=progress.total)
        )

    async def take_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Move the records down by the owners' answers."""
        self._opened.order.check(request)
        await self._take(request.round, request.stage)
        self._opened.order.done(request)
        return empty_result()

    async def route_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Ask and take stage after stage, then score the block: all of the steps above in one."""
        self._opened.order.check(request)
        block, stages = request.round, list[list[str]]()
        while True:
            asked, blocks = await self._ask(block, len(stages))
            if not asked:
                break
            await self._take(block, len(stages))
            stages.append(asked)
        self._score()
        self._opened.order.done(request, self._records.after_block(block))
        owners, progress = [interactive_pb2.StageOwners(asked=each) for each in stages], self._context.progress
        return result(
            interactive_pb2.RoutedBlock(stages=owners, blocks=blocks, done=progress.done, total=progress.total)
        )

    async def _ask(self, block: int, level: int) -> tuple[list[str], int]:
        """Query the owners of a stage; returns them, none after the last stage, and the number of blocks."""
        ensemble, total = self._model.ensemble, len(self._opened.aligned.ids)
        rows, blocks = self._records.block(block)
        if level == 0:
            self._standing = _Standing(rows, ensemble.used_trees, self._opening.away)
        standing = required(self._standing)
        stages = self._all_stages()
        stage = stages[level] if level < len(stages) else {}
        self._follow_own(standing, sorted({nodes.tree for each in stage.values() for nodes in each}))
        standing.ask(stage)
        asked = [party for party in self._opening.feature_parties if party in stage]

        async def ask(party: str) -> None:
            def body(queries: list[interactive_pb2.RouteQuery]) -> interactive_pb2.RouteQueries:
                return interactive_pb2.RouteQueries(queries=queries, answers=standing.answers[party])

            bodies = counted_bodies(body, _items(standing, stage[party], total))
            await self._context.outbox.send(party, "route_queries", bodies, round=block, stage=level)

        await together(*map(ask, asked))
        return asked, blocks

    async def _take(self, block: int, level: int) -> None:
        """Move the records down by the answers to the queries of a stage."""
        standing = required(self._standing)
        for party, queries in standing.queries.items():
            parts: list[Bools] = []
            async for message in self._context.mailbox.series(party, "route_answers", block, level):
                parts.append(
                    records.unpack_bits(
                        message.protocol.interactive.route_answers.left,
                        message.protocol.interactive.route_answers.count,
                    )
                )
            bits = np.concatenate([np.zeros(0, dtype=bool), *parts])
            named = sum(len(places) for _, _, places in queries)
            if len(bits) != standing.answers[party] or bits[named:].any():
                raise Malformed(f"{party} answered {len(bits)} bits, not those of the queries")
            start = 0
            for tree, split, places in queries:
                standing.walks[tree].move(split.node, bits[start : start + len(places)])
                start += len(places)
        self._context.mailbox.forget(block)

    def _score(self) -> None:
        """Follow the own splits to the leaves, and keep the scores of the block."""
        standing = required(self._standing)
        self._follow_own(standing, range(len(standing.walks)))
        values = (walk.values(partial(self._own_left, standing)) for walk in standing.walks)
        leaves = (walk.open_leaves() for walk in standing.walks)
        sums = self._model.ensemble.summed(values, len(standing.rows))
        self._results.keep(standing.rows, sums, standing.guesses.share(), leaves=leaves)

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""

    def _all_stages(self) -> list[Stage]:
        """The stages of every block."""
        if self._stages is None:
            per_tree = self._opening.parameters.interactive.form == "per-tree"
            trees, away = self._model.public.used_trees, self._opening.away
            self._stages = stages_of(trees, self._context.party, away, per_tree=per_tree)
        return self._stages

    def _follow_own(self, standing: _Standing, trees: Iterable[int]) -> None:
        """Move records through own splits, to leaves or splits of other parties."""
        for tree in trees:
            walk = standing.walks[tree]
            while own := [(split, places) for split, places in walk.waiting() if split.owner == self._context.party]:
                for split, places in own:
                    walk.move(split.node, self._own_left(standing, split, places))

    def _own_left(self, standing: _Standing, split: Split, places: Places) -> Bools:
        """The records at these places that go left at an own split, of the shape or of a local subtree."""
        return self._model.own.goes_left(split.handle, standing.rows[places])


class _Standing:
    """The node of each tree where each record of a block stands; `rows` (n,) are positions."""

    def __init__(self, rows: Rows, trees: Sequence[Tree], away: Collection[str]) -> None:
        self.rows = rows
        self.guesses = Guesses(len(rows))
        self.walks = [Walk(tree, len(rows), self.guesses, away) for tree in trees]
        self.queries: dict[str, list[Query]] = {}  # of the current stage, by owner
        self.answers: dict[str, int] = {}  # bits of each owner's answer: the most that its queries can need

    def ask(self, stage: Stage) -> None:
        """Begin a stage: note the queries of each owner."""
        self.queries = {
            owner: [
                (nodes.tree, split, self.walks[nodes.tree].at(split.node)) for nodes in each for split in nodes.splits
            ]
            for owner, each in stage.items()
        }
        self.answers = {owner: len(self.rows) * sum(nodes.at_once for nodes in each) for owner, each in stage.items()}


def _items(
    standing: _Standing, asked: Iterable[StageNodes], total: int
) -> Iterator[CountedItem[interactive_pb2.RouteQuery]]:
    """The queries of one owner, of `total` records; the records of a tree count as all that can stand at its nodes."""
    block = len(standing.rows)
    one = most_bytes(block, total)
    chunks = ChunkCache(total)
    for nodes in asked:
        count = len(nodes.splits)
        share, more = divmod(min(count * one, most_bytes(block * nodes.at_once, total, count)), count)
        for place, split in enumerate(nodes.splits):
            rows = standing.rows[standing.walks[nodes.tree].at(split.node)]
            for chunk, counting in chunks.pairs(rows, share + (place < more)):
                counted = interactive_pb2.RouteQuery(handle=split.handle, records=counting)
                item = interactive_pb2.RouteQuery(handle=split.handle, records=chunk)
                yield CountedItem(item, counted, counted.ByteSize() + one)
