"""Roles of the names that tests give to processes, and certificates with another role than those."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from treetap.commands.certs.authority import create_authority, issue
from treetap.wire.ports import Identity, Role
from treetap.wire.tls import TlsFiles

_OTHERS = {
    "coordinator": Role.COORDINATOR,
    **dict.fromkeys(("operator", "other-operator"), Role.OPERATOR),
    "gateway": Role.GATEWAY,
    **dict.fromkeys(("app", "batch", "stranger"), Role.CLIENT),
}


def role_of(name: str) -> Role:
    """The role of a process of that name: a party's, but for the names of the others."""
    return _OTHERS.get(name, Role.PARTY)


def dns_of(name: str) -> str:
    """The DNS name that TLS compares when the process of that name is called."""
    return Identity(name, role_of(name)).dns


def certified(folder: Path, *names: str, **options: Any) -> dict[str, TlsFiles]:
    """A new authority, and the files of processes, each in the role of its name. `options`: those of `issue`."""
    create_authority(folder)
    return {name: issue(folder, name, role_of(name), **options) for name in names}


def namesake(folder: Path, name: str, role: Role, ca_folder: Path) -> TlsFiles:
    """The files of a process whose name may have another role: signed by the authority, which is not told of others."""
    authority = folder / "authority"
    authority.mkdir(parents=True)
    for file in ("ca.crt", "ca.key"):
        shutil.copy(ca_folder / file, authority)
    return issue(folder, name, role, days=2, ca_folder=authority)
