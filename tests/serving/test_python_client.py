"""`treetap.Client` over TLS: whom it believes, which certificate it shows, and what it says where it gets no answer."""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treetap
from tests.certificates import role_of
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.certs.requests import revoke
from treetap.errors import NotServed, Refused, Silent, Unreachable
from treetap.party.config import PartyConfig, ServeConfig
from treetap.process.config import TlsConfig
from treetap.wire.ports import Role

pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")
from tests.serving.gateways import GATEWAY, SERVED, behind_gateway

HOLDER = "label-holder"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a party and of its gateway, which has no host's name, and of a client."""
    folder = tmp_path_factory.mktemp("client") / "certs"
    create_authority(folder)
    revoke(folder)
    for name in (HOLDER, GATEWAY):
        issue(folder, name, role_of(name))
    issue(folder, "app", Role.CLIENT)
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
