"""Workers elsewhere that a party's own policy entrusts with its keys: `cluster_holds_key = true`."""

from __future__ import annotations

from treetap.usage import Usage
from treetap.workers.engines import EngineHost, FitForKeys, KeyEngine


class EntrustedHost:
    """A host of workers as one whose workers may hold keys. Made where that policy has been read, and nowhere else."""

    def __init__(self, host: EngineHost) -> None:
        self._host = host

    def lease(self) -> KeyEngine:
        """See `EngineHost.lease`."""
        return FitForKeys(self._host.lease())

    def usage(self) -> list[Usage]:
        """See `EngineHost.usage`."""
        return self._host.usage()

    async def close(self) -> None:
        """See `EngineHost.close`."""
        await self._host.close()
