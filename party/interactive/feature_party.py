"""Multi-interactive inference at a feature party: directions of the records that the label holder asks about."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from treetap.arrays import Bools
from treetap.errors import Malformed
from treetap.party.prediction.look_up import RaisedList
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.query_counts import charge_permitted, charge_queries
from treetap.party.prediction.steps import NAMES, OPENING_ROWS, steps_asked_for
from treetap.party.prediction.tree_model import NamesSent, OwnSplits
from treetap.party.runtime.context import REMEDY, Rows
from treetap.party.runtime.step_order import ALIGNMENT, ANY, LATER, Next, Phase, role, step, steps_of
from treetap.protocols.interactive import InteractiveSizes, asked_stages
from treetap.wire import records
from treetap.wire.records import rows_of
from treetap.wire.v2 import control_pb2, interactive_pb2, types_pb2

#: Most answers (bits) in one message.
ANSWERS_PER_MESSAGE = 4 * 1024 * 1024
#: Bytes of a coded set of records that is decoded once for all queries that have it.
SMALL_SET = 40


@role(
    {
        **OPENING_ROWS,
        NAMES: (Next("answer_directions", ANY), Next("answer_look_ups", ANY)),
        "answer_look_ups": (
            Next("answer_directions", ANY),
            Next("answer_block", ANY),
            Next("answer_look_ups", LATER),
        ),
    },
    OpenedModel,
    RaisedList,
)
class FeatureParty:
    """A feature party: sends the directions of records at its own splits."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises BadInput: see `OpenedModel`."""
        self._context, self._opening = job.context, job.opening
        self.sizes = InteractiveSizes(members=job.members, block=max(1, job.opening.block))
        self._opened = OpenedModel(job, self.sizes)
        self._splits = OwnSplits.of_feature_party(self._opened, self.sizes)
        self.sizes.stages = asked_stages(self.sizes.trees)
        #: Own split → the next own one above it, and the side of it; see `FeaturePartyGrowth.store`.
        self._above = {
            below[0]: (up[0], bool(up[1]))
            for tree in self._opened.shard
            for way in tree["leaves"]
            for up, below in pairwise(way)
        }
        self._block = 0  # the last one with an answer
        self._asked: Rows = np.zeros(0, dtype=np.int64)  # its records that were charged
        self._spent: Rows = self._asked  # those of them of which the policy permits no further query
        self._list = RaisedList(job, self._opened)
        names = self._splits.phase(job, NamesSent(job, self._splits.names()))
        phases: dict[str, Phase] = {ALIGNMENT: self._opened.alignment, NAMES: names}
        steps = steps_of(self, self._opened, self._list, phases=phases)
        self.steps = steps_asked_for(job.opening, steps, served=["answer_block"], looked_up=["answer_look_ups"])

    @step(Next("answer_directions", LATER), Next("answer_block", LATER), Next("answer_look_ups", LATER))
    async def answer_directions(self, request: control_pb2.StepRequest) -> None:
        """Send a bit for each record of each query, in the order of the queries, then zeros up to the length wanted."""
        await self._answer_stage(request.round, request.stage)

    @step(Next("answer_block", LATER), Next("answer_look_ups", LATER))
    async def answer_block(self, request: control_pb2.StepRequest) -> None:
        """The same for all stages of a block that have splits of this party, as their queries come.

        Raises:
            Malformed: the stages do not ascend, or a prediction has no such stage.
        """
        stages = request.protocol.interactive.answer_block.stages
        if any(after <= before for before, after in pairwise(stages)):
            raise Malformed("the stages to answer do not ascend")
        if stages and stages[-1] >= self.sizes.stages:
            raise Malformed(f"no prediction by this model has a stage {stages[-1]}")
        for level in stages:
            await self._answer_stage(request.round, level)

    async def _answer_stage(self, block: int, level: int) -> None:
        if block > self._block:
            self._context.mailbox.forget(self._block)
            self._asked = self._spent = np.zeros(0, dtype=np.int64)
        label_holder = self._opening.recipient
        messages = self._context.mailbox.series(label_holder, "route_queries", block, level)
        bits, spent = await self._answer(messages)
        ends = range(ANSWERS_PER_MESSAGE, len(bits), ANSWERS_PER_MESSAGE)
        bodies = [
            interactive_pb2.RouteAnswers(
                count=len(part), left=records.pack_bits(part), spent=records.pack_bits(none) if none.any() else b""
            )
            for part, none in zip(np.split(bits, ends), np.split(spent, ends), strict=True)
        ]
        await self._context.outbox.send(label_holder, "route_answers", bodies, round=block, stage=level)
        self._block = block

    async def _answer(self, messages: Any) -> tuple[Bools, Bools]:
        """The bits of a whole answer, and those that a served model has in vain; see `RouteAnswers`.

        Raises:
            Refused: the policy permits no further query of one of the records, and the model is not served.
            Malformed: unknown splits, or more records than a block can have at the splits of a stage.
        """
        queries, wanted = await _take_queries(messages)
        label_holder, total = self._opening.recipient, len(self._opened.aligned.ids) * self._opened.ways
        trees = self._splits.trees(handle for handle, _ in queries)
        # below a split of an absent party a record goes both ways, and stands at several splits of a tree
        most = min(total, max(1, self._opening.block)) * (len(queries) if self._opening.away else trees)
        if wanted > most:
            raise Malformed(f"{label_holder} asks for {wanted} directions, its queries can have {most}")
        bits, end = np.zeros(wanted, dtype=bool), 0
        asked = [self._asked]
        decoded: dict[bytes, Rows] = {}  # small sets come again: the empty one, and those of a few records
        for handle, chunks in queries:
            coded = chunks[0].SerializeToString() if len(chunks) == 1 and chunks[0].ByteSize() <= SMALL_SET else b""
            rows = decoded[coded] if coded in decoded else rows_of(chunks, total)
            if coded:
                decoded[coded] = rows
            if not len(rows):
                continue
            if end + len(rows) > wanted:
                raise Malformed(f"{label_holder} asks for {wanted} directions, its queries name more records")
            bits[end : end + len(rows)] = self._splits.goes_left(handle, rows)
            above, side = self._above.get(handle, (handle, True))
            # others were answered as if they went right
            known = np.setdiff1d(rows, self._spent) if len(self._spent) else rows
            if above != handle and (strayed := int((self._splits.goes_left(above, known) != side).sum())):
                raise Malformed(
                    f"{label_holder} sent, of split {handle}, {strayed} records that split {above} above it sends to "
                    f"the other side; {REMEDY.format(label_holder)}"
                )
            end += len(rows)
            asked.append(rows)
        every = np.unique(np.concatenate(asked))
        self._list.check(every)
        ids, fresh, spent = self._opened.aligned.ids, np.setdiff1d(every, self._asked), np.zeros(wanted, dtype=bool)
        if self._opening.serve:
            self._spent = np.union1d(
                self._spent, fresh[await charge_permitted(self._context, ids, fresh // self._opened.ways)]
            )
            spent[:end] = np.isin(np.concatenate([fresh[:0], *asked[1:]]), self._spent)
            bits &= ~spent
        else:
            await charge_queries(self._context, ids, fresh)
        self._asked = every
        return bits, spent


async def _take_queries(messages: Any) -> tuple[list[tuple[int, list[types_pb2.RecordChunk]]], int]:
    """(handle, chunks) in the order of asking, and the bits of the answer; the chunks of one query follow each other.

    Raises:
        Malformed: a query begins in the middle, or a split is in two queries.
    """
    queries: dict[int, list[types_pb2.RecordChunk]] = {}
    wanted, last = 0, -1
    async for message in messages:
        wanted = message.protocol.interactive.route_queries.answers
        for query in message.protocol.interactive.route_queries.queries:
            if query.records.start == 0:
                if query.handle in queries:
                    raise Malformed(f"two queries about split {query.handle}")
                queries[query.handle], last = [], query.handle
            if last != query.handle:
                raise Malformed("a query whose records do not begin at 0")
            queries[last].append(query.records)
    return list(queries.items()), wanted
