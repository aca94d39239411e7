"""A durable record of what each job is and how far it has come; resume starts here.

One file of JSON lines per job. Each line is on disk before what it says is acted on; a line torn by a
crash is ignored. Nothing of the data is ever in it: the coordinator has nothing of the data.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from treetap.errors import BadInput, Interrupted, UnknownJob
from treetap.names import NAME
from treetap.wire.v2 import jobs_pb2

CANCELLED = "cancelled by an operator"


class Journal:
    """All jobs of one coordinator; `BadInput` where its folder cannot be made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
        known = NAME.match(job) and self._path(job).is_file()
        return bool(known) and any(event.get("event") == "submitted" for event in self.read(job))

    def write(self, job: str, event: str, **content: Any) -> None:
        """Add a line and make it durable; a job's file appears with its first line whole.

        Raises:
            Interrupted: the disk does not take it.
        """
        line = json.dumps({"event": event, **content}, separators=(",", ":")).encode() + b"\n"
        try:
            if self.has(job):
                self._append(job, line)
            else:
                self._create(job, line)
        except OSError as failure:
            raise Interrupted(f"the coordinator cannot write {self._path(job)}: {failure.strerror}") from failure

    def read(self, job: str) -> list[dict[str, Any]]:
        """All whole lines of a job."""
        if not self._path(job).is_file():
            raise UnknownJob(f"there is no job {job!r}")
        events = []
        for line in self._path(job).read_bytes().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                events.append(event)
        return events

    def cut_off(self, kind: str) -> list[str]:
        """Jobs of a kind whose last attempt has no end: they ran when the coordinator stopped."""
        found = []
        for job in self.jobs():
            events = self.read(job)
            ended = {event["attempt"] for event in events if event["event"] == "ended"}
            if _submitted(events)["kind"] == kind and not _cancelled(events) and attempts(events) not in ended:
                found.append(job)
        return found

    def submitted(self, job: str) -> dict[str, str]:
        """What was handed in; `UnknownJob` where nothing was."""
        if not self.has(job):
            raise UnknownJob(f"there is no job {job!r}")
        return _submitted(self.read(job))

    def cancelled(self, job: str) -> bool:
        """Whether an operator has ended the job."""
        return _cancelled(self.read(job))

    def status(self, job: str) -> jobs_pb2.JobStatus:
        """A job that does not run, as it ended; one that ran when the coordinator stopped is interrupted."""
        events = self.read(job)
        status = jobs_pb2.JobStatus(job=job, kind=_submitted(events)["kind"], attempt=attempts(events))
        on = "it goes on by itself when that is back" if status.kind == "serve" else f"go on with: treetap resume {job}"
        status.state, status.error = "interrupted", f"the coordinator stopped; {on}"
        for event in events:
            if event["event"] == "ended" and event["attempt"] == status.attempt:
                status = jobs_pb2.JobStatus.FromString(unpacked(event["status"]))
        if _cancelled(events) and status.state != "finished":  # it may have broken down while it was being ended
            status.state, status.error, status.bad_input = "cancelled", CANCELLED, False
        return status

    def _append(self, job: str, line: bytes) -> None:
        with self._path(job).open("ab") as file:
            if not self._ends_well(job):
                file.write(b"\n")
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _create(self, job: str, line: bytes) -> None:
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

    def _ends_well(self, job: str) -> bool:
        with self._path(job).open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _path(self, job: str) -> Path:
        if not NAME.match(job):
            raise UnknownJob(f"there is no job {job!r}")
        return self._folder / f"{job}.jsonl"


def random_word() -> str:
    """What tells a submission of a job from another one of the same name."""
    return str(secrets.randbits(64))


def attempts(events: list[dict[str, Any]]) -> int:
    """How many attempts at a job there have been."""
    return max((event["number"] for event in events if event["event"] == "attempt"), default=0)


def _submitted(events: list[dict[str, Any]]) -> dict[str, str]:
    return next(event for event in events if event["event"] == "submitted")


def _cancelled(events: list[dict[str, Any]]) -> bool:
    return any(event["event"] == "cancelled" for event in events)


def packed(message: Message) -> str:
    """A message as text for the journal."""
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def unpacked(text: str) -> bytes:
    """The bytes of a message that was packed."""
    return base64.b64decode(text)
