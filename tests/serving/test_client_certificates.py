"""Clients over HTTPS by their certificates: role and revocation on every request, and a server that changes its own."""

from __future__ import annotations

import asyncio
import json
import ssl
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from cryptography import x509

from tests.certificates import dns_of, role_of
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.certs.requests import revoke
from treetap.party.config import PartyConfig, ServeConfig
from treetap.process.config import TlsConfig

pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")
from tests.serving.gateways import GATEWAY, SERVED, behind_gateway

HOLDER = "label-holder"
#: Hosts of the renewed certificate only.
NEW_HOSTS = ("scores.example:8443", "192.0.2.7")


class _Client:
    """One connection that stays open."""

    def __init__(self, certs: Path, name: str, address: str) -> None:
        context = ssl.create_default_context(cafile=str(certs / "ca.crt"))
        context.load_cert_chain(certs / f"{name}.crt", certs / f"{name}.key")
        context.check_hostname = False  # compared below: a name is no host
        host, _, port = address.rpartition(":")
        self._connection = HTTPSConnection(host, int(port), context=context, timeout=10)
        self._connection.connect()
        shown = self._connection.sock.getpeercert(binary_form=True)
        self.server = x509.load_der_x509_certificate(shown)

    def ask(self, path: str, host: str | None = None) -> tuple[int, str]:
        """Status, and the reason of a problem."""
        self._connection.request("GET", path, headers={} if host is None else {"Host": host})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read()).get("detail", "")

    def close(self) -> None:
        self._connection.close()


def test_who_asks_and_whom(tmp_path: Path) -> None:
    """An operator and a party may ask for the health, not about models; one that is revoked may ask nothing."""
    certs = tmp_path / "certs"
    create_authority(certs)
    revoke(certs)
    for name in (HOLDER, GATEWAY, "app", "operator", "feature-b"):
        issue(certs, name, role_of(name))
    tls, of_gateway = (
        TlsConfig(
            ca=certs / "ca.crt", certificate=certs / f"{name}.crt", key=certs / f"{name}.key", revoked=certs / "crl.pem"
        )
        for name in (HOLDER, GATEWAY)
    )
    serve = ServeConfig.model_validate({"clients": ["app", "operator", "feature-b"], **SERVED})
    config = PartyConfig(name=HOLDER, state=tmp_path / "state", tls=tls, serve=serve)

    def clients(address: str) -> None:
        app = _Client(certs, "app", address)
        before = app.server.serial_number
        assert dns_of(GATEWAY) in app.server.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value.get_values_for_type(x509.DNSName)
        assert app.ask("/v1/model")[0] == app.ask("/healthz")[0] == 503
        for name in ("operator", "feature-b"):
            other = _Client(certs, name, address)
            assert other.ask("/healthz")[0] == 503
            assert [other.ask("/healthz", host)[0] for host in NEW_HOSTS] == [421, 421]
            status, detail = other.ask("/v1/model")
            assert status == 403
            assert detail.startswith(f"{name} is not a client by its certificate")
            other.close()
        opened = {path: _Client(certs, "app", address) for path in ("/v1/model", "/healthz", "/openapi.json", "/v2")}
        assert app.ask("/v2")[0] == 404
        app.close()
        for file in (f"{GATEWAY}.crt", f"{GATEWAY}.key"):
            (certs / file).unlink()
        issue(certs, GATEWAY, role_of(GATEWAY), [host.partition(":")[0] for host in NEW_HOSTS])
        revoke(certs, ["app"])
        for path, held in opened.items():
            status, detail = held.ask(path)
            assert status == 403
            assert "is revoked by its authority" in detail
            with pytest.raises((ConnectionError, ssl.SSLError)):  # that connection is closed, and another not answered
                held.ask(path)
            held.close()
        again = _Client(certs, "operator", address)
        assert again.server.serial_number != before
        assert [again.ask("/healthz", host)[0] for host in NEW_HOSTS] == [503, 503]
        again.close()

    async def main() -> None:
        async with behind_gateway(config, tls=of_gateway) as address:
            await asyncio.to_thread(clients, address)

    asyncio.run(main())
