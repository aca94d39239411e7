"""What a coordinator measures of itself: see docs/operations.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from treetap.metrics import ProcessMetrics

STATES = ("running", "finished", "failed", "interrupted", "cancelled")


class CoordinatorMetrics(ProcessMetrics):
    """Jobs by state, and what the parties' steps take as seen from here."""

    def __init__(self, name: str) -> None:
        super().__init__("coordinator", name)
        self._jobs = self.gauge("treetap_jobs", "Jobs of the journal, by state.", "state")
        for state in STATES:
            self._jobs.labels(state).set(0)
        self._seconds = self.counter(
            "treetap_asked_step_seconds_total", "Wall time from asking for a step to its answer.", "peer", "step"
        )
        self._asked = self.counter("treetap_asked_steps_total", "Steps that parties have answered.", "peer", "step")
        self._running = self.gauge("treetap_asked_steps_running", "Steps that parties are asked for.", "peer", "step")

    def job(self, state: str, before: str | None = None) -> None:
        """A job has come into a state, from the one in which it was counted before; None: it is new here."""
        self._jobs.labels(state).inc()
        if before is not None:
            self._jobs.labels(before).dec()

    @contextmanager
    def asking(self, party: str, step: str) -> Iterator[None]:
        """Round a step that a party is asked for."""
        began = monotonic()
        self._running.labels(party, step).inc()
        try:
            yield
            self._asked.labels(party, step).inc()
        finally:
            self._running.labels(party, step).dec()
            self._seconds.labels(party, step).inc(monotonic() - began)
