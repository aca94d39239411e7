"""A relay, forwarders and the servers behind them, in one event loop and with certificates of one authority.

A server behind a forwarder answers `deliver` and health checks, and keeps what it got.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.certificates import namesake
from tests.sockets import dialling, listening
from treetap.commands.certs.authority import create_authority
from treetap.ops.certs.requests import revoke
from treetap.ops.relay.meeting import Bounds, Relay
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.ports import Address, Identity, Role
from treetap.wire.relay.forwarder import Forwarder, Times
from treetap.wire.tls import Secured, TlsFiles
from treetap.wire.v2 import exchange_pb2

RELAY = Identity("relay", Role.RELAY)
#: Short waits, so that a test of one takes no longer than it must.
QUICK = Times(dial_s=2.0, first_wait_s=0.02, longest_wait_s=0.1, silent_s=5.0, close_s=0.1)


class Certs:
    """Certificates of one authority, made when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.authority, self._folder, self._made = folder / "authority", folder, 0
        create_authority(self.authority)
        revoke(self.authority)

    def files(self, name: str, role: Role = Role.PARTY) -> TlsFiles:
        """The files of a process, with the authority's list of revoked certificates."""
        self._made += 1
        made = namesake(self._folder / f"{self._made:03d}", name, role, self.authority)
        return TlsFiles(self.authority / "ca.crt", made.certificate, made.key, self.authority / "crl.pem")


@dataclass
class Served:
    """A process's own server: its address on this host, and the messages that it got, by caller."""

    address: str
    got: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass
class Rig:
    """Everything that runs.

    Attributes:
        at: the relay's `host:port`.
    """

    certs: Certs
    relay: Relay
    at: str
    stack: AsyncExitStack
    forwarders: dict[str, Forwarder] = field(default_factory=dict)

    def address(self, name: str, role: Role = Role.PARTY) -> Address:
        """A process as others call it: at the relay."""
        return Address(name, self.at, role)

    async def served(self, name: str) -> Served:
        """A party's server, which only this host reaches."""
        return await self.stack.enter_async_context(serving(self.certs.files(name), name))

    async def forward(self, name: str, own_port: str, files: TlsFiles | None = None, **changes: Any) -> Forwarder:
        """A forwarder that is registered, unless `changes` has `wait=False`."""
        wait, to = changes.pop("wait", True), changes.pop("to", Address(RELAY.name, self.at, Role.RELAY))
        made = Forwarder(to, files or self.certs.files(name), own_port, replace(QUICK, **changes))
        made.begin()
        self.stack.push_async_callback(made.close)
        self.forwarders[name] = made
        if wait:
            await asyncio.wait_for(made.registered.wait(), 5)
        return made

    async def behind(self, name: str) -> Served:
        """A server that is reached through the relay."""
        own = await self.served(name)
        await self.forward(name, own.address)
        return own


@asynccontextmanager
async def relaying(folder: Path, bounds: Bounds | None = None) -> AsyncIterator[Rig]:
    """A relay without registrations; what is done with it has a deadline of 20 s."""
    certs = Certs(folder)
    async with AsyncExitStack() as stack, asyncio.timeout(20.0):
        relay = made_relay(certs.files("relay", Role.RELAY), bounds)
        at = await relay.start("127.0.0.1:0")
        stack.push_async_callback(relay.close)
        yield Rig(certs, relay, at, stack)


def made_relay(files: TlsFiles, bounds: Bounds | None = None) -> Relay:
    """A relay that does not listen yet."""
    return Relay(RELAY, Secured("registration", files), Callers("the relay", files), bounds or Bounds(hello_s=2.0))


@asynccontextmanager
async def serving(files: TlsFiles, name: str) -> AsyncIterator[Served]:
    """A party's server of messages and health checks."""
    callers, served = Callers(name, files), Served("")

    async def deliver(request: tuple[exchange_pb2.PeerMessage, bytes], context: Any) -> exchange_pb2.Receipt:
        served.got.append((callers.named(context, Role.PARTY), request[1]))
        return exchange_pb2.Receipt()

    async with listening(callers, lambda server, _: rpc.serve_exchange(server, deliver)) as served.address:
        yield served


async def deliver(files: TlsFiles, to: Address, content: bytes) -> None:
    """Deliver one message, and close the channel."""
    async with dialling(files) as dialer:
        await dialer.deliver(to, content)


def message(size: int = 10) -> bytes:
    """A message of about that many bytes."""
    return exchange_pb2.PeerMessage(job="j" * size).SerializeToString()


async def until(condition: Callable[[], bool], what: str, seconds: float = 5.0) -> None:
    """Wait for something that another task is about to do."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what}: not within {seconds:g} s"
        await asyncio.sleep(0.01)


async def first_bytes(at: str, content: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to `host:port` on which something has been said."""
    host, _, port = at.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(content)
    return reader, writer
