"""Multi-interactive inference (the SecureBoost baseline), a round per level: `batched` or `per-tree`.

The label holder asks no owner that is away: at its splits records go both ways, weighted by the covers.

`batched` takes a block of records down all trees at once, so that level l is a depth. `per-tree`, the published form,
takes one tree after the other, and l runs on from tree to tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from party.config import PartyConfig
from party.prediction.batch import Beside
from party.prediction.feature_names import NAMES
from party.prediction.opened_model import OpenedModel
from party.prediction.records import record_source
from party.prediction.step_rows import OPENING_ROWS, after_block, first_block, record_rows
from party.prediction.tree_model import TreeModel, open_trees
from party.prediction.tree_results import TreeResults
from party.runtime.context import Step, StepContext, empty_result, required
from party.runtime.job_store import Store
from party.runtime.messages import Rows, batches
from party.runtime.step_order import NEXT_STAGE, SAME, Next, StepTable
from party.serving.registry import ServedModels
from treetap.errors import Malformed
from treetap.protocols.prediction import present
from treetap.trees.ensemble import Split, Tree
from treetap.trees.missing_party import Guesses, Places, Walk
from treetap.wire import records
from treetap.wire.frame import result
from treetap.wire.records import chunks_of
from treetap.wire.v2 import control_pb2, interactive_pb2, prediction_pb2

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
#: Owner → (number of the tree, split, places in the block of the records that stand there).
Queries = dict[str, list[tuple[int, Split, Places]]]


#: Outcome of `ask_directions`.
ASKED = "records stand at other parties' splits"

STEPS: StepTable = {
    **OPENING_ROWS,
    NAMES: first_block("ask_directions"),
    "ask_directions": (Next("take_directions", SAME, ASKED), *after_block("ask_directions")),
    "take_directions": (Next("ask_directions", NEXT_STAGE),),
    **record_rows("ask_directions"),
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
        self._per_tree = opening.parameters.interactive.form == "per-tree"
        self._standing: _Standing | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._opened.steps,
            "ask_directions": self.ask_directions,
            "take_directions": self.take_directions,
            **self._records.steps,
        }

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load the table and begin to align it; report the number of trees."""
        self._opened.order.check(request)
        return await open_trees(self._opened, self._records, self._model, request)

    async def ask_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Follow the own splits, then query each owner about the records that stand at its splits."""
        block, level = request.round, request.stage
        self._opened.order.check(request)
        ensemble, total = self._model.ensemble, len(self._opened.aligned.ids)
        rows, blocks = self._records.block(block)
        if level == 0:
            self._standing = _Standing(rows, ensemble.used_trees, self._opening.away)
        standing = required(self._standing)
        standing.queries = self._next_queries(standing)
        asked = [party for party in self._opening.feature_parties if party in standing.queries]
        for party in asked:
            items = (
                interactive_pb2.RouteQuery(handle=split.handle, records=chunk)
                for _, split, places in standing.queries[party]
                for chunk in chunks_of(standing.rows[places], total)
            )
            bodies = (interactive_pb2.RouteQueries(queries=batch) for batch in batches(items))
            await self._context.outbox.send(party, "route_queries", bodies, round=block, stage=level)
        if asked:
            self._opened.order.done(request, ASKED)
        else:
            values = (walk.values() for walk in standing.walks)
            leaves = (walk.open_leaves() for walk in standing.walks)
            self._results.keep(rows, ensemble.summed(values, len(rows)), standing.guesses.share(), leaves=leaves)
            self._opened.order.done(request, self._records.after_block(block))
        progress = self._context.progress
        return result(
            interactive_pb2.AskedDirections(asked=asked, blocks=blocks, done=progress.done, total=progress.total)
        )

    async def take_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Move the records down by the owners' answers."""
        block, level = request.round, request.stage
        self._opened.order.check(request)
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
            if len(bits) != sum(len(places) for _, _, places in queries):
                raise Malformed(f"{party} answered {len(bits)} records, not those of the queries")
            start = 0
            for tree, split, places in queries:
                standing.walks[tree].move(split.node, bits[start : start + len(places)])
                start += len(places)
        self._context.mailbox.forget(block)
        self._opened.order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""

    def _next_queries(self, standing: _Standing) -> Queries:
        """The queries of this round by owner; none if all records stand at leaves."""
        if not self._per_tree:
            return self._follow_own(standing, range(len(standing.walks)))
        while standing.tree < len(standing.walks):
            found = self._follow_own(standing, [standing.tree])
            if found:
                return found
            standing.tree += 1
        return {}

    def _follow_own(self, standing: _Standing, trees: Iterable[int]) -> Queries:
        """Move records through own splits; returns those at the splits of other parties that are present."""
        waiting: Queries = {}
        for tree in trees:
            walk = standing.walks[tree]
            while own := [(split, places) for split, places in walk.waiting() if split.owner == self._context.party]:
                for split, places in own:
                    walk.move(split.node, self._model.own.goes_left(split.handle, standing.rows[places]))
            for split, places in walk.waiting():
                waiting.setdefault(split.owner, []).append((tree, split, places))
        return waiting


class _Standing:
    """The node of each tree where each record of a block stands; `rows` (n,) are positions."""

    def __init__(self, rows: Rows, trees: Sequence[Tree], away: Collection[str]) -> None:
        self.rows = rows
        self.guesses = Guesses(len(rows))
        self.walks = [Walk(tree, len(rows), self.guesses, away) for tree in trees]
        self.queries: Queries = {}
        self.tree = 0  # of `per-tree`: the current one
