"""The two ends of every wire, and who they are: interfaces that sockets and the simulator both implement.

A *dialer* reaches other processes, and inspects no message. The caller's name comes from the transport (its
certificate), never from a message.

The common name of a certificate is the process's name. The role stands in the DNS name `NAME.ROLE.treetap.internal`,
which is what TLS itself compares when the process is dialled: a caller in gRPC's Python cannot look at the server's
certificate. So the certificate of an operator or a client never passes for that of a party or a coordinator.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from treetap.wire.v2 import control_pb2, exchange_pb2


#: The organisation of who makes this task's call, by the certificate; empty: it does not say.
ORGANISATION: ContextVar[str] = ContextVar("treetap_organisation", default="")
#: Reserved for the names of roles: no certificate has another name below it.
DOMAIN = "treetap.internal"


class Role(StrEnum):
    """Part of a process in a federation: each service answers one role."""

    PARTY = "party"
    COORDINATOR = "coordinator"
    OPERATOR = "operator"
    CLIENT = "client"
    APPROVER = "approver"
    RELAY = "relay"
    GATEWAY = "gateway"

    @property
    def one(self) -> str:
        """The role with its article."""
        return f"an {self}" if self in (Role.OPERATOR, Role.APPROVER) else f"a {self}"


@dataclass(frozen=True)
class Identity:
    """The name of a process and its role.

    `organisation`: whose it is, by its certificate, which a dealer is admitted by; empty: it does not say. Whoever has
    the name and the role is the process, whatever organisation it says.
    """

    name: str
    role: Role
    organisation: str = field(default="", compare=False)

    @property
    def dns(self) -> str:
        """The DNS name that only the certificate of this process in this role bears."""
        return f"{self.name}.{self.role}.{DOMAIN}"

    def __str__(self) -> str:
        return f"{self.role} {self.name!r}"


def reserved(host: str) -> bool:
    """True if a host is `DOMAIN` or below it, as TLS compares names."""
    host = host.lower().rstrip(".")
    return host == DOMAIN or host.endswith(f".{DOMAIN}")


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


#: Least `silence_s` of a configuration: a busy host needs a few seconds for one sign of life.
LEAST_SILENCE_S = 5.0
#: Breaks that one call survives: a connection that keeps breaking is a failed one.
MOST_BREAKS = 1000
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 1.0


@dataclass(frozen=True)
class Timeouts:
    """The deadlines of a process, in seconds.

    Attributes:
        silence_s: the longest that a peer may be silent; a call or a wait that it does not answer ends after that.
    """

    silence_s: float = 30.0

    @property
    def connect_s(self) -> float:
        """One attempt to connect, from TCP to gRPC's first frame, which takes four to eight round trips."""
        return max(3.0, min(20.0, self.silence_s))

    @property
    def retry_s(self) -> float:
        """Repeats after a connection has broken, from the break on."""
        return min(10.0, self.silence_s)

    @property
    def diagnosis_s(self) -> float:
        """Finding the cause of a failed connection, or looking at a server before one: up to five round trips."""
        return min(5.0, self.silence_s)


class Reconnects:
    """The breaks of one call and the pauses between its repeats, within the silence that its receiver may keep."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.silence_s, self._retry_s = timeouts.silence_s, timeouts.retry_s
        self._give_up: float | None = None
        self._wait = _FIRST_WAIT_S
        self._breaks = 0
        self._heard_at = asyncio.get_running_loop().time()

    @property
    def silent_at(self) -> float:
        """The loop's time at which the other side, if nothing is heard of it, has been silent for too long."""
        return self._heard_at + self.silence_s

    @property
    def unheard_at(self) -> float:
        """The loop's time until which repeats go on where nothing has ever answered, whatever the cause is.

        Whoever waits for the message waits for `silence_s`, so that this end comes first, which names the line.
        """
        return self._heard_at + max(self._retry_s, self.silence_s / 2)

    @property
    def repeated(self) -> bool:
        """True if the call has been repeated since the other side was last heard."""
        return self._give_up is not None

    def heard(self) -> None:
        """Note an answer of the other side: the next break is a new one."""
        self._give_up, self._wait = None, _FIRST_WAIT_S
        self._heard_at = asyncio.get_running_loop().time()

    async def again(self, until: float = math.inf) -> bool:
        """After a break: pause and return True, or False where it has lasted too long, or it is `until` by then."""
        now = asyncio.get_running_loop().time()
        if self._give_up is None:
            self._give_up = now + self._retry_s
        self._breaks += 1
        if now + self._wait > min(self._give_up, self.silent_at, until) or self._breaks > MOST_BREAKS:
            return False
        await asyncio.sleep(self._wait)
        self._wait = min(2 * self._wait, _LONGEST_WAIT_S)
        return True
