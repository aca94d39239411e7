"""The cost account of a job at one party: bytes by class, ciphertexts, seconds by step."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from party.runtime.metrics import PartyMetrics
from treetap.usage import Usage, measure
from treetap.wire.disclosure import ByteCounts
from treetap.wire.v2 import setup_pb2, types_pb2

log = logging.getLogger(__name__)


class CostAccount:
    """Counters of one party for one job; they add to the process's metrics too."""

    def __init__(self, party: str, workers: Mapping[str, Usage], metrics: PartyMetrics | None = None) -> None:
        self.party = party
        self._metrics = metrics or PartyMetrics(party)
        self.byte_counts = ByteCounts(party, self._metrics.sent)
        self.operations: Counter[str] = self._metrics.operations()
        self.ciphertexts: Counter[str] = self._metrics.ciphertexts()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._start = measure(), workers
        self.level = logging.INFO  #: log level of the ends of steps

    @contextmanager
    def clock(self, step: str, what: str) -> Iterator[None]:
        """Add the wall time of the block to a step; `what` names the block in the log."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        outcome = "broken off"
        self._metrics.step_begins(step)
        log.debug("%s: begins", what)
        try:
            yield
            outcome = "done"
        except Exception:
            outcome = "failed"
            raise
        finally:
            seconds = loop.time() - start
            self._seconds[step] += seconds
            self._metrics.step_ended(step, outcome, seconds)
            log.log(self.level, "%s: %s after %.3f s", what, outcome, seconds, extra={"seconds": seconds})

    def account(self, workers: Mapping[str, Usage]) -> setup_pb2.Accounted:
        """All counts in the form sent to the coordinator: sizes and times only."""
        own = measure()
        first, of_workers = self._start
        now = {self.party: own} | {f"{self.party} {worker}": used for worker, used in workers.items()}
        before = {self.party: first} | {f"{self.party} {worker}": used for worker, used in of_workers.items()}
        return setup_pb2.Accounted(
            traffic=self.byte_counts.rows(),
            operations=[types_pb2.NamedCount(name=k, count=v) for k, v in sorted(self.operations.items())],
            ciphertexts=[types_pb2.NamedCount(name=k, count=v) for k, v in sorted(self.ciphertexts.items())],
            seconds=[types_pb2.NamedAmount(name=k, amount=v) for k, v in sorted(self._seconds.items())],
            peak_rss_mb=[types_pb2.NamedAmount(name=name, amount=used.peak_rss_mb) for name, used in now.items()],
            cpu_seconds=[
                types_pb2.NamedAmount(name=name, amount=used.cpu_seconds - before[name].cpu_seconds)
                for name, used in now.items()
            ],
        )
