"""What the coordinator itself sent, by class: its own line in the who-received-what table."""

from __future__ import annotations

from collections import Counter

from google.protobuf.message import Message

from treetap.wire.disclosure import bytes_by_class
from treetap.wire.v1 import types_pb2


class Traffic:
    """Messages and bytes by receiver, step and class."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._messages: Counter[tuple[str, str, str]] = Counter()
        self._bytes: Counter[tuple[str, str, str]] = Counter()

    def sent(self, to: str, step: str, message: Message) -> None:
        """Count a message."""
        for disclosure, size in bytes_by_class(message).items():
            self._messages[to, step, disclosure] += 1
            self._bytes[to, step, disclosure] += size

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
