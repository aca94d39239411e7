"""The records of a prediction, block by block, and the destination of their scores.

Records of a table, with scores for a file (`treetap.party.prediction.batch`), or records of clients' requests, with
scores for the answers. The protocols are the same for both. The role of a label
holder

1. has the rows of `treetap.party.prediction.steps` at its steps: `first_block` before the blocks, `after_block` at the
   last step of a block, and `requested_block` for `await_requests`, which is a step of the source;
2. lowers `records.size` before its first block if it cannot take as many records;
3. takes `rows, blocks = records.block(number)`, may call `records.advance(k)` meanwhile, ends the block with
   `records.keep(…)`, by trees through `TreeScoring.keep`, and returns the outcome `records.after_block(number)`;
4. keeps nothing that grows with the number of blocks, and answers any number of blocks under one key.
   `records.wanted` are all records that may come.

A prediction whose records come from requests of clients, and whose scores go back to them (docs/serving.md).
"""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from treetap.errors import BadInput, ConfigError, NotServed
from treetap.models.arrays import Arrays
from treetap.models.line_file import Line
from treetap.models.store import KINDS
from treetap.party.config import seconds_of
from treetap.party.prediction.applicants import Applicants, encode
from treetap.party.prediction.batch import BatchPrediction, Beside
from treetap.party.prediction.look_up import Lists
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.reasons import MOST_REASONS, ServedReasons
from treetap.party.prediction.scores_on_disk import Imputed, Outcome
from treetap.party.prediction.steps import ANSWERED, LOOKED_FOR, REQUESTED, UNREQUESTED
from treetap.party.runtime import step_order
from treetap.party.runtime.context import Rows, required
from treetap.party.runtime.step_order import step
from treetap.party.serving.request_queue import RequestQueue
from treetap.party.setup.steps import table_config
from treetap.protocols.prediction import check_degraded_serving, degrades_serving, present
from treetap.protocols.registry import prediction_name
from treetap.tables.normalised import normaliser
from treetap.tables.reading import Floats, Table
from treetap.tables.record_ids import Ids
from treetap.trees.job_params import absence_of
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.v2 import control_pb2, serving_pb2

log = logging.getLogger(__name__)
#: In the place of a record in the common order: some party lacks it; the own table has no such id.
NOT_COMMON, UNKNOWN = -1, -2
#: Seconds for which a step waits for requests.
WAIT_S = 2.0
#: Seconds after which the coordinator counts as gone: between two steps, and in a round that does not move.
ALONE_S, ROUND_S = 15.0, 120.0
#: Number of answers over whose times quantiles are taken, and seconds over which records are counted.
LATEST, RATE_S = 1000, 60.0


class ServedPrediction:
    """One served model at the label holder.

    It has the methods of `BatchPrediction` for a protocol, and those of `ServedModel` for the registry of such models.
    """

    def __init__(self, job: PredictionJob, opened: OpenedModel) -> None:
        context, opening, served_models = job.context, job.opening, job.served_models
        # The table `[serve]`; `ConfigError` where there is none, or it and the policy leave no client to answer.
        if job.config.serve is None:
            raise ConfigError(
                f"{job.config.name} serves no client: its configuration has no table [serve]; it needs "
                "clients = [names of certificates] and an address, listen = HOST:PORT",
                party=job.config.name,
            )
        job.config.check_clients()
        self.config = job.config.serve
        self._context, self._opening, self._opened = context, opening, opened
        self._served_models = served_models
        if degrades_serving(opening):
            check_degraded_serving(opening, partial(absence_of, opened.manifest.get("params", {})))
        self.model, self.job, self.attempt = opening.model, context.job, context.attempt
        metrics = served_models.metrics
        self._queue = RequestQueue(self.config.queue, self.config.window_ms / 1000, metrics.waiting_records.inc)
        self._own = Ids.of([])  # sorted
        self._described, self._missing = partial(table_config, job.config, opening.table), list[str | float]()
        self._places: Rows | None = None  # of own records in the common order; None: no client can be answered yet
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self._spent: Mapping[int, str] = {}  # of the block at hand: see `leave_out`
        self._rereads = served_models.rereads  # more since then, or late: another attempt is asked for
        self._old_at = asyncio.get_running_loop().time() + (seconds_of(self.config.refresh) or math.inf)
        self._alone_at: float | None = None  # when the coordinator counts as gone; None: a step is under way
        self._answers = _Answers(opened, self.model, self.job, opening.away)
        self._lists = Lists(job, opened)
        self._applicants = Applicants(opened, self.named, lambda name: self._place(name) != UNKNOWN)
        lacking = self._applicants.lacking
        self._reasons = ServedReasons(opened, self.config.refused, lacking, given=opening.reasons)
        # for operators: counts since the attempt began, times and a rate of late
        self._figures = serving_pb2.ServingFigures(grpc=served_models.address, away=opening.away)
        self._latest: deque[float] = deque(maxlen=LATEST)
        self._scored: deque[tuple[float, int]] = deque()
        self.size = max(1, opening.block)

    # ---- for a protocol, as `treetap.party.prediction.batch.BatchPrediction`

    async def open(self, table: Table) -> None:
        """From here on clients get the answer that the model is being prepared."""
        self._own, self._missing = table.ids, self._described().missing
        self._served_models.take(self)

    @property
    def wanted(self) -> Rows:
        """Clients may ask about any record that all parties hold."""
        return np.arange(len(self._opened.aligned.ids), dtype=np.int64)

    def block(self, number: int) -> tuple[Rows, int]:
        """The records that clients asked about."""
        self._expect(ROUND_S)
        return self._rows, number + 1

    def advance(self, records: int) -> None:
        self._context.progress.done = self._figures.records + records
        self._expect(ROUND_S)

    def keep(self, rows: Rows, scores: Floats, imputed: Imputed, further: Arrays) -> None:
        """Answer the clients. A served model has no imputed shares and no explanations."""
        del imputed, further
        self._figures.records += len(rows)
        self._figures.rounds += 1
        self._scored.append((asyncio.get_running_loop().time(), len(rows)))
        self._context.progress.done = self._figures.records
        predictions = self._answers.predictions(self._opened.begun(rows, scores))
        for place, party in self._spent.items():
            predictions[place] = serving_pb2.RecordPrediction(status=serving_pb2.QUERIES_SPENT, party=party)
        self._queue.keep(rows, predictions)

    def leave_out(self, spent: Mapping[int, str]) -> None:
        """Have no scores of some records: place in the block → the feature party that permits no further query."""
        self._spent = spent
        for party, records in Counter(self._spent.values()).items():
            log.warning(
                "model %s: %s permits no further query of %d of the records asked for; their clients hear it",
                *(self.model, party, records),
            )

    def after_block(self, number: int) -> str:
        """The next block holds the records that clients ask about next."""
        del number
        self._expect(ALONE_S)
        return ANSWERED

    @step()
    async def await_requests(self) -> step_order.Outcome:
        """Wait for requests; the records that they ask about are the next block. A role declares what may follow."""
        if self._places is None:
            self._places = np.full(len(self._own), NOT_COMMON, dtype=np.int64)
            self._places[self._opened.alignment.records] = np.arange(len(self._opened.alignment.records))
            if self._opening.look_up:
                self._applicants.begin()
            self._context.costs.level = logging.DEBUG  # these steps have no end; metrics count them
            self._served_models.begin(self)
        self._alone_at = None
        self._rows = await self._queue.gather(self.size, WAIT_S)
        self._applicants.take(self._rows // self._opened.ways)
        self._leave_unscored()
        self._expect(ALONE_S)
        if len(self._rows):
            self._served_models.metrics.blocks.observe(len(self._rows))
            self._context.progress.total = self._figures.records + len(self._rows)
        awaited = serving_pb2.AwaitedRequests(
            records=len(self._rows),
            figures=self._current_figures(),
            reread=self._served_models.rereads > self._rereads or asyncio.get_running_loop().time() >= self._old_at,
            look_ups=len(self.new),
        )
        requested = LOOKED_FOR if self.new else REQUESTED if len(self._rows) else UNREQUESTED
        return step_order.Outcome(requested, answer=awaited)

    @property
    def new(self) -> list[tuple[int, str]]:
        """The numbers and ids of the block's records that are to be looked up."""
        looked_up = self._applicants.lacking
        return [(record, name) for record, (name, _) in self._applicants.block.items() if record not in looked_up]

    @step()
    async def look_up(self, request: control_pb2.StepRequest) -> step_order.Outcome:
        """Look up the new records of the block, answer for those that have no score; go on with the others.

        Those that a party lacks have a score by a join from the left alone.
        """
        lacking, answers = await self._lists.find(request.round, self.new, self._applicants.waiting)
        self._applicants.lacking.update(lacking)
        self._applicants.answers.update(answers)
        self._leave_unscored()
        left = serving_pb2.FoundRecords(records=len(self._rows))
        return step_order.Outcome(REQUESTED if len(self._rows) else ANSWERED, answer=left)

    def _leave_unscored(self) -> None:
        """Answer for new records of the block that were looked up and have no score; the others are left."""
        records, answers = self._rows // self._opened.ways, self._applicants.answers
        gone = np.isin(records, list(answers))
        self._queue.keep(self._rows[gone], [answers[record] for record in records[gone].tolist()])
        self._rows = self._rows[~gone]

    def _current_figures(self) -> serving_pb2.ServingFigures:
        now = asyncio.get_running_loop().time()
        while self._scored and self._scored[0][0] < now - RATE_S:
            self._scored.popleft()
        if self._latest:
            p50, p99 = np.quantile(np.array(self._latest), [0.5, 0.99]).tolist()
            self._figures.p50_s, self._figures.p99_s = p50, p99
        self._figures.records_per_s = sum(records for _, records in self._scored) / RATE_S
        return self._figures

    # ---- for clients: `treetap.party.serving.registry.ServedModel`

    async def predict(
        self,
        client: str,
        ids: Sequence[str],
        records: Sequence[serving_pb2.NewRecord],
        within_s: float,
        reasons: int,
    ) -> serving_pb2.PredictedRecords:
        """An answer for each id and each record, in their order.

        Raises:
            BadInput: the model gives no reasons, or not so many, or none of so many records at once.
            NotServed, Overloaded, Silent: see `RequestQueue.ask` and `DecisionLog.write`.
        """
        self._servable()
        if records and not self._opening.look_up:
            raise BadInput(f"records: model {self.model} is served without look_up; ask about records by ids")
        named = [*ids, *(record.id for record in records)]
        if reasons and (reasons > MOST_REASONS or len(named) > self._most_reasoned):
            raise BadInput(
                f"reasons = {reasons} of {len(named)} ids: model {self.model} gives at most {MOST_REASONS}, of "
                f"{self._most_reasoned} ids in a request (most_ids, queue; none where it is not served with --reasons)"
            )
        began, manifest, missing = asyncio.get_running_loop().time(), self._opened.manifest, self._missing
        values = (
            await self._context.offload(lambda: [encode(manifest, record, missing) for record in records])
            if records
            else []
        )
        with self._applicants.entered(records, values) as (new, refused):
            places = [*map(self._place, ids), *new]
            wanted = dict.fromkeys(place for place in places if place >= 0)
            asked = [place for record in wanted for place in self._reasons.asked(record, reasons)]
            scored = await self._queue.ask(asked, within_s) if asked else {}
            predicted = refused | {record: self._reasons.give(record, scored, reasons) for record in wanted}
        answer = self._answers.to(named, places, predicted)
        if (log := self._served_models.decisions) is not None:
            entries = answer.predictions
            await log.write([self._decision(client, log.hashed(self.named(entry.id)), entry) for entry in entries])
        self._figures.requests += 1
        self._latest.append(asyncio.get_running_loop().time() - began)
        self._context.costs.byte_counts.sent(client, "predict", self._answers.counted(answer))
        for party in answer.away:
            self._served_models.metrics.without.labels(party).inc()
        self._context.recorder.answered(client, self._context.attempt, answer)
        return answer

    @cached_property
    def about(self) -> Line:
        """The model and the job in a line of the decision log; the model by the digest of this party's part."""
        files = self._opened.manifest["files"]
        digests = {"model_digest": next(files[kind] for kind in KINDS if kind in files)}
        return digests | {"model": self.model, "job": self.job, "job_digest": self._context.digest.hex()}

    def _decision(self, client: str, hashed_id: str, entry: serving_pb2.RecordPrediction) -> Line:
        """The line of a record's answer in the decision log."""
        kind, not_common = entry.WhichOneof("prediction"), entry.status == serving_pb2.NOT_COMMON
        return {
            **self.about,
            "client": client,
            "status": serving_pb2.RecordStatus.Name(entry.status).lower(),
            "ids": [hashed_id],
            "prediction": getattr(entry, kind) if kind else None,
            "scores": list(entry.scores),
            "reasons": [f"{reason.party}:{reason.column or f'#{reason.number}'}" for reason in entry.reasons],
            "lacked_by": ([entry.party] if entry.party else present(self._opening)) if not_common else [],
            "spent_by": [entry.party] if entry.party and not not_common else [],
            "away": list(self._opening.away),
        }

    def refuse(self) -> None:
        self._figures.refused += 1

    def recorded(self, client: str, request: serving_pb2.PredictRecords) -> None:
        self._context.recorder.asked(client, self._context.attempt, request)

    def describe(self) -> serving_pb2.ModelDescription:
        """The description for clients; `NotServed` before the model is served."""
        return serving_pb2.ModelDescription(
            model=self.model,
            job=self.job,
            protocol=prediction_name(self._opening),
            objective=self._opened.objective,
            classes=self._opened.classes,
            class_type=self._answers.class_type,
            records=self._servable(),
            most_ids=self.config.most_ids,
            deadline_s=self.config.deadline_s,
            most_reasoned=self._most_reasoned,
        )

    @property
    def _most_reasoned(self) -> int:
        """Most ids of a request for reasons: all ways of their records must fit the queue."""
        most = min(self.config.most_ids, self.config.queue // self._opened.ways)
        return most if self._opening.reasons else 0

    def close(self) -> None:
        self._queue.close(f"model {self.model} is not served any more; ask again later")

    @property
    def ready(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._places is not None and (self._alone_at is None or now < self._alone_at)

    def _expect(self, within_s: float) -> None:
        """Set the time within which the coordinator must ask for the next step, or the round must move."""
        self._alone_at = asyncio.get_running_loop().time() + within_s

    def _servable(self) -> int:
        """The number of records that can be asked about; `NotServed` where none can be now."""
        if self._places is None:
            raise NotServed(f"model {self.model} is being prepared; ask again later")
        if not self.ready:
            raise NotServed(f"model {self.model} is not served: its coordinator is away; ask again later")
        return len(self._opened.alignment.records)

    def named(self, value: str) -> str:
        """The id that the table has, of one as a client wrote it."""
        return normaliser(self._own.rules)(value) if self._own.rules else value

    def _place(self, value: str) -> int:
        """The place of a record in the common order; NOT_COMMON, or UNKNOWN."""
        named = self.named(value)
        own = bisect_left(self._own, named)  # UTF-8 sorts as text does
        if own == len(self._own) or self._own[own] != named:
            return UNKNOWN
        return int(required(self._places)[own])


class _Answers:
    """Answers to clients: predictions by the model's scores, and the bytes that an answer counts as in the account."""

    def __init__(self, opened: OpenedModel, model: str, job: str, away: Sequence[str]) -> None:
        self._opened = opened
        self._model, self._job, self._away = model, job, away
        self._frame: Counter[str] | None = None  # bytes that count for an answer without its predictions
        self._entries: dict[int, dict[str, int]] = {}  # length of an id → bytes that count for its prediction

    def predictions(self, scores: Floats) -> list[serving_pb2.RecordPrediction]:
        """Of each of n records by its scores (n, outputs), without its id."""
        outcome = Outcome.of(self._opened.objective, self._opened.classes, scores)
        predictions = []
        for k, (raw, probabilities) in enumerate(
            zip(outcome.scores.tolist(), outcome.probabilities.tolist(), strict=True)
        ):
            prediction = serving_pb2.RecordPrediction(
                status=serving_pb2.PREDICTED, scores=raw, probabilities=probabilities
            )
            if outcome.classes:
                prediction.label = outcome.classes[k]
            else:
                prediction.value = outcome.predictions[k]
            predictions.append(prediction)
        return predictions

    def to(
        self, ids: Sequence[str], places: Sequence[int], predicted: Mapping[int, serving_pb2.RecordPrediction]
    ) -> serving_pb2.PredictedRecords:
        """The answer to a request for these ids, whose records are at these places in the common order."""
        answer = serving_pb2.PredictedRecords(
            model=self._model,
            job=self._job,
            classes=self._opened.classes,
            class_type=self.class_type,
            away=self._away,
        )
        for value, place in zip(ids, places, strict=True):
            entry = answer.predictions.add()
            if place in predicted:
                entry.CopyFrom(predicted[place])
            else:
                entry.status = serving_pb2.NOT_COMMON if place == NOT_COMMON else serving_pb2.UNKNOWN_ID
            entry.id = value
        return answer

    def counted(self, answer: serving_pb2.PredictedRecords) -> Counter[str]:
        """Bytes of the answer that counts in this one's place: every id has a prediction, of the longest class."""
        if self._frame is None:
            frame = serving_pb2.PredictedRecords()
            frame.CopyFrom(answer)
            frame.ClearField("predictions")
            self._frame = Counter(bytes_by_class(frame))
        counted = self._frame.copy()
        for prediction in answer.predictions:
            length = len(prediction.id.encode())
            if length not in self._entries:
                entry = serving_pb2.RecordPrediction()
                entry.CopyFrom(self._longest)
                entry.id = prediction.id
                self._entries[length] = bytes_by_class(serving_pb2.PredictedRecords(predictions=[entry]))
            counted.update(self._entries[length])
        return counted

    @cached_property
    def _longest(self) -> serving_pb2.RecordPrediction:
        """The prediction that counts in every other's place, without its id."""
        manifest = self._opened.manifest  # of trees an output has a base margin
        of_trees = "base_margin" in manifest
        outputs = len(manifest["base_margin"]) if of_trees else int(manifest["target"]["outputs"])
        (longest,) = self.predictions(np.zeros((1, outputs)))
        if classes := self._opened.classes:
            longest.label = max(classes, key=lambda name: len(name.encode()))
        return longest

    @cached_property
    def class_type(self) -> serving_pb2.ClassType.ValueType:
        """The type as which a client reads the classes."""
        if not self._opened.classes:
            return serving_pb2.CLASS_TYPE_UNSPECIFIED
        kind = self._opened.class_type
        if pa.types.is_boolean(kind):
            return serving_pb2.CLASS_BOOLEAN
        if pa.types.is_integer(kind):
            return serving_pb2.CLASS_WHOLE_NUMBER
        number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        return serving_pb2.CLASS_NUMBER if number else serving_pb2.CLASS_TEXT


#: Either has the same methods for a protocol. Records are places in the aligned order, ascending, each once in a block.
RecordSource = BatchPrediction | ServedPrediction


def record_source(job: PredictionJob, opened: OpenedModel, beside: Sequence[Beside] = ()) -> RecordSource:
    """The records that an opening asks for; `beside`: writers of further files beside the predictions."""
    source = ServedPrediction(job, opened) if job.opening.serve else BatchPrediction(job, opened, beside)
    opened.begin = source.open
    return source
