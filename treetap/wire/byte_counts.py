"""Messages and bytes that one process has sent for one attempt at a job, by receiver, step and disclosure class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from treetap.wire.v2 import types_pb2


class SentMetrics(Protocol):
    """The process's metrics, as far as they count bytes."""

    def sent(self, to: str, disclosure: str, size: int) -> None:
        """Count bytes of a class that left for `to`."""
        ...


class ByteCounts:
    """Its lines in the table of received bytes; the process's metrics count them too."""

    def __init__(self, name: str, metrics: SentMetrics) -> None:
        self._name, self._metrics = name, metrics
        self._messages: Counter[tuple[str, str, str]] = Counter()
        self._bytes: Counter[tuple[str, str, str]] = Counter()
        self.bytes_sent = 0

    def sent(self, to: str, step: str, classes: Mapping[str, int]) -> None:
        """Count a message that left for `to`, by its bytes of each class (`bytes_by_class`)."""
        for disclosure, size in classes.items():
            self._messages[to, step, disclosure] += 1
            self._bytes[to, step, disclosure] += size
            self.bytes_sent += size
            self._metrics.sent(to, disclosure, size)

    def rows(self) -> list[types_pb2.TrafficRow]:
        """Everything counted."""
        return [
            types_pb2.TrafficRow(
                **{"from": self._name},
                to=to,
                step=step,
                disclosure=disclosure,
                messages=self._messages[to, step, disclosure],
                bytes=size,
            )
            for (to, step, disclosure), size in sorted(self._bytes.items())
        ]
