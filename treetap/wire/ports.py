"""The two ends of every wire, as interfaces: sockets and the simulator implement the same ones.

A *port* is the set of calls that a process answers; a *dialer* reaches the ports of others. Neither
inspects the messages. The caller's name comes from the transport (its certificate), never from a message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from treetap.wire.roles import Identity, Role

if TYPE_CHECKING:  # a process that only names an address loads no message
    from treetap.wire.v2 import control_pb2, exchange_pb2


@dataclass(frozen=True)
class Address:
    """A process of the federation: the name and the role that its certificate must bear, and where it listens."""

    name: str
    location: str
    role: Role = Role.PARTY

    @property
    def dns(self) -> str:
        """The DNS name that TLS compares with the certificate there."""
        return Identity(self.name, self.role).dns


class PartyPort(Protocol):
    """A party's two calls."""

    def step(self, caller: str, request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        """Do one step; yields progress, then the result."""
        ...

    async def deliver(
        self, caller: str, message: exchange_pb2.PeerMessage, content: bytes | None = None
    ) -> exchange_pb2.Receipt:
        """Receive one message. `content`: its bytes as they came; None: as protobuf writes them."""
        ...


class Dialer(Protocol):
    """A process's access to the ports of others. Raises `Unreachable` where no process answers."""

    def step(self, to: Address, request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        """Ask a party to do one step."""
        ...

    async def deliver(self, to: Address, message: bytes) -> exchange_pb2.Receipt:
        """Deliver one `PeerMessage`, which is sent as the bytes that it is."""
        ...

    async def close(self) -> None:
        """Close all channels."""
        ...
