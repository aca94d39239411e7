"""The coordinator's metrics: see docs/operations.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING

from treetap.metrics import ProcessMetrics

if TYPE_CHECKING:
    from treetap.process.spans import JobSpan

STATES = ("running", "waiting", "finished", "failed", "interrupted", "cancelled", "damaged")
#: The span of the attempt that this task, or the task that made it, conducts; None where none is exported.
_attempt: ContextVar[JobSpan | None] = ContextVar("treetap_attempt_span", default=None)


class CoordinatorMetrics(ProcessMetrics):
    """Jobs by state, and the durations of the parties' steps as the coordinator sees them."""

    def __init__(self, name: str) -> None:
        super().__init__("coordinator", name)
        self._jobs = self.gauge("treetap_jobs", "Jobs of the journal, by state.", "state")
        for state in STATES:
            self._jobs.labels(state).set(0)
        seconds = self.counter(
            "treetap_asked_step_seconds_total", "Wall time from asking for a step to its answer.", "peer", "step"
        )
        asked = self.counter("treetap_asked_steps_total", "Steps that parties have answered.", "peer", "step")
        running = self.gauge("treetap_asked_steps_running", "Steps that parties are asked for.", "peer", "step")
        self._seconds, self._asked, self._running = cache(seconds.labels), cache(asked.labels), cache(running.labels)

    def job(self, state: str, before: str | None = None) -> None:
        """Count a job in a state, and no longer in the state before; None: the job is new."""
        self._jobs.labels(state).inc()
        if before is not None:
            self._jobs.labels(before).dec()

    def forget(self, state: str) -> None:
        """Stop counting a job that the journal has forgotten."""
        self._jobs.labels(state).dec()

    def begin(self, job: str, attempt: int, trace: str) -> JobSpan | None:
        """Begin the span of an attempt that this task conducts; None where none is exported."""
        span = self.spans.job(job, attempt, trace) if self.spans else None
        _attempt.set(span)
        return span

    def end(self, span: JobSpan | None, outcome: str) -> None:
        """End the span of the attempt, which what this task begins afterwards is no part of."""
        _attempt.set(None)
        if span:
            span.end(outcome)

    @contextmanager
    def asking(self, party: str, step: str, *, often: bool = False) -> Iterator[JobSpan | None]:
        """Count and time a step that a party is asked for; gives its span. `often`: it has none."""
        began, attempt, outcome = monotonic(), _attempt.get(), "failed"
        span = attempt.step(step, party) if attempt and not often else None
        self._running(party, step).inc()
        try:
            yield span
            self._asked(party, step).inc()
            outcome = "done"
        finally:
            self._running(party, step).dec()
            self._seconds(party, step).inc(monotonic() - began)
            if span:
                span.end(outcome)
