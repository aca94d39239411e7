"""What a party measures of itself beside its accounts: see docs/operations.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import prometheus_client

from treetap.metrics import ProcessMetrics


class PartyMetrics(ProcessMetrics):
    """Steps, ciphertexts and waiting parcels of all jobs since the process began."""

    def __init__(self, party: str) -> None:
        super().__init__("party", party)
        self._seconds = self.counter("treetap_step_seconds_total", "Wall time of steps that have ended.", "step")
        self._steps = self.counter(
            "treetap_steps_total", "Steps that have ended: done, failed, or broken off.", "step", "outcome"
        )
        self._running = self.gauge("treetap_steps_running", "Steps that are under way.", "step")
        self._operations = self.counter(
            "treetap_ciphertext_operations_total", "Encryptions, additions, decryptions and others.", "operation"
        )
        self._ciphertexts = self.counter("treetap_ciphertexts_total", "Ciphertexts made to be sent.", "content")
        self._mailbox = self.gauge("treetap_mailbox_bytes", "Parcels that wait for their step.", "place")
        for place in ("memory", "file"):
            self._mailbox.labels(place).set(0)

    def step_begins(self, step: str) -> None:
        """A step is under way from here on."""
        self._running.labels(step).inc()

    def step_ended(self, step: str, outcome: str, seconds: float) -> None:
        """It is not any more."""
        self._running.labels(step).dec()
        self._steps.labels(step, outcome).inc()
        self._seconds.labels(step).inc(seconds)

    def waiting(self, place: str, change: int) -> None:
        """So many bytes of parcels more, or fewer, wait in memory or in the file."""
        self._mailbox.labels(place).inc(change)

    def operations(self) -> Tally:
        """A job's count of operations, which counts here too."""
        return Tally(self._operations)

    def ciphertexts(self) -> Tally:
        """A job's count of ciphertexts, which counts here too."""
        return Tally(self._ciphertexts)


class Tally(Counter[str]):
    """Counts by name of one job; what is added counts in the process's metric too."""

    def __init__(self, total: prometheus_client.Counter) -> None:
        super().__init__()
        self._total = total

    def __setitem__(self, name: str, count: int) -> None:
        self._total.labels(name).inc(count - self[name])
        super().__setitem__(name, count)

    def update(self, more: Mapping[str, int] | None = None) -> None:  # type: ignore[override] # no other form of it is used
        """Add counts; the inherited one would pass by `__setitem__` while nothing has been counted."""
        for name, count in (more or {}).items():
            self[name] += count
