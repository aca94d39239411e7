"""Whether a party or a coordinator serves: gRPC's health service, asked over mutual TLS.

    python -m treetap.commands.health --config FILE
    python -m treetap.commands.health --address HOST:PORT --name NAME --ca FILE --certificate FILE --key FILE

The first asks the process of that file, with that process's own certificate; the second asks any process, with any
certificate of the federation's authority. Exit status 0 and one line: it serves. 1 and one line on standard error: it
does not, or the files do not allow to ask, since container engines reserve 2. 2: wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import ConfigDict

from treetap import logs
from treetap.errors import BadInput, Interrupted, TreetapError, Unreachable
from treetap.names import Address as AddressText
from treetap.names import Name, asked_at, check_address, check_name
from treetap.process.config import Process, load
from treetap.wire.hello import say_hello
from treetap.wire.insecure import Plaintext, Transport
from treetap.wire.ports import Address
from treetap.wire.probe import diagnose
from treetap.wire.tls import TlsFiles


class Served(Process):
    """What a party's file and a coordinator's have in common; everything else is theirs to check."""

    model_config = ConfigDict(extra="ignore")

    name: Name = "coordinator"
    listen: AddressText = "127.0.0.1:0"


def read(path: Path, address: str | None = None) -> tuple[Address, Transport]:
    """Where the process of a configuration file is asked (at `address`, if given), and its certificate and key.

    Raises:
        BadInput: the file cannot be used, or does not say the port.
    """
    config = load(path, Served)
    listen = address or config.listen
    if listen.endswith(":0"):
        raise BadInput(f"{path}: listen = {config.listen!r} takes any free port; name one, or say --address")
    config = config.model_copy(update={"tls": config.tls_below(path.resolve().parent)})
    return Address(config.name, asked_at(listen)), config.transport()


def check(to: Address, transport: Transport, seconds: float) -> None:
    """Return if the process serves.

    Raises:
        TreetapError: it does not answer within `seconds`, shows another name, or says that it does not serve.
    """
    try:
        heard = say_hello(to, transport, seconds)
    except Interrupted:
        if isinstance(transport, Plaintext):
            raise
        raise Unreachable(diagnose(to.location, to.name, transport, seconds)) from None
    if not heard.serving:
        raise Unreachable(f"{to.name} at {to.location} answers, but does not serve: it is stopping or starting")


def main(words: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m treetap.commands.health", description="Does a party or coordinator serve?"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the party's or the coordinator's own file")
    parser.add_argument("--address", type=_sound(check_address), metavar="HOST:PORT", help="where it is asked")
    parser.add_argument("--name", type=_sound(check_name), help="the name that its certificate must bear")
    for option in ("--ca", "--certificate", "--key"):
        parser.add_argument(option, type=Path, metavar="FILE", help="PEM")
    parser.add_argument("--timeout", type=float, default=3.0, metavar="SECONDS", help="3 by default")
    given = parser.parse_args(words)
    by_hand = [given.name, given.ca, given.certificate, given.key]
    if given.config is None and None in (given.address, *by_hand):
        parser.error("say --config, or --address, --name, --ca, --certificate and --key")
    if given.config is not None and any(by_hand):
        parser.error("with --config only --address and --timeout are allowed: the rest is in the file")
    try:
        if given.config is None:
            to = Address(given.name, given.address)
            transport: Transport = TlsFiles(given.ca, given.certificate, given.key)
        else:
            to, transport = read(given.config, given.address)
        transport.check(None)
        logs.quiet_grpc()  # its lines on failed handshakes say less than the one below
        check(to, transport, given.timeout)
    except TreetapError as error:
        print(f"treetap: {error}", file=sys.stderr)
        return 1
    print(f"{to.name} serves at {to.location}")
    return 0


def _sound(check_text: Callable[[str], str]) -> Callable[[str], str]:
    """The check for argparse, which shows the reason of its own errors only."""

    def convert(text: str) -> str:
        try:
            return check_text(text)
        except ValueError as fault:
            raise argparse.ArgumentTypeError(str(fault)) from None

    return convert


if __name__ == "__main__":
    raise SystemExit(main())
