"""What the coordinator itself sent, by class: its own line in the who-received-what table."""

from __future__ import annotations

from collections import Counter

from google.protobuf.message import Message

from coordinator.metrics import CoordinatorMetrics
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.v1 import types_pb2


class Traffic:
    """Messages and bytes of one attempt at a job by receiver, step and class; the process's metrics count them too."""

    def __init__(self, name: str, metrics: CoordinatorMetrics) -> None:
        self._name, self.metrics = name, metrics
        self._messages: Counter[tuple[str, str, str]] = Counter()
        self._bytes: Counter[tuple[str, str, str]] = Counter()

    def sent(self, to: str, step: str, message: Message) -> None:
        """Count a message."""
        for disclosure, size in bytes_by_class(message).items():
            self._messages[to, step, disclosure] += 1
            self._bytes[to, step, disclosure] += size
            self.metrics.sent(to, disclosure, size)

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
