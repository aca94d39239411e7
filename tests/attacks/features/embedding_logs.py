"""Logs of a label holder whose embeddings say which record, epoch and feature party they are of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.attacks.network_logs import Floats, Ints, NetworkLog, numbers, training_log
from tests.worlds import PARTIES
from treetap.attacks.view.kept_messages import EMBEDDINGS
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.wire.frame import filled
from treetap.wire.records import chunks_of
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import exchange_pb2, prediction_pb2

HOLDER, B, C = PARTIES
#: Few enough that a bfloat16 holds each record's place.
RECORDS = 100
PARAMS = SplitnnParams(
    epochs=3, batch_size=16, bottom={DEFAULT: Bottom(hidden=(5,), width=3), C: Bottom(hidden=(5,), width=4)}, seed=3
)
Tampered = Callable[[str, exchange_pb2.PeerMessage], None]


@dataclass(frozen=True)
class EmbeddingLog:
    """A log on disk; `rows`: (N,) the rows of the label holder's table."""

    transcript: Path
    rows: Ints
    params: SplitnnParams

    @property
    def schedule(self) -> Schedule:
        """The batches of the job."""
        return Schedule.of(self.params, RECORDS)


def embedded(party: str, epoch: int, places: Ints, params: SplitnnParams = PARAMS, shift: float = 0.0) -> Floats:
    """Embeddings (n, width): the places of the records, the epoch, and the number of the party, with `shift`."""
    width = params.bottom_of(party).width
    columns: list[npt.NDArray[Any]] = [places, np.full(len(places), epoch)]
    columns += [np.full(len(places), PARTIES.index(party))] * (width - 2)
    return np.stack(columns, axis=1).astype(np.float64) + shift


def planted_log(
    folder: Path,
    *,
    parts: int = 1,
    attempts: tuple[tuple[int, int], ...] | None = None,
    stored: bool = True,
    tampered: Tampered | None = None,
    stranger: str = "",
    finished: bool = True,
    **changes: Any,
) -> EmbeddingLog:
    """Write a log of a label holder that recorded what it received; `parts`: messages of a batch.

    `attempts`: (epoch, batches that are done) of each attempt at an epoch, each by its number more; by default all
    batches of all epochs, once. `stored`: the coordinator asks to store each epoch. `tampered`: changes a sender's
    message. `stranger`: one more sender.
    """
    params = replace(PARAMS, **changes)
    log = EmbeddingLog(folder / "transcript", np.random.default_rng(1).permutation(RECORDS), params)
    asked = attempts or tuple((epoch, 10**6) for epoch in range(params.epochs))
    seen: dict[int, int] = {}
    with training_log(log.transcript, params, log.rows, 3, finished=finished) as written:
        for epoch, most in asked:
            seen[epoch] = seen.get(epoch, 0) + 1
            _epoch(written, log, epoch, most, seen[epoch], parts, tampered)
            if stored and most >= log.schedule.batches:
                written.asked("store_epoch", attempt=seen[epoch], round=epoch)
        if stranger:
            written.received(stranger, *numbers(EMBEDDINGS, np.zeros((1, 3)), params.wire_type, 0, 0))
    return log


def _epoch(
    written: NetworkLog, log: EmbeddingLog, epoch: int, most: int, attempt: int, parts: int, tampered: Tampered | None
) -> None:
    """The messages of the first batches of an epoch, those of both parties in turn."""
    schedule, params = log.schedule, log.params
    batches = [*schedule.epoch(epoch), *([schedule.validation] if len(schedule.validation) else [])]
    for batch, places in enumerate(batches[:most]):
        for party in (B, C):
            if batch < schedule.batches and not schedule.takes_part(epoch, batch, party):
                continue
            values = embedded(party, epoch, places, params, 0.5 * (attempt - 1))
            for message in numbers(EMBEDDINGS, values, params.wire_type, epoch, batch, parts, attempt):
                if tampered is not None:
                    tampered(party, message)
                written.received(party, message)


@dataclass(frozen=True)
class Attempt:
    """An attempt at a prediction: places of the records of each block among the own rows (N,) that are aligned."""

    rows: Ints
    blocks: Sequence[Ints]
    written: bool = True
    away: tuple[str, ...] = ()


def predicted_log(
    folder: Path, attempts: Sequence[Attempt], *, named: bool = False, tampered: Tampered | None = None, **opening: Any
) -> Path:
    """Write a label holder's log of a prediction, "ask"; `named`: with the records of blocks that it sent.

    The first number of an embedding is the row of its record in the label holder's table; the second is 0.
    """
    given = {"model": "job", "submission": "first", "recipient": HOLDER, "feature_parties": [B, C]} | opening
    with TranscriptWriter(folder) as writer:
        log = NetworkLog(writer, "ask")
        for number, attempt in enumerate(attempts, start=1):
            log.asked("open_model", prediction_pb2.OpenModel(**given, away=attempt.away), number)
            log.aligned(attempt.rows, number)
            for block, places in enumerate(attempt.blocks):
                chunks = prediction_pb2.BlockRecords(chunks=chunks_of(places, len(attempt.rows)))
                for party in {B, C} - set(attempt.away):
                    if named:
                        sent = exchange_pb2.PeerMessage(attempt=number, round=block, last=True)
                        log.sent(party, filled(sent, "block_records", chunks))
                    values = embedded(party, 0, attempt.rows[places])
                    for message in numbers(EMBEDDINGS, values, PARAMS.wire_type, block, 0, 2, number):
                        if tampered is not None:
                            tampered(party, message)
                        log.received(party, message)
            if attempt.written:
                log.asked("write_predictions", attempt=number)
    return folder
