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
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from treetap.errors import ConfigError, NotServed
from treetap.models.arrays import Arrays
from treetap.party.config import PartyConfig, ServeConfig
from treetap.party.prediction.batch import BatchPrediction, Beside
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.scores_on_disk import Imputed, Outcome
from treetap.party.prediction.steps import ANSWERED, REQUESTED, UNREQUESTED
from treetap.party.runtime import step_order
from treetap.party.runtime.context import Rows, required
from treetap.party.runtime.step_order import step
from treetap.party.serving.request_queue import RequestQueue
from treetap.protocols.prediction import check_degraded_serving, degrades_serving
from treetap.protocols.registry import prediction_name
from treetap.tables.reading import Floats, Table
from treetap.tables.record_ids import Ids
from treetap.trees.job_params import absence_of
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.v2 import serving_pb2

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
        self.config = serve_config(job.config)
        self._context, self._opening, self._opened = context, opening, opened
        self._served_models = served_models
        if degrades_serving(opening):
            check_degraded_serving(opening, partial(absence_of, opened.manifest.get("params", {})))
        self.model, self.job = opening.model, context.job
        metrics = served_models.metrics
        self._queue = RequestQueue(self.config.queue, self.config.window_ms / 1000, metrics.waiting_records.inc)
        self._own = Ids.of([])  # sorted
        self._places: Rows | None = None  # of own records in the common order; None: no client can be answered yet
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self._spent: Mapping[int, str] = {}  # of the block at hand: see `leave_out`
        self._rereads = served_models.rereads  # more since then: another attempt is asked for
        self._alone_at: float | None = None  # when the coordinator counts as gone; None: a step is under way
        self._answers = _Answers(opened, self.model, self.job, opening.away)
        # for operators: counts since the attempt began, times and a rate of late
        self._figures = serving_pb2.ServingFigures(grpc=served_models.address, away=opening.away)
        self._latest: deque[float] = deque(maxlen=LATEST)
        self._scored: deque[tuple[float, int]] = deque()
        self.size = max(1, opening.block)

    # ---- for a protocol, as `treetap.party.prediction.batch.BatchPrediction`

    async def open(self, table: Table) -> None:
        """From here on clients get the answer that the model is being prepared."""
        self._own = table.ids
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
        predictions = self._answers.predictions(scores)
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
            self._context.costs.level = logging.DEBUG  # these steps have no end; metrics count them
        self._alone_at = None
        self._rows = await self._queue.gather(self.size, WAIT_S)
        self._expect(ALONE_S)
        if len(self._rows):
            self._served_models.metrics.blocks.observe(len(self._rows))
            self._context.progress.total = self._figures.records + len(self._rows)
        awaited = serving_pb2.AwaitedRequests(
            records=len(self._rows),
            figures=self._current_figures(),
            reread=self._served_models.rereads > self._rereads,
        )
        return step_order.Outcome(REQUESTED if len(self._rows) else UNREQUESTED, answer=awaited)

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

    async def predict(self, client: str, ids: Sequence[str], within_s: float) -> serving_pb2.PredictedRecords:
        """An answer for each id, in their order.

        Raises:
            NotServed, Overloaded, Silent: see `RequestQueue.ask`.
        """
        self._servable()
        places = [self._place(value) for value in ids]
        began = asyncio.get_running_loop().time()
        wanted = dict.fromkeys(place for place in places if place >= 0)
        predicted = await self._queue.ask(wanted, within_s) if wanted else {}
        self._figures.requests += 1
        self._latest.append(asyncio.get_running_loop().time() - began)
        answer = self._answers.to(ids, places, predicted)
        self._context.costs.byte_counts.sent(client, "predict", self._answers.counted(answer))
        for party in answer.away:
            self._served_models.metrics.without.labels(party).inc()
        self._context.recorder.answered(client, self._context.attempt, answer)
        return answer

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
        )

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

    def _place(self, value: str) -> int:
        """The place of a record in the common order; NOT_COMMON, or UNKNOWN."""
        own = bisect_left(self._own, value)  # UTF-8 sorts as text does
        if own == len(self._own) or self._own[own] != value:
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
            if place >= 0:
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


def serve_config(config: PartyConfig) -> ServeConfig:
    """The table `[serve]`; `ConfigError` where there is none, or it and the policy leave no client to answer."""
    if config.serve is None:
        raise ConfigError(
            f"{config.name} serves no client: its configuration has no table [serve]; it needs clients = [names of "
            "certificates] and an address, listen = HOST:PORT",
            party=config.name,
        )
    config.check_clients()
    return config.serve


#: Either has the same methods for a protocol. Records are places in the aligned order, ascending, each once in a block.
RecordSource = BatchPrediction | ServedPrediction


def record_source(job: PredictionJob, opened: OpenedModel, beside: Sequence[Beside] = ()) -> RecordSource:
    """The records that an opening asks for; `beside`: writers of further files beside the predictions."""
    source = ServedPrediction(job, opened) if job.opening.serve else BatchPrediction(job, opened, beside)
    opened.begin = source.open
    return source
