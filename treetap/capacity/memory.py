"""Memory of each process of a training, from the arrays and ciphertexts that it keeps at its fullest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treetap.additive.sums.joint_cells import BATCH
from treetap.additive.sums.kernel_timings import BLOCK, KernelCosts
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER
from treetap.capacity.measurements import HostCosts
from treetap.capacity.site import Nodes, Site
from treetap.capacity.training import PartyColumns, PartyCounts, Training

MIB = 2**20
#: Bytes of a number of an array: positions and sums, values of a table.
_LONG, _VALUE = 8, 8
#: Features of more bytes stay in their source, if that is of files that are read in parts.
_STREAMED = 128 * MIB


@dataclass(frozen=True)
class Memory:
    """Bytes of the processes of one party.

    Attributes:
        main: the main process.
        worker: each worker; 0 where the party has none that work for it.
        nodes: the machines that have workers.
        first_node: the machine of the main process, with its workers.
        other_node: each further machine.
    """

    main: float
    worker: float
    nodes: int
    first_node: float
    other_node: float

    def fits(self, memory_gb: float) -> bool:
        """True if every machine of that memory holds its processes."""
        return max(self.first_node, self.other_node) <= memory_gb * 1e9


def memory_of(
    training: Training, site: Site, host: HostCosts, kernels: KernelCosts, counts: Mapping[str, PartyCounts]
) -> dict[str, Memory]:
    """By party, the label holder under "label holder"."""
    holder, other = site.key_nodes, site.feature_party
    found = {"label holder": _party(_holder_main(training, host), _holder_worker(training, host), holder)}
    for name, columns in training.others.items():
        main = host.process_mb * MIB + _table(training.records, columns) + training.records * 4 * _LONG
        found[name] = _party(main, _summing_worker(training, columns, counts[name], host, kernels), other)
    return found


def _party(main: float, worker: float, nodes: Nodes) -> Memory:
    return Memory(main, worker, nodes.count, main + nodes.workers * worker, nodes.workers * worker * (nodes.count > 1))


def _holder_main(training: Training, host: HostCosts) -> float:
    """Bins of the own columns, summands, scores before and after a round, labels, rows of the nodes."""
    slots = len(training.slots.widths)
    each = (2 * slots + 6) * _LONG
    return host.process_mb * MIB + _table(training.records, training.own) + training.records * each


def _table(records: int, columns: PartyColumns) -> float:
    """Bins, and features as long as they are not left in their source."""
    features = records * len(columns.shapes) * _VALUE
    return records * columns.row_bytes + (features if features <= _STREAMED else _STREAMED)


def _holder_worker(training: Training, host: HostCosts) -> float:
    """Blocks under way, and tables of fixed bases."""
    block = BLOCK * (len(training.slots.widths) * _LONG + training.key.ciphertext_bytes)
    return host.worker_mb * MIB + IN_FLIGHT_PER_WORKER * block


def _summing_worker(
    training: Training, columns: PartyColumns, counts: PartyCounts, host: HostCosts, kernels: KernelCosts
) -> float:
    """Ciphertexts and bins of its records, and the places of those that the fullest level sums."""
    held = training.drawn / counts.workers
    built = max((sum(level.built) for level in training.levels[1:]), default=0) / counts.workers
    bins = columns.row_bytes
    summed = built * (bins + _LONG) + 4 * _LONG * min(BATCH, built * counts.groups)
    return host.worker_mb * MIB + held * (kernels.number_bytes + bins) + summed
