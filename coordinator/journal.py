"""A durable record of what each job is and how far it has come; resume starts here.

One file of JSON lines per job. Each line is on disk before what it says is acted on; a line torn by a
crash is ignored. Nothing of the data is ever in it: the coordinator has nothing of the data.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from treetap.errors import BadInput, UnknownJob


class Journal:
    """All jobs of one coordinator; `BadInput` where its folder cannot be made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise BadInput(f"state: cannot keep a journal in {folder}: {failure.strerror}") from None

    def jobs(self) -> list[str]:
        """Names of all jobs, oldest first."""
        files = sorted(self._folder.glob("[!.]*.jsonl"), key=lambda path: (path.stat().st_ctime_ns, path.name))
        return [path.stem for path in files if self.has(path.stem)]

    def has(self, job: str) -> bool:
        """Whether the job is known: a file that does not say what was submitted is none of ours."""
        return self._path(job).is_file() and any(event["event"] == "submitted" for event in self.read(job))

    def write(self, job: str, event: str, **content: Any) -> None:
        """Add a line and make it durable; a job's file appears with its first line whole."""
        line = json.dumps({"event": event, **content}, separators=(",", ":")).encode() + b"\n"
        if not self.has(job):
            self._create(job, line)
            return
        with self._path(job).open("ab") as file:
            if file.tell() and not self._ends_well(job):
                file.write(b"\n")
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def read(self, job: str) -> list[dict[str, Any]]:
        """All whole lines of a job."""
        if not self._path(job).is_file():
            raise UnknownJob(f"there is no job {job!r}")
        events = []
        for line in self._path(job).read_bytes().splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
        return events

    def _create(self, job: str, line: bytes) -> None:
        draft = self._folder / f".{job}.part"
        with draft.open("wb") as file:
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
        return self._folder / f"{job}.jsonl"
