"""Addresses of a cluster: whether something listens there, and whether they lie beyond this machine."""

from __future__ import annotations

import os
import socket

from treetap.names import on_loopback


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
