"""Commands of operation: pages for a party's people, a relay, a gateway, a check of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treetap import logs
from treetap.commands.options import Json, LogFormat, LogLevel, UntilStdinCloses, needs
from treetap.process.limits import hold_hangup


def console(
    approver: Annotated[
        Path, typer.Option(envvar="TREETAP_APPROVER", help="The party to call, the certificate to use, the address.")
    ] = Path("approver.toml"),
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve pages for one of a party's people: what goes on there, and the jobs to decide about.

    Prints a token that opens the pages once, within 60 s; after SIGHUP another one.
    """
    in_terminal = hold_hangup()
    logs.configure(log_level, log_format)  # before other imports, as of a party
    with needs("console"):
        from treetap.ops.console.listening import run

    run(approver, until_stdin_closes=until_stdin_closes, in_terminal=in_terminal)


def relay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The relay's configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve a relay until SIGTERM: one public port for processes that can only dial out. It opens no TLS but its own.

    treetap relay relay.toml
    """
    logs.configure(log_level, log_format)
    from treetap.ops.relay.command import run

    run(file, until_stdin_closes=until_stdin_closes)


def gateway(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The gateway's configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve a gateway until SIGTERM: clients ask it over HTTP, and it asks the party. It has no table, label or key.

    treetap gateway gateway.toml
    """
    logs.configure(log_level, log_format)
    with needs("serve"):
        from treetap.ops.gateway.http import run

    run(file, until_stdin_closes=until_stdin_closes)


def doctor(
    config: Annotated[
        Path | None,
        typer.Option(help="A party's, a coordinator's or another process's configuration file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a process: certificates, addresses, clocks, versions, tables, folders; without --config the kernels.

    Exit status 2 if there is a fault.

    treetap doctor --config bank/party.toml
    """
    logs.quiet_grpc()
    from treetap.ops.doctor.configuration import run

    run(config, as_json=as_json)
