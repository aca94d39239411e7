"""A collector's stand-in, which keeps what it is sent, and federations of the simulator that export spans to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.simulator import Federation
from treetap.metrics import ProcessMetrics
from treetap.process.config import TelemetryConfig

PATH = "/v1/traces"


class Taking(ThreadingHTTPServer):
    """Takes every request; attributes are what came: bodies, and headers by request.

    `answer`: the status that it answers with, and further headers of the answer.
    """

    daemon_threads = True

    def __init__(self, answer: tuple[int, dict[str, str]] = (200, {})) -> None:
        self.answer, self.bodies, self.heads = answer, list[bytes](), list[dict[str, str]]()
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{PATH}"

    @property
    def spans(self) -> list[Span]:
        """All spans that came."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Taking

    def do_POST(self) -> None:
        self.server.paths.append(self.path)
        self.server.heads.append({key.lower(): value for key, value in self.headers.items()})
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        status, more = self.server.answer
        self.send_response(status)
        for key, value in more.items():
            self.send_header(key, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@contextmanager
def taking(answer: tuple[int, dict[str, str]] = (200, {})) -> Iterator[Taking]:
    """A collector that listens within the block."""
    with Taking(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def attributes(span: Span) -> dict[str, str | int]:
    """The attributes of a span."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "") for one in span.attributes}


def metrics_of(federation: Federation, name: str) -> ProcessMetrics:
    """The metrics of one process, by which it exports spans."""
    process = federation.process(name)
    owner = process.node if process.node is not None else process.jobs
    assert owner is not None
    return owner._metrics


def export(federation: Federation, name: str, endpoint: str) -> None:
    """Have a process of the simulator export spans from here on."""
    metrics_of(federation, name).export_spans(TelemetryConfig(endpoint=endpoint))
