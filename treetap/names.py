"""Names of parties and jobs, of figures and columns, and addresses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from urllib.parse import quote

from treetap.errors import refuse

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared with, never bound
NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
#: Settings of a table that name columns with which scores begin. A base margin is in the place of the base score, as in
#: XGBoost; the logarithm of an exposure, a duration or a size, is added.
BASE_MARGIN, EXPOSURE = "base_margin", "exposure"
OFFSETS = (BASE_MARGIN, EXPOSURE)
#: That of the column of upper bounds of labels.
LABEL_UPPER = "label_upper"
#: A Host header: a name or an address of IPv4, or one of IPv6 in brackets; then a port, or nothing.
_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::[0-9]*)?")
NAME_RULE = "a name has lower-case letters, digits and inner hyphens, at most 63"


#: Keys that the ids of a table may have.
MOST_KEYS = 8
#: The file of an authority's key.
AUTHORITY_KEY = "ca.key"
#: Kinds of receivers in a party's policy, which no process has for its name: a rule for a kind would be one for it.
COORDINATORS, PARTIES, CLIENTS, DEALERS = "coordinators", "parties", "clients", "dealers"
KINDS = (COORDINATORS, PARTIES, CLIENTS, DEALERS)


def check_name(value: str) -> str:
    """The name, or a ValueError that describes valid names."""
    if not NAME.match(value):
        raise ValueError(NAME_RULE)
    return value


def check_process_name(value: str) -> str:
    """The valid name `value`; ValueError if it means a kind of receivers."""
    if value in KINDS:
        raise ValueError(f"{value!r} is no name for a process: in policies it means a kind of receivers, take another")
    return value


def check_address(value: str) -> str:
    """`host:port`, or ValueError, which does not show what may be a password."""
    host, colon, port = value.rpartition(":")
    refuse(
        ("@" in value, "an address is host:port, without a user"),
        (not (colon and host and port.isdigit() and int(port) < 65536), f"an address is host:port, not {value!r}"),
    )
    return value


def asked_at(listen: str) -> str:
    """The address at which a client on the same host reaches a process that listens there: loopback for any address."""
    host, _, port = listen.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}:{port}"


def host_of(header: str) -> str:
    """The name in a Host header, in lower case, without its port; empty: the text is none."""
    parts = _HOST.fullmatch(header)
    return "" if parts is None else (parts[1] or parts[2] or "").lower().removesuffix(".")


def clash(one: str, other: str) -> bool:
    """True if two servers of a host cannot both listen there; port 0 is another free one each time."""
    hosts = {address.rpartition(":")[0] for address in (one, other)}
    ports = {address.rpartition(":")[2] for address in (one, other)}
    return len(ports) == 1 and ports != {"0"} and (len(hosts) == 1 or not hosts.isdisjoint(_EVERYWHERE))


def on_loopback(address: str) -> bool:
    """True if the text of `host:port` names a loopback address."""
    host = address.rpartition(":")[0].strip("[]")
    number = address_of(host)
    return host == "localhost" or (number is not None and number.is_loopback)


def address_of(host: str) -> Any:
    """The `ipaddress` that a host is written as; None of a name."""
    import ipaddress  # every command imports this module

    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def holder_of(address: str) -> str:
    """The address by which a caller's connections are counted: of IPv6 its network of 64 bits, all of one host."""
    number = address_of(address.partition("%")[0])
    number = getattr(number, "ipv4_mapped", None) or number
    of_ipv6 = number is not None and number.version == 6
    return f"{number.exploded[:19]}::/64" if of_ipv6 else str(number or address)


def in_network(number: Any, entry: str) -> bool:
    """True if the text is a network that has this address, which is None of a name."""
    import ipaddress

    try:
        return number is not None and number in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


#: In a policy's table of addresses, all peers that it does not name.
ALL = "*"
#: HOST:PORT as it may be dialled: gRPC would take sockets of this host and names of resolvers too.
_LOCATION = re.compile(r"(?P<host>[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_BARE_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}")


def check_reachable(entry: str) -> str:
    """A network, or a host with or without a port; ValueError for another text."""
    import ipaddress

    if not (_BARE_HOST.fullmatch(entry) or _LOCATION.fullmatch(entry)):
        try:
            ipaddress.ip_network(entry)
        except ValueError:
            raise ValueError(
                "an address of peers is a network, as 10.0.0.0/8 without bits beyond its length, a host, or HOST:PORT"
            ) from None
    return entry.lower()


def is_location(text: str) -> bool:
    """True for HOST:PORT, by name or number."""
    return _LOCATION.fullmatch(text) is not None


def permits(entries: Iterable[str], location: str) -> bool:
    """True if one of the entries covers HOST:PORT. Networks cover numbers alone: what a name stands for may change."""
    host = location.lower().rpartition(":")[0].strip("[]")
    number = address_of(host)
    number = getattr(number, "ipv4_mapped", None) or number  # of IPv6 that stands for IPv4 the latter
    return any(entry in (location.lower(), host) or in_network(number, entry) for entry in entries)


#: In the name of a column of a list, any characters.
ANY = "*"


def named_by(entries: Sequence[str], name: str) -> bool:
    """True if a list of columns has this name, or a pattern with `ANY` that it matches."""
    return name in entries or any(_matches(entry, name) for entry in entries if ANY in entry)


def matched(entries: Sequence[str], have: Sequence[str], besides: Collection[str | None]) -> list[str]:
    """The columns that a list names, each once: the matches of a pattern in its place, in the order of the table.

    A column's own name is no pattern; a pattern that matches none stays. `besides`: columns that no pattern means.
    """
    names = list[str]()
    for entry in entries:
        named = [] if entry in have else [name for name in have if _matches(entry, name) and name not in besides]
        names += named or [entry]
    return list(dict.fromkeys(names))


def _matches(entry: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, entry.split(ANY))), name, re.DOTALL) is not None


def of_class(figure: str, name: str) -> str:
    """The name of a figure of one class, as `probability_yes`, in files, frames and answers to clients.

    Characters of the class that cannot be printed, and %, are written as `%0A` (RFC 3986, of their UTF-8): two classes
    never have one name.
    """
    return f"{figure}_" + "".join(c if c.isprintable() and c != "%" else quote(c, safe="") for c in name)
