"""Consoles on a host with other users: sessions that go to no other port, places, and the headers of every answer."""

from __future__ import annotations

import asyncio
import http.cookiejar
import logging
import re
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import pytest

pytest.importorskip("aiohttp", reason="the console needs the extra console")

from aiohttp import web

from tests.console.asking import Given, a_job, console
from treetap.ops.console.listening import MOST_FIELD, SHARE
from treetap.ops.console.server import Console
from treetap.ops.gateway.http_connections import HttpListener, Waiting, awaits_requests

pytestmark = pytest.mark.real_time
JOB = f"/jobs/job/{bytes(32).hex()}"


@asynccontextmanager
async def _listening(party: Given) -> AsyncIterator[tuple[Console, int]]:
    """A console over a socket, and its port."""
    made = console(party)
    made.application.middlewares.insert(0, awaits_requests)
    runner = web.AppRunner(made.application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = HttpListener(runner, "127.0.0.1", 0, None, None, Waiting(SHARE), MOST_FIELD)
    await listener.start()
    yield made, listener.port
    await runner.cleanup()


async def _said(port: int, *lines: str, body: bytes = b"") -> bytes:
    """The whole answer to these lines and a body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode() + body)
    async with asyncio.timeout(5):
        found = await reader.read()
    writer.close()
    return found


LONG = f"X-Long: {'y' * (MOST_FIELD + 100)}"
NEAR = "Host: 127.0.0.1"
REQUESTS: dict[str, tuple[str, ...]] = {
    "a page": ("GET /enter HTTP/1.1", NEAR),
    "its style": ("GET /style.css HTTP/1.1", NEAR),
    "a page that is none": ("GET /nope HTTP/1.1", NEAR),
    "another host": ("GET / HTTP/1.1", "Host: evil"),
    "a host behind brackets": ("GET / HTTP/1.1", "Host: [127.0.0.1]x.evil"),
    "no host": ("GET / HTTP/1.1",),
    "no request": ("GARBAGE",),
    "a method that is none": ("G@T / HTTP/1.1", NEAR),
    "another version": ("GET / HTTP/9.9", NEAR),
    "a header that is too long": ("GET / HTTP/1.1", NEAR, LONG),
    "a path that is too long": (f"GET /{'y' * 9000} HTTP/1.1", NEAR),
    "a header that is none": ("GET / HTTP/1.1", NEAR, "no colon"),
    "two lengths": ("POST /enter HTTP/1.1", NEAR, "Content-Length: 1", "Content-Length: 2"),
    "an expectation": ("GET /enter HTTP/1.1", NEAR, "Expect: the-unexpected"),
    "another method": ("PUT /enter HTTP/1.1", NEAR, "Origin: http://127.0.0.1"),
    "an encoding that is none": ("POST /enter HTTP/1.1", NEAR, "Transfer-Encoding: smoke"),
}


@pytest.mark.parametrize("request_of", REQUESTS)
async def test_every_answer_of_a_console_has_its_headers(request_of: str) -> None:
    """Also those that its library gives by itself, and none names that or repeats what it was told."""
    async with _listening(Given()) as (_, port):
        answer = await _said(port, *REQUESTS[request_of])
        head = answer.partition(b"\r\n\r\n")[0].decode().lower()
        assert head.startswith("http/1."), answer
        for line in ("content-security-policy: default-src 'none'", "x-frame-options: deny", "cache-control: no-store"):
            assert line in head
        assert "x-content-type-options: nosniff" in head
        assert "referrer-policy: no-referrer" in head
        assert "\r\nserver:" not in head
        assert b"unexpected" not in answer


async def test_who_says_nothing_keeps_nobody_from_a_console() -> None:
    """The oldest silent connection of an address makes room, as often as others come; one that is used stays."""
    async with _listening(Given()) as (_, port):
        reader, used = await asyncio.open_connection("127.0.0.1", port)
        used.write(f"GET /enter HTTP/1.1\r\n{NEAR}\r\n\r\n".encode())
        assert b" 200 " in await reader.readline()
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * SHARE)]
        for _ in range(3):
            assert b" 200 " in (await _said(port, *REQUESTS["a page"])).partition(b"\r\n")[0]
        ended = [await _ends(one) for one, _ in held]
        assert ended == sorted(ended, reverse=True)
        assert 2 * SHARE <= sum(ended) <= 2 * SHARE + 3
        used.write(f"GET /enter HTTP/1.1\r\n{NEAR}\r\n\r\n".encode())
        assert await reader.readuntil(b"200 OK")
        for _, writer in held:
            writer.close()


async def _ends(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.01):
            return not await reader.read(1)
    except ConnectionError:
        return True
    except TimeoutError:
        return False


async def test_another_service_of_a_host_gets_no_session(caplog: pytest.LogCaptureFixture) -> None:
    """A browser that has entered sends it nothing by which it could decide, and no log has the session."""
    caplog.set_level(logging.DEBUG)
    party = Given([a_job()])
    heads: list[str] = []

    async def thief(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with _listening(party) as (made, port), await asyncio.start_server(thief, "127.0.0.1", 0) as other:
        base, token = f"http://127.0.0.1:{port}", made.sessions.token()

        def browse() -> str:
            jar = http.cookiejar.CookieJar()
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
            asked = urllib.request.Request(f"{base}/enter", urlencode({"token": token}).encode(), {"Origin": base})
            entered = str(browser.open(asked).url)
            browser.open(f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/")
            page = browser.open(f"{entered}{JOB[1:]}").read().decode()
            form = dict(re.findall(r'<input [^>]*name="([^"]*)" value="([^"]*)"', page)) | {"decision": "approve"}
            for path in ("decision", "decision/confirmed"):
                sent = urllib.request.Request(
                    f"{entered}{path}", urlencode({**form, "days": "7"}).encode(), {"Origin": base}
                )
                page = browser.open(sent).read().decode()
                form |= dict(re.findall(r'<input [^>]*name="([^"]*)" value="([^"]*)"', page))
            return entered.removeprefix(base).strip("/")

        secret = await asyncio.to_thread(browse)
        assert [one.approve for one in party.decided] == [True]
        (head,) = heads
        assert "cookie" not in head.lower()
        for shown in (*heads, caplog.text):
            assert secret not in shown
        assert token not in caplog.text
