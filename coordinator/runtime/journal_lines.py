"""The lines of one job's journal, each with a checksum that covers those before it; earlier releases wrote none."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from treetap.errors import DataError
from treetap.models.checksums import bodies_of, checked_line, first, has_checksum, whole_lines
from treetap.models.json_text import parse

log = logging.getLogger(__name__)
Event: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Lines:
    """The events of a file.

    Attributes:
        whole: bytes of its whole lines; what follows them was torn by a crash.
        last: checksum of the last one; None where an earlier release began the file, which has none then.
    """

    events: tuple[Event, ...]
    whole: int
    last: str | None

    def with_line(self, content: Mapping[str, Any]) -> tuple[bytes, Lines]:
        """A further line, and the lines with it."""
        if self.last is None:
            line, digest = json.dumps(content, separators=(",", ":")).encode() + b"\n", None
        else:
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
    last = None
    if any(map(has_checksum, lines)):
        bodies, digests = bodies_of(path, lines, _seed(job))
        try:
            events, last = [parse(body) for body in bodies], digests[-1]
        except ValueError:
            raise DataError(f"{path}: has a line that is no JSON; bring a back-up of the file back") from None
    else:
        events = _unchecked(path, lines)
    if not events or events[0].get("event") != "submitted":
        raise DataError(f"{path}: does not begin with a submission; bring a back-up of the file back")
    return Lines(tuple(events), sum(map(len, lines)), last)


def _unchecked(path: Path, lines: list[bytes]) -> list[Event]:
    """The events that an earlier release wrote; after a crash it left the torn line where it was."""
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            event = parse(line)
        except ValueError:
            log.warning("%s: line %d is torn or damaged, and is left out", path, number)
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _seed(job: str) -> str:
    return f"journal of {job}"
