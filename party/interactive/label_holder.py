"""Multi-interactive inference (the SecureBoost baseline), a round per level: `batched` or `per-tree`.

label holder (LabelHolder)                              feature party (FeatureParty)
open_model                                        open_model
the steps of the alignment                        the same
ask_directions(b, l)                              answer_directions(b, l)
take_directions(b, l), then l+1 or block b+1
write_predictions; served: await_requests before each block, and no end

An owner that is away is not asked: at its splits records go both ways, weighted by the covers.

`batched` leads a block of records down all trees at once, so that level l is a depth. `per-tree`, the form in which the
method was published, takes one tree after the other, and l runs on from tree to tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from party.config import PartyConfig
from party.prediction.roles import Scoring
from party.runtime.context import Step, Tools, done, have
from party.runtime.job_store import Store
from party.runtime.messages import Rows, batches
from party.serving.registry import Desk
from treetap.errors import Malformed
from treetap.tables.reading import Floats
from treetap.trees.ensemble import Split, Tree
from treetap.trees.missing_party import Guesses, Places, Walk
from treetap.wire import records
from treetap.wire.frame import result
from treetap.wire.records import chunks_of
from treetap.wire.v2 import control_pb2, interactive_pb2, prediction_pb2

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
#: Owner → (number of the tree, split, places in the block of the records that stand there).
Queries = dict[str, list[tuple[int, Split, Places]]]


class LabelHolder(Scoring):
    """The label holder: leads records from the roots to the leaves."""

    begins = "ask_directions"

    def __init__(
        self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel, desk: Desk
    ) -> None:
        super().__init__(config, store, tools, opening, desk, self.begins)
        self._per_tree = opening.parameters.interactive.form == "per-tree"
        self.heard = frozenset(opening.feature_parties) - frozenset(opening.away)
        self._standing: _Standing | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._alignment.steps,
            **self._names.steps,
            "ask_directions": self.ask_directions,
            "take_directions": self.take_directions,
            **self.asked.steps,
        }

    async def ask_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Follow the own splits, then ask each owner about the records that stand at its splits."""
        block, level = request.round, request.stage
        self._order.check(("ask_directions", block, level))
        table = self.aligned
        rows, blocks = self.block(block)
        if level == 0:
            self._standing = _Standing(rows, self.ensemble.used_trees, self._opening.away)
        standing = have(self._standing)
        standing.queries = self._next_queries(standing, table.features)
        asked = [party for party in self.parties if party in standing.queries]
        for party in asked:
            items = (
                interactive_pb2.RouteQuery(handle=split.handle, records=chunk)
                for _, split, places in standing.queries[party]
                for chunk in chunks_of(standing.rows[places], len(table.ids))
            )
            bodies = (interactive_pb2.RouteQueries(queries=batch) for batch in batches(items))
            await self._tools.outbox.send(party, "route_queries", bodies, round=block, stage=level)
        if asked:
            self._order.then(("take_directions", block, level))
        else:
            values = (walk.values() for walk in standing.walks)
            leaves = (walk.open_leaves() for walk in standing.walks)
            self.keep(rows, self.ensemble.summed(values, len(rows)), standing.guesses.share(), leaves=leaves)
            self.next_block(block + 1)
        meter = self._tools.meter
        return result(interactive_pb2.AskedDirections(asked=asked, blocks=blocks, done=meter.done, total=meter.total))

    async def take_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Move the records down as the owners said."""
        block, level = request.round, request.stage
        self._order.check(("take_directions", block, level))
        standing = have(self._standing)
        for party, queries in standing.queries.items():
            parts: list[Bools] = []
            async for parcel in self._tools.mailbox.series(party, "route_answers", block, level):
                parts.append(
                    records.unpack_bits(
                        parcel.protocol.interactive.route_answers.left, parcel.protocol.interactive.route_answers.count
                    )
                )
            bits = np.concatenate([np.zeros(0, dtype=bool), *parts])
            if len(bits) != sum(len(places) for _, _, places in queries):
                raise Malformed(f"{party} answered {len(bits)} records, it was asked about others")
            start = 0
            for tree, split, places in queries:
                standing.walks[tree].move(split.node, bits[start : start + len(places)])
                start += len(places)
        self._tools.mailbox.forget(block)
        self._order.then(("ask_directions", block, level + 1))
        return done()

    async def close(self) -> None:
        """Nothing is held elsewhere."""

    def _next_queries(self, standing: _Standing, features: Floats) -> Queries:
        """Whom to ask about what in this round; nobody any more: all records stand at leaves."""
        if not self._per_tree:
            return self._follow_own(standing, features, range(len(standing.walks)))
        while standing.tree < len(standing.walks):
            found = self._follow_own(standing, features, [standing.tree])
            if found:
                return found
            standing.tree += 1
        return {}

    def _follow_own(self, standing: _Standing, features: Floats, trees: Iterable[int]) -> Queries:
        """Move records through own splits; returns what waits at those of others who are there."""
        waiting: Queries = {}
        for tree in trees:
            walk = standing.walks[tree]
            while own := [(split, places) for split, places in walk.waiting() if split.owner == self._config.name]:
                for split, places in own:
                    known = self.own[split.handle]
                    walk.move(split.node, known.goes_left(features[standing.rows[places], known.feature]))
            for split, places in walk.waiting():
                waiting.setdefault(split.owner, []).append((tree, split, places))
        return waiting


class _Standing:
    """Where the records of a block, `rows` (n,) positions, stand in each tree."""

    def __init__(self, rows: Rows, trees: Sequence[Tree], away: Collection[str]) -> None:
        self.rows = rows
        self.guesses = Guesses(len(rows))
        self.walks = [Walk(tree, len(rows), self.guesses, away) for tree in trees]
        self.queries: Queries = {}
        self.tree = 0  # of `per-tree`: the one that is being walked
