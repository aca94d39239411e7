"""HTTP: limits of its connections and bodies.

Shares of addresses and certificates in its connections, and the names under which it is asked.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.certificates import namesake, role_of
from tests.serving.gateways import GATEWAY, SERVED, behind_gateway
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import ConfigError
from treetap.ops.gateway import http_connections
from treetap.ops.gateway.config import GatewayConfig
from treetap.ops.gateway.http import HttpScoring
from treetap.party.config import PartyConfig
from treetap.process.config import TlsConfig
from treetap.wire.ports import Role

pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")


pytestmark = pytest.mark.real_time

ASKED = '[party]\nname = "bank"\naddress = "127.0.0.1:1"\n'
TLS = '{ ca = "a", certificate = "b", key = "c" }'
NEAR, FAR = "127.0.0.1", "127.0.0.2"
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Http:
    """A gateway's HTTP endpoint, and the ends of connections to it."""

    def __init__(self, port: int, certs: Path | None) -> None:
        self._port, self._certs = port, certs
        self._held: list[asyncio.StreamWriter] = []

    async def silent(self, address: str) -> asyncio.StreamReader:
        """A connection from an address that says nothing."""
        reader, writer = await asyncio.open_connection(NEAR, self._port, local_addr=(address, 0))
        self._held.append(writer)
        return reader

    async def shaken(self, client: str = "app", address: str = NEAR) -> Ends:
        """A connection over TLS, as far as there is any; it lasts until the endpoint is closed."""
        context = None
        if self._certs is not None:
            context = ssl.create_default_context(cafile=str(self._certs / "ca.crt"))
            context.check_hostname = False
            context.load_cert_chain(self._certs / f"{client}.crt", self._certs / f"{client}.key")
        ends = await asyncio.open_connection(NEAR, self._port, local_addr=(address, 0), ssl=context)
        self._held.append(ends[1])
        return ends

    async def close(self) -> None:
        """Close all connections."""
        for writer in self._held:
            writer.close()


async def _answer(ends: Ends, head: bytes = b"Host: localhost\r\n") -> bytes:
    """The head of the answer to a request for the state; empty where the connection is closed instead."""
    reader, writer = ends
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\n" + head + b"\r\n")
        async with asyncio.timeout(5):
            found = b""
            while not found.endswith(b"\r\n\r\n") and (line := await reader.readline()):
                found += line
    except ConnectionError:
        return b""
    return found


async def _ended(reader: asyncio.StreamReader, within_s: float = 0.2) -> bool:
    """True if the connection is closed at once."""
    try:
        async with asyncio.timeout(within_s):
            return not await reader.read(1)
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@asynccontextmanager
async def _listening(folder: Path, *, secured: bool, **gateway: object) -> AsyncIterator[_Http]:
    """A gateway's HTTP endpoint, with certificates for two clients or with none at all. `gateway`: keys of its file."""
    certs = folder / "certs" if secured else None
    own, theirs = dict[str, object](), dict[str, object](insecure=True)
    if certs is not None:
        create_authority(certs)
        for name in ("bank", GATEWAY, "app", "batch"):
            issue(certs, name, role_of(name), hosts=[NEAR], days=2)
        own, theirs = (
            {"tls": TlsConfig(ca=certs / "ca.crt", certificate=certs / f"{name}.crt", key=certs / f"{name}.key")}
            for name in (GATEWAY, "bank")
        )
    settings = {"clients": ["app", "batch"], **SERVED}
    config = PartyConfig.model_validate({"name": "bank", "state": folder / "state", "serve": settings, **theirs})
    async with behind_gateway(config, **own, **gateway) as address:
        http = _Http(int(address.rpartition(":")[2]), certs)
        try:
            yield http
        finally:
            await http.close()


@pytest.mark.second_tier
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
async def test_an_address_has_a_share_of_handshakes(secured: bool, tmp_path: Path) -> None:
    """The oldest makes room for one too many, and another address is answered: also when those that end are renewed."""

    async with _listening(tmp_path, secured=secured, handshakes=3) as http:
        held = [await http.silent(FAR) for _ in range(3)]
        for _ in range(20):
            held.append(await http.silent(FAR))
            assert await _ended(held.pop(0))
        assert not await _ended(held[-1])
        head = b"Host: 127.0.0.1\r\n"
        for _ in range(5):
            assert (await _answer(await http.shaken(), head)).startswith(b"HTTP/1.1 503")


async def test_a_listed_proxy_has_all_handshakes(tmp_path: Path) -> None:
    """All clients behind it come from its address."""

    async with _listening(tmp_path, secured=False, handshakes=1, proxies=["127.0.0.2/31"]) as http:
        held = [await http.silent(FAR) for _ in range(4)]
        assert not any([await _ended(each, 0.02) for each in held])
        first = await http.silent(NEAR)
        await http.silent(NEAR)
        assert await _ended(first)


async def test_connections_count_from_their_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent ones take no place; one certificate has a share of the places, and one that ends leaves its place."""
    monkeypatch.setattr(http_connections, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(http_connections, "MOST_OF_ONE", 2)

    async with _listening(tmp_path, secured=True) as http:
        for _ in range(8):
            await http.silent(NEAR)
        head = b"Host: 127.0.0.1\r\n"
        ends = [await http.shaken(name) for name in ("app", "app", "batch")]
        assert all([await _answer(each, head) for each in ends])
        assert not await _answer(await http.shaken("app"), head)
        ends.append(await http.shaken("batch"))
        assert await _answer(ends[-1], head)
        assert not await _answer(await http.shaken("batch"), head)
        ends[0][1].close()
        await asyncio.sleep(0.1)
        assert await _answer(await http.shaken("app"), head)


async def test_shares_are_of_a_name_in_a_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party of a client's name takes none of the client's places."""
    monkeypatch.setattr(http_connections, "MOST_OF_ONE", 1)

    async with _listening(tmp_path, secured=True) as http:
        other = tmp_path / "other"
        namesake(other, "app", Role.PARTY, tmp_path / "certs")
        (other / "app.crt").rename(tmp_path / "certs" / "party.crt")
        (other / "app.key").rename(tmp_path / "certs" / "party.key")
        head = b"Host: 127.0.0.1\r\n"
        assert await _answer(await http.shaken("party"), head)
        assert not await _answer(await http.shaken("party"), head)
        assert await _answer(await http.shaken("app"), head)


async def test_plain_connections_count_from_their_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no handshake to wait for."""
    monkeypatch.setattr(http_connections, "MOST_CONNECTIONS", 2)

    async with _listening(tmp_path, secured=False) as http:
        for _ in range(3):
            await http.silent(NEAR)
        ends = [await http.shaken() for _ in range(2)]
        assert all([await _answer(each) for each in ends])
        third, _ = await http.shaken()
        ends[0][1].close()
        await asyncio.sleep(0.1)
        assert not third.at_eof()


async def test_requests_do_not_run_far_ahead_of_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few may wait behind one that takes long; more end their connection, and no other client's."""
    asked, goes_on, health = asyncio.Event(), asyncio.Event(), HttpScoring.health
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    longest = one + b"".join(b"X-%d: %s\r\n" % (i, b"x" * 2000) for i in range(25)) + b"\r\n"

    async def slowly(self: HttpScoring, request: web.Request) -> web.Response:
        asked.set()
        await goes_on.wait()
        return await health(self, request)

    monkeypatch.setattr(HttpScoring, "health", slowly)

    async with _listening(tmp_path, secured=False) as http:

        async def waiting(behind: bytes) -> Ends:
            goes_on.clear()
            asked.clear()
            reader, writer = await http.shaken()
            writer.write(one + b"\r\n")
            await asked.wait()
            writer.write(behind)
            return reader, writer

        few, _ = await waiting(longest * http_connections.MOST_AHEAD)
        assert not await _ended(few)
        many, _ = await waiting(longest * (http_connections.MOST_AHEAD + 1))
        assert await _ended(many, 5)
        goes_on.set()
        async with asyncio.timeout(5):
            for _ in range(1 + http_connections.MOST_AHEAD):
                assert (await few.readuntil(b'{"status":"idle"}')).startswith(b"HTTP/1.1 503")


HOSTS = [
    (b"Host: localhost\r\n", b"503"),
    (b"Host: LOCALHOST.:8443\r\n", b"503"),
    (b"Host: [::1]:8443\r\n", b"503"),
    (b"Host: scores.example\r\n", b"503"),
    (b"Host: rebound.example\r\n", b"421"),
    (b"Host: 10.0.0.5\r\n", b"421"),
    (b"", b"400"),
    (b"Host: localhost\r\nHost: localhost\r\n", b"400"),
    (b"Host\r\n", b"400"),
]


@pytest.mark.parametrize(("head", "status"), HOSTS)
async def test_the_host_is_one_of_the_endpoints(head: bytes, status: bytes, tmp_path: Path) -> None:
    """A page that a browser was led from reads nothing here; and no answer tells which library made it."""

    async with _listening(tmp_path, secured=False, hosts=["Scores.example"]) as http:
        found = await _answer(await http.shaken(), head)
        assert found.split(b" ")[1] == status
        assert b"server:" not in found.lower()
        assert b"application/" in found


async def test_the_certificate_names_the_hosts(tmp_path: Path) -> None:
    """Under TLS loopback's names are not taken for granted."""
    async with _listening(tmp_path, secured=True) as http:
        asked = {b"gateway.gateway.treetap.internal": b"503", b"127.0.0.1:1": b"503", b"localhost": b"421"}
        for host, status in asked.items():
            found = await _answer(await http.shaken(), b"Host: " + host + b"\r\n")
            assert found.split(b" ")[1] == status


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f'listen = "0.0.0.0:1"\nplain_http = true\ntls = {TLS}\n{ASKED}', "plain_http = true is for loopback only"),
        (f'listen = "0.0.0.0:1"\ninsecure = true\n{ASKED}', "insecure = true is for loopback only, not for listen"),
        (f'listen = "h:1"\ntls = {TLS}', "party: is missing"),
        (f'listen = "h:1"\ntls = {TLS}\nparty = {{ name = "bank" }}', "party.address: is missing"),
        (f'listen = "h:1"\ntls = {TLS}\nstate = "s"\n{ASKED}', "state: unknown key"),
        *(
            (f'listen = "localhost:0"\ninsecure = true\n{line}\n{ASKED}', f"  {line.split(maxsplit=1)[0]}")
            for line in (
                *('proxies = ["10.0.0.1/8"]', 'proxies = ["proxy"]'),
                *('hosts = ["https://bank"]', "handshakes = 0"),
            )
        ),
    ],
)
def test_a_gateways_file_that_cannot_be(text: str, fault: str, tmp_path: Path) -> None:
    """It keeps no state, and never asks or is asked in the clear from afar; a field that cannot be is named."""
    (tmp_path / "gateway.toml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(fault)):
        GatewayConfig.from_file(tmp_path / "gateway.toml")


# ---- Bodies over HTTP: a client has four in memory at once, none is longer than its ids may be


pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")


BODY = json.dumps({"ids": ["1"]}).encode()


@asynccontextmanager
async def _with_bodies(folder: Path, **gateway: object) -> AsyncIterator[int]:
    """The port of a gateway's HTTP endpoint without certificates, for two clients. `gateway`: keys of its file."""
    settings = {"clients": ["app", "batch"], **SERVED}
    config = PartyConfig.model_validate(
        {"name": "bank", "state": folder / "state", "serve": settings, "insecure": True}
    )
    async with behind_gateway(config, **gateway) as address:
        yield int(address.rpartition(":")[2])


class _Request:
    """A request for predictions whose body may come in pieces."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def to(cls, port: int, body: bytes, client: str = "app", size: int | None = None, more: str = "") -> _Request:
        made = cls(*await asyncio.open_connection("127.0.0.1", port))
        head = f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\ntreetap-name: {client}\r\n{more}"
        length = f"Content-Type: application/json\r\nContent-Length: {len(body) if size is None else size}\r\n\r\n"
        made.writer.write((head + length).encode() + body)
        return made

    async def status(self, within_s: float = 5) -> int:
        async with asyncio.timeout(within_s):
            return int((await self._reader.readline()).split()[1])


@pytest.mark.second_tier
async def test_a_client_has_four_bodies_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth waits until one is read, and is turned away if none is; another client's is read at once."""

    async with _with_bodies(tmp_path) as port:
        slow = [await _Request.to(port, BODY[:5], size=len(BODY)) for _ in range(http_connections.AT_ONCE)]
        await asyncio.sleep(0.1)
        fifth = await _Request.to(port, BODY)
        with pytest.raises(TimeoutError):
            await fifth.status(0.2)
        assert await (await _Request.to(port, BODY, "batch")).status() == 503
        slow[0].writer.write(BODY[5:])
        assert await slow[0].status() == await fifth.status() == 503
        slow.append(await _Request.to(port, BODY[:5], size=len(BODY)))
        await asyncio.sleep(0.1)
        monkeypatch.setattr(http_connections, "SLOWEST_S", 0.1)
        assert await (await _Request.to(port, BODY)).status() == 429
        for each in slow:
            each.writer.close()


@pytest.mark.parametrize(("beyond", "status"), [(0, 503), (1, 413)])
@pytest.mark.parametrize("told", [True, False], ids=["length", "chunks"])
async def test_a_body_is_as_long_as_its_ids_may_be(beyond: int, status: int, told: bool, tmp_path: Path) -> None:
    """Two ids in escapes of twelve bytes a character fit."""
    ids = ["\U0001f600" * http_connections.ID_CHARACTERS] * 2
    body = json.dumps({"ids": ids}).encode()
    longest = http_connections.longest_body(2)
    assert len(body) < longest < http_connections.MOST_BODY
    body = body.ljust(longest + beyond)

    async with _with_bodies(tmp_path, most_ids=2) as port:
        if told:
            request = await _Request.to(port, body)
        else:
            request = _Request(*await asyncio.open_connection("127.0.0.1", port))
            head = "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\ntreetap-name: app\r\n"
            kind = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            request.writer.write(f"{head}{kind}{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
        assert await request.status() == status


def test_the_longest_body_has_a_limit() -> None:
    """Many ids are rarely long."""
    assert http_connections.longest_body(10_000) == http_connections.MOST_BODY


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("Content-Encoding: gzip\r\n", 415),
        ("X: " + "x" * 3000 + "\r\n", 400),
        ("".join(f"X-{number}: x\r\n" for number in range(40)), 400),
    ],
    ids=["compressed", "long field", "many fields"],
)
async def test_what_would_take_more_than_it_says(more: str, status: int, tmp_path: Path) -> None:
    """Compressed bodies and large heads are refused."""
    async with _with_bodies(tmp_path) as port:
        assert await (await _Request.to(port, BODY, more=more)).status() == status
