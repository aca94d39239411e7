"""Properties that all actors of a party have in common."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.native import arithmetic
from treetap.workers.cluster.config import ClusterConfig


@dataclass(frozen=True)
class Plan:
    """The cluster, the number of workers and what each imports and computes with.

    `silence_s`: seconds without a sign of life after which the party gives an actor up.
    """

    config: ClusterConfig
    workers: int
    silence_s: float
    backend: arithmetic.Name
    modules: list[str]

    @property
    def beat_s(self) -> float:
        """Seconds between two signs of life."""
        return min(1.0, self.silence_s / 10)
