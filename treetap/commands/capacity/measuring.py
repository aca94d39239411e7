"""Measurement of this machine for `treetap capacity`: transport, workers' pipes, arrays of main processes.

Two processes talk over loopback under mutual TLS by the code of a federation. Nothing is assumed about speeds.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib
import multiprocessing
import os
import platform
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from party.boosting.layout import layout
from party.runtime.mailbox import Mailbox, expected_of
from treetap.additive.sums.kernel_timings import kernel_costs, least_seconds
from treetap.capacity.measurements import HostCosts, Measurements, kernel_name
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import BadInput, Interrupted
from treetap.native import arithmetic
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import JobSizes, Members, MessageRow, each_round, to_feature_parties
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import loss_for
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import GlobalBins, goes_left, left_sums_of
from treetap.usage import measure_process
from treetap.wire.callers import Callers
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.frame import filled
from treetap.wire.ports import Address
from treetap.wire.records import chunks_of, rows_of
from treetap.wire.roles import Role
from treetap.wire.rpc import GrpcDialer, bind, server
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import boosting_pb2, exchange_pb2, exchange_pb2_grpc
from treetap.workers.engines import ProcessEngine

MIB = 1024 * 1024
MESSAGES, SMALL = 96, 200
CALLS = 200
RECORDS, COLUMNS, BINS = 200_000, 8, 32
WAIT_S = 60.0
#: The records of which the layout's widths are, for the figures under a key: a large training's.
LAYOUT_RECORDS = 10_000_000


def measure(keys: list[tuple[KeyKind, str]]) -> Measurements:
    """Measure this machine, and operations under each (key, obfuscation)."""
    arithmetic.use(arithmetic.choose("auto").name)
    slots = layout(BoostingParams(), LAYOUT_RECORDS, 1)
    kernels = {kernel_name(key, kind): kernel_costs(key, kind, slots) for key, kind in keys}
    return Measurements(describe(), host_costs(), kernels)


def add_key(known: Measurements, key: KeyKind, obfuscation: str, path: Path) -> Measurements:
    """The measurements of a file with those under another key.

    Raises:
        BadInput: they are of another machine.
    """
    here = describe()
    if any(known.machine.get(name) != here[name] for name in ("processor", "arithmetic")):
        raise BadInput(
            f"{path}: was measured on {known.machine.get('processor')}, which is not this machine, and has no figures "
            f"of {kernel_name(key, obfuscation)}: measure there, or this machine anew by --measure"
        )
    added = measure([(key, obfuscation)])
    return Measurements(added.machine, added.host, {**known.kernels, **added.kernels})


def describe() -> dict[str, str]:
    """The machine in words."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "arithmetic": "{0.name}: {0.reason}".format(arithmetic.choose("auto")),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def host_costs() -> HostCosts:
    """The costs outside the arithmetic of ciphertexts; some ten seconds."""
    return HostCosts(**_transport(), **asyncio.run(_pipes()), **_arrays())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


# --- messages between parties


class _Receiver(exchange_pb2_grpc.ExchangeServicer):
    """Files messages in a mailbox and reads them, as a feature party does."""

    def __init__(self, folder: Path) -> None:
        self._mailbox = Mailbox(WAIT_S, folder)
        most = 2 * MESSAGES * MIB
        row = MessageRow("gradients", to_feature_parties, each_round, lambda _sizes, _series: most)
        sizes = JobSizes(members=Members("coordinator", "sender", ("receiver",)), rounds=4)
        self._mailbox.expect(expected_of([row], "receiver", sizes))
        self._readers: dict[int, asyncio.Task[None]] = {}

    async def Deliver(self, request: exchange_pb2.PeerMessage, context: object) -> exchange_pb2.Receipt:
        """See exchange.proto."""
        del context
        if request.round not in self._readers:
            self._readers[request.round] = asyncio.ensure_future(self._read(request.round))
        await self._mailbox.file("sender", request)
        return exchange_pb2.Receipt()

    async def _read(self, round_: int) -> None:
        async for _ in self._mailbox.series("sender", "gradients", round_, 0):
            pass


async def _serve(tls: TlsFiles, folder: Path, pipe: Connection) -> None:
    grpc_server, credentials = server(Callers("receiver", tls))
    exchange_pb2_grpc.add_ExchangeServicer_to_server(_Receiver(folder), grpc_server)
    port = bind(grpc_server, credentials, "127.0.0.1:0")
    await grpc_server.start()
    pipe.send(port)
    await asyncio.to_thread(pipe.poll, WAIT_S)  # until the other end closes
    await grpc_server.stop(1)


def _receive(tls: TlsFiles, folder: Path, pipe: Connection) -> None:
    """The receiving process, with all in memory that a party imports."""
    importlib.import_module("party.server.main")
    asyncio.run(_serve(tls, folder, pipe))


def _transport() -> dict[str, float]:
    """Costs of messages at both ends: from small and large ones, per message and per byte."""
    with tempfile.TemporaryDirectory(prefix="treetap-capacity-") as name:
        folder = Path(name)
        create_authority(folder)
        sender, receiver = (issue(folder, each, Role.PARTY) for each in ("sender", "receiver"))
        context = multiprocessing.get_context("spawn")
        near, far = context.Pipe()
        process = context.Process(target=_receive, args=(receiver, folder, far), daemon=True)
        process.start()
        try:
            if not near.poll(WAIT_S):
                raise Interrupted(
                    f"the receiving process has not started in {WAIT_S:g} s: measure when the machine is less busy"
                )
            address = Address("receiver", f"127.0.0.1:{near.recv()}")
            small, large = asyncio.run(_send_both(sender, address, process.pid or 0))
            peak = measure_process(process.pid or 0).peak_rss_mb
        finally:
            near.close()
            process.join(WAIT_S)
            if process.is_alive():
                process.kill()
                process.join()
    return {
        "send_message_s": small[0],
        "send_byte_s": max(large[0] - small[0], 1e-12) / MIB,
        "receive_message_s": small[1],
        "receive_byte_s": max(large[1] - small[1], 1e-12) / MIB,
        "process_mb": peak,
    }


async def _send_both(tls: TlsFiles, to: Address, pid: int) -> tuple[tuple[float, float], tuple[float, float]]:
    dialer = GrpcDialer(tls)
    try:
        await _send(dialer, to, 0, 8, MIB, pid)  # handshake and first pages
        small = await _send(dialer, to, 1, SMALL, 64, pid)
        large = await _send(dialer, to, 2, MESSAGES, MIB, pid)
    finally:
        await dialer.close()
    return small, large


async def _send(dialer: GrpcDialer, to: Address, round_: int, count: int, size: int, pid: int) -> tuple[float, float]:
    """Processor seconds of a message at the sender and at the receiver."""
    content = os.urandom(size)
    own, theirs = time.process_time(), measure_process(pid).cpu_seconds
    for part in range(count):
        body = boosting_pb2.Gradients(first=part, count=1, ciphertexts=content)
        frame = exchange_pb2.PeerMessage(job="capacity", attempt=1, round=round_, part=part, last=part == count - 1)
        message = filled(frame, "gradients", body)
        bytes_by_class(message)
        await dialer.deliver(to, message)
    used = time.process_time() - own, measure_process(pid).cpu_seconds - theirs
    return used[0] / count, max(used[1], 0.005) / count  # the system counts another process in hundredths of a second


# --- workers


def _echo(_state: dict[str, Any], data: bytes) -> bytes:
    """A kernel that returns what it gets."""
    return data


async def _pipes() -> dict[str, float]:
    """Costs of calls to a worker."""
    engine = ProcessEngine(1, WAIT_S, ["treetap.additive.sums.kernels", "treetap.additive.sums.key_holder"])
    engine.start()
    try:
        await engine.call(0, _echo, b"")
        worker_mb = engine.usage()[0].peak_rss_mb
        data = os.urandom(MIB)
        await engine.call(0, _echo, data)
        start, before = time.process_time(), engine.usage()[0].cpu_seconds
        for _ in range(CALLS):
            await engine.call(0, _echo, b"")
        call = (time.process_time() - start) / CALLS
        start, before = time.process_time(), engine.usage()[0].cpu_seconds
        for _ in range(MESSAGES):
            await engine.call(0, _echo, data)
        both = (time.process_time() - start) / MESSAGES
        worker = (engine.usage()[0].cpu_seconds - before) / MESSAGES
    finally:
        await engine.close()
    return {
        "call_s": call,
        "pipe_byte_s": max(both - call, 1e-12) / (2 * MIB),
        "worker_byte_s": max(worker, 1e-6) / (2 * MIB),
        "worker_mb": worker_mb,
    }


# --- arrays of records


def _arrays() -> dict[str, float]:
    """Costs per record of what main processes compute."""
    rng = np.random.default_rng(0)
    table = bin_table(rng.normal(size=(RECORDS, COLUMNS)), [f"c{place}" for place in range(COLUMNS)], BINS)
    bins = GlobalBins(table, np.arange(COLUMNS))
    labels, scores = rng.integers(0, 2, RECORDS).astype(np.float64), rng.normal(size=(RECORDS, 1))
    params = BoostingParams()
    loss = loss_for(params.objective, 2)
    quantised = loss.quantise(*loss.gradients(scores, labels), None)
    values = np.concatenate([quantised.g, quantised.h, np.ones((RECORDS, 1), dtype=np.int64)], axis=1)
    everything = np.arange(RECORDS)
    gradient = least_seconds(lambda: loss.quantise(*loss.gradients(scores, labels), None))
    histogram = least_seconds(lambda: left_sums_of(bins, values, [1], [everything]))
    sums = left_sums_of(bins, values, [1], [everything])

    def chosen() -> GrowingTree:
        growing = GrowingTree(values, BoostingCriterion(quantised.scale, params), params.expansion, subtract=True)
        growing.take_candidates([sums], [bins.candidates.groups])
        growing.choose()
        return growing

    tree = chosen()
    candidate = bins.candidate(tree.choices[1].candidates[0])
    left = everything[goes_left(bins, 1, everything, candidate)]

    def divide() -> None:
        rows = everything[goes_left(bins, 1, everything, candidate)]
        np.setdiff1d(everything, rows, assume_unique=True)

    return {
        "gradient_s": gradient / RECORDS,
        "histogram_s": histogram / RECORDS / COLUMNS,
        "split_s": least_seconds(divide) / RECORDS,
        "check_s": least_seconds(lambda: chosen().split(1, 0, left)) / RECORDS,
        "space_s": least_seconds(lambda: rows_of(list(chunks_of(left, RECORDS)), RECORDS)) / 2 / len(left),
    }
