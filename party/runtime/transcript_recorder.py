"""The transcript recorder of a party, which models an honest-but-curious party.

`RecordingPort` wraps a party's port and records the messages that it receives; the outbox passes the messages sent and
the roles pass the party's own splits to the `Recorder`. The recorder has no access to the party's secret key, and
records only what the party's own policy enables (`record`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Literal

from google.protobuf.message import Message

from party.runtime.steps import disk_faults
from treetap.wire.frame import name_of
from treetap.wire.ports import PartyPort
from treetap.wire.transcript import Kind, TranscriptWriter
from treetap.wire.v2 import control_pb2, exchange_pb2, serving_pb2, transcript_pb2

#: Most rows of the party's file in one record of the transcript.
ROWS_PER_RECORD = 65_536
Mode = Literal["received", "both", "off"]


class Recorder:
    """Writes one party's transcript of one job, unless the mode is "off". `Recorders` holds the open files."""

    def __init__(self, recorders: Recorders, job: str, mode: Mode) -> None:
        self._recorders, self._job, self._mode = recorders, job, mode

    @property
    def on(self) -> bool:
        """True if this party records."""
        return self._mode != "off"

    def received(self, peer: str, kind: str, message: control_pb2.StepRequest | exchange_pb2.PeerMessage) -> None:
        """Record a message that this party received."""
        self._write(transcript_pb2.TranscriptRecord.RECEIVED, peer, kind, message)

    def sent(self, peer: str, kind: str, message: exchange_pb2.PeerMessage) -> None:
        """Record a message that this party sent."""
        if self._mode == "both":
            self._write(transcript_pb2.TranscriptRecord.SENT, peer, kind, message)

    def asked(self, client: str, attempt: int, request: serving_pb2.PredictRecords) -> None:
        """Record a client's request."""
        self._append(transcript_pb2.TranscriptRecord.RECEIVED, client, "predict", attempt, 0, 0, request)

    def answered(self, client: str, attempt: int, answer: serving_pb2.PredictedRecords) -> None:
        """Record the answer to a client."""
        if self._mode == "both":
            self._append(transcript_pb2.TranscriptRecord.SENT, client, "predict", attempt, 0, 0, answer)

    def own(self, round: int, stage: int, attempt: int, split: transcript_pb2.OwnSplit) -> None:
        """Record a split of this party's own."""
        self._append(transcript_pb2.TranscriptRecord.OWN, "", "own_split", attempt, round, stage, split)

    def own_alignment(self, attempt: int, rows: Sequence[int]) -> None:
        """Record the row in this party's file of each aligned record; positions in messages refer to these."""
        if not self.on:
            return
        for first in range(0, len(rows), ROWS_PER_RECORD):
            part = transcript_pb2.OwnAlignment(first=first, rows=rows[first : first + ROWS_PER_RECORD])
            self._append(transcript_pb2.TranscriptRecord.OWN, "", "own_alignment", attempt, 0, 0, part)

    def _write(
        self, kind: Kind, peer: str, step: str, message: control_pb2.StepRequest | exchange_pb2.PeerMessage
    ) -> None:
        self._append(kind, peer, step, message.attempt, message.round, message.stage, message)

    def _append(self, kind: Kind, peer: str, step: str, attempt: int, round: int, stage: int, message: Message) -> None:
        if self.on:
            writer = self._recorders.writer(self._job)
            writer.append(kind, peer, step, self._job, attempt, round, stage, message)


class RecordingPort:
    """A party's port with a transcript recorder before it."""

    def __init__(self, port: PartyPort, recorders: Recorders, party: str) -> None:
        """`party`: the name of the party behind the port."""
        self._port, self._party = port, party
        self._recorders = recorders

    async def step(self, caller: str, request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        """See `PartyPort.step`."""
        recorded = False
        kind = name_of(request)
        async for event in self._port.step(caller, request):
            if not recorded:  # only after the port has admitted the caller
                with disk_faults(self._party, kind):
                    self._recorders.of(request.job).received(caller, kind, request)
                    recorded = True
                    if kind == "leave":
                        self._recorders.close(request.job)
            yield event

    async def deliver(self, caller: str, message: exchange_pb2.PeerMessage) -> exchange_pb2.Receipt:
        """See `PartyPort.deliver`."""
        receipt = await self._port.deliver(caller, message)
        with disk_faults(self._party, name_of(message)):
            self._recorders.of(message.job).received(caller, name_of(message), message)
        return receipt


class Recorders:
    """The open transcripts of one party, one per job.

    A closed transcript opens again with the next message: a late message of a job that was left must be recorded.
    """

    def __init__(self, folder: Path, mode: Mode) -> None:
        self._folder, self._mode = folder, mode
        self._writers: dict[str, TranscriptWriter] = {}

    def of(self, job: str) -> Recorder:
        """A recorder of a job; all of one job write the same transcript."""
        return Recorder(self, job, self._mode)

    def writer(self, job: str) -> TranscriptWriter:
        """A job's transcript, opened if it is not open."""
        if job not in self._writers:
            self._writers[job] = TranscriptWriter(self._folder / job)
        return self._writers[job]

    def close(self, job: str | None = None) -> None:
        """Close one job's transcript, or all."""
        for name in [job] if job is not None else list(self._writers):
            if name in self._writers:
                self._writers.pop(name).close()
