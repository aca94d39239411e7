"""Counts of what a party does: Prometheus metrics of its process (docs/operations.md), and a job's cost account.

Most counts of a job add to the metrics too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import prometheus_client

from treetap.errors import TreetapError
from treetap.metrics import ProcessMetrics
from treetap.native import arithmetic
from treetap.usage import Usage, measure
from treetap.wire.disclosure import ByteCounts
from treetap.wire.v2 import setup_pb2, types_pb2

if TYPE_CHECKING:
    from treetap.process.spans import JobSpan

#: Label of all callers that are no clients of this party; their names would make an unbounded number of series.
STRANGER = "-"
#: Upper ends of the buckets of the two histograms.
REQUEST_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BLOCK_RECORDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)


class PartyMetrics(ProcessMetrics):
    """Steps, ciphertexts and waiting messages of all jobs since the process began."""

    def __init__(self, party: str) -> None:
        super().__init__("party", party)
        backend = self.gauge("treetap_arithmetic", "1 for the backend of arithmetic that the party uses.", "backend")
        backend.labels(arithmetic.in_use()).set(1)
        self.workers = self.gauge(
            "treetap_workers", "Workers for ciphertexts: threads here, and those on the cluster.", "engine"
        )
        self._cluster_bytes = self.counter(
            "treetap_cluster_bytes_total", "Bytes of calls to the cluster's workers, and of answers.", "direction"
        )
        seconds = self.counter("treetap_step_seconds_total", "Wall time of steps that have ended.", "step")
        steps = self.counter(
            "treetap_steps_total", "Steps that have ended: done, failed, or broken off.", "step", "outcome"
        )
        running = self.gauge("treetap_steps_running", "Steps that are under way.", "step")
        self._seconds, self._steps, self._running = cache(seconds.labels), cache(steps.labels), cache(running.labels)
        self.came_in = cache(
            self.counter(
                "treetap_received_bytes_total",
                "Bytes of messages that were admitted, by sender and class, where the policy names approvers or the "
                "party's file has `metrics`.",
                "peer",
                "disclosure",
            ).labels
        )
        self._openings = self.counter(
            "treetap_openings_total", "Attempts that were asked for: opened, or the kind of the error.", "outcome"
        )
        self.unanswered = self.counter(
            "treetap_unanswered_records_total",
            "Records of predictions that `queries_per_record` has kept from a peer.",
            "peer",
        )
        self.operations = self.counter(
            "treetap_ciphertext_operations_total", "Operations on ciphertexts and blinded identifiers.", "operation"
        )
        self.ciphertexts = self.counter("treetap_ciphertexts_total", "Ciphertexts made to be sent.", "content")
        mailbox = self.gauge("treetap_mailbox_bytes", "Bytes of messages that wait for their step.", "place")
        self._mailbox = {place: mailbox.labels(place) for place in ("memory", "file")}
        self._requests = self.counter(
            "treetap_served_requests_total", "Requests of clients (-: no client), by outcome.", "client", "outcome"
        )
        self._requests.labels(STRANGER, "refused")
        self._request_seconds = self.histogram(
            "treetap_served_request_seconds",
            "Time from a request to its answer, of answered requests.",
            REQUEST_SECONDS,
        )
        self.without = self.counter(
            "treetap_served_without_total", "Answers to clients that were computed without a feature party.", "peer"
        )
        self.blocks = self.histogram("treetap_served_block_records", "Records scored in one round.", BLOCK_RECORDS)
        self.waiting_records = self.gauge("treetap_served_waiting_records", "Records that wait for a round.")
        self.batches = self.counter(
            "treetap_batches_total", "Batches of split networks: trained, or sat out by Party-wise Dropout.", "outcome"
        )
        self.epoch_loss = self.gauge(
            "treetap_epoch_loss", "Label holder: mean loss of a split network's last epoch, by the labels it trains on."
        )
        self.leakage_bound = self.gauge(
            "treetap_leakage_bound_nats",
            "Label holder: largest bound on what one set of records that the party knows of a growing tree says about "
            "the label; per node, not joint.",
            "peer",
        )
        self._signature = self.gauge(
            "treetap_signature_information_nats",
            "Label holder: mutual information of the label and the partition by all sets that the party knows: "
            "plug-in, and by chance, after the last tree.",
            "peer",
            "estimate",
        )
        self._excess = self.gauge(
            "treetap_signature_excess_share", "Label holder: plug-in less chance, over the label's entropy.", "peer"
        )

    def cluster_bytes(self, sent: int, received: int) -> None:
        """Count what went to the cluster's workers and came from them."""
        self._cluster_bytes.labels("sent").inc(sent)
        self._cluster_bytes.labels("received").inc(received)

    def step_begins(self, step: str) -> None:
        """Count a step as running."""
        self._running(step).inc()

    def step_ended(self, step: str, outcome: str, seconds: float) -> None:
        """Count a step as ended, with its outcome and wall time."""
        self._running(step).dec()
        self._steps(step, outcome).inc()
        self._seconds(step).inc(seconds)

    def waiting(self, place: str, change: int) -> None:
        """Add `change` bytes (negative: fewer) to the messages that wait in `place`, "memory" or "file"."""
        self._mailbox[place].inc(change)

    def request_ended(self, client: str, outcome: str, seconds: float) -> None:
        """Count a client's request that was answered or has failed."""
        self._requests.labels(client, outcome).inc()
        if outcome == "answered":
            self._request_seconds.observe(seconds)

    def signature(self, peer: str, plug_in: float, by_chance: float, excess: float) -> None:
        """Record the information, in nats, of the sets that a feature party knows together, and its share of H(Y)."""
        self._signature.labels(peer, "plug-in").set(plug_in)
        self._signature.labels(peer, "by chance").set(by_chance)
        self._excess.labels(peer).set(excess)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Count how the block opens an attempt: opened, the kind of its error, or broken off."""
        outcome = "broken off"
        try:
            yield
            outcome = "opened"
        except TreetapError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._openings.labels(outcome).inc()


class JobCounts(Counter[str]):
    """Counts of one job by name; every increment goes to the process's metric too."""

    def __init__(self, total: prometheus_client.Counter) -> None:
        super().__init__()
        self._total = cache(total.labels)

    def __setitem__(self, name: str, count: int) -> None:
        self._total(name).inc(count - self[name])
        super().__setitem__(name, count)

    def update(self, more: Mapping[str, int] | None = None) -> None:  # type: ignore[override] # no other form of it is used
        """Add counts; the inherited method bypasses `__setitem__` on an empty counter."""
        for name, count in (more or {}).items():
            self[name] += count


log = logging.getLogger(__name__)


class CostAccount:
    """Counters of one party for one job; they add to the process's metrics too.

    Attributes:
        noised_sums: the noise of the party's own sums, if they have any.
        span: of the attempt, where the party exports spans.
        received: bytes by disclosure class since the span of the last step, where it does.
    """

    def __init__(self, party: str, workers: Mapping[str, Usage], metrics: PartyMetrics | None = None) -> None:
        self.party = party
        self._metrics = metrics or PartyMetrics(party)
        self.byte_counts = ByteCounts(party, self._metrics.sent)
        self.operations: Counter[str] = JobCounts(self._metrics.operations)
        self.ciphertexts: Counter[str] = JobCounts(self._metrics.ciphertexts)
        self.noised_sums: list[setup_pb2.NoisedSums] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._start = measure(), workers
        self.level = logging.INFO  #: log level of the ends of steps
        self.span: JobSpan | None = None
        self.received = Counter[str]()
        self._spanned = Counter[str]()  # bytes sent in steps whose spans have ended

    def begin(self, job: str, attempt: int, trace: str) -> None:
        """Begin the span of the attempt, if the party exports spans."""
        if self._metrics.spans:
            self.span = self._metrics.spans.job(job, attempt, trace)

    def end(self) -> None:
        """End the span of the attempt."""
        if self.span:
            self.span.end("left")

    @contextmanager
    def clock(self, step: str, what: str) -> Iterator[None]:
        """Add the wall time of the block to a step; `what` names the block in the log."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        outcome = "broken off"
        span = self.span.step(step) if self.span and self.level >= logging.INFO else None
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
            if span:  # steps follow each other: what came or left since the last one is this one's
                sent = self.byte_counts.by_class()
                span.sent, self._spanned = sent - self._spanned, sent
                span.received, self.received = self.received, Counter()
                span.end(outcome)
            log.log(self.level, "%s: %s after %.3f s", what, outcome, seconds, extra={"seconds": seconds})

    def account(self, workers: Mapping[str, Usage]) -> setup_pb2.Accounted:
        """All counts in the form sent to the coordinator: sizes and times, and a setting of the party's file."""
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
            noised_sums=self.noised_sums,
        )
