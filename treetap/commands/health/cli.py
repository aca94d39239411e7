"""The command `treetap health`. Container engines run it every few seconds, so a call imports only what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treetap import logs
from treetap.errors import BadInput, TreetapError


def _check_address(text: str | None) -> str | None:
    from treetap.names import check_address

    try:
        return None if text is None else check_address(text)
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None


def _check_name(text: str | None) -> str | None:
    from treetap.names import check_name

    try:
        return None if text is None else check_name(text)
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None


def health(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A server's own configuration file."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", callback=_check_address, help="Address to call; with --config, instead of its listen."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=_check_name, help="The name that the certificate there must bear."),
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
    from treetap.commands.health import question
    from treetap.wire.ports import Address, Role
    from treetap.wire.tls import TlsFiles

    try:
        if config is not None:
            if (name, ca, certificate, key) != (None, None, None, None):
                raise typer.BadParameter("with --config only --address and --timeout go: the rest is in the file")
            to, transport = question.read(config, address)
        elif address and name and ca and certificate and key:
            if role not in ("party", "coordinator", "relay", "gateway"):
                raise typer.BadParameter(f"--role {role}: party, coordinator, relay or gateway")
            to, transport = Address(name, address, Role(role)), TlsFiles(ca, certificate, key)
        else:
            raise typer.BadParameter("say --config, or --address, --name, --ca, --certificate and --key")
        question.ask(to, transport, timeout)
    except BadInput as fault:  # of a file: exit status 1
        raise TreetapError(str(fault)) from None
    typer.echo(f"{to.name} serves at {to.location}")
