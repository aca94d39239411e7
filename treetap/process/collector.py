"""Export of spans to the organisation's own collector, from a thread: OTLP over HTTP in protobuf.

A collector that is away, slow or hostile costs spans and nothing else: the queue is bounded, a request has one deadline
for all of it, an answer is read up to a bound, no redirect is followed, and nothing of an answer is logged.
"""

from __future__ import annotations

import http.client
import logging
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from time import monotonic
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from treetap.errors import ConfigError
from treetap.process.config import TelemetryConfig

log = logging.getLogger(__name__)
#: Spans that wait at most, and those of one request.
QUEUE, BATCH = 2048, 512
#: Seconds between two requests, and the longest pause after a request that failed.
PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
#: Seconds that a request may take in all, and the end of the process for the last ones.
REQUEST_S, CLOSE_S = 10.0, 2.0
#: Most bytes of an answer that are read, and of headers.
MOST_ANSWER, MOST_HEADERS = 65_536, 16_384
#: Answers after which the same spans may be sent again, by the protocol; and those that ask for other headers.
AGAIN, UNPROVEN = frozenset({429, 502, 503, 504}), frozenset({401, 403})
_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)")
_OWN = frozenset({"host", "content-type", "content-length", "transfer-encoding", "connection"})


class Untaken(Exception):
    """The collector has not taken spans; `again`: the same ones may be sent once more."""

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class Collector:
    """The collector of a process's file.

    Raises:
        ConfigError: its authority or headers cannot be read.
    """

    def __init__(self, name: str, config: TelemetryConfig) -> None:
        self.endpoint, self._config, self._party = config.endpoint, config, name
        at = urlsplit(config.endpoint)
        self._host, self._path = at.hostname or "", at.path or "/"
        self._tls: ssl.SSLContext | None = None
        if config.ca is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which reads no variable of the environment
            try:
                self._tls.load_verify_locations(config.ca)
            except OSError as failure:  # an SSLError is one, too
                why = failure.strerror or "is no certificate in PEM"
                raise ConfigError(f"telemetry.ca: {config.ca}: {why}: name the authority's file", party=name) from None
        self._port = at.port or (443 if self._tls else 80)
        self._headers = self.headers()

    def headers(self) -> dict[str, str]:
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

    def take(self, content: bytes, within_s: float = REQUEST_S) -> None:
        """Have the collector take a request; `Untaken` says why it has not."""
        try:
            status = self._post(content, within_s)
        except (OSError, http.client.HTTPException, ValueError) as failure:
            why = getattr(failure, "strerror", None) or type(failure).__name__
            raise Untaken(f"there is no answer ({why})", again=True) from None
        renewed = status in UNPROVEN and self._renewed()
        if status // 100 != 2:
            raise Untaken(f"it answers with status {status}", again=renewed or status in AGAIN)

    def _renewed(self) -> bool:
        """Read the headers again; True if they are others, with which the same spans may be taken."""
        before = self._headers
        with suppress(ConfigError):
            self._headers = self.headers()
        return self._headers != before

    def _post(self, content: bytes, within_s: float) -> int:
        connection, until = http.client.HTTPConnection(self._host, self._port), monotonic() + within_s
        opened = socket.create_connection((self._host, self._port), within_s)
        over = None
        try:
            if self._tls is not None:
                opened = self._tls.wrap_socket(opened, server_hostname=self._host, do_handshake_on_connect=False)
            over = threading.Timer(max(0.0, until - monotonic()), _shut, (opened,))
            over.daemon = True
            over.start()
            if isinstance(opened, ssl.SSLSocket):
                opened.do_handshake()
            connection.sock = opened
            proven = {"Content-Type": "application/x-protobuf", "Connection": "close", **self._headers}
            connection.request("POST", self._path, content, proven)
            with connection.getresponse() as answer:
                answer.read(MOST_ANSWER)
            if monotonic() >= until:  # what came is the beginning of an answer
                raise TimeoutError
            return answer.status
        finally:
            if over is not None:
                over.cancel()
            connection.close()
            opened.close()


def _shut(opened: socket.socket) -> None:
    """End a connection, which ends every wait for it; below TLS, since a close of TLS waits for the peer."""
    with suppress(OSError):  # it has ended by itself
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


class Exporter(SpanProcessor):
    """The queue of spans that have ended, and the thread that sends them; neither waits for the other."""

    def __init__(self, collector: Collector, dropped: Callable[[int], None]) -> None:
        """`dropped`: counts spans that were not exported."""
        self._collector, self._dropped = collector, dropped
        self._queue: deque[ReadableSpan] = deque()
        self._change = threading.Condition()
        self._closing, self._said, self._pause = False, False, PAUSE_S
        self._thread = threading.Thread(target=self._run, name="treetap-spans", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is to be done."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or count it as dropped."""
        with self._change:
            if full := len(self._queue) >= QUEUE:
                self._dropped(1)
            else:
                self._queue.append(span)
            if len(self._queue) == BATCH:
                self._change.notify()
        if full:
            self._say("the queue is full")

    def shutdown(self) -> None:
        """Send what waits, for `CLOSE_S` at most; what is left then is dropped."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(CLOSE_S)
        with self._change:
            self._drop(len(self._queue), "the process ends")
            self._queue.clear()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - of the SDK
        """Nothing is waited for: spans leave by the thread alone."""
        return not self._queue

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(self._due, self._pause)
                closing, batch = self._closing, list(islice(self._queue, BATCH))
            if batch:
                self._pause = self._send(batch)
            if closing and (self._pause > PAUSE_S or not self._queue):
                return

    def _due(self) -> bool:
        """True if spans are sent before the pause is over: a batch waits, or the process ends."""
        return self._closing or (self._pause == PAUSE_S and len(self._queue) >= BATCH)

    def _send(self, batch: Sequence[ReadableSpan]) -> float:
        """Send the first spans of the queue, which then leave it; returns the seconds until the next request."""
        try:
            self._collector.take(encoded(batch))
            after = PAUSE_S
        except Untaken as failure:
            after = min(2 * self._pause, LONGEST_PAUSE_S)
            self._say(str(failure))
            if failure.again:
                return after
            self._drop(len(batch), str(failure))
        with self._change:
            for _ in range(min(len(batch), len(self._queue))):
                self._queue.popleft()
        return after

    def _drop(self, number: int, why: str) -> None:
        if number:
            self._dropped(number)
            self._say(why)

    def _say(self, why: str) -> None:
        """Log once in the life of a process that spans are lost, or will be."""
        if not self._said:
            self._said = True
            log.warning(
                "spans do not reach the collector at %s: %s; up to %d wait, and treetap_dropped_spans_total counts the "
                "others; this is said once",
                self._collector.endpoint,
                why,
                QUEUE,
            )


def encoded(spans: Sequence[ReadableSpan]) -> bytes:
    """The request for spans of one process, without state of a trace, links, events or texts of errors."""
    first = spans[0]
    scope = first.instrumentation_scope
    named = InstrumentationScope(name=scope.name, version=scope.version or "") if scope else InstrumentationScope()
    of_scope = trace_pb2.ScopeSpans(scope=named, spans=map(_encoded, spans))
    resource = Resource(attributes=_attributes(first.resource.attributes))
    resource_spans = trace_pb2.ResourceSpans(resource=resource, scope_spans=[of_scope])
    return ExportTraceServiceRequest(resource_spans=[resource_spans]).SerializeToString()


def _encoded(span: ReadableSpan) -> trace_pb2.Span:
    context = span.get_span_context()
    assert context is not None
    return trace_pb2.Span(
        trace_id=context.trace_id.to_bytes(16),
        span_id=context.span_id.to_bytes(8),
        parent_span_id=span.parent.span_id.to_bytes(8) if span.parent else b"",
        name=span.name,
        kind=trace_pb2.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start_time or 0,
        end_time_unix_nano=span.end_time or 0,
        attributes=_attributes(span.attributes or {}),
        status=trace_pb2.Status(code=trace_pb2.Status.StatusCode.Value(f"STATUS_CODE_{span.status.status_code.name}")),
    )


def _attributes(values: Mapping[str, object]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in values.items()]


def _value(value: object) -> AnyValue:
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(string_value=str(value).encode(errors="backslashreplace").decode())  # the environment has any bytes
