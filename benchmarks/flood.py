"""Floods of a party: by connections that say nothing, and by one certificate, while others go on.

    python benchmarks/flood.py connections [--count 5000] [--seconds 60]
    python benchmarks/flood.py certificate [--kind large] [--seconds 20]

`connections`: that many, from 127.0.0.2 and without a certificate, are opened to a party, and again as it closes them;
half of them are silent, half begin a TLS handshake. Health is asked over new connections from 127.0.0.1.

`certificate`: a training of two parties goes on while a third one's certificate floods the label holder: `large`,
messages of the longest size over many connections; `nested`, messages that grow most when they are decoded; `unread`,
calls that begin and send no message; `idle`, connections without a call after a handshake.
Without `--kind` all of them, one after the other. Floods run in a process of their own, on the same processors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap import logs, version
from treetap.errors import Interrupted
from treetap.lab.local_federation import LocalFederation
from treetap.protocols.job_spec import put_params
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Address
from treetap.wire.probe import say_hello
from treetap.wire.rpc import MESSAGE_LIMIT
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import boosting_pb2, exchange_pb2, jobs_pb2, setup_pb2

HOLDER, FEATURE, FLOODER = "label-holder", "feature-b", "feature-c"
FLOODS_FROM = "127.0.0.2"
DELIVER = "/treetap.wire.v2.Exchange/Deliver"
#: Connections of a flood by certificate, and calls on each at once.
CONNECTIONS, CALLS = 16, 64


class Silent:
    """Connections without a certificate; each that is closed is opened again."""

    def __init__(self, place: tuple[str, int], count: int) -> None:
        self._place, self._hello = place, _client_hello()
        self._waiting = selectors.DefaultSelector()
        self.opened = self.closed = 0
        for _ in range(count):
            self._open()

    def until(self, end: float) -> None:
        """Renew what is closed."""
        while time.monotonic() < end:
            for key, _ in self._waiting.select(0.2):
                self._serve(key)

    def _open(self) -> None:
        made = socket.socket()
        made.setblocking(False)
        made.bind((FLOODS_FROM, 0))
        made.connect_ex(self._place)
        self._waiting.register(made, selectors.EVENT_WRITE)

    def _serve(self, key: selectors.SelectorKey) -> None:
        made = key.fileobj
        assert isinstance(made, socket.socket)
        try:
            if key.events == selectors.EVENT_WRITE:
                self.opened += 1
                if self.opened % 2:
                    made.send(self._hello)
                self._waiting.modify(made, selectors.EVENT_READ)
                return
            alive = bool(made.recv(1 << 16))
        except OSError:
            alive = False
        if not alive:
            self.closed += 1
            self._waiting.unregister(made)
            made.close()
            self._open()


def _client_hello() -> bytes:
    """The first flight of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    sent = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=HOLDER).do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("a handshake without an answer")


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def rss_mb(pid: int) -> float:
    """Resident memory of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


class Watched:
    """Health of a party, asked five times a second over a new connection each, and its memory meanwhile."""

    def __init__(self, to: Address, files: TlsFiles, pid: int) -> None:
        self._to, self._files, self._pid = to, files, pid
        self.seconds: list[float] = []
        self.failed = 0
        self.before_mb = self.most_mb = rss_mb(pid)

    def ask(self) -> None:
        """Ask once."""
        began = time.perf_counter()
        try:
            say_hello(self._to, self._files, 10.0)
        except Interrupted:
            self.failed += 1
        self.seconds.append(time.perf_counter() - began)
        self.most_mb = max(self.most_mb, rss_mb(self._pid))

    def until(self, over: Callable[[], bool]) -> None:
        """Ask until something is over."""
        while not over():
            self.ask()
            time.sleep(0.2)

    def found(self) -> dict[str, float]:
        """The figures of the run, by name."""
        return {
            "health_asked": len(self.seconds),
            "health_failed": self.failed,
            "health_median_s": round(float(np.median(self.seconds)), 4),
            "health_longest_s": round(max(self.seconds), 4),
            "rss_before_mb": round(self.before_mb),
            "rss_grown_mb": round(self.most_mb - self.before_mb),
        }


def connections(count: int, seconds: float) -> dict[str, object]:
    """A flood without certificate."""
    with tempfile.TemporaryDirectory() as folder, LocalFederation(Path(folder), {HOLDER: {"workers": 1}}) as federation:
        watched = _watched(federation)
        with _flooding(federation, "silent", seconds, count) as flood:
            watched.until(lambda: flood.poll() is not None)
            return {**_told(flood), **watched.found()}


def _flooding(federation: LocalFederation, kind: str, seconds: float, count: int = 0) -> subprocess.Popen[str]:
    """A flood of the label holder, in a process of its own."""
    command = [sys.executable, __file__, "flood", "--kind", kind, "--seconds", str(seconds), "--count", str(count)]
    where = ["--certs", str(federation.folder / "certs"), "--address", federation.addresses[HOLDER]]
    return subprocess.Popen([*command, *where], stdout=subprocess.PIPE, text=True)


def _told(flood: subprocess.Popen[str]) -> dict[str, object]:
    assert flood.stdout is not None
    found: dict[str, object] = json.loads(flood.stdout.read())
    return found


def silent(count: int, address: str, seconds: float) -> dict[str, int]:
    """Flood an address with connections that say nothing, or half of it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    flood = Silent(_place(address), count)
    flood.until(time.monotonic() + seconds)
    return {"opened": flood.opened, "closed_and_renewed": flood.closed}


def certificate(kind: str, seconds: float) -> dict[str, object]:
    """A flood by one certificate, with a training beside it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalFederation(Path(folder), _parties(Path(folder))) as federation,
    ):
        operator = federation.operator
        spec = setup_pb2.JobSpec(
            table="table", aggregator=HOLDER, feature_parties=[FEATURE], scheme="paillier", key_bits=2048,
            obfuscation="short-exponent", alignment="psi",
        )  # fmt: skip
        put_params(spec, BoostingParams(n_estimators=3, max_depth=3, max_bin=16))
        alone = time.perf_counter()
        operator.submit(jobs_pb2.SubmitRequest(job="alone", spec=spec))
        operator.watch("alone", lambda _: None)
        alone = time.perf_counter() - alone
        watched, ended = _watched(federation), threading.Event()
        with _flooding(federation, kind, seconds) as flood:
            time.sleep(1)
            began = time.perf_counter()
            operator.submit(jobs_pb2.SubmitRequest(job="beside", spec=spec))
            states: list[tuple[str, float]] = []

            def watch() -> None:
                state = operator.watch("beside", lambda _: None).state
                states.append((state, time.perf_counter() - began))
                ended.set()

            threading.Thread(target=watch).start()
            watched.until(lambda: ended.is_set() and flood.poll() is not None)
            told = _told(flood)
        (state, took) = states[0]
        return {
            "kind": kind, "job": state, "job_s": round(took, 1), "job_alone_s": round(alone, 1), **told,
            **watched.found(),
        }  # fmt: skip


def _parties(folder: Path) -> dict[str, dict[str, object]]:
    """Two parties with 2,000 records, and one that only has a certificate."""
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(2000, 6))
    ids = [f"r{i}" for i in range(2000)]
    label = (columns[:, 0] + columns[:, 3] > 0).astype(int)
    found: dict[str, dict[str, object]] = {FLOODER: {"workers": 1}}
    for party, own in ((HOLDER, columns[:, :3]), (FEATURE, columns[:, 3:])):
        table = {"id": ids, **{f"{party[0]}{i}": column for i, column in enumerate(own.T)}}
        settings: dict[str, object] = {"path": str(folder / f"{party}.parquet"), "id": "id"}
        if party == HOLDER:
            table["y"], settings["label"] = label, "y"
        pq.write_table(pa.table(table), folder / f"{party}.parquet")
        found[party] = {"workers": 1, "tables": {"table": settings}}
    return found


def _watched(federation: LocalFederation) -> Watched:
    files = _files(federation.folder / "certs", "operator")
    return Watched(Address(HOLDER, federation.addresses[HOLDER]), files, federation.pid(HOLDER))


def _files(certs: Path, name: str) -> TlsFiles:
    return TlsFiles(certs / "ca.crt", certs / f"{name}.crt", certs / f"{name}.key")


def nested() -> bytes:
    """A message of the longest size, of the kind that takes most memory when it is decoded: empty children."""
    empty = b"\x0a\x00" * ((MESSAGE_LIMIT - 64) // 2)
    children = b"\x1a" + _varint(len(empty)) + empty
    return b"\x62" + _varint(len(children)) + children


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


async def flood(kind: str, certs: Path, address: str, seconds: float) -> dict[str, int]:
    """Flood a label holder by one certificate; returns how many calls ended, by outcome."""
    counts: dict[str, int] = {}
    end = time.monotonic() + seconds
    if kind == "idle":
        return await _idle(certs, address, end)
    ca, cert, key = _files(certs, FLOODER).read()
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    large = exchange_pb2.PeerMessage(job="alone", attempt=1)
    large.protocol.boosting.gradients.CopyFrom(boosting_pb2.Gradients(ciphertexts=bytes(MESSAGE_LIMIT - 64)))
    message = nested() if kind == "nested" else large.SerializeToString()

    async def call(channel: Any) -> None:
        if kind == "unread":
            await channel.stream_unary(DELIVER)(_slowly(message), timeout=seconds, metadata=version.told())
        else:
            await channel.unary_unary(DELIVER)(message, timeout=seconds, metadata=version.told())

    async def calls(channel: grpc.aio.Channel) -> None:
        while time.monotonic() < end:
            outcome = await _outcome(call(channel))
            counts[outcome] = counts.get(outcome, 0) + 1

    options = [("grpc.ssl_target_name_override", Address(HOLDER, address).dns), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.secure_channel(address, credentials, options=options) for _ in range(CONNECTIONS)]
    await asyncio.gather(*(calls(channel) for channel in channels for _ in range(CALLS)))
    await asyncio.gather(*(channel.close() for channel in channels))
    return counts


async def _slowly(message: bytes) -> AsyncIterator[bytes]:
    """No message, for as long as the call lasts: gRPC has sent no more than its headers."""
    await asyncio.sleep(3600)
    yield message


async def _outcome(call: Awaitable[object]) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as failure:
        return failure.code().name
    return "OK"


async def _idle(certs: Path, address: str, end: float) -> dict[str, int]:
    """Connections with finished handshakes, as fast as they can be made; those that the server closes are released."""
    files = _files(certs, FLOODER)
    context = ssl.create_default_context(cafile=str(files.ca))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(files.certificate, files.key)
    settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    opened = failed = 0
    held: set[asyncio.Task[None]] = set()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(settings)
        try:
            while await reader.read(1 << 16):
                pass
        except OSError:
            pass
        writer.close()

    async def make() -> None:
        nonlocal opened, failed
        while time.monotonic() < end:
            try:
                ends = await asyncio.open_connection(*_place(address), ssl=context, local_addr=(FLOODS_FROM, 0))
            except OSError:
                failed += 1
                continue
            opened += 1
            task = asyncio.ensure_future(hold(*ends))
            held.add(task)
            task.add_done_callback(held.discard)

    await asyncio.gather(*(make() for _ in range(8)))
    for task in held:
        task.cancel()
    return {"opened": opened, "failed": failed}


KINDS = ("large", "nested", "unread", "idle")


def main() -> None:
    """Measure and print JSON, a line a flood."""
    logs.quiet_grpc()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["connections", "certificate", "flood"])
    parser.add_argument("--count", type=int, default=5000, help="connections at once (default 5000)")
    parser.add_argument("--seconds", type=float, help="how long")
    parser.add_argument("--kind", choices=[*KINDS, "silent"])
    parser.add_argument("--certs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.command == "flood":
        if given.kind == "silent":
            print(json.dumps(silent(given.count, given.address, given.seconds)))
        else:
            print(json.dumps(asyncio.run(flood(given.kind, given.certs, given.address, given.seconds))))
    elif given.command == "connections":
        print(json.dumps(connections(given.count, given.seconds or 60.0)))
    else:
        for kind in [given.kind] if given.kind else KINDS:
            print(json.dumps(certificate(kind, given.seconds or 20.0)), flush=True)


if __name__ == "__main__":
    main()
