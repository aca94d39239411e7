"""Floods of a gateway's HTTP endpoint by one client's certificate, while another client keeps a connection and asks.

    python benchmarks/flood_http.py [--kind heads] [--seconds 20]

`bodies`: the longest bodies, of which the last bytes never come; `chunked`: the same without a length; `heads`: behind
a request that waits, as many requests with the longest heads as the connection takes; `few`: of those no more than are
allowed. As many connections as the party lets in are open at once, and each that is closed is opened again. Without
`--kind` all of them, one after the other. Floods run in a process of their own, on the same processors.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from flood import HOLDER, rss_mb

from treetap.commands.certs.authority import issue
from treetap.lab.local_federation import LocalFederation
from treetap.ops.gateway.http_connections import MOST_AHEAD
from treetap.wire.ports import Role

FLOODER, OTHER = "flooder", "other"
#: Connections of a flood: more than one certificate may have.
CONNECTIONS = 128
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LONGEST_HEAD = HEAD + b"".join(b"X-%d: %s\r\n" % (i, b"x" * 2000) for i in range(25))
LENGTH = b"Content-Length: %d\r\n\r\n"
WAITING, LONGEST = HEAD + LENGTH % 2 + b"{}", LONGEST_HEAD + LENGTH % 2 + b"{}"
FLOODS = {
    "bodies": HEAD + LENGTH % (1 << 20) + b" " * 1_048_000,
    "chunked": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f4240\r\n" + b" " * 1_000_000,
    "heads": WAITING + LONGEST * 40,
    "few": WAITING + LONGEST * MOST_AHEAD,
}
#: A body whose end does not come: as many as are read at once keep the others waiting.
UNENDING = HEAD + LENGTH % 1000 + b"{"


def _context(certs: Path, name: str) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=str(certs / "ca.crt"))
    found.check_hostname = False
    found.load_cert_chain(certs / f"{name}.crt", certs / f"{name}.key")
    return found


async def flood(kind: str, certs: Path, port: int, seconds: float) -> dict[str, int]:
    """Flood the endpoint; how many connections were opened, and how many the gateway closed or did not let in."""
    context, counts = _context(certs, FLOODER), {"opened": 0, "closed": 0}

    async def connections(first: bytes) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                counts["opened"] += 1
                writer.write(first)
                await writer.drain()
                while await reader.read(1 << 16):
                    pass
            except OSError:
                await asyncio.sleep(0.05)
            counts["closed"] += 1

    waiting = 8 if kind in ("heads", "few") else 0
    tasks = [asyncio.ensure_future(connections(UNENDING)) for _ in range(waiting)]
    await asyncio.sleep(1)
    tasks += [asyncio.ensure_future(connections(FLOODS[kind])) for _ in range(CONNECTIONS)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return counts


class Asking:
    """A client that keeps one connection; a new one counts as a failure."""

    def __init__(self, certs: Path, port: int) -> None:
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, context=_context(certs, OTHER), timeout=10)
        self.seconds: list[float] = []
        self.failed = 0

    def ask(self) -> None:
        """Ask once; any answer will do."""
        began = time.perf_counter()
        try:
            self._connection.request("GET", "/healthz")
            self._connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            self.failed += 1
            self._connection.close()
        self.seconds.append(time.perf_counter() - began)


def measure(kind: str, seconds: float) -> dict[str, object]:
    """Memory of the gateway, and the other client's answers, during one flood."""
    serve = {"clients": [FLOODER, OTHER], "listen": "127.0.0.1:0", "gateway": "gateway"}
    settings: dict[str, object] = {"workers": 1, "serve": serve}
    settings["policy"] = {"emits": {"PREDICTION": ["clients"]}}
    with tempfile.TemporaryDirectory() as folder, LocalFederation(Path(folder), {HOLDER: settings}) as federation:
        port = int(federation.start_gateway(HOLDER).rpartition(":")[2])
        certs, pid = federation.folder / "certs", federation.pid(f"{HOLDER}/gateway")
        for name in (FLOODER, OTHER):
            issue(certs, name, Role.CLIENT, days=2)
        asking = Asking(certs, port)
        asking.ask()
        before = most = rss_mb(pid)
        command = [sys.executable, __file__, "--flood", f"{certs}:{port}", "--kind", kind, "--seconds", str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flooding:
            while flooding.poll() is None:
                asking.ask()
                most = max(most, rss_mb(pid))
                time.sleep(0.1)
            assert flooding.stdout is not None
            told = json.loads(flooding.stdout.read())
        return {
            "kind": kind, **told, "asked": len(asking.seconds), "failed": asking.failed,
            "median_s": round(float(np.median(asking.seconds)), 4), "longest_s": round(max(asking.seconds), 4),
            "rss_before_mb": round(before), "rss_grown_mb": round(most - before),
        }  # fmt: skip


def main() -> None:
    """Measure and print JSON, a line a flood."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long (default 20)")
    parser.add_argument("--kind", choices=FLOODS)
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flood:
        certs, _, port = given.flood.rpartition(":")
        print(json.dumps(asyncio.run(flood(given.kind, Path(certs), int(port), given.seconds))))
        return
    for kind in [given.kind] if given.kind else FLOODS:
        print(json.dumps(measure(kind, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
