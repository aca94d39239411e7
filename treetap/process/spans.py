"""Spans of a process's jobs and of their steps, by OpenTelemetry's SDK; `treetap.process.collector` exports them.

A job is one trace at all its processes: each begins spans of its own under the trace id that the coordinator drew, and
no span's id leaves it but for its own collector. A span has the names of process, job and step, the attempt, and bytes
by disclosure class: as many as an observer of the network sees, which tell how many records there are, and not how many
lie in a node. It has nothing else of the data.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from treetap import logs
from treetap.errors import ConfigError
from treetap.process.collector import Collector, Exporter
from treetap.process.config import TelemetryConfig
from treetap.version import package_version

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


class Spans:
    """Makes the spans of one process.

    Raises:
        ConfigError: the collector's authority or headers cannot be read, or a variable of the environment has a
            value that the SDK does not take.
    """

    def __init__(self, name: str, config: TelemetryConfig, dropped: Callable[[int], None]) -> None:
        """`dropped`: counts spans that were not exported."""
        collector = Collector(name, config)
        about = {"service.namespace": "treetap", "service.name": name, "service.version": package_version()}
        if config.environment:
            logs.restore_variables_of_spans()
        self._ids = _Ids()
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
        self._exporter = Exporter(collector, dropped)
        provider.add_span_processor(self._exporter)
        self._tracer, self._name = provider.get_tracer("treetap", package_version()), name

    def job(self, job: str, attempt: int, trace: str) -> JobSpan:
        """Begin the span of an attempt. `trace`: 32 hexadecimal digits, by the coordinator; empty: it drew none."""
        self._ids.trace = bytes.fromhex(trace)
        span = self.begin("job", {"treetap.job": job, "treetap.attempt": attempt}, Context())
        return JobSpan(self, span, job)

    def begin(self, name: str, attributes: Mapping[str, str | int], within: Context) -> Span:
        """Begin a span of this process."""
        return self._tracer.start_span(name, within, attributes={"treetap.process": self._name, **attributes})

    def close(self) -> None:
        """Export what has ended, within a deadline of seconds."""
        self._exporter.shutdown()


class JobSpan:
    """An attempt at a job at one process; its steps are spans below it."""

    def __init__(self, spans: Spans, span: Span, job: str) -> None:
        self._spans, self._span, self._job = spans, span, job
        self._sent, self._received = Counter[str](), Counter[str]()

    def step(self, step: str, peer: str = "") -> StepSpan:
        """Begin the span of a step, of the attempt that log lines name; `peer`: the party that is asked for it."""
        named = {"job": self._job, "attempt": logs.noted()["attempt"], "step": step, **({"peer": peer} if peer else {})}
        attributes = {f"treetap.{key}": value for key, value in named.items()}
        return StepSpan(self, self._spans.begin(step, attributes, set_span_in_context(self._span, Context())))

    def add(self, sent: Mapping[str, int], received: Mapping[str, int]) -> None:
        """Add the bytes of a step to the job's."""
        self._sent.update(sent)
        self._received.update(received)

    def end(self, outcome: str) -> None:
        """End the span; a state, or how its session ended."""
        _end(self._span, outcome, self._sent, self._received)


class StepSpan:
    """A step of a job at one process.

    Attributes:
        sent: bytes by disclosure class, as the job's costs count them.
        received: bytes by disclosure class.
    """

    def __init__(self, job: JobSpan, span: Span) -> None:
        self._job, self._span = job, span
        self.sent, self.received = Counter[str](), Counter[str]()

    def end(self, outcome: str) -> None:
        """End the span: done, failed or broken off."""
        self._job.add(self.sent, self.received)
        _end(self._span, outcome, self.sent, self.received)


def _end(span: Span, outcome: str, sent: Mapping[str, int], received: Mapping[str, int]) -> None:
    span.set_attributes({f"treetap.sent.{name}": size for name, size in sent.items() if size})
    told = {name: size for name, size in received.items() if size and name not in BY_RECORDS}
    span.set_attributes({f"treetap.received.{name}": size for name, size in told.items()})
    span.set_attribute("treetap.outcome", outcome)
    if outcome not in WELL:
        span.set_status(Status(StatusCode.ERROR))
    span.end()
