"""Check of the `Host` of HTTP requests: a foreign name shows a request that was led here, such as by DNS rebinding, in
which a page in a client's browser has its own name resolve to this host's address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware
from cryptography import x509

from treetap.wire.certificates import dns_names, ip_addresses
from treetap.wire.credentials import CredentialSource

_NEAR = ("localhost", "127.0.0.1", "::1")


def own_names(listen: str, source: CredentialSource | None, more: Iterable[str]) -> frozenset[str]:
    """The hosts that a request may name now: `more`, that of `listen`, and the certificate's; else loopback's."""
    names = [listen.rpartition(":")[0].strip("[]"), *more, *(_NEAR if source is None else _certified(source))]
    return frozenset(name.lower() for name in names)


def _certified(source: CredentialSource) -> list[str]:
    certificate = x509.load_pem_x509_certificate(source.now().certificate)
    return dns_names(certificate) + ip_addresses(certificate)


def asked_by_name(names: Callable[[], frozenset[str]]) -> Middleware:
    """Refuse requests for other hosts than `names()`: 421, and 400 where there is none or more than one."""

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1:
            raise web.HTTPBadRequest(reason="a request names one Host")
        if _without_port(hosts[0]) not in names():
            raise web.HTTPMisdirectedRequest(reason="this Host is not served here (serve.hosts = ...)")
        return await handler(request)

    return check


def _without_port(host: str) -> str:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().rstrip(".")
