"""A cluster of Ray on loopback for tests: nodes of one processor each, in a folder and on ports of its own."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any


class RayCluster:
    """A head and further nodes, without dashboards; its processes end with this one."""

    def __init__(self, folder: Path, nodes: int = 2, cpus: int = 1) -> None:
        """`folder`: short, since Ray makes Unix sockets in it. `nodes`: the head included."""
        # Ray notes there which cluster "auto" is; processes that this one starts find it.
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
        from ray.cluster_utils import Cluster

        self._cpus = cpus
        self._cluster: Any = Cluster()
        for _ in range(nodes):
            self.add()

    @property
    def address(self) -> str:
        """HOST:PORT of the head."""
        return str(self._cluster.address)

    def add(self, **options: Any) -> Any:
        """Start one more node; the first one is the head."""
        return self._cluster.add_node(
            num_cpus=self._cpus,
            object_store_memory=80 * 2**20,
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            **options,
        )

    def close(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()
