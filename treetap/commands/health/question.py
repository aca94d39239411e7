"""The health check of a party or a coordinator, by gRPC's health service over mutual TLS; of another server, by TLS."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict

from treetap.errors import BadInput, Interrupted, Unreachable
from treetap.names import asked_at
from treetap.process.config import Process
from treetap.strict import Address as AddressText
from treetap.strict import Name, load
from treetap.wire.hello import say_hello
from treetap.wire.ports import Address, Identity, Role
from treetap.wire.probe import examine, look
from treetap.wire.tls import Insecure, Transport


class Served(Process):
    """The keys that the files of servers have in common; the process itself checks everything else."""

    model_config = ConfigDict(extra="ignore")

    name: Name = ""
    listen: AddressText = "127.0.0.1:0"
    parties: object = None  #: of a coordinator's file
    party: object = None  #: of a gateway's
    state: object = None  #: of a party's and a coordinator's

    @property
    def process(self) -> Identity:
        """The process that the file is for; all but a party have a name where it says none."""
        if self.parties is not None:
            return Identity(self.name or "coordinator", Role.COORDINATOR)
        if self.party is not None:
            return Identity(self.name or "gateway", Role.GATEWAY)
        return Identity(self.name, Role.PARTY) if self.state is not None else Identity(self.name or "relay", Role.RELAY)


def read(path: Path, address: str | None = None) -> tuple[Address, Transport]:
    """The process of a configuration file, at `address` if given, and its certificate and key.

    Raises:
        BadInput: the file cannot be used, or does not name the port.
    """
    config = load(path, Served)
    listen = address or config.listen
    if listen.endswith(":0"):
        raise BadInput(f"{path}: listen = {config.listen!r} takes any free port; name one, or say --address")
    config = config.model_copy(update={"tls": config.tls_below(path.absolute().parent), "proxy": None})  # of this host
    process = config.process
    return Address(process.name, asked_at(listen), process.role), config.transport()


def ask(to: Address, transport: Transport, seconds: float) -> None:
    """Return if the process serves.

    Raises:
        ConfigError: our own certificate or key cannot be used.
        Interrupted: it does not answer within `seconds`, shows another name, or reports that it does not serve.
    """
    transport.check(None)
    if to.role in (Role.RELAY, Role.GATEWAY):
        if isinstance(transport, Insecure):
            raise BadInput(f"{to.name} is asked with certificates alone: say GET http://{to.location}/healthz instead")
        if not (seen := look(to, transport, seconds)).trusted:
            raise Unreachable(seen.line)
        return
    try:
        heard = say_hello(to, transport, seconds)
    except Interrupted:
        if isinstance(transport, Insecure):
            raise
        raise Unreachable(examine(to, transport, seconds).line) from None
    if not heard.serving:
        raise Unreachable(f"{to.name} at {to.location} answers, but does not serve: it is stopping or starting")
