"""What a job has cost this party: bytes by class, ciphertexts, seconds by step."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from google.protobuf.message import Message

from treetap.wire.disclosure import bytes_by_class
from treetap.wire.v1 import setup_pb2, types_pb2


class Ledger:
    """Counters of one party for one job."""

    def __init__(self, party: str) -> None:
        self.party = party
        self.bytes_sent = 0
        self.operations: Counter[str] = Counter()
        self.ciphertexts: Counter[str] = Counter()
        self._messages: Counter[tuple[str, str, str]] = Counter()
        self._bytes: Counter[tuple[str, str, str]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu_start = _cpu()

    def sent(self, to: str, step: str, message: Message) -> None:
        """Count a message that left for `to`."""
        for disclosure, size in bytes_by_class(message).items():
            self._messages[to, step, disclosure] += 1
            self._bytes[to, step, disclosure] += size
            self.bytes_sent += size

    @contextmanager
    def clock(self, step: str) -> Iterator[None]:
        """Add the wall time of the block to a step."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            yield
        finally:
            self._seconds[step] += loop.time() - start

    def account(self, worker_rss: list[float]) -> setup_pb2.Accounted:
        """Everything counted, as it goes to the coordinator: sizes and times only."""
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return setup_pb2.Accounted(
            traffic=[
                types_pb2.TrafficRow(
                    **{"from": self.party},
                    to=to,
                    step=step,
                    disclosure=disclosure,
                    messages=self._messages[to, step, disclosure],
                    bytes=size,
                )
                for (to, step, disclosure), size in sorted(self._bytes.items())
            ],
            operations=[types_pb2.NamedCount(name=k, count=v) for k, v in sorted(self.operations.items())],
            ciphertexts=[types_pb2.NamedCount(name=k, count=v) for k, v in sorted(self.ciphertexts.items())],
            seconds=[types_pb2.NamedSeconds(name=k, seconds=v) for k, v in sorted(self._seconds.items())],
            peak_rss_mb=[
                types_pb2.NamedSeconds(name=self.party, seconds=rss),
                *(
                    types_pb2.NamedSeconds(name=f"{self.party} worker {lane}", seconds=value)
                    for lane, value in enumerate(worker_rss)
                ),
            ],
            cpu_seconds=[types_pb2.NamedSeconds(name=self.party, seconds=_cpu() - self._cpu_start)],
        )


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
