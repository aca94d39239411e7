"""The engine whose workers are actors of a cluster of Ray: a party's arithmetic on other machines.

What a kernel keeps stays in the memory of its actor; calls and answers alone travel. The party's process never imports
Ray: a child process, the bridge, connects to the cluster, holds no key, and relays the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec

from treetap.errors import BadInput
from treetap.native import arithmetic
from treetap.usage import Usage
from treetap.workers.cluster import addresses
from treetap.workers.cluster.config import ClusterConfig
from treetap.workers.cluster.plan import Plan
from treetap.workers.cluster.worker_actor import Cluster, WorkerActor
from treetap.workers.engines import Engine
from treetap.workers.worker import Lease, Workers


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
            raise BadInput("ray is not installed: pip install 'treetap[cluster]'")
        config = self._config
        if config.address != "auto":
            host, _ = addresses.split(config.address)
            if fault := addresses.exposed(host, unencrypted=config.unencrypted):
                raise BadInput(fault)
        cluster = Cluster(Plan(config, self.workers, self._silence_s, arithmetic.in_use(), self._modules))
        self._start(cluster.begin)
        self._cluster = cluster

    def lease(self) -> Engine:
        """See `EngineHost.lease`."""
        return Lease(self.started)

    @property
    def nodes(self) -> list[str]:
        """Addresses of the nodes on which workers are placed by now."""
        return sorted({worker.incarnation.node for worker in self.started} - {""})

    def usage(self) -> list[Usage]:
        """See `EngineHost.usage`: what the actors have sent last."""
        return [] if self._cluster is None else self._cluster.board.usage()

    async def close(self) -> None:
        """See `EngineHost.close`."""
        await super().close()
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)
