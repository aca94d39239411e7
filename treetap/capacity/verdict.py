"""Demands of a tree on each resource, and the resource that saturates first.

The demand on a resource is the time that a tree would take if that resource alone bounded it. A simulated tree takes at
least the largest demand; how much more, is waiting of one for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from treetap.capacity.memory import Memory
from treetap.capacity.processes import PartyProcesses
from treetap.capacity.simulation import Simulated
from treetap.capacity.site import Nodes, Site

LINE, SERIES = "line", "messages, one after the other"


@dataclass(frozen=True)
class Demand:
    """Seconds that a tree takes at least by one resource, at a party; `kind`: cores, main process, line, …."""

    party: str
    kind: str
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """Demands, the largest first.

    Attributes:
        line_bits_per_s: the bandwidth below which a line between parties would saturate first.
        too_full: parties of which a machine lacks memory.
    """

    demands: tuple[Demand, ...]
    line_bits_per_s: float
    too_full: tuple[str, ...]

    @property
    def first(self) -> str:
        """Name of the resource that saturates first, in words."""
        if self.too_full:
            return f"memory of {', '.join(self.too_full)}"
        return f"{self.demands[0].party}: {self.demands[0].kind}"


def judge(found: Simulated, site: Site, memory: Mapping[str, Memory]) -> Verdict:
    """The verdict on a simulated tree."""
    demands: list[Demand] = []
    parties = [found.label_holder, *found.feature_parties.values()]
    if site.one_machine:
        machine = found.world.machines[0]
        demands.append(Demand("the machine", "cores", machine.busy / machine.cores))
    for party in parties:
        demands += _of_party(party, shared=site.one_machine)
    for each in found.connections:
        demands.append(Demand(f"{each.sender.name} to {each.receiver.name}", SERIES, each.seconds))
    demands.sort(key=lambda each: -each.seconds)
    others = max(each.seconds for each in demands if each.kind not in (LINE, SERIES))
    fullest = max(max(party.out.bytes, party.into.bytes) for party in parties)
    too_full = tuple(
        name
        for name, each in memory.items()
        if not each.fits((site.key_nodes if name == found.label_holder.name else site.feature_party).memory_gb)
    )
    return Verdict(tuple(demands), 8 * fullest / others if others else 0.0, too_full)


def _of_party(party: PartyProcesses, *, shared: bool) -> Iterable[Demand]:
    main = sum(party.main.seconds.values())
    work = [sum(each.seconds.values()) for each in party.workers]
    yield Demand(party.name, "main process", main)
    yield Demand(party.name, "workers", max(*work, 0.0 if shared else _by_cores(party.nodes, sum(work))))
    if not shared:
        yield Demand(party.name, LINE, max(party.out.seconds, party.into.seconds))
        yield Demand(party.name, "network between its nodes", party.inner_seconds)


def _by_cores(nodes: Nodes, work: float) -> float:
    """Seconds of work on all cores of a party."""
    return work / (nodes.count * min(nodes.cores, nodes.workers))
