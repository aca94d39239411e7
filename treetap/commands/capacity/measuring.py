"""Measurement of this machine for `treetap capacity`: transport, workers' pipes, arrays of main processes.

Two processes talk over loopback under mutual TLS by the code of a federation. Nothing is assumed about speeds.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib
import json
import multiprocessing
import os
import platform
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from party.boosting.layout import layout
from party.runtime.mailbox import Mailbox, expected_of
from party.runtime.messages import CiphertextBody
from treetap.additive.sums.kernel_timings import KernelCosts, kernel_costs, least_seconds
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import BadInput, ConfigError, Interrupted
from treetap.lattice.histogram_timings import LatticeCosts, lattice_costs
from treetap.native import arithmetic, library
from treetap.protocols.key_options import LATTICE, KeyKind
from treetap.protocols.messages import JobSizes, Members, MessageRow, each_round, to_feature_parties
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import loss_for
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import GlobalBins, goes_left, left_sums_of
from treetap.process.usage import measure_process
from treetap.wire.callers import Callers
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.frame import serialised
from treetap.wire.ports import Address
from treetap.wire.records import chunks_of, rows_of
from treetap.wire.roles import Role
from treetap.wire.rpc import GrpcDialer, bind, serve_exchange, server
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import boosting_pb2, exchange_pb2
from treetap.workers.engines import ProcessEngine


@dataclass(frozen=True)
class HostCosts:
    """Costs outside the arithmetic of ciphertexts: seconds of a processor at main processes, unless named otherwise."""

    send_message_s: float  # between parties, at the sender
    send_byte_s: float
    receive_message_s: float  # until it is read from the mailbox
    receive_byte_s: float
    call_s: float  # of a worker
    pipe_byte_s: float  # to or from a worker
    worker_byte_s: float  # the same at the worker
    gradient_s: float  # a record, at the label holder for each tree
    histogram_s: float  # a record in a column of the label holder's own, for each node that is summed
    split_s: float  # a record of a node that splits, at the owner
    check_s: float  # the same at the label holder, which compares the children's sums
    space_s: float  # a record whose place in a node is encoded and sent, or received and decoded
    process_mb: float  # memory of a main process without records
    worker_mb: float  # and of a worker without ciphertexts


@dataclass
class Measurements:
    """A file of measurements: the machine in words, and costs, of keys by `kernel_name`."""

    machine: dict[str, str]
    host: HostCosts
    kernels: dict[str, KernelCosts]
    lattice: LatticeCosts | None = None
    version: Literal[1] = 1

    def of(self, key: KeyKind, obfuscation: str) -> KernelCosts | None:
        """The costs under a kind of key; None: not measured."""
        return self.kernels.get(kernel_name(key, obfuscation))

    def has(self, key: KeyKind, obfuscation: str) -> bool:
        """True if the costs of a scheme are there."""
        return (self.lattice if key.on_lattice else self.of(key, obfuscation)) is not None

    def figures(self) -> list[tuple[str, float]]:
        """All costs with their names."""
        kinds = {"": asdict(self.host), **{f"{name}: ": asdict(costs) for name, costs in self.kernels.items()}}
        if self.lattice is not None:
            kinds[f"{LATTICE}: "] = asdict(self.lattice)
        return [(kind + name, cost) for kind, costs in kinds.items() for name, cost in costs.items()]

    def save(self, path: Path) -> None:
        """Write the file; the folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Measurements:
        """Read a file. Raises `ConfigError` if it cannot be read, or is no such file."""
        try:
            measured = TypeAdapter(cls).validate_json(path.read_bytes(), strict=True)
            if wrong := [
                f"{name} = {cost:g} is no number above 0" for name, cost in measured.figures() if not cost > 0
            ]:
                raise ValueError("; ".join(wrong))
        except OSError as fault:
            raise ConfigError(f"{path}: cannot be read: {fault.strerror or fault}") from None
        except ValueError as fault:  # pydantic's too
            raise ConfigError(
                f"{path}: is no file of measurements ({fault}); treetap capacity --measure writes a new one"
            ) from None
        return measured


def kernel_name(key: KeyKind, obfuscation: str) -> str:
    """Scheme, bits and obfuscation as one name."""
    return f"{key.scheme} {key.bits} {obfuscation}"


MIB = 1024 * 1024
MESSAGES, SMALL, CALLS = 96, 200, 200
RECORDS, COLUMNS, BINS = 200_000, 8, 32
WAIT_S = 60.0
#: The records of which the layout's widths are, for the figures under a key: a large training's.
LAYOUT_RECORDS = 10_000_000


def measure(key: KeyKind, obfuscation: str, known: Measurements | None = None, path: Path = Path()) -> Measurements:
    """Measure this machine, some ten seconds, and operations of a scheme; `known`: those of other keys, of a file.

    Raises:
        BadInput: the known ones are of another machine, or there are no kernels for a lattice.
    """
    machine, name = describe(), LATTICE if key.on_lattice else kernel_name(key, obfuscation)
    if known is not None and any(known.machine.get(part) != machine[part] for part in ("processor", "arithmetic")):
        raise BadInput(
            f"{path}: was measured on {known.machine.get('processor')}, which is not this machine, and has no figures "
            f"of {name}: measure there, or this machine anew by --measure"
        )
    arithmetic.use(arithmetic.choose("auto").name)
    slots = layout(BoostingParams(), LAYOUT_RECORDS, 1)
    kernels, lattice = ({}, None) if known is None else (known.kernels, known.lattice)
    if key.on_lattice:
        lattice = lattice_costs(slots, LAYOUT_RECORDS)
    else:
        kernels = {**kernels, name: kernel_costs(key, obfuscation, slots)}
    host = HostCosts(**_transport(), **asyncio.run(_pipes()), **_arrays())
    return Measurements(machine, host, kernels, lattice)


def describe() -> dict[str, str]:
    """The machine in words."""
    return {
        "processor": library.processor(),
        "cores": str(os.cpu_count()),
        "arithmetic": "{0.name}: {0.reason}".format(arithmetic.choose("auto")),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


class _Receiver:
    """Files messages in a mailbox and reads them, as a feature party does."""

    def __init__(self, folder: Path) -> None:
        self._mailbox, self._readers = Mailbox(WAIT_S, folder), dict[int, asyncio.Task[None]]()
        most = 2 * MESSAGES * MIB
        row = MessageRow("gradients", to_feature_parties, each_round, lambda _sizes, _series: most)
        sizes = JobSizes(members=Members("coordinator", "sender", ("receiver",)), rounds=4)
        self._mailbox.expect(expected_of([row], "receiver", sizes))

    async def deliver(self, request: tuple[exchange_pb2.PeerMessage, bytes], context: object) -> exchange_pb2.Receipt:
        """Answer `Deliver`."""
        del context
        message, content = request
        if message.round not in self._readers:
            self._readers[message.round] = asyncio.ensure_future(self._read(message.round))
        await self._mailbox.file("sender", message, content)
        return exchange_pb2.Receipt()

    async def _read(self, round_: int) -> None:
        async for _ in self._mailbox.series("sender", "gradients", round_, 0):
            pass


def _receive(tls: TlsFiles, folder: Path, pipe: Connection) -> None:
    """The receiving process, with all in memory that a party imports."""

    async def serve() -> None:
        grpc_server, credentials = server(Callers("receiver", tls))
        serve_exchange(grpc_server, _Receiver(folder).deliver)
        pipe.send(bind(grpc_server, credentials, "127.0.0.1:0"))
        await grpc_server.start()
        await asyncio.to_thread(pipe.poll, WAIT_S)  # until the other end closes
        await grpc_server.stop(1)

    importlib.import_module("party.server.main")
    asyncio.run(serve())


def _transport() -> dict[str, float]:
    """Costs of messages at both ends: from small and large ones, per message and per byte."""
    with tempfile.TemporaryDirectory(prefix="treetap-capacity-") as name:
        folder = Path(name)
        create_authority(folder)
        sender, receiver = (issue(folder, party, Role.PARTY) for party in ("sender", "receiver"))
        context = multiprocessing.get_context("spawn")
        near, far = context.Pipe()
        process = context.Process(target=_receive, args=(receiver, folder, far), daemon=True)
        process.start()
        try:
            if not near.poll(WAIT_S):
                raise Interrupted(
                    f"the receiving process has not started in {WAIT_S:g} s: measure when the machine is less busy"
                )
            address, pid = Address("receiver", f"127.0.0.1:{near.recv()}"), process.pid or 0
            small, large = asyncio.run(_send_both(sender, address, pid))
            peak = measure_process(pid).peak_rss_mb
        finally:
            near.close()
            process.join(WAIT_S)
            process.kill()
            process.join()
    send_byte, receive_byte = (max(large[end] - small[end], 1e-12) / MIB for end in (0, 1))
    costs = {"send_message_s": small[0], "send_byte_s": send_byte, "receive_message_s": small[1]}
    return costs | {"receive_byte_s": receive_byte, "process_mb": peak}


async def _send_both(tls: TlsFiles, to: Address, pid: int) -> list[tuple[float, float]]:
    """Processor seconds of a message at the sender and at the receiver: of small ones, of large ones."""
    dialer, seconds = GrpcDialer(tls), []
    try:  # the first are for the handshake and first pages
        for round_, (count, size) in enumerate([(8, MIB), (SMALL, 64), (MESSAGES, MIB)]):
            content = os.urandom(size)
            own, theirs = time.process_time(), measure_process(pid).cpu_seconds
            for part in range(count):
                body = CiphertextBody(boosting_pb2.Gradients(first=part, count=1), content)
                frame = exchange_pb2.PeerMessage(
                    job="capacity", attempt=1, round=round_, part=part, last=part == count - 1
                )
                message = serialised(frame, "gradients", body.serialised())
                bytes_by_class_of(message, exchange_pb2.PeerMessage)
                await dialer.deliver(to, message)
            used = time.process_time() - own, measure_process(pid).cpu_seconds - theirs
            # the system counts another process in hundredths of a second
            seconds.append((used[0] / count, max(used[1], 0.005) / count))
    finally:
        await dialer.close()
    return seconds[1:]


def _echo(_state: dict[str, Any], data: bytes) -> bytes:
    """A kernel that returns what it gets."""
    return data


async def _pipes() -> dict[str, float]:
    """Costs of calls to a worker."""
    engine = ProcessEngine(1, WAIT_S, ["treetap.additive.sums.kernels", "treetap.additive.sums.key_holder"])

    async def seconds(count: int, data: bytes) -> tuple[float, float]:
        """Of a call, here and at the worker."""
        await engine.lease().call(0, _echo, data)
        start, before = time.process_time(), engine.usage()[0].cpu_seconds
        for _ in range(count):
            await engine.lease().call(0, _echo, data)
        return (time.process_time() - start) / count, (engine.usage()[0].cpu_seconds - before) / count

    engine.start()
    try:
        call, _ = await seconds(CALLS, b"")
        worker_mb = engine.usage()[0].peak_rss_mb
        both, worker = await seconds(MESSAGES, os.urandom(MIB))
    finally:
        await engine.close()
    pipe_byte, worker_byte = max(both - call, 1e-12) / (2 * MIB), max(worker, 1e-6) / (2 * MIB)
    return {"call_s": call, "pipe_byte_s": pipe_byte, "worker_byte_s": worker_byte, "worker_mb": worker_mb}


def _arrays() -> dict[str, float]:
    """Costs per record of what main processes compute."""
    rng = np.random.default_rng(0)
    table = bin_table(rng.normal(size=(RECORDS, COLUMNS)), [f"c{place}" for place in range(COLUMNS)], BINS)
    bins, everything = GlobalBins(table, np.arange(COLUMNS)), np.arange(RECORDS)
    labels, scores = rng.integers(0, 2, RECORDS).astype(np.float64), rng.normal(size=(RECORDS, 1))
    params = BoostingParams()
    loss = loss_for(params.objective, 2)
    quantised = loss.quantise(*loss.gradients(scores, labels), None)
    values = np.concatenate([quantised.g, quantised.h, np.ones((RECORDS, 1), dtype=np.int64)], axis=1)
    sums = left_sums_of(bins, values, [1], [everything])

    def chosen() -> GrowingTree:
        growing = GrowingTree(values, BoostingCriterion(quantised.scale, params), params.expansion, subtract=True)
        growing.take_candidates([sums], [bins.candidates.groups])
        growing.choose()
        return growing

    candidate = bins.candidate(chosen().choices[1].candidates[0])

    def left() -> Any:
        return everything[goes_left(bins, 1, everything, candidate)]

    rows = left()
    return {
        "gradient_s": least_seconds(lambda: loss.quantise(*loss.gradients(scores, labels), None)) / RECORDS,
        "histogram_s": least_seconds(lambda: left_sums_of(bins, values, [1], [everything])) / RECORDS / COLUMNS,
        "split_s": least_seconds(lambda: np.setdiff1d(everything, left(), assume_unique=True)) / RECORDS,
        "check_s": least_seconds(lambda: chosen().split(1, 0, rows)) / RECORDS,
        "space_s": least_seconds(lambda: rows_of(list(chunks_of(rows, RECORDS)), RECORDS)) / 2 / len(rows),
    }
