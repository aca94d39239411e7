"""Transcripts of split networks that are written message by message, without a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from google.protobuf.message import Message

from tests.worlds import spec
from treetap.neural.numbers import to_bytes
from treetap.neural.params import SplitnnParams
from treetap.wire.frame import filled, name_of
from treetap.wire.own_rows import OwnRows, keep
from treetap.wire.transcript_writer import Kind, TranscriptWriter
from treetap.wire.v2 import control_pb2, exchange_pb2, setup_pb2, splitnn_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_BODIES = {"embeddings": splitnn_pb2.Embeddings, "embedding_gradients": splitnn_pb2.EmbeddingGradients}


class NetworkLog:
    """The log of one party of one job, which records what it receives."""

    def __init__(self, writer: TranscriptWriter, job: str = "job") -> None:
        self._writer, self._job = writer, job

    def received(self, peer: str, message: control_pb2.StepRequest | exchange_pb2.PeerMessage) -> None:
        """Record a message, which becomes one of this job."""
        self._write(TranscriptRecord.RECEIVED, peer, message)

    def sent(self, peer: str, message: exchange_pb2.PeerMessage) -> None:
        """Record a message of its own party, as with record = "both"."""
        self._write(TranscriptRecord.SENT, peer, message)

    def asked(self, step: str, message: Message | None = None, attempt: int = 1, round: int = 0) -> None:
        """Record a step that the coordinator asks for."""
        self.received("coordinator", filled(control_pb2.StepRequest(attempt=attempt, round=round), step, message))

    def aligned(self, rows: Ints, attempt: int = 1) -> None:
        """Record the own rows of the common records."""
        entry = keep(self._writer.folder, OwnRows.of(rows, map(str, rows)))
        self._writer.append(TranscriptRecord.OWN, "", "own_alignment", self._job, attempt, 0, 0, entry)

    def _write(self, kind: Kind, peer: str, message: control_pb2.StepRequest | exchange_pb2.PeerMessage) -> None:
        message.job = self._job
        place = (name_of(message), self._job, message.attempt, message.round, message.stage)
        self._writer.append(kind, peer, *place, message)


@contextmanager
def training_log(
    folder: Path, params: SplitnnParams, rows: Ints, parties: int = 2, *, finished: bool = True
) -> Iterator[NetworkLog]:
    """A log of a training, open between the alignment and the publication."""
    with TranscriptWriter(folder) as writer:
        log = NetworkLog(writer)
        job = spec(params, parties, key_bits=0, obfuscation="")
        log.asked("prepare", setup_pb2.Prepare(spec=job, submission="first"))
        log.aligned(rows)
        yield log
        if finished:
            log.asked("publish")


def numbers(
    kind: str, values: Floats, wire_type: str, round: int, stage: int, parts: int = 1, attempt: int = 1
) -> list[exchange_pb2.PeerMessage]:
    """The messages with numbers (n, width) of one batch, in order."""
    found = []
    for number, rows in enumerate(np.array_split(values.astype(np.float32), parts)):
        content = to_bytes(torch.from_numpy(rows), wire_type)
        body = _BODIES[kind](rows=len(rows), width=rows.shape[1], wire_type=wire_type, values=content)
        message = exchange_pb2.PeerMessage(attempt=attempt, round=round, stage=stage, part=number)
        message.last = number == parts - 1
        found.append(filled(message, kind, body))
    return found
