"""The command `treetap health`, by gRPC's health service over mutual TLS, or by TLS alone.

Container engines run it every few seconds, so a call imports only what it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ConfigDict

from treetap import logs
from treetap.errors import BadInput, Interrupted, TreetapError, Unreachable
from treetap.names import asked_at, check_address, check_name
from treetap.process.config import Process
from treetap.strict import Address as AddressText
from treetap.strict import Name
from treetap.wire.ports import Address, Identity, Role
from treetap.wire.tls import Insecure, TlsFiles, Transport


def _given(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    """A callback of an option: text that `check` refuses is wrong usage."""

    def checked(text: str | None) -> str | None:
        try:
            return None if text is None else check(text)
        except ValueError as fault:
            raise typer.BadParameter(str(fault)) from None

    return checked


def health(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A server's own configuration file."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            callback=_given(check_address),
            help="Address to call; with --config, instead of its listen.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=_given(check_name), help="The name that the certificate there must bear."
        ),
    ] = None,
    role: Annotated[str, typer.Option(metavar="ROLE", help="And the role, as coordinator or gateway.")] = "party",
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="The authority's certificate, PEM.")] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Any certificate of that authority, PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of --certificate, PEM.")] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Time for the answer to come.")] = 3.0,
) -> None:
    """Check that a server of a federation serves: for container engines, systemd and monitoring.

    With --config, the process of that file is called with that process's own certificate. Without it, --address,
    --name, --role, --ca, --certificate and --key call any process with any certificate of the federation's authority.

    Exit status 0 and one line: it serves. 1 and one line on standard error: it does not, or a file cannot be used,
    since container engines reserve 2. 2: wrong usage.

    treetap health --config /etc/treetap/party.toml
    """
    logs.quiet_grpc()  # its lines on failed handshakes are less precise than ours
    try:
        if config is not None:
            if (name, ca, certificate, key) != (None, None, None, None):
                raise typer.BadParameter("with --config only --address and --timeout go: the rest is in the file")
            to, transport = read(config, address)
        elif address and name and ca and certificate and key:
            if role not in ("party", "coordinator", "relay", "gateway"):
                raise typer.BadParameter(f"--role {role}: party, coordinator, relay or gateway")
            to, transport = Address(name, address, Role(role)), TlsFiles(ca, certificate, key)
        else:
            raise typer.BadParameter("say --config, or --address, --name, --ca, --certificate and --key")
        ask(to, transport, timeout)
    except BadInput as fault:  # of a file: exit status 1
        raise TreetapError(str(fault)) from None
    typer.echo(f"{to.name} serves at {to.location}")


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
    config = Served.from_file(path).model_copy(update={"proxy": None})  # of this host
    listen = address or config.listen
    if listen.endswith(":0"):
        raise BadInput(f"{path}: listen = {config.listen!r} takes any free port; name one, or say --address")
    process = config.process
    return Address(process.name, asked_at(listen), process.role), config.transport()


def ask(to: Address, transport: Transport, seconds: float) -> None:
    """Return if the process serves.

    Raises:
        ConfigError: our own certificate or key cannot be used.
        Interrupted: it does not answer within `seconds`, shows another name, or reports that it does not serve.
    """
    from treetap.wire.probe import examine, say_hello

    transport.check(None)
    if to.role in (Role.RELAY, Role.GATEWAY):
        if isinstance(transport, Insecure):
            raise BadInput(f"{to.name} is asked with certificates alone: say GET http://{to.location}/healthz instead")
        if not (seen := examine(to, transport, seconds, further=False)).trusted:
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
