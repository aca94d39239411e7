"""A durable record of what each job is and how far it has come; resume starts here.

One file of JSON lines per job. Each line is on disk before what it says is acted on; a line torn by a
crash is ignored. Nothing of the data is ever in it: the coordinator has nothing of the data.

Memory holds the events of the jobs that were read or written last, as many as come from `HELD_BYTES` of files. They
count only while the file is as it was left here; any other is read again.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.message import Message

from coordinator.runtime.submission import WIRE, Submitted, content_key, submitted_in
from treetap.errors import BadInput, Interrupted, UnknownJob
from treetap.names import NAME
from treetap.wire.v2 import jobs_pb2

CANCELLED = "cancelled by an operator"
#: Bytes of files whose events memory holds at most.
HELD_BYTES = 32 * 2**20
Event: TypeAlias = dict[str, Any]
#: With which errors of interrupted jobs end.
_RESUMED = re.compile(r"(; mend it)?[;,] then: treetap resume \S+$")


@dataclass(frozen=True)
class _Held:
    """Events of a file, and how to know that it is still the same."""

    found: os.stat_result
    events: tuple[Event, ...]
    ends_well: bool  #: False: a crash tore the last line

    def is_of(self, found: os.stat_result) -> bool:
        """Whether a file that is found now has these events."""
        mine, theirs = ((each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in (self.found, found))
        return mine == theirs


class Journal:
    """All jobs of one coordinator; `BadInput` where its folder cannot be made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, _Held] = {}  # the job that was read or written last comes last
        self._held_bytes = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as failure:
            raise BadInput(f"state: cannot keep a journal in {folder}: {failure.strerror}") from None

    def jobs(self) -> list[str]:
        """Names of all jobs, oldest first."""
        files = sorted(self._folder.glob("[!.]*.jsonl"), key=lambda path: (path.stat().st_ctime_ns, path.name))
        return [path.stem for path in files if self.has(path.stem)]

    def has(self, job: str) -> bool:
        """Whether the job is known: a file that does not say what was submitted is none of ours."""
        held = self._hold(job) if NAME.match(job) else None
        return held is not None and any(event.get("event") == "submitted" for event in held.events)

    def write(self, job: str, event: str, **content: Any) -> None:
        """Add a line and make it durable; a job's file appears with its first line whole.

        Raises:
            Interrupted: the disk does not take it.
        """
        line = json.dumps({"event": event, **content}, separators=(",", ":")).encode() + b"\n"
        before = self._held[job] if self.has(job) else None
        self._release(job)  # where the writing fails, the file is read again
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
        """What was handed in; `UnknownJob` where nothing was."""
        if not self.has(job):
            raise UnknownJob(f"there is no job {job!r}")
        return submitted_in(job, _line(self.read(job)))

    def write_submitted(self, job: str, kind: str, message: Message, submission: str) -> None:
        """The first line of a job; raises as `write` does."""
        content = {content_key(kind): packed(message)}
        self.write(job, "submitted", kind=kind, **content, submission=submission, wire=WIRE)

    def cancelled(self, job: str) -> bool:
        """Whether an operator has ended the job."""
        return _cancelled(self.read(job))

    def status(self, job: str) -> jobs_pb2.JobStatus:
        """A job that does not run, as it ended; one that ran when the coordinator stopped is interrupted."""
        events = self.read(job)
        submitted = submitted_in(job, _line(events))
        status = jobs_pb2.JobStatus(job=job, kind=submitted.kind, attempt=attempts(events))
        again = f"go on with: treetap resume {job}"
        if status.kind == "serve":
            again = "it goes on by itself when that is back"
        status.state, status.error = "interrupted", f"the coordinator stopped; {submitted.outdated or again}"
        for event in events:
            if event["event"] == "ended" and event["attempt"] == status.attempt:
                status = jobs_pb2.JobStatus.FromString(unpacked(event["status"]))  # version 1 wrote the same bytes
                if submitted.outdated and status.state == "interrupted":
                    status.error = f"{_RESUMED.sub('', status.error)}; {submitted.outdated}"
        if _cancelled(events) and status.state != "finished":  # it may have broken down while it was being ended
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
        """Hold a job's events, and release those that were used longest ago where there is no room; never its own."""
        self._release(job)
        self._held[job] = held
        self._held_bytes += held.found.st_size
        while self._held_bytes > HELD_BYTES and len(self._held) > 1:
            self._release(next(iter(self._held)))

    def _release(self, job: str) -> None:
        held = self._held.pop(job, None)
        self._held_bytes -= held.found.st_size if held is not None else 0

    def _append(self, job: str, line: bytes, *, ends_well: bool) -> os.stat_result:
        with self._path(job).open("ab") as file:
            file.write(line if ends_well else b"\n" + line)
            file.flush()
            os.fsync(file.fileno())
            return os.fstat(file.fileno())

    def _create(self, job: str, line: bytes) -> os.stat_result:
        draft = self._folder / f".{job}.part"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path(job))
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return self._path(job).stat()  # a rename changes the time of the last change

    def _path(self, job: str) -> Path:
        if not NAME.match(job):
            raise UnknownJob(f"there is no job {job!r}")
        return self._folder / f"{job}.jsonl"


def _events(raw: bytes) -> tuple[Event, ...]:
    """What the whole lines of a file say; a line that a crash tore says nothing."""
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
    """How many attempts at a job there have been."""
    return max((event["number"] for event in events if event["event"] == "attempt"), default=0)


def _line(events: list[Event]) -> Event:
    """What was submitted."""
    return next(event for event in events if event["event"] == "submitted")


def _cancelled(events: list[Event]) -> bool:
    return any(event["event"] == "cancelled" for event in events)


def packed(message: Message) -> str:
    """A message as text for the journal."""
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def unpacked(text: str) -> bytes:
    """The bytes of a message that was packed."""
    return base64.b64decode(text)
