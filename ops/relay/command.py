"""`treetap relay`: the process of a relay (`treetap.wire.relay`), its file and its metrics."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from treetap.metrics import ProcessMetrics
from treetap.ops.relay.meeting import REASONS, Bounds, Name, Relay
from treetap.process.config import TlsConfig
from treetap.process.lifecycle import serve_until_stopped
from treetap.process.limits import collect_rarely, raise_descriptors
from treetap.strict import Address, ProcessName, Strict
from treetap.wire.callers import Callers
from treetap.wire.ports import Identity, Role
from treetap.wire.tls import Secured


class RelayConfig(Strict):
    """The file that `treetap relay FILE` reads."""

    name: ProcessName = "relay"
    """Its name, which its certificate bears, with the role `relay`."""
    listen: Address
    """HOST:PORT, the one port for those who register and for those who call."""
    tls: TlsConfig
    """Certificates of the federation's authority: the relay shows its own to those who register."""
    names: list[ProcessName] | None = None
    """Parties and coordinators that may register; without it all with a certificate of the authority."""
    connections: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Most connections to one name at once; one calling address has half of them at most. Where all are taken, the
    oldest whose caller has not shown a certificate yet, of the address with most of these, makes room for a new one.
    """
    bytes_s: Annotated[int, Field(ge=65_536)] | None = None
    """Most bytes of one name in a second, both directions together; without it any number. Callers that have not shown
    a certificate spend a tenth as much beside it, 64 KiB at least, all together.
    """
    idle_s: Annotated[float, Field(ge=30, le=86_400)] = 120.0
    """Seconds without a byte after which a connection is closed; calls under way send one every 20 s."""
    hello_s: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Seconds for a connection's first bytes, for a registration, and for a process to fetch a caller."""
    metrics: Address | None = None
    """Address at which Prometheus may read metrics, over plain HTTP."""

    def bounds(self) -> Bounds:
        """The same as the wire's type."""
        names = None if self.names is None else frozenset(self.names)
        return Bounds(names, self.connections, self.bytes_s, self.idle_s, self.hello_s)


class RelayMetrics(ProcessMetrics):
    """Names that are registered, their callers' connections and bytes, and connections that were turned away."""

    def __init__(self, name: str) -> None:
        super().__init__("relay", name)
        self._registered = self.gauge("treetap_relay_registered", "1 while the name is registered.", "peer", "role")
        self._open = self.gauge("treetap_relay_connections", "Connections to the name.", "peer", "role")
        self._carried = self.gauge("treetap_relay_carried_bytes", "Bytes to and from the name.", "peer", "role")
        self._turned_away = self.gauge("treetap_relay_turned_away", "Connections closed, by reason.", "reason")

    def follow(self, relay: Relay) -> None:
        """Show what a relay counts."""
        for reason in REASONS:
            self._turned_away.labels(reason).set_function(partial(relay.turned_away.__getitem__, reason))

    def know(self, name: Name) -> None:
        """Show one more name."""
        labels = name.process.name, name.process.role
        self._registered.labels(*labels).set_function(lambda: name.control is not None)
        self._open.labels(*labels).set_function(name.open.total)
        self._carried.labels(*labels).set_function(lambda: name.share.carried + name.unproven_share.carried)


def run(path: Path, *, until_stdin_closes: bool) -> None:
    """Serve; returns after SIGTERM, SIGINT or, if asked, when standard input closes."""
    config = RelayConfig.from_file(path)
    config.tls.files().check(config.name, Role.RELAY)
    raise_descriptors()
    asyncio.run(_serve(config, until_stdin_closes))


async def _serve(config: RelayConfig, until_stdin_closes: bool) -> None:
    files, metrics = config.tls.files(), RelayMetrics(config.name)
    measured = metrics.serve(config.metrics)
    own = Identity(config.name, Role.RELAY)
    relay = Relay(own, Secured("registration", files), Callers("the relay", files), config.bounds(), metrics.know)
    metrics.follow(relay)
    metrics.certificates(files)
    collect_rarely()
    address = await relay.start(config.listen)
    where = {"name": config.name, "address": address, **({"metrics": measured} if measured else {})}
    try:
        await serve_until_stopped("relay", where, until_stdin_closes=until_stdin_closes)
    finally:
        await relay.close()
