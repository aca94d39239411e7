"""A party's workers on its cluster of Ray, each with a shard of the party's records.

One process of this machine, the *driver*, connects to the cluster (`treetap.workers.cluster.driver`): a driver of Ray
serves ports without asking who calls, and ends its process when the cluster is gone. It holds no key. It is forked from
a server that holds nothing (`treetap.process.fork_server`), never from the party, whose keys and sockets a fork would
copy. The party never imports Ray, and reads the driver's answers as data.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from treetap.errors import BadInput, Interrupted, TreetapError
from treetap.native import arithmetic
from treetap.process.fork_server import BOOT_S, FORKS
from treetap.process.limits import share_heaps
from treetap.usage import LOOKS, SilenceWatch, Usage, finish_unit, finished_units, measure_process
from treetap.version import install
from treetap.workers.cluster import driver
from treetap.workers.cluster.calls import answer, outcome_of, pickled_call
from treetap.workers.cluster.nodes import exposed, split
from treetap.workers.settings import ClusterConfig, Plan

log = logging.getLogger(__name__)
T = TypeVar("T")


class DriverProcess:
    """The driver, from its fork to its end: an ordered queue in front of the memory of a process.

    One that is at work and finishes no unit for `silence_s` hangs: it is killed, and the call ends as when it has died.
    """

    def __init__(self, plan: Plan) -> None:
        self._name, self._silence_s = f"the connection to the cluster {plan.config.address}", plan.silence_s
        self._child = FORKS.fork(_serve, (plan.beat_s,))
        self._thread = ThreadPoolExecutor(1, "cluster-driver")
        self._signs = 0  # of life that it has given
        self._closed = self._hangs = False

    @property
    def pid(self) -> int:
        """Its process id; 0 until it has been forked."""
        return self._child.pid if self._child.answered else 0

    def alive(self) -> bool:
        """True if the next call may go there; one that is refused lives on: every call is answered with the reason."""
        return not self._child.ended() or bool(self._child.refusal)

    async def call(self, kernel: Callable[..., T], *args: Any) -> T:
        """Run `kernel(state, *args)` there, after every earlier call.

        Raises:
            Interrupted: it died or hung, or has been closed.
            Exception: whatever the kernel raised, as the same type.
        """
        loop = asyncio.get_running_loop()
        if self._closed:
            raise self._lost()
        answered = loop.run_in_executor(self._thread, self._exchange, kernel, args)
        watch = SilenceWatch(lambda: self._signs, loop.time)
        try:
            while not (await asyncio.wait({answered}, timeout=self._silence_s / LOOKS))[0]:
                if watch.silent_s() >= (self._silence_s if self._signs else max(self._silence_s, BOOT_S)):
                    self._hangs = True
                    self._child.kill()  # the thread that waits for its answer continues
        except asyncio.CancelledError:
            answered.cancel()  # one that has begun goes on
            raise
        failed, value = answered.result()
        if failed:
            raise value
        result: T = value
        return result

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        """The same, without waiting."""
        if not self._closed:
            self._thread.submit(self._exchange, kernel, args)

    def kill(self) -> None:
        """Have it end at once, also in the middle of a call; never waits."""
        self._child.kill()

    def close(self) -> None:
        """End it; calls under way end with Interrupted."""
        self._closed = True
        self._child.kill()
        self._thread.shutdown()
        self._child.end()

    def _exchange(self, kernel: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Send one call and wait for its answer (failed?, value or exception); runs in the driver's own thread."""
        message = pickled_call(kernel, args)
        try:
            self._child.pipe.send_bytes(message)
            while not (said := self._child.pipe.recv_bytes()):
                self._signs += 1
        except (EOFError, OSError) as error:
            raise self._lost() from error
        return outcome_of(said)

    def _lost(self) -> TreetapError:
        """The error of a call once it has ended: how, and what comes next."""
        if self._closed:
            return Interrupted(f"{self._name} has been closed")
        self._child.ended(1.0)  # its pipe may be gone a moment before it is
        if self._child.refusal:
            return BadInput(self._child.refusal)
        if self._hangs:
            how = f"finished no unit of work for {self._silence_s:g} s; it was killed and started again"
        elif self._child.fate:
            how = f"was lost and is started again: {self._child.fate}"
        else:
            how = "died and was started again; has the cluster's head, or this machine's node of it, ended?"
        return Interrupted(f"{self._name} (process {self.pid or 'that is not forked yet'}) {how}")


def _serve(pipe: Connection, beat_s: float) -> None:
    """The driver's life: answer calls in order until the pipe ends, and send an empty message after finished units."""
    share_heaps()
    state, turn = dict[str, Any](), threading.Lock()

    def beat() -> None:
        seen = 0
        while True:
            time.sleep(beat_s)
            if (finished := finished_units()) != seen:
                with turn:
                    pipe.send_bytes(b"")
            seen = finished

    threading.Thread(target=beat, daemon=True).start()
    while True:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        finish_unit()
        done = answer(state, message, "worker 0")
        with turn:
            pipe.send_bytes(done)


class ClusterHost:
    """A party's cluster, for all its jobs, from its start to its close.

    Attributes:
        nodes: the addresses on which workers are.
        used: largest memory in MB and processor seconds of each worker, as it has said last.
        traffic: is told of bytes to workers and from them.
    """

    def __init__(self, config: ClusterConfig, silence_s: float, modules: list[str]) -> None:
        """`modules`: what workers import at their start.

        Raises:
            BadInput: Ray is not installed, or the cluster is on another machine and its connections are not encrypted.
        """
        if find_spec("ray") is None:
            raise BadInput(f"ray is not installed: {install('cluster')}")
        if config.address != "auto":
            host, _ = split(config.address)
            if fault := exposed(host, unencrypted=config.unencrypted):
                raise BadInput(fault)
        self.plan = Plan(config, silence_s, arithmetic.in_use(), modules)
        self.driver = DriverProcess(self.plan)
        self.nodes: list[str] = []
        self.used = [(0.0, 0.0)] * config.workers
        self.traffic: Callable[[int, int], None] = lambda _sent, _received: None

    def lease(self) -> Cluster:
        """The workers for one attempt, which does not outlive the connection; one that was lost is begun anew."""
        if not self.driver.alive():
            self.driver.close()
            self.driver = DriverProcess(self.plan)
        return Cluster(self, self.driver)

    def usage(self) -> dict[str, Usage]:
        """Memory and time of the driver, and of each worker as it has said last."""
        of_workers = {f"cluster worker {number}": Usage(*used) for number, used in enumerate(self.used)}
        return {"cluster driver": measure_process(self.driver.pid), **of_workers}

    async def close(self) -> None:
        """End the driver, and with it the workers."""
        await asyncio.to_thread(self.driver.close)


class Cluster:
    """The workers on a cluster as one attempt at a job uses them: each has a memory, which outlives its process.

    What kept calls have left in a memory is there again in the worker that takes the place of a lost one: they are
    repeated there.
    """

    def __init__(self, host: ClusterHost, driver_process: DriverProcess) -> None:
        self._host, self._driver = host, driver_process
        self._connected = False
        self.workers = host.plan.config.workers

    async def connect(self) -> None:
        """Wait until the cluster has room for all workers, and each has said what it runs.

        Raises:
            BadInput: it has not, or a worker runs something else than this party; this is the party's start.
            Interrupted: the same later, or the connection was lost.
        """
        host = self._host
        try:
            nodes = await self._driver.call(driver.connect, host.plan)
        except BadInput as lack:
            self._driver.kill()  # the next attempt begins with another one
            if host.nodes:
                log.error("%s", lack)  # its words may be a worker's, and none that leave the party are
                raise Interrupted("the cluster cannot be used any more; details are in this party's log") from lack
            raise
        self._connected, host.nodes = True, nodes

    async def run(
        self,
        kernel: Callable[..., T],
        args: Mapping[int, tuple[Any, ...]],
        *,
        keep: str = "",
        anew: bool = False,
        total: Callable[[list[T]], T] | None = None,
    ) -> T:
        """Run `kernel(memory, *args)` in these workers; returns the total of what they return, or nothing.

        Args:
            args: by worker.
            keep: a key under which a worker repeats the call if it is lost, until the key is forgotten; empty: it is
                not repeated.
            anew: earlier calls of the key are not repeated any more.

        Raises:
            Interrupted: the connection was lost, or there is no room for the workers any more.
        """
        if not self._connected:
            await self.connect()
        messages = {worker: pickled_call(kernel, values) for worker, values in args.items()}
        try:
            value, losses, used, traffic = await self._driver.call(driver.run, messages, keep, anew, total)
        except Interrupted as failure:
            log.error("%s", "; ".join((str(failure), *getattr(failure, "__notes__", ()))))
            raise
        for loss in losses:
            log.warning("%s; its shard is summed anew in another process", loss)
        self._host.used = used
        self._host.traffic(*traffic)
        summed: T = value
        return summed

    def forget(self, key: str) -> None:
        """Free the memory of all keys that begin so; do not wait for it."""
        if self._connected:
            self._driver.forget(driver.forget, key)


async def survey(
    config: ClusterConfig, silence_s: float, backend: arithmetic.Name, within_s: float
) -> tuple[list[str], list[str]]:
    """Faults and facts of a cluster before a party uses it; within `within_s` there is an answer, or a fault."""
    try:
        host = ClusterHost(config, silence_s, [])
        try:
            async with asyncio.timeout(within_s):
                return await host.driver.call(driver.survey, replace(host.plan, backend=backend))
        finally:
            await host.close()
    except TimeoutError:
        return [f"cluster.address: {config.address} has not said within {within_s:g} s what its nodes run"], []
    except TreetapError as fault:
        return [str(fault)], []
