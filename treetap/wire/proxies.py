"""The way to another host: direct, whatever the environment says, or through its proxy where a process's file asks.

gRPC takes a proxy from the environment by itself, on loopback and for plain text too. Here no channel does: the options
of each say where it goes, by the same rule as the diagnosis of a failed call.
"""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from treetap.errors import ConfigError
from treetap.names import address_of, in_network, on_loopback

#: Variables that name a proxy, and hosts that need none, the first that is set; small letters go before capitals.
NAMED = ("grpc_proxy", "https_proxy", "http_proxy")
EXCEPT = ("no_grpc_proxy", "no_proxy")
#: The value of `proxy` in a process's file, and the line that asks for the environment's.
ENVIRONMENT = "environment"
ASKED = f'proxy = "{ENVIRONMENT}"'
#: Most bytes of a proxy's answer to CONNECT.
MOST_HEADER = 16_384
#: A channel's options that keep gRPC from what the environment says of proxies.
_DIRECT: tuple[tuple[str, str | int], ...] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.address_http_proxy_enabled_addresses", ""),
)


class ProxyRefuses(OSError):
    """A proxy that does not connect further."""


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy that connects further by CONNECT. `authorization`: the header's value, of a user with password."""

    variable: str
    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    @property
    def location(self) -> str:
        """HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"the proxy {self.location} of {self.variable}"

    def connect_to(self, location: str) -> bytes:
        """The request to connect further to `host:port`, as gRPC makes it."""
        more = "" if self.authorization is None else f"Proxy-Authorization: {self.authorization}\r\n"
        return f"CONNECT {location} HTTP/1.1\r\nHost: {location}\r\n{more}\r\n".encode()


def check_connected(answer: bytes) -> None:
    """Raise `ProxyRefuses` unless the header of a proxy's answer says that it has connected further."""
    status = answer.partition(b"\r\n")[0].decode(errors="replace").split(" ", 1)[-1]
    if not re.match(r"2\d\d\b", status):
        raise ProxyRefuses(f"it answers {status!r} to CONNECT; ask who runs it, or except the host (no_proxy)")


def proxy_to(location: str) -> Proxy | None:
    """The environment's proxy on the way to `host:port`; None on loopback, and where no variable names one.

    Raises:
        ConfigError: the variable holds no http://HOST:PORT.
    """
    if on_loopback(location) or (proxy := _set(NAMED)) is None or _excepted(location):
        return None
    variable, value = proxy
    # A proxy is often written as HOST:PORT alone, which has no parts for urlsplit.
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host = None
    if host is None or parts.scheme != "http":
        raise ConfigError(f"the environment variable {variable} must be http://HOST:PORT, of an HTTP proxy")
    if parts.username is None:
        return Proxy(variable, host, port)
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(variable, host, port, f"Basic {base64.b64encode(user.encode()).decode()}")


def way(location: str, *, proxied: bool) -> tuple[str, list[tuple[str, str | int]]]:
    """A channel's target and options that lead to `host:port`. Raises as `proxy_to`, where `proxied`."""
    proxy = proxy_to(location) if proxied else None
    if proxy is None:
        return location, list(_DIRECT)
    options = [*_DIRECT, ("grpc.http_connect_server", location)]
    if proxy.authorization is not None:
        options.append(("grpc.http_connect_headers", f"Proxy-Authorization:{proxy.authorization}"))
    return proxy.location, options


def not_used(location: str) -> str:
    """The end of a message about a host that was not reached directly though a variable names a proxy to it."""
    try:
        proxy = proxy_to(location)
    except ConfigError:
        return ""
    return "" if proxy is None else f"; {proxy.variable} is set and not used, which {ASKED} in our file would change"


def named() -> str | None:
    """The variable that names a proxy now."""
    variable = _set(NAMED)
    return variable and variable[0]


def _set(names: tuple[str, ...]) -> tuple[str, str] | None:
    """The first of the variables that is set, and its value."""
    for name in (spelling for small in names for spelling in (small, small.upper())):
        if value := os.environ.get(name, "").strip():
            return name, value
    return None


def _excepted(location: str) -> bool:
    """True of a host that the environment excepts: by its name, a domain that it is in, its address or a network."""
    variable = _set(EXCEPT)
    host = location.rpartition(":")[0].strip("[]").rstrip(".").lower()
    address = address_of(host)
    for entry in ("" if variable is None else variable[1]).split(","):
        wanted = entry.strip().lower()
        if wanted == "*" or wanted == location.lower():
            return True
        if address is None:
            # `example.org`, `.example.org` and `*.example.org` all mean the domain and what is below it.
            domain = wanted.removeprefix("*").lstrip(".")
            if domain and (host == domain or host.endswith(f".{domain}")):
                return True
        elif in_network(address, wanted.strip("[]")):
            return True
    return False
