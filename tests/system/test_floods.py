"""A party under floods: others are answered, their job goes on and ends, and its memory stays bounded.

Small ones, in a few seconds; `benchmarks/flood.py` has large ones, with figures.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc.aio
import pytest

from tests.certificates import dns_of
from tests.commands.command import files_in
from tests.system.federations import ended, settings
from tests.worlds import PARTIES, spec, world
from treetap import version
from treetap.lab.local_federation import LocalFederation
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Address
from treetap.wire.probe import say_hello
from treetap.wire.rpc import MESSAGE_LIMIT
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("identity")]
LABEL_HOLDER, _, FLOODER = PARTIES
HERE = world(20, (1, 1, 1))
SPEC = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2), parties=2)
#: Calls at once, over a few connections.
CALLS, CONNECTIONS = 32, 4
#: Connections of another address that say nothing.
SILENT = 300
GROWN_MB = 150


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties and a coordinator, two of which train."""
    folder = tmp_path_factory.mktemp("floods")
    with LocalFederation(folder, settings(folder, {"train": HERE})) as running:
        yield running


def _memory_mb(pid: int, what: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def _nested() -> bytes:
    """A message of the longest size that is 27 times as large when it is decoded: a million empty children."""
    empty = b"\x0a\x00" * ((MESSAGE_LIMIT - 64) // 2)
    found = empty
    for tag in (b"\x1a", b"\x62"):  # Children, in the content of growth
        size, length = len(found), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        found = tag + length + bytes([size]) + found
    return found


@contextmanager
def _flood(federation: LocalFederation, message: bytes) -> Iterator[list[str]]:
    """Calls by one party's certificate, as many as there may be, until the block ends; how each has ended."""
    outcomes: list[str] = []
    over = threading.Event()
    ca, certificate, key = files_in(federation.folder / "certs", FLOODER).read()
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    named = [("grpc.ssl_target_name_override", dns_of(LABEL_HOLDER)), ("grpc.use_local_subchannel_pool", 1)]

    async def calls(channel: grpc.aio.Channel) -> None:
        deliver = channel.unary_unary("/treetap.wire.v2.Exchange/Deliver")
        while not over.is_set():
            try:
                await deliver(message, timeout=5, metadata=version.told())
            except grpc.aio.AioRpcError as failure:
                outcomes.append(failure.code().name)

    async def main() -> None:
        place = federation.addresses[LABEL_HOLDER]
        channels = [grpc.aio.secure_channel(place, credentials, options=named) for _ in range(CONNECTIONS)]
        await asyncio.gather(*(calls(channel) for channel in channels for _ in range(CALLS // CONNECTIONS)))
        await asyncio.gather(*(channel.close() for channel in channels))

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        yield outcomes
    finally:
        over.set()
        thread.join(30)


def test_a_job_goes_on_under_floods(federation: LocalFederation) -> None:
    """By one certificate with messages that grow when they are decoded, and by an address without a certificate."""
    pid, to = federation.pid(LABEL_HOLDER), Address(LABEL_HOLDER, federation.addresses[LABEL_HOLDER])
    federation.operator.submit(jobs_pb2.SubmitRequest(job="alone", spec=SPEC))
    assert ended(federation, "alone").state == "finished"
    before, took = _memory_mb(pid, "VmRSS:"), []
    host, _, port = to.location.rpartition(":")
    with ExitStack() as silent:
        for _ in range(SILENT):
            silent.enter_context(socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0)))
        with _flood(federation, _nested()) as outcomes:
            federation.operator.submit(jobs_pb2.SubmitRequest(job="beside", spec=SPEC))
            for _ in range(5):
                began = time.perf_counter()
                assert say_hello(to, files_in(federation.folder / "certs", "operator"), 10.0).serving
                took.append(time.perf_counter() - began)
            assert ended(federation, "beside").state == "finished"
    assert len(outcomes) > 1
    assert statistics.median(took) < 1
    assert _memory_mb(pid, "VmHWM:") - before < GROWN_MB
