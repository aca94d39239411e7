"""The lines of one job's journal, each with a checksum that covers those before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from treetap.errors import DataError
from treetap.models.checksums import bodies_of, checked_line, first, parse_json, whole_lines

Event: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Lines:
    """The events of a file.

    Attributes:
        whole: bytes of its whole lines; what follows them was torn by a crash.
        last: checksum of the last one.
    """

    events: tuple[Event, ...]
    whole: int
    last: str

    def with_line(self, content: Mapping[str, Any]) -> tuple[bytes, Lines]:
        """A further line, and the lines with it."""
        line, digest = checked_line(content, self.last)
        return line, Lines((*self.events, json.loads(json.dumps(content))), self.whole + len(line), digest)


def no_lines(job: str) -> Lines:
    """The lines of a job before its first."""
    return Lines((), 0, first(_seed(job)))


def lines_of(path: Path, job: str, raw: bytes) -> Lines:
    """The lines in the content of a file.

    Raises:
        DataError: one is damaged, which the message names; or there is no submission.
    """
    lines = whole_lines(raw)
    bodies, digests = bodies_of(path, lines, _seed(job))
    try:
        events = [parse_json(body) for body in bodies]
    except ValueError:
        raise DataError(f"{path}: has a line that is no JSON; bring a back-up of the file back") from None
    if not events or events[0].get("event") != "submitted":
        raise DataError(f"{path}: does not begin with a submission; bring a back-up of the file back")
    return Lines(tuple(events), sum(map(len, lines)), digests[-1])


def _seed(job: str) -> str:
    return f"journal of {job}"
