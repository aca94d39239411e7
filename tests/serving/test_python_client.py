"""Clients in Python and their certificates.

- `treetap.Client` over TLS: whom it believes, which certificate it shows, and what it says where it gets no answer.
- Clients over HTTPS by their certificates: role and revocation on every request, and a server that changes its own.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509

import treetap
from tests.certificates import certified, dns_of, role_of
from tests.serving.gateways import GATEWAY, SERVED, behind_gateway
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import NotServed, Refused, Silent, Unreachable
from treetap.ops.certs.requests import revoke
from treetap.party.config import PartyConfig, ServeConfig
from treetap.process.config import TlsConfig
from treetap.wire.ports import Role

pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")


HOLDER = "label-holder"
#: Hosts of the renewed certificate only.
NEW_HOSTS = ("scores.example:8443", "192.0.2.7")


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a party and of its gateway, which has no host's name, and of a client."""
    folder = tmp_path_factory.mktemp("client") / "certs"
    certified(folder, HOLDER, GATEWAY, "app")
    revoke(folder)
    return folder


def _answered(certs: Path, folder: Path, call: Callable[[str], None]) -> None:
    """Have a party without a model answer over HTTPS while the call, with its address, runs."""
    tls, of_gateway = (
        TlsConfig(ca=certs / "ca.crt", certificate=certs / f"{name}.crt", key=certs / f"{name}.key")
        for name in (HOLDER, GATEWAY)
    )
    serve = ServeConfig.model_validate({"clients": ["app"], **SERVED})
    config = PartyConfig(name=HOLDER, state=folder / "state", tls=tls, serve=serve)

    async def main() -> None:
        async with behind_gateway(config, tls=of_gateway) as address:
            await asyncio.to_thread(call, address)

    asyncio.run(main())


def test_a_gateway_is_known_by_its_host_or_by_its_name(certs: Path, tmp_path: Path) -> None:
    """Without a host's name in its certificate its own has to be given; a revoked one is refused."""

    def call(address: str) -> None:
        with pytest.raises(Unreachable, match=r"does not have the name '127\.0\.0\.1'.*--host NAME.*gateway='gateway'"):
            treetap.Client(address, certs).predict(["a"])
        with pytest.raises(Unreachable, match=r"does not have the name 'bank\.gateway\.treetap\.internal'"):
            treetap.Client(address, certs, gateway="bank").predict(["a"])
        with treetap.Client(f"https://{address}/", certs, gateway=GATEWAY) as client:
            for _ in range(2):
                with pytest.raises(NotServed, match=r"label-holder serves no model now.*\(status 503\)"):
                    client.predict(["a"])
        revoke(certs, [GATEWAY])
        with pytest.raises(Unreachable, match="certificate is refused: certificate revoked"):
            treetap.Client(address, certs, gateway=GATEWAY).predict(["a"])

    _answered(certs, tmp_path, call)


def test_a_client_is_known_by_its_certificate(certs: Path, tmp_path: Path) -> None:
    """Several need a choice; one that the party does not list is refused, and one of another authority not heard."""
    issue(certs, "batch", Role.CLIENT)
    (certs / "crl.pem").unlink()
    other = tmp_path / "other"
    create_authority(other)
    issue(other, "app", Role.CLIENT)
    (other / "ca.crt").write_bytes((certs / "ca.crt").read_bytes())

    def call(address: str) -> None:
        with pytest.raises(ValueError, match="has certificates of app, batch: name one, as client='app'"):
            treetap.Client(address, certs)
        with pytest.raises(Refused, match="batch is not a client of label-holder"):
            treetap.Client(address, certs, client="batch", gateway=GATEWAY).model()
        with pytest.raises(ValueError, match=r"other/app\.crt.*is not signed by the authority trusted here"):
            treetap.Client(address, other)

    _answered(certs, tmp_path, call)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"address": "bank.example.org"}, "must be https://HOST:PORT"),
        ({"address": "https://bank.example.org:x"}, "must be https://HOST:PORT"),
        ({"address": "ftp://bank.example.org:1"}, "must be https://HOST:PORT"),
        ({"address": "https://bank.example.org:1/v1/predict"}, "must be https://HOST:PORT"),
        ({"address": "http://bank.example.org:1"}, "client: over plain HTTP"),
        ({"address": "bank.example.org:1", "certs": "none"}, "certs: none is no folder"),
    ],
)
def test_an_argument_that_is_none(given: dict[str, Any], said: str) -> None:
    """It is met before a connection is opened."""
    with pytest.raises(ValueError, match=said):
        treetap.Client(**given)


def test_a_folder_without_a_client(tmp_path: Path) -> None:
    """The message says which command makes one."""
    create_authority(tmp_path / "certs")
    with pytest.raises(ValueError, match=re.escape("`treetap certs issue app --role client`")):
        treetap.Client("bank:1", tmp_path / "certs")


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ("c1", "must be a list of ids, as ['c1']"),
        (7, "must be a list of ids, as [7]"),
        ([], "has no id"),
        (["a", 7], "all of one kind; here int, str"),
        (np.array([1.5]), "all of one kind; here float"),
        ([True], "all of one kind; here bool"),
    ],
)
def test_ids_that_are_none(ids: Any, said: str) -> None:
    """They are met before a request is sent."""
    with pytest.raises(ValueError, match=re.escape(said)):
        treetap.Client("http://127.0.0.1:1", client="app").predict(ids)


def test_who_does_not_answer() -> None:
    """A port without a server, a server that says nothing, and one that speaks something else are told apart."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Silent, match=r"sent no answer within 0\.1 s"):
            treetap.Client(address, client="app", timeout=0.1).model()

        def answer() -> None:
            server.accept()[0].close()  # of the first call
            held, _ = server.accept()
            with held:
                held.recv(4096)
                held.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[42]")

        speaker = threading.Thread(target=answer)
        speaker.start()
        with pytest.raises(Unreachable, match="the answer is not that of a treetap party"):
            treetap.Client(address, client="app").model()
        speaker.join()
    with pytest.raises(Unreachable, match="refused"):
        treetap.Client(address, client="app").model()


_MOST = {"most_ids": 5}

#: Answers of whatever is at the address → the error.
_STRANGE: dict[str, list[Any]] = {
    "no number of ids": [{}],
    "none at a time": [{"most_ids": 0}],
    "text for a number": [{"most_ids": "5"}],
    "nested too deep": ["[" * 100_000 + "]" * 100_000],
    "no predictions": [_MOST, {}],
    "a record less": [_MOST, {"predictions": [{"id": "a"}], "away": []}],
    "another order": [_MOST, {"predictions": [{"id": "b"}, {"id": "a"}], "away": []}],
    "no rows": [_MOST, {"predictions": ["a", "b"], "away": []}],
    "cells of several types": [_MOST, {"predictions": [{"id": "a", "x": 1}, {"id": "b", "x": "y"}], "away": []}],
}


@pytest.mark.parametrize("case", _STRANGE)
def test_an_answer_that_is_no_partys_is_refused(case: str) -> None:
    """No prediction gets to another record, and none is left out, whatever answers."""
    answers = list(_STRANGE[case])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = answers.pop(0)
            body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Nothing: the test's output has no log."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            client = treetap.Client(f"http://127.0.0.1:{server.server_port}", client="app")
            with client, pytest.raises(Unreachable, match="the answer is not that of a treetap party"):
                client.predict(["a", "b"])
        finally:
            server.shutdown()


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
