"""Sockets at every address of a name, all at one port.

A name may stand for several addresses, as `localhost` does for 127.0.0.1 and ::1, and a client takes any of them.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

log = logging.getLogger(__name__)
#: The number of free ports that are tried, where the one that is free at the first address is taken at another.
TRIES = 16
#: Seconds for which a name server that gives no answer is asked again.
RESOLVING_S = 5.0
#: Errors of an address that this host does not have, such as ::1 where IPv6 is off.
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_Place = tuple[socket.AddressFamily, tuple[Any, ...]]


def bound(host: str, port: int, backlog: int | None = None) -> list[socket.socket]:
    """A socket for each address of a name, at the port; port 0: one that is free at all of them.

    Addresses that this host does not have are left out with a warning, as long as there is another.

    Args:
        host: a name or an address.
        port: the port.
        backlog: connections that the system holds until they are accepted; None: the sockets do not listen yet.

    Raises:
        OSError: there is no such name, or an address cannot be bound, which `strerror` names where there are several;
            no socket is left open.
    """
    resolved = _resolved(host, port)
    places = list(dict.fromkeys((family, place) for family, _, _, _, place in resolved))
    tries = TRIES if port == 0 and len(places) > 1 else 1
    while True:
        tries -= 1
        try:
            return _at_one_port(places, backlog)
        except OSError as failure:
            if failure.errno != errno.EADDRINUSE or not tries:
                raise


def _resolved(host: str, port: int) -> list[Any]:
    """The addresses of a name; a name server that is not there yet, as at a container's start, is asked again."""
    until = time.monotonic() + RESOLVING_S
    while True:
        try:
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
        except socket.gaierror as failure:
            if failure.errno != socket.EAI_AGAIN or time.monotonic() > until:
                raise
            time.sleep(0.2)


def _at_one_port(places: Sequence[_Place], backlog: int | None) -> list[socket.socket]:
    made: list[socket.socket] = []
    absent: list[OSError] = []
    both = {socket.AF_INET, socket.AF_INET6} <= {family for family, _ in places}
    with ExitStack() as opened:
        for family, (host, asked, *rest) in places:
            port = made[0].getsockname()[1] if made and not asked else asked
            try:
                made.append(opened.enter_context(_socket(family, (host, port, *rest), backlog, only_v6=both)))
            except OSError as failure:
                said = failure.strerror if len(places) == 1 else f"{failure.strerror} at {host}, port {port}"
                named = OSError(failure.errno, said)
                if failure.errno not in _ABSENT:
                    raise named from failure
                absent.append(named)
        if not made:
            raise absent[0]
        for left_out in absent:
            log.warning("not listening at one address of a name: %s", left_out.strerror)
        opened.pop_all()
    return made


def _socket(
    family: socket.AddressFamily, place: tuple[Any, ...], backlog: int | None, *, only_v6: bool
) -> socket.socket:
    """One bound socket; a restart finds its port again. `only_v6`: an IPv4 address has a socket of its own."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and only_v6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(place)
        if backlog is not None:
            made.listen(backlog)
    except BaseException:
        made.close()
        raise
    return made
