"""Names of parties and jobs, addresses, names that were probably meant, and text as a person's eyes may see it.

`visible` stands where text of other processes and files enters (details of a failed call, a status), and again where it
leaves (console, log lines, reports). It changes no printable text, so that it may stand at both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from urllib.parse import quote

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared with, never bound
NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
#: A Host header: a name or an address of IPv4, or one of IPv6 in brackets; then a port, or nothing.
_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::[0-9]*)?")
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
    import ipaddress  # every command imports this module

    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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


def visible(text: str, keep: str = "") -> str:
    r"""The text with every character that is not printable as its escape, such as `\x1b` or `\u202e`.

    Those are the control characters C0 and C1, line separators, marks that turn the direction of writing, and lone
    surrogates. `keep`: characters that stay, such as a line feed where lines are meant.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def quoted(text: str) -> str:
    r"""The text in quotation marks, as TOML, JSON and Python read it: TOML has no `\x7f` that is not escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def of_class(figure: str, name: str) -> str:
    """The name of a figure of one class, as `probability_yes`, in files, frames and answers to clients.

    Characters of the class that cannot be printed, and %, are written as `%0A` (RFC 3986, of their UTF-8): two classes
    never have one name.
    """
    return f"{figure}_" + "".join(c if c.isprintable() and c != "%" else quote(c, safe="") for c in name)


def one_line(text: str) -> str:
    """The lines of a message side by side, with "; " between them where the first does not end with a colon."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return "".join(f"{line}{' ' if line.endswith(':') else '; '}" for line in lines[:-1]) + (lines[-1] if lines else "")


def visible_value(value: object) -> object:
    """As `visible` for a plain `str`; every other value, such as markup that is escaped already, stays as it is."""
    return visible(value) if type(value) is str else value
