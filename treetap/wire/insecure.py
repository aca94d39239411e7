"""Calls without certificates, on loopback: the one exception from mutual TLS, only by explicit configuration."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from treetap.errors import BadInput
from treetap.names import on_loopback
from treetap.wire.roles import Role
from treetap.wire.tls import TlsFiles

log = logging.getLogger(__name__)
#: Metadata key under which a caller gives its name. A server with certificates never looks at it.
NAME_KEY = "treetap-name"


@dataclass(frozen=True)
class Insecure:
    """A process's name, in place of its certificate."""

    name: str

    def check(self, expected_name: str | None, role: Role | None = None) -> str:
        """As `TlsFiles.check`: the name. A warning in the log says that nothing was checked."""
        del expected_name, role
        log.warning("insecure = true: no encryption, and any process on this host can use any name")
        return self.name

    def told(self) -> tuple[tuple[str, str], ...]:
        """Metadata that goes with every call."""
        return ((NAME_KEY, self.name),)


#: A process's credentials for calls.
Transport = TlsFiles | Insecure


def check_near(what: str, address: str) -> None:
    """`BadInput` unless the address is on loopback."""
    if not on_loopback(address):
        raise BadInput(f"{what} {address}: insecure = true is for loopback only: use certificates, [tls]")
