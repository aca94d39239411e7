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
        """Make the worker ready for kernels; returns what it lacks, or an empty text.

        Batches of numbers come and go; a worker keeps up to 64 MB of what it has freed, so that a batch does not begin
        with memory that the system has to clear.
        """
        import importlib

        from treetap.errors import BadInput
        from treetap.native import arithmetic
        from treetap.process.limits import share_heaps
        from treetap.usage import finish_unit

        share_heaps()
        try:
            arithmetic.use(backend)
            for module in modules:
                importlib.import_module(module)
                finish_unit()
        except (BadInput, ImportError) as error:
            return str(error)
        return ""

    def answer(self, message: bytes, who: str) -> bytes:
        """Run a call on this memory: `SIGNS`, and the answer of `treetap.workers.cluster.calls`."""
        from treetap.usage import finish_unit
        from treetap.workers.cluster.calls import answer

        done = answer(self._state, message, who)
        finish_unit()
        return self.signs() + done

    def forget(self, key: str) -> None:
        """Free what lies in this memory under names that begin so."""
        for name in [name for name in self._state if name.startswith(key)]:
            del self._state[name]

    def signs(self) -> bytes:
        """Signs of life and usage."""
        from treetap.usage import finished_units, measure

        used = measure()
        return struct.pack(SIGNS, finished_units(), used.peak_rss_mb, used.cpu_seconds)
