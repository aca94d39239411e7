"""Variables of the environment from which libraries take settings, with what each decides here."""

from __future__ import annotations

import os
from collections.abc import Iterator

from treetap.commands.doctor.connections import Finding
from treetap.errors import ConfigError
from treetap.process.environment import OF_GRPC, ignored
from treetap.tables.libpq import ALLOWED, VARIABLES
from treetap.wire.insecure import Insecure, Transport
from treetap.wire.proxies import ASKED, named, proxy_to

_HTTPS = "is for https to object stores and downloads alone: processes trust [tls] ca, whatever is set here"
_OTHERS = {
    "SSL_CERT_FILE": _HTTPS,
    "SSL_CERT_DIR": _HTTPS,
    "SSLKEYLOGFILE": "is set and ignored: no keys of connections are written",
    "OPENSSL_CONF": "is in effect: Python's TLS, by which HTTP clients are answered, has the settings of that file",
}


def check_environment(transport: Transport) -> list[Finding]:
    """A line about each variable that is set, and a fault where the proxy that a file asks for cannot be used."""
    proxied = not isinstance(transport, Insecure) and transport.proxied
    found = [Finding("ok", "environment", f"{name} {effect}") for name, effect in _said(proxied=proxied)]
    try:
        if proxied:
            proxy_to("proxy.invalid:443")
    except ConfigError as fault:
        found.append(Finding("fault", "environment", str(fault)))
    return found


def _said(*, proxied: bool) -> Iterator[tuple[str, str]]:
    if (proxy := named()) is not None and proxied:
        yield proxy, f"is in effect, as {ASKED} asks: calls to other hosts go through the proxy that it names"
    elif proxy is not None:
        yield proxy, f"is set and ignored: calls go directly; {ASKED} in this file has them go through that proxy"
    elif proxied:
        yield "https_proxy", f"is not set, nor another variable that {ASKED} reads: calls go directly"
    for name in sorted(ignored):
        yield name, "is set and ignored: gRPC has the settings of treetap alone"
    for name in OF_GRPC:
        if os.environ.get(name, "NONE") != "NONE":
            yield name, "is in effect: gRPC reads it"
    for name in sorted(VARIABLES.keys() & os.environ.keys()):
        refused = "is set: a table in PostgreSQL whose URI does not say the same itself is refused; unset it"
        yield name, "is in effect for tables in PostgreSQL" if name in ALLOWED else refused
    for name, effect in _OTHERS.items():
        if name in os.environ:
            yield name, effect
    for name in sorted(name for name in os.environ if name.startswith("AWS_")):
        yield name, "is in effect for tables in an object store"
