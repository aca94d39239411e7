"""Spans of a process's jobs and of their steps, by OpenTelemetry's SDK, and their export to its own collector.

A job is one trace at all its processes: each begins spans of its own under the trace id that the coordinator drew, and
no span's id leaves it but for its own collector. A span has the names of process, job and step, the attempt, and bytes
by disclosure class: as many as an observer of the network sees, which tell how many records there are, and not how many
lie in a node. It has nothing else of the data.

OpenTelemetry's exporter sends them from its thread: OTLP over HTTP in protobuf. A collector that is away, slow or
hostile costs spans and nothing else: the queue is bounded, of an answer the status alone is read, no redirect is
followed, and nothing of an answer is logged. No variable of the environment says where spans go, or with what headers.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from treetap import logs
from treetap.errors import ConfigError
from treetap.process.config import TelemetryConfig
from treetap.version import package_version

log = logging.getLogger(__name__)
#: Spans that wait at most, and those of one request.
QUEUE, BATCH = 2048, 512
#: Seconds between two requests.
PAUSE_S = 5.0
#: Seconds in which the same spans are sent again where that may help, each wait for the collector included; and those
#: that the end of the process takes for the last ones.
REQUEST_S, CLOSE_S = 10.0, 2.0
#: Most bytes of headers.
MOST_HEADERS = 16_384
_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)")
_OWN = frozenset({"host", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection"})
#: Loggers that would repeat what a collector has answered, or each loss.
_TALKATIVE = (
    "opentelemetry.exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.trace.export",
    "urllib3",
)
#: Classes whose bytes at a receiver tell how many records lie in a node; senders count them by layout.
BY_RECORDS = frozenset({"INSTANCE_SPACE", "SPLIT_DIRECTION"})
#: Outcomes that are no failure of a step or a job.
WELL = frozenset({"done", "finished", "left", "put off", "cancelled"})


class _Ids(IdGenerator):
    """Ids of spans, from the system's randomness, and the trace id of the job whose span begins."""

    trace = b""

    def generate_span_id(self) -> int:
        return int.from_bytes(os.urandom(8)) or 1

    def generate_trace_id(self) -> int:
        return int.from_bytes(self.trace) or int.from_bytes(os.urandom(16)) or 1


class _Session(requests.Session):
    """Asks the collector directly, with the headers of the process's file.

    Attributes:
        proven: the headers.
        why: the reason for which the collector has not taken the last request.
        refused: it asks for other headers.
    """

    def __init__(self, proven: dict[str, str]) -> None:
        super().__init__()
        self.trust_env = False  # no proxy, authority or password of the environment
        self.proven, self.why, self.refused = proven, "", False

    def get_redirect_target(self, resp: requests.Response) -> None:
        """No answer has a target: none is followed, nor its content read."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request; the content of its answer is not read."""
        request.headers.update(self.proven)
        self.why, self.refused = "", False
        try:
            answer = super().send(request, **{**options, "stream": True})
        except OSError as failure:
            cause: BaseException = failure
            while cause.__context__ is not None:
                cause = cause.__context__
            self.why = f"there is no answer ({getattr(cause, 'strerror', None) or type(cause).__name__})"
            raise
        answer.close()
        self.refused = answer.status_code in (401, 403)
        if answer.status_code // 100 != 2:
            self.why = f"it answers with status {answer.status_code}"
        if answer.status_code // 100 == 3:  # which the exporter takes for a success
            raise requests.TooManyRedirects
        return answer


class Exporter(OTLPSpanExporter):
    """Sends spans, and counts those that wait and those that the collector has not taken.

    Raises:
        ConfigError: the collector's authority or headers cannot be read.
    """

    def __init__(
        self, name: str, config: TelemetryConfig, dropped: Callable[[int], None], within_s: float = REQUEST_S
    ) -> None:
        """`dropped`: counts spans that were not exported; `within_s`: the seconds for a request."""
        self._party, self._config, self._dropped = name, config, dropped
        self._waiting, self._said, self._change = 0, False, threading.Lock()
        if config.ca is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(config.ca)
            except OSError as failure:  # an SSLError is one, too
                why = failure.strerror or "is no certificate in PEM"
                raise ConfigError(f"telemetry.ca: {config.ca}: {why}: name the authority's file", party=name) from None
        self._direct = _Session(self._proof())
        for talkative in _TALKATIVE:
            logging.getLogger(talkative).setLevel(logging.CRITICAL + 1)
        authority = None if config.ca is None else str(config.ca)
        super().__init__(config.endpoint, authority, timeout=within_s, session=self._direct)
        if config.environment:  # not before: the exporter has read what it reads
            logs.restore_variables_of_spans()

    @property
    def why(self) -> str:
        """The reason for which the collector has not taken the last spans."""
        return self._direct.why

    def _proof(self) -> dict[str, str]:
        """The headers, from their place; `ConfigError` names it and the fault, and shows none of them."""
        if (place := self._config.headers) is None:
            return {}
        content = place.read("telemetry.headers", MOST_HEADERS, REQUEST_S)
        lines = [line for line in content.decode("latin-1").splitlines() if line.strip()]
        parsed = [_HEADER.fullmatch(line.strip()) for line in lines]
        wrong = [number for number, one in enumerate(parsed, 1) if one is None or one[1].lower() in _OWN]
        if not lines or wrong:
            where = f"line {wrong[0]} is" if wrong else "there is"
            raise ConfigError(f"telemetry.headers: {where} no header: write lines `name: value`", party=self._party)
        return {one[1]: one[2] for one in parsed if one is not None}

    def takes(self) -> bool:
        """True if one more span may wait; else it is counted as dropped."""
        with self._change:
            if self._waiting < QUEUE:
                self._waiting += 1
                return True
        self._lost(1, "the queue is full")
        return False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; once more if the collector asks for other headers, and their place has others by now."""
        result = super().export(spans)
        if self._direct.refused:
            with suppress(ConfigError):
                before, self._direct.proven = self._direct.proven, self._proof()
                if self._direct.proven != before:
                    result = super().export(spans)
        self._leave(len(spans), "" if result is SpanExportResult.SUCCESS else self.why or "they cannot be encoded")
        return result

    def give_up(self) -> None:
        """Drop what waits, and end waits for the collector between two requests."""
        self.shutdown()  # type: ignore[no-untyped-call]
        self._leave(QUEUE, "the process ends")

    def _leave(self, number: int, why: str) -> None:
        """Let spans go; `why`: they are lost, for this reason."""
        with self._change:
            number = min(number, self._waiting)
            self._waiting -= number
        if why and number:
            self._lost(number, why)

    def _lost(self, number: int, why: str) -> None:
        """Count spans as dropped; once in the life of a process a line says so."""
        self._dropped(number)
        if not self._said:
            self._said = True
            log.warning(
                "spans do not reach the collector at %s: %s; up to %d wait, and treetap_dropped_spans_total counts the "
                "lost ones; this is said once",
                self._config.endpoint,
                why,
                QUEUE,
            )


class Spans:
    """Makes the spans of one process.

    Raises:
        ConfigError: the collector's authority or headers cannot be read, or a variable of the environment has a
            value that the SDK does not take.
    """

    def __init__(self, name: str, config: TelemetryConfig, dropped: Callable[[int], None]) -> None:
        """`dropped`: counts spans that were not exported."""
        about = {"service.namespace": "treetap", "service.name": name, "service.version": package_version()}
        self._ids, self._exporter = _Ids(), Exporter(name, config, dropped)
        try:
            provider = TracerProvider(
                resource=Resource.create(about) if config.environment else Resource(about),
                shutdown_on_exit=False,
                id_generator=self._ids,
            )
        except ValueError as fault:
            raise ConfigError(
                f"telemetry.environment: {fault}: set the variable right, or unset it", party=name
            ) from None
        self._queue = BatchSpanProcessor(self._exporter, QUEUE, PAUSE_S * 1000, BATCH, REQUEST_S * 1000)
        provider.add_span_processor(self._queue)
        self._tracer, self._name = provider.get_tracer("treetap", package_version()), name

    def job(self, job: str, attempt: int, trace: str) -> JobSpan:
        """Begin the span of an attempt. `trace`: 32 hexadecimal digits, by the coordinator; empty: it drew none."""
        self._ids.trace = bytes.fromhex(trace)
        span = self.begin("job", {"treetap.job": job, "treetap.attempt": attempt}, Context())
        return JobSpan(self, span, job)

    def begin(self, name: str, attributes: Mapping[str, str | int], within: Context) -> Span:
        """Begin a span of this process."""
        return self._tracer.start_span(name, within, attributes={"treetap.process": self._name, **attributes})

    def end(self, span: Span, outcome: str, sent: Mapping[str, int], received: Mapping[str, int]) -> None:
        """End a span; outcome: of its step or job. Where the queue is full, it is dropped."""
        span.set_attributes({f"treetap.sent.{name}": size for name, size in sent.items() if size})
        told = {name: size for name, size in received.items() if size and name not in BY_RECORDS}
        span.set_attributes({f"treetap.received.{name}": size for name, size in told.items()})
        span.set_attribute("treetap.outcome", outcome)
        if outcome not in WELL:
            span.set_status(Status(StatusCode.ERROR))
        if span.is_recording() and self._exporter.takes():
            span.end()

    def close(self) -> None:
        """Export what has ended, within a deadline of seconds."""
        closing = threading.Thread(target=self._queue.shutdown, name="treetap-spans", daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        self._exporter.give_up()


class JobSpan:
    """An attempt at a job at one process, or a step of it, which is a span below it.

    Attributes:
        sent: bytes by disclosure class, as the job's costs count them; of an attempt those of its steps that ended.
        received: bytes by disclosure class.
    """

    def __init__(self, spans: Spans, span: Span, job: str, attempt: JobSpan | None = None) -> None:
        self._spans, self._span, self._job, self._attempt = spans, span, job, attempt
        self.sent, self.received = Counter[str](), Counter[str]()

    def step(self, step: str, peer: str = "") -> JobSpan:
        """Begin the span of a step, of the attempt that log lines name; `peer`: the party that is asked for it."""
        named = {"job": self._job, "attempt": logs.noted()["attempt"], "step": step, **({"peer": peer} if peer else {})}
        attributes = {f"treetap.{key}": value for key, value in named.items()}
        begun = self._spans.begin(step, attributes, set_span_in_context(self._span, Context()))
        return JobSpan(self._spans, begun, self._job, self)

    def end(self, outcome: str) -> None:
        """End the span; a state, how its session ended, or of a step done, failed or broken off."""
        if self._attempt is not None:
            self._attempt.sent.update(self.sent)
            self._attempt.received.update(self.received)
        self._spans.end(self._span, outcome, self.sent, self.received)
