"""Logs of split networks whose gradients are planted: a feature party's transcript, its table, and the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tests.worlds import PARTIES, spec
from treetap.neural.numbers import to_bytes
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import control_pb2, exchange_pb2, protocols_pb2, setup_pb2, splitnn_pb2, transcript_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
HOLDER, PARTY = PARTIES[:2]
WIDTH = 6
#: Epoch, places of records (n,) → gradients (n, WIDTH).
Gradients = Callable[[int, Ints], Floats]
PARAMS = SplitnnParams(
    objective="multi:softprob",
    epochs=2,
    batch_size=16,
    bottom={DEFAULT: Bottom(hidden=(5,), width=WIDTH)},
    seed=3,
)


@dataclass(frozen=True)
class Planted:
    """A log on disk: the transcript's folder, the party's table, and a table of all labels; `labels`: (N,)."""

    transcript: Path
    table: Path
    truth: Path
    labels: Ints
    params: SplitnnParams


def by_class(labels: Ints, noise: float = 0.0) -> Gradients:
    """One direction for each class, with lengths that vary, and noise around it."""

    def gradients(epoch: int, records: Ints) -> Floats:
        draw = np.random.default_rng([epoch, int(records[0])])
        length = draw.uniform(0.1, 2.0, (len(records), 1))
        return length * (np.eye(WIDTH)[labels[records]] + noise * draw.normal(size=(len(records), WIDTH)))

    return gradients


def at_random(_labels: Ints) -> Gradients:
    """Gradients that have nothing to do with the labels."""
    return lambda epoch, records: np.random.default_rng([100 + epoch, int(records[0])]).normal(
        size=(len(records), WIDTH)
    )


def constant(_labels: Ints) -> Gradients:
    """The same gradient for all records."""
    return lambda _, records: np.tile(np.linspace(-1.0, 1.0, WIDTH), (len(records), 1))


def planted(
    folder: Path,
    made: Callable[[Ints], Gradients],
    *,
    records: int = 240,
    classes: int = 3,
    params: SplitnnParams = PARAMS,
    parts: int = 1,
    again: Gradients | None = None,
    tampered: Callable[[exchange_pb2.PeerMessage], None] | None = None,
    **changes: Any,
) -> Planted:
    """Write a log of a training that recorded all that it received; `parts`: messages of a batch.

    `again`: the gradients of a second attempt at the last epoch.
    """
    params = replace(params, **changes)
    draw = np.random.default_rng(1)
    labels = draw.integers(0, classes, records)
    labels[:classes] = np.arange(classes)
    schedule, gradients = Schedule.of(params, records), made(labels)
    rows = draw.permutation(records)  # place in the common order → row of the party's file
    transcript = folder / "transcript"
    with TranscriptWriter(transcript) as writer:

        def write(kind: Any, peer: str, step: str, round: int, stage: int, message: Any) -> None:
            attempt = getattr(message, "attempt", 1)
            writer.append(kind, peer, step, "job", attempt, round, stage, message)

        def train(epoch: int, attempt: int, gradients: Gradients) -> None:
            for batch, places in enumerate(schedule.epoch(epoch)):
                if not schedule.takes_part(epoch, batch, PARTY):
                    continue
                for message in _messages(epoch, batch, gradients(epoch, places), params.wire_type, parts):
                    message.attempt = attempt
                    if tampered is not None:
                        tampered(message)
                    write(TranscriptRecord.RECEIVED, HOLDER, "embedding_gradients", epoch, batch, message)

        prepare = control_pb2.StepRequest(job="job", attempt=1)
        prepare.setup.prepare.CopyFrom(setup_pb2.Prepare(spec=spec(params, 2, key_bits=0, obfuscation="")))
        write(TranscriptRecord.RECEIVED, "coordinator", "prepare", 0, 0, prepare)
        alignment = transcript_pb2.OwnAlignment(first=0, rows=rows.tolist())
        write(TranscriptRecord.OWN, "", "own_alignment", 0, 0, alignment)
        for epoch in range(params.epochs):
            train(epoch, 1, gradients)
        if again is not None:
            train(params.epochs - 1, 2, again)
        publish = control_pb2.StepRequest(job="job", attempt=1)
        publish.setup.publish.SetInParent()
        write(TranscriptRecord.RECEIVED, "coordinator", "publish", 0, 0, publish)
    ids = np.array([f"r{place:05d}" for place in range(records)])
    order = np.argsort(rows)
    columns = {"id": ids[order], "b0": draw.normal(size=records)}
    pq.write_table(pa.table(columns), folder / "own.parquet")
    pq.write_table(pa.table({"id": ids, "y": labels}), folder / "truth.parquet")
    return Planted(transcript, folder / "own.parquet", folder / "truth.parquet", labels, params)


def _messages(epoch: int, batch: int, gradients: Floats, wire_type: str, parts: int) -> list[exchange_pb2.PeerMessage]:
    """The messages of one batch, in order."""
    found = []
    for number, rows in enumerate(np.array_split(gradients.astype(np.float32), parts)):
        values = to_bytes(torch.from_numpy(rows), wire_type)
        body = splitnn_pb2.EmbeddingGradients(rows=len(rows), width=rows.shape[1], wire_type=wire_type, values=values)
        content = protocols_pb2.Body(splitnn=splitnn_pb2.SplitnnBody(embedding_gradients=body))
        place = {"round": epoch, "stage": batch, "part": number, "last": number == parts - 1}
        found.append(exchange_pb2.PeerMessage(job="job", attempt=1, protocol=content, **place))
    return found
