"""Nodes of a cluster: whether something listens there and lies beyond this machine, and the software that they run."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import treetap
from treetap.names import on_loopback
from treetap.version import package_version


def own_report() -> dict[str, Any]:
    """Software and number of this process, in types that every version of treetap reads."""
    return {
        "python": platform.python_version(),
        "treetap": package_version(),
        "sources": _digest(),
        "ray": metadata.version("ray"),
        "pid": os.getpid(),
    }


def fault_of(theirs: dict[str, Any], own: dict[str, Any]) -> str:
    """The difference between a node's software and this party's by which it cannot be used; empty if there is none."""
    node = f"node {theirs['node']} of the cluster"
    if missing := theirs.get("missing"):
        remedy = f"install treetap {own['treetap']} there (with its extra cluster)"
        return f"{node} has no treetap ({missing}): {remedy}"
    for key, says in _DIFFERS.items():
        if theirs[key] != own[key]:
            return f"{node} {says.format(there=theirs[key], here=own[key], treetap=own['treetap'])}"
    return f"{node}: {theirs['lacks']}" if theirs.get("lacks") else ""


#: What is said of a node that differs from this party in a part of their reports.
_DIFFERS = {
    "python": "runs Python {there}, this party Python {here}: start Ray there with Python {here}",
    "treetap": "has treetap {there}, this party {here}: install treetap {here} there, and start Ray again",
    "sources": "has other sources of treetap {treetap} than this party (digests {there:.12} and {here:.12}): "
    "install the same build on both, and start Ray again",
}


@cache
def _digest() -> str:
    """SHA-256 of the names and contents of treetap's sources: Python, and the C of its kernels."""
    root = Path(treetap.__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".c", ".h"):
            content = path.read_bytes()
            total.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def split(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 host stands in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def why_closed(address: str, timeout_s: float) -> str:
    """The reason for which no connection to HOST:PORT can be made within `timeout_s`; empty if one can."""
    try:
        socket.create_connection(split(address), timeout_s).close()
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as failure:
        return failure.strerror or str(failure)
    return ""


def is_own(host: str) -> bool:
    """True if all addresses of a host, by name or number, belong to this machine; one that is unknown does not."""
    if on_loopback(f"{host}:0"):
        return True
    try:
        numeric = {resolved[4][0] for resolved in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return all(_can_be_bound(str(number)) for number in numeric)


def _can_be_bound(number: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in number else socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((number, 0))
        except OSError:
            return False
    return True


def encrypted() -> bool:
    """True if Ray encrypts its connections, by the environment of this process."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def exposed(host: str, *, unencrypted: bool) -> str:
    """The error about a node to which this party's data would go in clear text; empty if it does not."""
    if unencrypted or is_own(host) or encrypted():
        return ""
    return (
        f"the cluster's node {host} is another machine, and Ray does not encrypt: set RAY_USE_TLS=1 with "
        "RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT for every node and for this party, or "
        "cluster.unencrypted = true if the network between them encrypts"
    )
