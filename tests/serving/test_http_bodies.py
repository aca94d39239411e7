"""Bodies over HTTP: a client has four in memory at once, none is longer than its ids may be, and none is compressed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")
from tests.serving.gateways import in_the_clear
from treetap.ops.gateway import http_connections

pytestmark = pytest.mark.real_time

BODY = json.dumps({"ids": ["1"]}).encode()


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

    async with in_the_clear(tmp_path) as port:
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

    async with in_the_clear(tmp_path, most_ids=2) as port:
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
    async with in_the_clear(tmp_path) as port:
        assert await (await _Request.to(port, BODY, more=more)).status() == status
