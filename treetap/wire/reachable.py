"""Addresses at which a party calls its peers. A coordinator names them; the party's policy says which may be called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated

from pydantic import AfterValidator

#: In a policy's table of addresses, all peers that it does not name.
ALL = "*"
#: HOST:PORT as it may be dialled: gRPC would take sockets of this host and names of resolvers too.
_LOCATION = re.compile(r"(?P<host>[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}")


def _checked(entry: str) -> str:
    """A network, or a host with or without a port; ValueError for another text."""
    if not (_HOST.fullmatch(entry) or _LOCATION.fullmatch(entry)):
        try:
            ip_network(entry)
        except ValueError:
            raise ValueError(
                "an address of peers is a network, as 10.0.0.0/8 without bits beyond its length, a host, or HOST:PORT"
            ) from None
    return entry.lower()


#: An entry of a policy's list.
Reachable = Annotated[str, AfterValidator(_checked)]


def is_location(text: str) -> bool:
    """True for HOST:PORT, by name or number."""
    return _LOCATION.fullmatch(text) is not None


def permits(entries: Iterable[str], location: str) -> bool:
    """True if one of the entries covers HOST:PORT. Networks cover numbers alone: what a name stands for may change."""
    host = location.lower().rpartition(":")[0].strip("[]")
    number = _number(host)
    for entry in entries:
        if entry in (location.lower(), host):
            return True
        try:
            network = ip_network(entry)
        except ValueError:
            continue
        if number is not None and number in network:
            return True
    return False


def _number(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is written as; of IPv6 that stands for IPv4 the latter."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
