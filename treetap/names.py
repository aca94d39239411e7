"""Names of parties and jobs, addresses, and names that were probably meant."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated

from pydantic import AfterValidator

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared with, never bound
NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
NAME_RULE = "a name has lower-case letters, digits and inner hyphens, at most 63"


#: Kinds of receivers in a party's policy, which no process has for its name: a rule for a kind would be one for it.
COORDINATORS, PARTIES, CLIENTS = "coordinators", "parties", "clients"
KINDS = (COORDINATORS, PARTIES, CLIENTS)


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
    if "@" in value:
        raise ValueError("an address is host:port, without a user")
    if not (colon and host and port.isdigit() and int(port) < 65536):
        raise ValueError(f"an address is host:port, not {value!r}")
    return value


def asked_at(listen: str) -> str:
    """The address at which a client on the same host reaches a process that listens there: loopback for any address."""
    host, _, port = listen.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}:{port}"


def clash(one: str, other: str) -> bool:
    """True if two servers of a host cannot both listen there; port 0 is another free one each time."""
    hosts = {address.rpartition(":")[0] for address in (one, other)}
    ports = {address.rpartition(":")[2] for address in (one, other)}
    return len(ports) == 1 and ports != {"0"} and (len(hosts) == 1 or not hosts.isdisjoint(_EVERYWHERE))


def on_loopback(address: str) -> bool:
    """True if the text of `host:port` names a loopback address."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar of the names that are known, of these one with the same letters; None if no one is similar."""
    plain = {_plain(one): one for one in known}
    alike = get_close_matches(_plain(name), plain, cutoff=0.65)
    swapped = [other for other in alike if sorted(other) == sorted(_plain(name))]
    return plain[(swapped or alike)[0]] if alike else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: "; did you mean …?", or nothing."""
    meant = nearest(name, known)
    return "" if meant is None else f"; did you mean {meant!r}?"


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")


Name = Annotated[str, AfterValidator(check_name)]
ProcessName = Annotated[Name, AfterValidator(check_process_name)]
Address = Annotated[str, AfterValidator(check_address)]
