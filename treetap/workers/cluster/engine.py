"""The engine whose workers are actors of a cluster of Ray: a party's arithmetic on other machines.

What a kernel keeps stays in the memory of its actor; calls and answers alone travel. The party's process never imports
Ray: a child process, the bridge, connects to the cluster, holds no key, and relays the calls.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

from treetap.errors import BadInput, Interrupted
from treetap.native import arithmetic
from treetap.usage import Usage
from treetap.version import install
from treetap.workers.calls import read_answer
from treetap.workers.cluster import addresses
from treetap.workers.cluster.board import Board
from treetap.workers.cluster.bridge import FAREWELL_S, Bridge
from treetap.workers.cluster.plan import BOOT_S, Plan
from treetap.workers.cluster.report import fault_of, own_report
from treetap.workers.engines import Engine
from treetap.workers.settings import ClusterConfig
from treetap.workers.worker import Lease, Workers

#: Seconds between two looks at a bridge that has not connected yet.
LOOK_S = 0.05


class Cluster:
    """The cluster as all workers of an engine share it: one bridge at a time, which is replaced when it has ended."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.board = Board(plan.workers)
        self.has_answered = False
        self._change = threading.Lock()  # of the bridge
        self._bridge: Bridge | None = None
        self._lives = 0

    def begin(self, worker: int) -> WorkerActor:
        """Start an incarnation of a worker."""
        with self._change:
            if self._bridge is not None and not self._bridge.usable:
                self._bridge.close(0.0)
                self._bridge = None
            if self._bridge is None:
                self._bridge = Bridge(self.plan, self.board)
            self._lives += 1
            return WorkerActor(self, self._bridge, worker, self._lives)

    def lack(self, text: str) -> BadInput | Interrupted:
        """The error about a cluster that lacks something: at the start the user's, later one that a job survives."""
        return Interrupted(text) if self.has_answered else BadInput(text)

    def close(self) -> None:
        """End the bridge."""
        if self._bridge is not None:
            self._bridge.close(FAREWELL_S)


class WorkerActor:
    """One actor: an `Incarnation` of a worker."""

    def __init__(self, cluster: Cluster, bridge: Bridge, worker: int, life: int) -> None:
        """Have it made by the bridge."""
        self._cluster, self._bridge, self._worker, self._life = cluster, bridge, worker, life
        cluster.board.begin(worker, life)
        self._socket = bridge.open(worker, life)
        self._pipe = Connection(self._socket.dup().detach())
        self.boot_s = 3 * BOOT_S + 2 * cluster.plan.config.start_s
        self.name, self.node = "not placed yet", ""
        self._placed = False
        self._lack: BadInput | Interrupted | None = None
        self._told = False  # the caller of what it lacks

    @property
    def units(self) -> int:
        return self._cluster.board.units(self._worker)

    @property
    def own(self) -> bool:
        """That the cluster lacks something is found here."""
        return self._lack is not None

    def alive(self) -> bool:
        """One that lacks something lives until a call was answered with that."""
        if self._lack is not None:
            return not self._told
        return self._bridge.alive and self._cluster.board.loss(self._worker, self._life) is None

    def exchange(self, message: bytes) -> bytes:
        """Answer with what the cluster lacks."""
        if not self._placed and self._lack is None:
            self._await_report()
        if self._lack is not None:
            self._told = True
            return pickle.dumps((True, self._lack))
        self._pipe.send_bytes(message)
        answer = self._pipe.recv_bytes()
        self._cluster.has_answered = True
        return answer

    def loss(self) -> str:
        return (
            str(self._lack)
            if self._lack is not None
            else self._cluster.board.loss(self._worker, self._life) or self._bridge.loss()
        )

    def kill(self) -> None:
        """The bridge kills the actor when its pipe ends."""
        with suppress(OSError):  # the bridge has closed it
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self.kill()
        self._socket.close()
        self._pipe.close()

    def _await_report(self) -> None:
        """Wait until the actor is placed and has reported its software, or for the reason why it cannot be used."""
        try:
            while not self._pipe.poll(LOOK_S):
                if late := self._bridge.late():
                    self._bridge.kill()
                    self._lack = self._cluster.lack(late)
                    return
            report = read_answer(self._pipe.recv_bytes())
        except (EOFError, OSError):
            if self._bridge.alive or self._bridge.connected:
                raise
            self._lack = self._cluster.lack(f"compute worker {self._worker} {self._bridge.loss()}")
            return
        fault = report if isinstance(report, str) else self._fault(report)
        if fault:
            self._lack = self._cluster.lack(fault)
            return
        self.name, self.node = f"process {report['pid']} on node {report['node']}", str(report["node"])
        self._placed = True

    def _fault(self, report: dict[str, Any]) -> str:
        """Why the actor that sent this report is not used; empty if it is."""
        config = self._cluster.plan.config
        return addresses.exposed(report["node"], unencrypted=config.unencrypted) or fault_of(report, own_report())


class ClusterEngine(Workers[WorkerActor]):
    """One actor per worker. `silence_s`: seconds without a finished unit of work after which one hangs."""

    def __init__(self, config: ClusterConfig, workers: int, silence_s: float, modules: Sequence[str] = ()) -> None:
        """`modules`: what each worker imports when it starts, so that its first kernel does not wait for it."""
        super().__init__(workers, silence_s)
        self._config, self._modules = config, list(modules)
        self._cluster: Cluster | None = None

    def start(self) -> None:
        """Begin to connect, and to have the actors made; `await_workers` waits for that.

        Raises:
            BadInput: Ray is not installed, or the cluster is on another machine and its connections are not encrypted.
        """
        if find_spec("ray") is None:
            raise BadInput(f"ray is not installed: {install('cluster')}")
        config = self._config
        if config.address != "auto":
            host, _ = addresses.split(config.address)
            if fault := addresses.exposed(host, unencrypted=config.unencrypted):
                raise BadInput(fault)
        cluster = Cluster(Plan(config, self.workers, self._silence_s, arithmetic.in_use(), self._modules))
        self._start(cluster.begin)
        self._cluster = cluster

    def lease(self) -> Engine:
        return Lease(self.started)

    @property
    def nodes(self) -> list[str]:
        """Addresses of the nodes on which workers are placed by now."""
        return sorted({worker.incarnation.node for worker in self.started} - {""})

    def usage(self) -> list[Usage]:
        """Usage as the actors have sent it last."""
        return [] if self._cluster is None else self._cluster.board.usage()

    async def close(self) -> None:
        await super().close()
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)
