"""The identity of a process: its name and its role in the federation.

The common name of a certificate is the process's name. The role stands in the DNS name `NAME.ROLE.treetap.internal`,
which is what TLS itself compares when the process is dialled: a caller in gRPC's Python cannot look at the server's
certificate. So the certificate of an operator or a client never passes for that of a party or a coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    """The name of a process and its role."""

    name: str
    role: Role

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
