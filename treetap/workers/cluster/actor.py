"""The actor in which the memory of a cluster's worker lives, on a node.

This module travels to the nodes by value, and imports treetap there inside its methods only: also a node without
treetap, or with another one, makes the actor and says what it has.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treetap.native.arithmetic import Name

#: In front of an answer: units of work finished, largest resident memory in MB, processor seconds.
SIGNS = "<Qdd"


class WorkerActor:
    """Answers calls in order, and tells of its signs of life from a second thread meanwhile. No method raises."""

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}

    def report(self) -> dict[str, Any]:
        """The software here; see `treetap.workers.cluster.nodes`."""
        import platform

        import ray

        here = {"node": ray.util.get_node_ip_address(), "node_id": ray.get_runtime_context().get_node_id()}
        try:
            from treetap.process.limits import keep_memory_private
            from treetap.workers.cluster.nodes import own_report

            keep_memory_private()
            return {**own_report(), **here}
        except ImportError as missing:
            return {**here, "python": platform.python_version(), "missing": str(missing)}

    def prepare(self, backend: Name, modules: list[str]) -> str:
        """Make the worker ready for kernels; returns what it lacks, or an empty text."""
        from treetap.errors import BadInput
        from treetap.workers.calls import make_ready

        try:
            make_ready(backend, modules)
        except (BadInput, ImportError) as error:
            return str(error)
        return ""

    def answer(self, message: bytes, who: str) -> bytes:
        """Run a call on this memory: `SIGNS`, and the answer of `treetap.workers.calls`."""
        from treetap.usage import finish_unit
        from treetap.workers.calls import answer

        done = answer(self._state, message, None, who)
        finish_unit()
        return self.signs() + done

    def forget(self, key: str) -> None:
        """Free what lies in this memory under names that begin so."""
        for name in [name for name in self._state if name.startswith(key)]:
            del self._state[name]

    def signs(self) -> bytes:
        """Signs of life and usage."""
        from treetap.usage import Units, measure

        used = measure()
        return struct.pack(SIGNS, Units.finished.value, used.peak_rss_mb, used.cpu_seconds)
