"""A party's workers: threads of its process, and those on its cluster, if it has one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from treetap.usage import Usage
from treetap.workers.engines import Engine

if TYPE_CHECKING:  # most parties have none
    from treetap.lattice.histogram_shards import Shards
    from treetap.workers.cluster.engine import ClusterHost


class PartyWorkers:
    """The workers of all jobs of a party. `here`: threads; `cluster`: where shards of words are summed."""

    def __init__(self, here: Engine, cluster: ClusterHost | None = None) -> None:
        self._here, self.cluster = here, cluster

    def lease(self) -> tuple[Engine, Callable[..., Shards] | None]:
        """The workers for one attempt, and what makes shards on the cluster."""
        if self.cluster is None:
            return self._here, None
        from treetap.lattice.histogram_shards import Shards

        return self._here, partial(Shards, self.cluster.lease())

    def usage(self) -> dict[str, Usage]:
        """Memory and time of each process beside the party's so far, by its name within the party."""
        return {} if self.cluster is None else self.cluster.usage()

    async def ready(self) -> None:
        """Wait until every worker on the cluster answers."""
        if self.cluster is not None:
            await self.cluster.lease().connect()

    async def close(self) -> None:
        if self.cluster is not None:
            await self.cluster.close()
        await self._here.close()
