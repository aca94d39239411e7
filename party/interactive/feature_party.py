"""Multi-interactive inference at a feature party: directions of the records that the label holder asks about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from party.config import PartyConfig
from party.prediction.feature_names import NAMES
from party.prediction.opened_model import OpenedModel
from party.prediction.step_rows import OPENING_ROWS
from party.prediction.tree_model import OwnSplits
from party.runtime.context import Step, StepContext, empty_result
from party.runtime.job_store import Store
from party.runtime.messages import Rows
from party.runtime.step_order import ANY, LATER, Next, StepTable
from treetap.errors import Malformed
from treetap.wire import records
from treetap.wire.records import rows_of
from treetap.wire.v2 import control_pb2, interactive_pb2, prediction_pb2, types_pb2

#: Most answers (bits) in one message.
ANSWERS_PER_MESSAGE = 4 * 1024 * 1024


STEPS: StepTable = {
    **OPENING_ROWS,
    NAMES: (Next("answer_directions", ANY),),
    "answer_directions": (Next("answer_directions", LATER),),
}


class FeatureParty:
    """A feature party: sends the directions of records at its own splits."""

    def __init__(
        self, config: PartyConfig, store: Store, context: StepContext, opening: prediction_pb2.OpenModel
    ) -> None:
        """Raises BadInput: see `OpenedModel`."""
        self._context, self._opening = context, opening
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._model = OwnSplits(self._opened, "splits")
        self._opened.names.give(self._model.names())
        self._block = 0  # the last one with an answer
        self.steps: Mapping[str, Step] = {
            "open_model": self._opened.open_model,
            **self._opened.steps,
            "answer_directions": self.answer_directions,
        }

    async def answer_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Send a bit for each record of each query, in the order of the queries."""
        block, level = request.round, request.stage
        self._opened.order.check(request)
        if block > self._block:
            self._context.mailbox.forget(self._block)
        label_holder = self._opening.label_holder
        messages = self._context.mailbox.series(label_holder, "route_queries", block, level)
        queries = await _take_queries(messages, len(self._opened.aligned.ids))
        answers = [self._model.goes_left(handle, rows) for handle, rows in queries]
        bits = np.concatenate([np.zeros(0, dtype=bool), *answers])
        bodies = [
            interactive_pb2.RouteAnswers(count=len(part), left=records.pack_bits(part))
            for part in np.split(bits, range(ANSWERS_PER_MESSAGE, len(bits), ANSWERS_PER_MESSAGE))
        ]
        await self._context.outbox.send(label_holder, "route_answers", bodies, round=block, stage=level)
        self._block = block
        self._opened.order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""


async def _take_queries(messages: Any, total: int) -> list[tuple[int, Rows]]:
    """(handle, rows) in the order of asking; the chunks of one query follow each other."""
    found: list[tuple[int, list[types_pb2.RecordChunk]]] = []
    async for message in messages:
        for query in message.protocol.interactive.route_queries.queries:
            if query.records.start == 0:
                found.append((query.handle, []))
            if not found or found[-1][0] != query.handle:
                raise Malformed("a query whose records do not begin at 0")
            found[-1][1].append(query.records)
    return [(handle, rows_of(chunks, total)) for handle, chunks in found]
