"""Roles of the names that tests give to processes."""

from __future__ import annotations

from treetap.wire.roles import Identity, Role

_OTHERS = {
    "coordinator": Role.COORDINATOR,
    "operator": Role.OPERATOR,
    **dict.fromkeys(("app", "batch", "stranger"), Role.CLIENT),
}


def role_of(name: str) -> Role:
    """The role of a process of that name: a party's, but for the names of the others."""
    return _OTHERS.get(name, Role.PARTY)


def dns_of(name: str) -> str:
    """The DNS name that TLS compares when the process of that name is called."""
    return Identity(name, role_of(name)).dns
