"""A party's workers on its cluster of Ray, each with a shard of the party's records.

One process of this machine, the *driver*, connects to the cluster (`treetap.workers.cluster.driver`): a driver of Ray
serves ports without asking who calls, and ends its process when the cluster is gone. It holds no key. The party never
imports Ray; it speaks with the driver as with a worker process, and reads its answers as data.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, TypeVar

from treetap.errors import BadInput, Interrupted, TreetapError
from treetap.native import arithmetic
from treetap.process.fork_server import ForkServer
from treetap.usage import Usage
from treetap.version import install
from treetap.workers.calls import pickled_call
from treetap.workers.cluster import driver
from treetap.workers.cluster.nodes import exposed, split
from treetap.workers.engines import Engine, ProcessEngine
from treetap.workers.settings import ClusterConfig, Plan

log = logging.getLogger(__name__)
T = TypeVar("T")


class ClusterHost:
    """A party's cluster, for all its jobs, from its start to its close.

    Attributes:
        nodes: the addresses on which workers are.
        used: largest memory in MB and processor seconds of each worker, as it has said last.
        traffic: is told of bytes to workers and from them.
    """

    def __init__(
        self, config: ClusterConfig, silence_s: float, modules: list[str], forks: ForkServer | None = None
    ) -> None:
        """`modules`: what workers import at their start; `forks`: as of `ProcessEngine`.

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
        name = f"the connection to the cluster {config.address}"
        remedy = "has the cluster's head, or this machine's node of it, ended?"
        self.driver = ProcessEngine(1, silence_s, (), forks, name=name, remedy=remedy)
        self.driver.start()
        self.nodes: list[str] = []
        self.used = [(0.0, 0.0)] * config.workers
        self.traffic: Callable[[int, int], None] = lambda _sent, _received: None

    def lease(self) -> Cluster:
        """The workers for one attempt, which does not outlive the connection."""
        return Cluster(self, self.driver.lease())

    def usage(self) -> dict[str, Usage]:
        """Memory and time of the driver, and of each worker as it has said last."""
        of_workers = {f"cluster worker {number}": Usage(*used) for number, used in enumerate(self.used)}
        return {"cluster driver": self.driver.usage()[0], **of_workers}

    async def close(self) -> None:
        """End the driver, and with it the workers."""
        await self.driver.close()


class Cluster:
    """The workers on a cluster as one attempt at a job uses them: each has a memory, which outlives its process.

    What kept calls have left in a memory is there again in the worker that takes the place of a lost one: they are
    repeated there.
    """

    def __init__(self, host: ClusterHost, lease: Engine) -> None:
        self._host, self._driver = host, lease
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
            nodes = await self._driver.call(0, driver.connect, host.plan)
        except BadInput as lack:
            host.driver.started[0].incarnation.kill()  # the next attempt begins with another one
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
            value, losses, used, traffic = await self._driver.call(0, driver.run, messages, keep, anew, total)
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
                return await host.driver.lease().call(0, driver.survey, replace(host.plan, backend=backend))
        finally:
            await host.close()
    except TimeoutError:
        return [f"cluster.address: {config.address} has not said within {within_s:g} s what its nodes run"], []
    except TreetapError as fault:
        return [str(fault)], []
