"""A cluster of Ray for tests: nodes of this machine in a process, a folder and on ports of their own.

    with RayCluster(nodes=2) as cluster:
        ClusterConfig(address=cluster.address)

No dashboard is started, and agents are those of an installation without it: a node is there in two seconds instead
of five. Actors import what this checkout contains, `tests` included.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).parents[1]
#: Bytes of each node's object store, of which the least is 75 MiB.
STORE = 80 * 2**20
#: Milliseconds within which Ray notices what is gone: a hung worker's end, and a node by several unanswered questions.
QUICK = {
    "RAY_kill_worker_timeout_milliseconds": "500",
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


class RayCluster:
    """A head and further nodes of some processors each; all of them end with this process."""

    def __init__(self, nodes: int = 2, cpus: int = 1, port: int = 0) -> None:
        """`nodes`: the head included. `port`: of the head; 0 takes a free one."""
        # Ray makes sockets there, whose paths are short; it notes there which cluster "auto" is.
        self._folder = tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True)
        self.environment = {"RAY_TMPDIR": self._folder.name}
        own = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT), "RAY_GCS_SERVER_PORT": str(port), **QUICK}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.ray_cluster"],
            cwd=ROOT,
            env={**os.environ, **self.environment, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self.address = ""
        self.pids: list[dict[str, int]] = []
        for _ in range(nodes):
            self.add(cpus)

    @property
    def folder(self) -> Path:
        """Sockets and logs of all nodes."""
        return Path(self._folder.name)

    def add(self, cpus: int = 1) -> None:
        """Start one more node; the first one is the head."""
        self._add(cpus)

    def start_again(self, cpus: int = 1) -> None:
        """Start another head at the address of one that was killed; further nodes are gone with it."""
        for node in range(len(self.pids)):
            self.kill(node)
        self._add(cpus, port=int(self.address.rpartition(":")[2]))

    def _add(self, cpus: int, port: int | None = None) -> None:
        told = self._order({"cpus": cpus, "port": port})
        self.address = told["address"]
        self.pids.append(told["pids"])

    def kill(self, node: int) -> None:
        """Kill all processes of a node, as if its machine was switched off; actors end with it."""
        for pid in [each for first in self.pids[node].values() for each in (first, *below(first))]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End all nodes."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        try:
            self._server.wait(20)
        finally:
            self._server.kill()
            self._server.wait()
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(order), file=self._server.stdin, flush=True)
        answer = self._server.stdout.readline()
        assert answer, "the process that holds Ray's nodes has ended"
        told: dict[str, Any] = json.loads(answer)
        return told


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, tasks.read_text().split()):
                found += [child, *below(child)]
    return found


def _serve(orders: IO[str], answers: IO[str]) -> None:
    """Start nodes as they are asked for; end all when the caller is gone."""
    import ray._private.services
    import ray._private.utils
    from ray._private.node import Node
    from ray.cluster_utils import Cluster

    ray._private.utils.get_dashboard_dependency_error = lambda: ImportError("left out of tests")
    Node.start_api_server = lambda *_, **__: None
    cluster = Cluster()
    options: dict[str, Any] = {
        "object_store_memory": STORE,
        "include_dashboard": False,
        "include_log_monitor": False,
        "no_monitor": True,
    }
    try:
        for line in orders:
            order = json.loads(line)
            if order["port"] is not None:
                cluster = Cluster()
                options["gcs_server_port"] = order["port"]
            node = cluster.add_node(num_cpus=order["cpus"], **options)
            pids = {name: each[0].process.pid for name, each in node.all_processes.items()}
            print(json.dumps({"address": cluster.address, "pids": pids}), file=answers, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    _serve(sys.stdin, told)
