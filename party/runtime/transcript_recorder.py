"""The transcript recorder of a party, which models an honest-but-curious party.

The node passes the steps and messages that it has admitted, the outbox those sent, and the roles the party's own acts
to the `Recorder`. The recorder has no access to the party's secret key of any encryption, and records only what the
party's own policy enables (`record`). Its files are signed with the party's TLS key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from google.protobuf.message import Message

from treetap.errors import Interrupted, Malformed, cannot
from treetap.wire.frame import name_of
from treetap.wire.tls import Transport
from treetap.wire.transcript import OWN_STEPS
from treetap.wire.transcript_writer import Kind, TranscriptWriter
from treetap.wire.v2 import control_pb2, exchange_pb2, serving_pb2, transcript_pb2

if TYPE_CHECKING:
    from treetap.wire.own_rows import OwnRows

Mode = Literal["received", "both", "off"]


class Recorder:
    """Writes one party's transcript of one job, unless the mode is "off". `Recorders` holds the open files."""

    def __init__(self, recorders: Recorders, job: str, mode: Mode) -> None:
        self._recorders, self._job, self._mode = recorders, job, mode

    @property
    def on(self) -> bool:
        """True if this party records."""
        return self._mode != "off"

    def received(self, peer: str, message: control_pb2.StepRequest | exchange_pb2.PeerMessage) -> None:
        """Record a message that this party received and admitted."""
        place = message.attempt, message.round, message.stage
        self._append(transcript_pb2.TranscriptRecord.RECEIVED, peer, name_of(message), message, *place)

    def sent(self, peer: str, kind: str, message: bytes) -> None:
        """Record a message that this party sent to another: the bytes of a `PeerMessage`."""
        if self._mode == "both":
            sent = exchange_pb2.PeerMessage.FromString(message)
            place = sent.attempt, sent.round, sent.stage
            self._append(transcript_pb2.TranscriptRecord.SENT, peer, kind, sent, *place)

    def asked(self, client: str, attempt: int, request: serving_pb2.PredictRecords) -> None:
        """Record a client's request."""
        self._append(transcript_pb2.TranscriptRecord.RECEIVED, client, "predict", request, attempt)

    def answered(self, client: str, attempt: int, answer: serving_pb2.PredictedRecords) -> None:
        """Record the answer to a client."""
        if self._mode == "both":
            self._append(transcript_pb2.TranscriptRecord.SENT, client, "predict", answer, attempt)

    def own(self, round: int, stage: int, attempt: int, entry: Message) -> None:
        """Record an act of this party's own, of a type in `OWN_STEPS`."""
        self._append(transcript_pb2.TranscriptRecord.OWN, "", OWN_STEPS[type(entry)], entry, attempt, round, stage)

    def own_alignment(self, attempt: int, own: OwnRows) -> None:
        """Keep the row in this party's file of each aligned record, with its id; positions in messages are these.

        The transcript has the digest, a file beside it the rows (`treetap.wire.own_rows`). Raises Interrupted if the
        disk does not take it.
        """
        from treetap.wire.own_rows import keep

        with self._recorders.writer(self._job) as writer:
            with cannot("keep the rows of aligned records", writer.folder, Interrupted):
                entry = keep(writer.folder, own)
            self.own(0, 0, attempt, entry)

    def _append(
        self, kind: Kind, peer: str, step: str, message: Message, attempt: int, round: int = 0, stage: int = 0
    ) -> None:
        if self.on:
            with self._recorders.writer(self._job) as writer:
                writer.append(kind, peer, step, self._job, attempt, round, stage, message)


class Recorders:
    """The transcripts of one party, one per job; those of the jobs under way stay open.

    A message of a job that is not under way, as one that comes after the party has left it, is recorded in a file of
    its own, which is closed at once.
    """

    def __init__(self, folder: Path, mode: Mode, signer: Transport | None = None) -> None:
        """`mode`: of jobs that begin from now on."""
        self._folder, self.mode, self._signer = folder, mode, signer
        self._under_way: dict[str, tuple[bytes, Mode]] = {}  # job → its digest, and the mode that it began with
        self._writers: dict[str, TranscriptWriter] = {}

    def of(self, job: str) -> Recorder:
        """A recorder of a job; all of one job write the same transcript."""
        _, mode = self._under_way.get(job, (b"", self.mode))
        return Recorder(self, job, mode)

    def keep_open(self, job: str, digest: bytes) -> None:
        """From its next record on, hold a job's transcript open until it is closed: the job is under way.

        `digest`: of the job, for the heads.
        """
        self._under_way[job] = digest, self.mode

    @contextmanager
    def writer(self, job: str) -> Iterator[TranscriptWriter]:
        """A job's transcript, opened if it is not open. Raises Interrupted if one on disk is damaged."""
        if job not in self._writers:
            folder = self._folder / job
            try:
                self._writers[job] = TranscriptWriter(folder, signer=self._signer)
            except Malformed as damage:
                raise Interrupted(f"{damage}: move {folder} away for a new transcript, then resume the job") from None
        self._writers[job].job_digest = self._under_way.get(job, (b"", self.mode))[0]
        try:
            yield self._writers[job]
        finally:
            if job not in self._under_way:
                self.close(job)

    def close(self, job: str) -> None:
        """Close a job's transcript: the job is not under way any more."""
        self._under_way.pop(job, None)
        if job in self._writers:
            self._writers.pop(job).close()

    def close_all(self) -> None:
        """Close every job's transcript."""
        with ExitStack() as closing:
            for job in sorted({*self._under_way, *self._writers}):
                closing.callback(self.close, job)
