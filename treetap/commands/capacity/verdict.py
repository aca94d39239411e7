"""Memory of each process of a training, demands of a tree on each resource, and the resource that saturates first.

Memory is that of the arrays and ciphertexts that a process keeps at its fullest. The demand on a resource is the time
that a tree would take if that resource alone bounded it. A simulated tree takes at least the largest demand; how much
more, is waiting of one for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from treetap.additive.sums.joint_cells import BATCH
from treetap.additive.sums.kernel_timings import BLOCK
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER
from treetap.commands.capacity.machines import Party
from treetap.commands.capacity.simulation import Tree
from treetap.commands.capacity.training import PartyColumns

MIB = 2**20
#: Bytes of a number of an array, a position, a sum or a value.
_LONG = 8
#: Features of more bytes stay in their source, if that is of files that are read in parts.
_STREAMED = 128 * MIB
LINE, SERIES = "line", "messages, one after the other"


@dataclass(frozen=True)
class Memory:
    """Bytes of the processes of one party."""

    main: float
    worker: float
    first_node: float  # of the main process, with its workers
    other_node: float  # each further machine


@dataclass(frozen=True)
class Demand:
    """Seconds that a tree takes at least by one resource, at a party; `kind`: cores, main process, line, …."""

    party: str
    kind: str
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """Demands, the largest first, and memory by party.

    `line_bits_per_s`: the bandwidth below which a line between parties would saturate first. `too_full`: parties of
    which a machine lacks memory.
    """

    demands: tuple[Demand, ...]
    memory: Mapping[str, Memory]
    line_bits_per_s: float
    too_full: tuple[str, ...]

    @property
    def first(self) -> str:
        """Name of the resource that saturates first, in words."""
        if self.too_full:
            return f"memory of {', '.join(self.too_full)}"
        return f"{self.demands[0].party}: {self.demands[0].kind}"


def judge(tree: Tree) -> Verdict:
    """The verdict on a simulated tree."""
    site, parties = tree.world.site, [tree.holder, *tree.others.values()]
    demands = [demand for party in parties for demand in _of_party(party, shared=site.one_machine)]
    demands += [
        Demand(f"{line.sender.name} to {line.receiver.name}", SERIES, line.seconds)
        for line in (*tree.to.values(), *tree.back.values())
    ]
    if site.one_machine:
        work = sum(process.seconds for party in parties for process in (party.main, *party.workers))
        demands.insert(0, Demand("the machine", "cores", work / site.cores))
    demands.sort(key=lambda demand: -demand.seconds)
    others = max(demand.seconds for demand in demands if demand.kind not in (LINE, SERIES))
    fullest = max(max(party.out.bytes, party.into.bytes) for party in parties)
    memory = {party.name: _memory(tree, party) for party in parties}
    full = [name for name, each in memory.items() if max(each.first_node, each.other_node) > site.memory * 1e9]
    return Verdict(tuple(demands), memory, 8 * fullest / others if others else 0.0, tuple(full))


def _of_party(party: Party, *, shared: bool) -> Iterable[Demand]:
    work, site = [worker.seconds for worker in party.workers], party.world.site
    by_cores = 0.0 if shared else sum(work) / (party.nodes * min(site.cores, site.workers_each))
    yield Demand(party.name, "main process", party.main.seconds)
    yield Demand(party.name, "workers", max(*work, by_cores))
    if not shared:
        yield Demand(party.name, LINE, max(party.out.seconds, party.into.seconds))
        inner = max(party.inner_out.seconds, party.inner_into.seconds)
        yield Demand(party.name, "network between its nodes", inner)


def _memory(tree: Tree, party: Party) -> Memory:
    """Memory of the main process and of the workers of a party."""
    training, host, slots = tree.training, tree.world.host, len(tree.training.slots.widths)
    main, worker = host.process_mb * MIB, host.worker_mb * MIB
    if party is tree.holder:  # bins, summands, scores before and after a round, labels, rows of the nodes
        main += _table(training.records, training.own) + training.records * (2 * slots + 6) * _LONG
        worker += IN_FLIGHT_PER_WORKER * BLOCK * (slots * _LONG + training.key.ciphertext_bytes)
    else:  # ciphertexts and bins of the worker's records, and the places of those that the fullest level sums
        columns, counts = training.others[party.name], tree.counts[party.name]
        main += _table(training.records, columns) + training.records * 4 * _LONG
        built = max((sum(level.built) for level in training.levels[1:]), default=0) / counts.workers
        worker += training.drawn / counts.workers * (tree.kernels.number_bytes + columns.row_bytes)
        worker += built * (columns.row_bytes + _LONG) + 4 * _LONG * min(BATCH, built * counts.groups)
    workers = tree.world.site.workers_each * worker
    return Memory(main, worker, main + workers, workers * (party.nodes > 1))


def _table(records: int, columns: PartyColumns) -> float:
    """Bins, and features as long as they are not left in their source."""
    return records * columns.row_bytes + min(records * len(columns.shapes) * _LONG, _STREAMED)
