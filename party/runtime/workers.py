"""A party's workers: those for plans, codes and ciphertexts, and those that may hold its keys; often the same ones."""

from __future__ import annotations

from collections.abc import Callable

from treetap.process.together import together
from treetap.usage import Usage
from treetap.workers.engines import Engine, EngineHost, KeyEngine, KeyEngineHost, await_workers


class PartyWorkers:
    """The engines of all jobs of a party.

    Args:
        keys: workers that may hold the party's keys.
        elsewhere: workers of a cluster for all that needs no key; None: `keys` does that too.
        named: what accounts call a worker that does everything.
        nodes: the addresses of the cluster's nodes on which workers are.
    """

    def __init__(
        self,
        keys: KeyEngineHost,
        elsewhere: EngineHost | None = None,
        *,
        named: str = "worker",
        nodes: Callable[[], list[str]] = list,
    ) -> None:
        self._keys, self._elsewhere, self._name, self.nodes = keys, elsewhere, named, nodes

    def lease(self) -> tuple[Engine, KeyEngine]:
        """The workers for one attempt, and those among them or beside them for its keys."""
        keys = self._keys.lease()
        return (keys if self._elsewhere is None else self._elsewhere.lease()), keys

    def usage(self) -> dict[str, Usage]:
        """Memory and time of each worker process so far, by its name within the party."""
        if self._elsewhere is None:
            return _named(self._name, self._keys)
        return _named("cluster worker", self._elsewhere) | _named("key worker", self._keys)

    async def ready(self) -> None:
        """Wait until every worker answers."""
        await together(*(await_workers(host) for host in self._hosts))

    async def close(self) -> None:
        for host in self._hosts:
            await host.close()

    @property
    def _hosts(self) -> list[EngineHost]:
        return [self._keys] if self._elsewhere is None else [self._keys, self._elsewhere]


def _named(what: str, host: EngineHost) -> dict[str, Usage]:
    return {f"{what} {number}": used for number, used in enumerate(host.usage())}
