"""Logs of a serving process: lines of text for a person, or one JSON object a line for a collector.

The subject of a line (job, attempt, step, peer) is set where it becomes known and belongs to the task: all its lines
carry it. Values, ids and keys are never logged.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from treetap.errors import BadInput, refuse, visible

LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}
FORMATS = ("text", "json")
#: Order of the fields of a line's subject; a line of text leaves the trace out.
SUBJECT = ("job", "trace", "attempt", "step", "peer")
Subject = Mapping[str, str | int]
#: Most bytes of a line, whatever another process has put into it: of its message, of a text of its subject, and of the
#: rest. The lines of a traceback have together a limit of their own.
LONGEST_LINE = 8192
LONGEST_MESSAGE, LONGEST_SUBJECT = 6000, 400
LONGEST_TRACEBACK = 16_384
#: A line as gRPC's core writes it: I1121 11:00:54.233696 9330 file.cc:12] message.
_GRPC = re.compile(r"(?P<level>[IWEF])\d{4} [\d:.]+ +\d+ \S+\] (?P<message>.*)")
_GRPC_LEVELS = {"I": logging.DEBUG, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
_subject: ContextVar[Subject] = ContextVar("treetap_log_subject", default={})  # noqa: B039 - is never changed in place


def noted() -> Subject:
    """This task's subject."""
    return _subject.get()


def begin(**fields: str | int) -> None:
    """Set this task's subject; it replaces the one inherited from the task that made this one."""
    _subject.set(fields)


def note(**fields: str | int) -> None:
    """Add to this task's subject from here on."""
    _subject.set({**_subject.get(), **fields})


@contextmanager
def about(**fields: str | int) -> Iterator[None]:
    """Set the subject of this block; the task's does not apply in it."""
    before = _subject.set(fields)
    try:
        yield
    finally:
        _subject.reset(before)


@contextmanager
def within(**fields: str | int) -> Iterator[None]:
    """Add to the task's subject within this block."""
    with about(**{**_subject.get(), **fields}):
        yield


class TextLines(logging.Formatter):
    """Time, level, logger, `[job=… attempt=… step=… peer=…]` where known, and the message, all in one line.

    Lines of a traceback follow, each indented, so that none of them can pass for a line of the log.
    """

    _second, _said = 0, ""  # of the last line: the local time of a second takes longer than the rest of a line

    def format(self, record: logging.LogRecord) -> str:
        subject = _subject.get()
        names = (name for name in SUBJECT if name in subject and name != "trace")
        known = " ".join(f"{name}={_shown(subject[name])}" for name in names)
        second = int(record.created)
        if second != self._second or not self._said:
            self._second, self._said = second, self.formatTime(record)[:-4]
        time = f"{self._said},{int(record.msecs):03d}"
        head = [time, record.levelname, record.name, *([f"[{known}]"] if known else [])]
        lines = [" ".join([*head, _short(record.getMessage(), LONGEST_MESSAGE)])]
        if record.exc_info:
            lines += [f"    {line}" for line in _trace(self.formatException(record.exc_info)).split("\n")]
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    """time (UTC), level, logger, message; job, trace, attempt, step, peer where known; seconds of a step that ended."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _short(record.getMessage(), LONGEST_MESSAGE),
        }
        subject = _subject.get()
        line |= {name: _shown(subject[name]) for name in SUBJECT if subject.get(name, "") != ""}
        if isinstance(seconds := getattr(record, "seconds", None), float):
            line["seconds"] = round(seconds, 6)
        if record.exc_info:
            line["traceback"] = _trace(self.formatException(record.exc_info))
        return json.dumps(line)


def _shown(value: str | int) -> str | int:
    return _short(value, LONGEST_SUBJECT) if isinstance(value, str) else value


def _short(text: str, most: int) -> str:
    """The text for a line, cut to `most` bytes as JSON writes them."""
    kept = visible(text[:most])  # first: what is cut away takes no time
    whole = len(text) <= most
    while len(json.dumps(kept)) > most:
        kept, whole = kept[: len(kept) * 3 // 4], False
    return kept if whole else f"{kept} …"


def _trace(text: str) -> str:
    """A traceback for the log: of a very long one the beginning, which says where, and the end, which says what."""
    half = LONGEST_TRACEBACK // 2
    if len(text) > 2 * half:
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"
    return visible(text, keep="\n")


def configure(level: str, kind: str) -> None:
    """Log to standard error from here on."""
    refuse(
        (level not in LEVELS, f"--log-level {level}: must be one of {', '.join(LEVELS)}"),
        (kind not in FORMATS, f"--log-format {kind}: must be one of {', '.join(FORMATS)}"),
        kind=BadInput,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLines())
    if kind == "json":
        handler = logging.StreamHandler(_take_standard_error())
        handler.setFormatter(JsonLines())
        logging.captureWarnings(True)
        logging.raiseExceptions = False  # the report of a line that cannot be written could not be written either
    logging.basicConfig(level=LEVELS[level], handlers=[handler])
    if level != "debug":  # gRPC logs each connection that ends for want of calls
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def _take_standard_error() -> TextIO:
    """The real standard error; each line that C libraries write to it from here on becomes a line of the log."""
    real = os.dup(2)
    readable, writable = os.pipe()
    os.dup2(writable, 2)
    os.close(writable)
    reader = threading.Thread(target=_log_lines, args=(readable,), name="treetap-stderr", daemon=True)
    reader.start()

    def give_back() -> None:
        """At the end: read the rest of the pipe, unless a worker holds the other end open."""
        os.dup2(real, 2)
        reader.join(0.5)

    atexit.register(give_back)
    return os.fdopen(real, "w", encoding="utf-8", errors="replace", closefd=False)


def _log_lines(readable: int) -> None:
    with os.fdopen(readable, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            said = _GRPC.match(line)
            refused = said is not None and "Handshake failed" in line
            level = logging.WARNING if refused or said is None else _GRPC_LEVELS[said["level"]]
            message = said["message"] if said else line
            log = logging.getLogger("grpc" if said else "stderr")
            log.log(level, "%s%s", "refused TLS handshake: " if refused else "", message.rstrip())


#: Variables by which a library would write elsewhere what it measures, or the keys of its connections.
_OF_OTHERS = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir", "SSLKEYLOGFILE")
#: What gRPC may take from the environment: its log, and which of its two ways to look names up works on this host.
OF_GRPC = ("GRPC_VERBOSITY", "GRPC_TRACE", "GRPC_DNS_RESOLVER")
#: Beginning of the variables of OpenTelemetry's SDK, which a process may be given back by its file.
OF_SPANS = "OTEL_"
_of_spans: dict[str, str] = {}


def pin_libraries() -> None:
    """Take from this process's environment what would steer libraries unasked; call it before they are imported.

    Nor does pydantic look among all installed packages for plugins, which would see every configuration.
    """
    _of_spans.update((name, value) for name, value in os.environ.items() if name.startswith(OF_SPANS))
    steering = [name for name in os.environ if name.startswith("GRPC_") or name in _OF_OTHERS]
    for name in {*steering, *_of_spans} - set(OF_GRPC):
        del os.environ[name]
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"


def restore_variables_of_spans() -> None:
    """Let OpenTelemetry's SDK read its variables after all, as the process's file says."""
    os.environ.update(_of_spans)


def quiet_grpc() -> None:
    """Keep gRPC's own lines off standard error, unless the environment asks for them; call it before importing gRPC."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def in_json() -> bool:
    """True if standard error has JSON lines."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)
