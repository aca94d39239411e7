"""Properties that all actors of a party have in common."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.native import arithmetic
from treetap.workers.settings import ClusterConfig

#: Seconds that a process may take to start and import, here or on a node.
BOOT_S = 60.0
#: Bytes of a call, or of its answer, that travel with the message and not by Ray's object store.
INLINE = 8 * 2**20


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

    @property
    def needs(self) -> dict[str, float]:
        """Amounts of Ray's resources that one worker reserves."""
        memory = {} if self.config.memory is None else {"memory": float(self.config.memory)}
        return {"CPU": self.config.cpus, **memory, **self.config.resources}

    @property
    def needs_in_words(self) -> str:
        """Amounts that each worker reserves, for messages."""
        return " and ".join(f"{amount:g} {name}" for name, amount in self.needs.items())
