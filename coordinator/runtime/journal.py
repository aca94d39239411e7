"""A durable journal of each job's submission and progress, from which a job resumes.

One file of JSON lines per job. Each line is on disk before the coordinator acts on it; a line torn by a crash is
ignored. The journal holds no data of any party: the coordinator has none.

Memory holds the events of the jobs that were read or written last, up to `HELD_BYTES` of files. They are used only
while the file on disk is unchanged; otherwise it is read again.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.message import Message

from coordinator.runtime.submission import WIRE, Submitted, content_key, submitted_in
from treetap.errors import BadInput, Interrupted, UnknownJob
from treetap.models.durable import append, make_folder, write_whole
from treetap.names import NAME
from treetap.wire.v2 import jobs_pb2

CANCELLED = "cancelled by an operator"
#: Most bytes of files whose events memory holds.
HELD_BYTES = 32 * 2**20
Event: TypeAlias = dict[str, Any]
#: The end of the errors of interrupted jobs.
_RESUMED = re.compile(r"(; mend it)?[;,] then: treetap resume \S+$")


@dataclass(frozen=True)
class _Held:
    """Events of a file, and the file's state when they were read."""

    found: os.stat_result
    events: tuple[Event, ...]
    ends_well: bool  #: False: a crash tore the last line

    def is_of(self, found: os.stat_result) -> bool:
        """True if the file as found now has these events."""
        mine, theirs = ((each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in (self.found, found))
        return mine == theirs


class Journal:
    """All jobs of one coordinator; `BadInput` where its folder cannot be made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, _Held] = {}  # the job that was read or written last comes last
        self._held_bytes = 0
        try:
            make_folder(folder)
        except OSError as failure:
            raise BadInput(f"state: cannot keep a journal in {folder}: {failure.strerror}") from None

    def jobs(self) -> list[str]:
        """Names of all jobs, in the order of their submission."""
        names = filter(self.has, (path.stem for path in self._folder.glob("[!.]*.jsonl")))
        return [job for _, job in sorted((_submitted_at(self._held[job]), job) for job in names)]

    def has(self, job: str) -> bool:
        """True if the job is known: a file without a submission is not a journal."""
        held = self._hold(job) if NAME.match(job) else None
        return held is not None and any(event.get("event") == "submitted" for event in held.events)

    def write(self, job: str, event: str, **content: Any) -> None:
        """Add a line and make it durable; a job's file appears with its first line whole.

        Raises:
            Interrupted: the disk refuses it.
        """
        when = {"unix_nanos": time.time_ns()} if event == "submitted" else {}
        line = json.dumps({"event": event, **when, **content}, separators=(",", ":")).encode() + b"\n"
        before = self._held[job] if self.has(job) else None
        self._release(job)  # if the write fails, the file is read again
        try:
            found = self._create(job, line) if before is None else self._append(job, line, ends_well=before.ends_well)
        except OSError as failure:
            raise Interrupted(f"the coordinator cannot write {self._path(job)}: {failure.strerror}") from failure
        events = () if before is None else before.events
        self._keep(job, _Held(found, (*events, json.loads(line)), ends_well=True))

    def read(self, job: str) -> list[Event]:
        """All whole lines of a job.

        Raises:
            UnknownJob: there are none.
            Interrupted: the file cannot be read.
        """
        held = self._hold(job)
        if held is None:
            raise UnknownJob(f"there is no job {job!r}")
        return list(held.events)

    def cut_off(self, kind: str) -> list[str]:
        """Jobs of a kind whose last attempt has no end: they ran when the coordinator stopped."""
        found = []
        for job in self.jobs():
            events = self.read(job)
            ended = {event["attempt"] for event in events if event["event"] == "ended"}
            if _line(events)["kind"] == kind and not _cancelled(events) and attempts(events) not in ended:
                found.append(job)
        return found

    def submitted(self, job: str) -> Submitted:
        """The submission of a job; `UnknownJob` where there is none."""
        if not self.has(job):
            raise UnknownJob(f"there is no job {job!r}")
        return submitted_in(job, _line(self.read(job)))

    def write_submitted(self, job: str, kind: str, message: Message, submission: str) -> None:
        """The first line of a job; raises as `write` does."""
        content = {content_key(kind): packed(message)}
        self.write(job, "submitted", kind=kind, **content, submission=submission, wire=WIRE)

    def cancelled(self, job: str) -> bool:
        """True if an operator has cancelled the job."""
        return _cancelled(self.read(job))

    def status(self, job: str) -> jobs_pb2.JobStatus:
        """The status of a job that does not run; one that ran when the coordinator stopped is interrupted."""
        events = self.read(job)
        submitted = submitted_in(job, _line(events))
        status = jobs_pb2.JobStatus(job=job, kind=submitted.kind, attempt=attempts(events))
        again = f"go on with: treetap resume {job}"
        if status.kind == "serve":
            again = "the job goes on by itself when the coordinator is back"
        status.state, status.error = "interrupted", f"the coordinator stopped; {submitted.outdated or again}"
        for event in events:
            if event["event"] == "ended" and event["attempt"] == status.attempt:
                status = jobs_pb2.JobStatus.FromString(unpacked(event["status"]))  # version 1 wrote the same bytes
                if submitted.outdated and status.state == "interrupted":
                    status.error = f"{_RESUMED.sub('', status.error)}; {submitted.outdated}"
        if _cancelled(events) and status.state != "finished":  # it may have broken down while it was cancelled
            status.state, status.error, status.bad_input = "cancelled", CANCELLED, False
        return status

    def _hold(self, job: str) -> _Held | None:
        """A job's events as its file has them now, read only if it has changed; None where there is no such file."""
        path, held = self._path(job), self._held.get(job)
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError
            if held is None or not held.is_of(found):
                raw = path.read_bytes()
                held = _Held(found, _events(raw), raw.endswith(b"\n"))
        except FileNotFoundError:
            self._release(job)
            return None
        except OSError as failure:
            raise Interrupted(f"the coordinator cannot read {path}: {failure.strerror}") from failure
        self._keep(job, held)
        return held

    def _keep(self, job: str, held: _Held) -> None:
        """Hold a job's events; without room for them release the events of other jobs that were used longest ago."""
        self._release(job)
        self._held[job] = held
        self._held_bytes += held.found.st_size
        while self._held_bytes > HELD_BYTES and len(self._held) > 1:
            self._release(next(iter(self._held)))

    def _release(self, job: str) -> None:
        held = self._held.pop(job, None)
        self._held_bytes -= held.found.st_size if held is not None else 0

    def _append(self, job: str, line: bytes, *, ends_well: bool) -> os.stat_result:
        return append(self._path(job), line if ends_well else b"\n" + line)

    def _create(self, job: str, line: bytes) -> os.stat_result:
        write_whole(self._path(job), line)
        return self._path(job).stat()  # a rename changes the time of the last change

    def _path(self, job: str) -> Path:
        if not NAME.match(job):
            raise UnknownJob(f"there is no job {job!r}")
        return self._folder / f"{job}.jsonl"


def _events(raw: bytes) -> tuple[Event, ...]:
    """The events in the whole lines of a file; a line that a crash tore is skipped."""
    events = []
    for line in raw.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return tuple(events)


def attempts(events: list[Event]) -> int:
    """The number of attempts at a job so far."""
    return max((event["number"] for event in events if event["event"] == "attempt"), default=0)


def _line(events: Sequence[Event]) -> Event:
    """The line of the submission."""
    return next(event for event in events if event["event"] == "submitted")


def _submitted_at(held: _Held) -> int:
    """Time of submission in nanoseconds since 1970; of an older release's line, the time of the file's last change."""
    when = _line(held.events).get("unix_nanos")
    return when if isinstance(when, int) else held.found.st_ctime_ns


def _cancelled(events: list[Event]) -> bool:
    return any(event["event"] == "cancelled" for event in events)


def packed(message: Message) -> str:
    """A message as text for the journal."""
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def unpacked(text: str) -> bytes:
    """The bytes of a message that was packed."""
    return base64.b64decode(text)
