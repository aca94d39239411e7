"""The record of a job, read from the events of its journal: submission, attempts and status."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError, Message

from treetap.protocols.job_spec import processes_of
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.protocols.registry import TRAINING, prediction_name, training, training_name
from treetap.version import PROTOCOL_VERSION
from treetap.wire.v2 import alignment_pb2, jobs_pb2, prediction_pb2, setup_pb2, types_pb2

Event: TypeAlias = dict[str, Any]
CANCELLED = "cancelled by an operator"
#: Most characters of an error in a list of jobs.
LISTED_ERROR = 400
#: Errors of reading a line that says nothing.
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, DecodeError)


@dataclass(frozen=True)
class Submitted:
    """A submitted job.

    Attributes:
        kind: train, predict, serve or align, which is also the command.
        submission: the nonce by which parties distinguish this job from another one of the same name.
        trace: the trace id of all its attempts, 32 hexadecimal digits; empty: none was drawn.
    """

    job: str
    kind: str
    submission: str
    _content: str
    _signed: str = ""
    trace: str = ""

    @property
    def signed(self) -> types_pb2.Signed | None:
        """The operator's signature of the job's digest; None of a job in plain text."""
        return types_pb2.Signed.FromString(base64.b64decode(self._signed)) if self._signed else None

    @property
    def spec(self) -> setup_pb2.JobSpec:
        """The specification of a training."""
        return setup_pb2.JobSpec.FromString(base64.b64decode(self._content))

    @property
    def prepare(self) -> setup_pb2.Prepare:
        """The opening of a training, without the parties' addresses."""
        return setup_pb2.Prepare(spec=self.spec, submission=self.submission, signed=self.signed)

    @property
    def opening(self) -> prediction_pb2.OpenModel:
        """The opening of a prediction or of serving."""
        opening = prediction_pb2.OpenModel.FromString(base64.b64decode(self._content))
        opening.MergeFrom(prediction_pb2.OpenModel(signed=self.signed))
        return opening

    @property
    def preview(self) -> alignment_pb2.OpenPreview:
        """The opening of a preview."""
        opening = alignment_pb2.OpenPreview.FromString(base64.b64decode(self._content))
        opening.MergeFrom(alignment_pb2.OpenPreview(signed=self.signed))
        return opening

    @property
    def protocol(self) -> str:
        if self.kind == "align":
            return "psi"
        return training_name(self.spec) if self.kind == "train" else prediction_name(self.opening)

    @property
    def scheme(self) -> str:
        """That of encrypted sums; empty: there is none to choose."""
        if self.protocol in TRAINING and training(self.protocol).grows_trees:  # a journal may name none
            return KeyKind.of(self.spec).scheme
        return PAILLIER if self.protocol == "eini" else ""

    @property
    def members(self) -> list[str]:
        """The job's parties, its aggregator or recipient first, and its dealer."""
        if self.kind == "align":
            return list(self.preview.parties)
        if self.kind == "train":
            return processes_of(self.spec)
        return [self.opening.recipient, *self.opening.feature_parties]

    def status(self, attempt: int) -> jobs_pb2.JobStatus:
        """What is known of an attempt when it begins."""
        return jobs_pb2.JobStatus(
            job=self.job, kind=self.kind, attempt=attempt, protocol=self.protocol, scheme=self.scheme
        )


def submission_of(job: str, events: Sequence[Event]) -> Submitted:
    """The submission in the first line of the journal."""
    line = events[0]
    content, signed = line[content_key(line["kind"])], line.get("signed", "")
    return Submitted(job, line["kind"], line["submission"], content, signed, line.get("trace", ""))


def other_version(events: Sequence[Event]) -> str:
    """The reason why a job cannot be read, and the remedy; empty for one of this version."""
    line = events[0]
    if line["wire"] == PROTOCOL_VERSION:
        return ""
    return (
        f"was begun in version {line['wire']} of the protocol, and this release reads version {PROTOCOL_VERSION} "
        "alone: install the release that began it"
    )


def content_key(kind: str) -> str:
    """The key of the message of a job of this kind."""
    return "spec" if kind == "train" else "opening"


def attempts(events: Sequence[Event]) -> int:
    """The number of the last attempt, those at earlier submissions under this name included."""
    return max((event["number"] for event in events if event["event"] == "attempt"), default=attempts_before(events))


def attempts_before(events: Sequence[Event]) -> int:
    """The attempts at earlier submissions under this name, which gave it back."""
    return int(events[0].get("attempts_before", 0))


def is_first_try(events: Sequence[Event]) -> bool:
    """True if nothing is left of an attempt before the last one: parties put it off, or have all discarded it."""
    last = attempts(events)
    gone = {event["number"] for event, after in pairwise(events) if "put_off" in after and "number" in event}
    for event in events:
        if event["event"] == "ended" and jobs_pb2.JobStatus.FromString(from_base64(event["status"])).released:
            gone.add(event["attempt"])
    return all(event["number"] in {*gone, last} for event in events if event["event"] == "attempt")


def is_cancelled(events: Sequence[Event]) -> bool:
    return any(event["event"] == "cancelled" for event in events)


def waits(events: Sequence[Event]) -> Event | None:
    """The event since which a job waits for its turn; None of one that does not."""
    last = [event for event in events if event["event"] in ("waiting", "attempt", "ended", "cancelled")][-1:]
    return last[0] if last and last[0]["event"] == "waiting" else None


def awaits_approval(events: Sequence[Event]) -> bool:
    """True of a job that waits for people."""
    return bool((waits(events) or {}).get("approval"))


def is_cut_off(events: Sequence[Event]) -> bool:
    """True if the last attempt has no end: the job ran when the coordinator stopped."""
    ended = {event["attempt"] for event in events if event["event"] == "ended"}
    return not is_cancelled(events) and waits(events) is None and attempts(events) not in ended


def is_untold(status: jobs_pb2.JobStatus, events: Sequence[Event]) -> bool:
    """True of a job that is over for good, without the line that all parties have heard so."""
    return status.state in ("finished", "cancelled") and all(event["event"] != "left" for event in events)


def status_of(job: str, events: Sequence[Event]) -> jobs_pb2.JobStatus:
    """The status of a job that does not run; one that ran when the coordinator stopped is interrupted."""
    submitted = submission_of(job, events)
    status = submitted.status(attempts(events))
    again = f"go on with: {again_by(status.kind, job)}"
    if status.kind == "serve":
        again = "the job goes on by itself when the coordinator is back"
    status.state, status.error = state_after_break(status.kind), f"the coordinator stopped; {again}"
    for event in events:
        if event["event"] == "ended" and event["attempt"] == status.attempt:
            status = jobs_pb2.JobStatus.FromString(from_base64(event["status"]))
    if waits(events) is not None:
        why = "waiting for approval" if awaits_approval(events) else "waits for its turn"
        status.state, status.error, status.bad_input, status.released = "waiting", why, False, False
    if is_cancelled(events) and status.state != "finished":  # it may have broken down while it was cancelled
        status.state, status.error, status.bad_input, status.released = "cancelled", CANCELLED, False, False
    return status


def state_after_break(kind: str) -> str:
    """The state of a job that broke down and is not at fault: a preview has nothing to go on with."""
    return "failed" if kind == "align" else "interrupted"


def again_by(kind: str, job: str) -> str:
    """The command that goes on with a job that broke down, or asks anew."""
    return "treetap align, as a new preview" if kind == "align" else f"treetap resume {job}"


def for_a_list(status: jobs_pb2.JobStatus) -> jobs_pb2.JobStatus:
    """A status without costs, phases and history, and with the beginning of a long error: a list may have thousands."""
    short = jobs_pb2.JobStatus()
    short.CopyFrom(status)
    del short.accounts[:], short.phases[:], short.history[:]
    if len(short.error) > LISTED_ERROR:
        short.error = f"{short.error[:LISTED_ERROR]} …; see: treetap status {status.job}"
    return short


def to_base64(message: Message) -> str:
    """A message as text for the journal."""
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def from_base64(text: str) -> bytes:
    """The bytes of a message that the journal has as text."""
    return base64.b64decode(text)
