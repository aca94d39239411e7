"""A durable journal of each job's submission and progress, from which a job resumes.

One file of JSON lines per job, each with a checksum that covers those before it. Each line is on disk before the
coordinator acts on it; a line torn by a crash is ignored. The journal holds no data of any party: the coordinator has
none. A file that is damaged concerns its own job only, whose state is then "damaged".

Memory holds a short status of every job, and the events of the job that was read or written last. Either is used only
while the file on disk is unchanged; otherwise the file is read again.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from treetap.coordinator.runtime.job_record import (
    UNREADABLE,
    Event,
    Submitted,
    content_key,
    for_a_list,
    is_cancelled,
    is_cut_off,
    is_untold,
    other_version,
    status_of,
    submission_of,
    to_base64,
    waits,
)
from treetap.errors import DataError, Interrupted, UnknownJob, cannot, did_you_mean
from treetap.models.durable import make_folder, remnant, stamp_of, sync_folder
from treetap.models.line_file import LineFile
from treetap.names import NAME
from treetap.version import PROTOCOL_VERSION
from treetap.wire.v2 import jobs_pb2, types_pb2

SUFFIX = ".jsonl"


class _Record:
    """The events of a job's file, as they were last read or written."""

    def __init__(self, path: Path, job: str) -> None:
        self.file, self.job = LineFile(path, lambda: f"journal of {job}"), job
        self.events: tuple[Event, ...] = ()

    def read(self) -> None:
        """Read the events anew.

        Raises:
            DataError: they are damaged, begin with no submission, or this release does not understand them.
        """
        path, events = self.file.path, tuple(self.file.read())
        if not events or events[0].get("event") != "submitted":
            raise DataError(f"{path}: does not begin with a submission; bring a back-up of the file back")
        try:
            if other := other_version(events):
                raise DataError(f"{path}: {other}")
            if status_of(self.job, events).job != self.job or not isinstance(events[0]["unix_nanos"], int):
                raise ValueError
            _ = submission_of(self.job, events).members
        except UNREADABLE:
            raise DataError(f"{path}: has a line that says nothing; bring a back-up of the file back") from None
        self.events = events

    def write(self, event: Event) -> None:
        """Add an event; a submission is the only one."""
        if event["event"] == "submitted":
            self.file.fill([event])
            self.events = ()
        else:
            self.file.put(event, len(self.events))
        self.events += (json.loads(json.dumps(event)),)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A job's entry in the list of jobs; `when`: the time of its submission, in nanoseconds since 1970."""

    stamp: tuple[int, ...] | None  #: of the file; None: it could not be read
    when: int
    cut_off: bool
    untold: bool
    listed: bytes  #: the serialised status


class Journal:
    """All jobs of one coordinator; `BadInput` where its folder cannot be made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = _Record(folder, "")  # the job that was read or written last
        self._index: dict[str, _Entry] = {}
        with cannot(f"keep a journal in {folder}", "state"):
            make_folder(folder)
            for draft in filter(remnant, folder.iterdir()):
                draft.unlink()

    def jobs(self) -> list[str]:
        """Names of all jobs, in the order of their submission, damaged ones included."""
        return [job for job, _ in self._entries()]

    def listed(self) -> Iterator[jobs_pb2.JobStatus]:
        """The status of every job that does not run, in the order of `jobs`, as `for_a_list` makes it."""
        for _, entry in self._entries():
            yield jobs_pb2.JobStatus.FromString(entry.listed)

    def has(self, job: str) -> bool:
        """True if the job has a file, even a damaged one."""
        return bool(NAME.match(job)) and self._path(job).is_file()

    def write(self, job: str, event: str, **content: Any) -> None:
        """Add a line and make it durable; a job's file appears with its first line whole.

        Raises:
            DataError: the file is damaged.
            Interrupted: the disk refuses it.
        """
        when = {"unix_nanos": time.time_ns()} if event == "submitted" else {}
        record = None if event == "submitted" else self._hold(job)
        record = self._last = record or _Record(self._path(job), job)
        with cannot("be written by the coordinator", self._path(job), Interrupted):
            record.write({"event": event, **when, **content})
        self._index[job] = _entry_of(job, record)

    def unknown(self, job: str) -> UnknownJob:
        """The error about a job that is not there, with the one that was probably meant."""
        return UnknownJob(f"there is no job {job!r}{did_you_mean(job, self.jobs())}")

    def read(self, job: str) -> tuple[Event, ...]:
        """All whole lines of a job.

        Raises:
            UnknownJob: there are none.
            DataError: the file is damaged.
            Interrupted: the file cannot be read.
        """
        record = self._hold(job)
        if record is None:
            raise self.unknown(job)
        return record.events

    def cut_off(self, *kinds: str) -> list[str]:
        """Jobs of these kinds whose last attempt has no end: they ran when the coordinator stopped."""
        jobs = [(job, entry.listed) for job, entry in self._entries() if entry.cut_off]
        return [job for job, listed in jobs if jobs_pb2.JobStatus.FromString(listed).kind in kinds]

    def untold(self) -> list[str]:
        """Jobs that are over, of which not every party is known to have heard it."""
        return [job for job, entry in self._entries() if entry.untold]

    def write_left(self, job: str) -> None:
        """The line that all parties have heard of a job's end, once; raises as `read` and `write` do."""
        events = self.read(job)
        if is_untold(status_of(job, events), events):
            self.write(job, "left")

    def waiting(self) -> list[tuple[str, str, float]]:
        """Jobs that wait for their turn in the order in which they came: name, operator, seconds since 1970."""
        jobs = [listed.job for listed in self.listed() if listed.state == "waiting"]
        events = [(job, event) for job in jobs if (event := waits(self.read(job)))]
        events.sort(key=lambda listed: int(listed[1]["unix_nanos"]))
        return [(job, str(event["operator"]), event["unix_nanos"] / 1e9) for job, event in events]

    def write_waiting(self, job: str, operator: str, *, put_off: bool, approval: bool = False) -> None:
        """The line since which a job waits for its turn; raises as `write` does.

        `put_off`: a party had no room for the attempt before, which had bound nothing. Without that, it may have been
        cut off in its midst. `approval`: it waits for people.
        """
        own = ({"put_off": True} if put_off else {}) | ({"approval": True} if approval else {})
        self.write(job, "waiting", operator=operator, unix_nanos=time.time_ns(), **own)

    def submitted(self, job: str) -> Submitted:
        """The submission of a job; raises as `read` does."""
        return submission_of(job, self.read(job))

    def write_submitted(
        self,
        job: str,
        kind: str,
        message: Message,
        submission: str,
        signed: types_pb2.Signed | None = None,
        *,
        attempts_before: int = 0,
    ) -> None:
        """The first line of a job, in the place of all lines of one that had its name; raises as `write` does.

        `signed`: the operator's signature; `attempts_before`: see `job_record.attempts_before`. The trace id of all
        attempts is drawn here, 128 bits.
        """
        content = {content_key(kind): to_base64(message)}
        content |= {} if signed is None else {"signed": to_base64(signed)}
        content |= {"submission": submission, "trace": secrets.token_hex(16)}
        before = {"attempts_before": attempts_before} if attempts_before else {}
        self.write(job, "submitted", kind=kind, **content, wire=PROTOCOL_VERSION, **before)

    def cancelled(self, job: str) -> bool:
        """True if an operator has cancelled the job."""
        return is_cancelled(self.read(job))

    def status(self, job: str) -> jobs_pb2.JobStatus:
        """The status of a job that does not run, damaged ones included; otherwise raises as `read` does."""
        try:
            return status_of(job, self.read(job))
        except DataError as damage:
            return _damaged(job, damage)

    def ended_at(self, job: str) -> float:
        """Seconds since 1970 at which the last line of a job was written."""
        return self._path(job).stat().st_mtime

    def remove(self, jobs: Iterable[str]) -> None:
        """Delete the journal's files of these jobs, durably.

        Raises:
            Interrupted: the disk refuses it.
        """
        try:
            for job in jobs:
                self._path(job).unlink(missing_ok=True)
            sync_folder(self._folder)
        except OSError as failure:
            where = failure.filename or self._folder
            raise Interrupted(f"the coordinator cannot delete {where}: {failure.strerror}") from failure

    def _entries(self) -> list[tuple[str, _Entry]]:
        """All jobs, in the order of their submission; reads the files that have changed since the last time."""
        entries = {}
        with os.scandir(self._folder) as files:
            for file in files:
                job, suffix = os.path.splitext(file.name)
                if suffix == SUFFIX and NAME.match(job) and file.is_file():
                    known = self._index.get(job)
                    unchanged = known is not None and known.stamp == stamp_of(self._path(job))
                    entries[job] = known if known is not None and unchanged else self._entry(job)
        self._index = {job: entry for job, entry in entries.items() if entry is not None}
        return sorted(self._index.items(), key=lambda item: (item[1].when, item[0]))

    def _entry(self, job: str) -> _Entry | None:
        try:
            record = self._hold(job)
            return None if record is None else _entry_of(job, record)
        except (DataError, Interrupted) as damage:
            stamp, when = None, 0
            if isinstance(damage, DataError):
                stamp, when = stamp_of(self._path(job)), self._path(job).stat().st_ctime_ns
            return _Entry(stamp, when, False, False, for_a_list(_damaged(job, damage)).SerializeToString())

    def _hold(self, job: str) -> _Record | None:
        """A job's events as its file has them now, read only if it has changed; None where there is no such file."""
        path = self._path(job)
        record = self._last if self._last.job == job else _Record(path, job)
        with cannot("be read by the coordinator", path, Interrupted):
            if not path.is_file():
                return None
            with record.file.held(record.read):
                self._last = record
        return record

    def _path(self, job: str) -> Path:
        if not NAME.match(job):
            raise self.unknown(job)
        return self._folder / f"{job}{SUFFIX}"


def _entry_of(job: str, record: _Record) -> _Entry:
    status = status_of(job, record.events)
    told = is_cut_off(record.events), is_untold(status, record.events)
    when = int(record.events[0]["unix_nanos"])
    return _Entry(record.file.stamp, when, *told, for_a_list(status).SerializeToString())


def _damaged(job: str, damage: Exception) -> jobs_pb2.JobStatus:
    advice = f"{damage}; or give the job up: treetap prune {job}" if isinstance(damage, DataError) else str(damage)
    return jobs_pb2.JobStatus(job=job, state="damaged", error=advice, bad_input=True)
