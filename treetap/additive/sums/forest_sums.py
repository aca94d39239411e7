"""Ciphertexts that stay in the workers for all trees of a job: a forest's encrypted labels at a feature party.

Blocks go to the workers in turn and stay there; between calls only places, bins and products travel. A ciphertext of a
2048-bit key takes 512 bytes, and about 50 more as a number in a worker's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.additive.sums.kernels import CandidateKernels, close_tree, keep, open_pool, pool_bins
from treetap.additive.sums.layout_counts import candidate_products
from treetap.additive.sums.public_keys import PublicKey, handed
from treetap.additive.sums.slots import Slots
from treetap.errors import Conflict, Malformed
from treetap.trees.shapes import Shape
from treetap.workers.engines import Engine

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class NodeTask:
    """The input of one node's sums: records (n,), a record as often as it counts, their bins (n, d), and the order
    (candidates,) in which the candidates are sent."""

    rows: Ints
    codes: Ints
    order: Ints


class ForestSums:
    """One ciphertext per record, summed per split candidate for any number of trees; learns nothing, having no key.

    Args:
        engine: workers.
        public: the label holder's key.
        slots: layout of one record's plaintext.
        records: N.
        token: names the pool in the workers' memory.

    Attributes:
        received: ciphertexts that have come, those of the records 0, 1, … in this order.
        operations: products ("additions", by layout), packed ciphertexts ("packings") and fresh standard obfuscators
            ("obfuscators") so far; no count depends on the data.
        products: products computed so far, which depends on the data.

    Raises:
        PlaintextOverflow: one record does not fit a plaintext of this key.
    """

    def __init__(self, engine: Engine, public: PublicKey, slots: Slots, records: int, token: str) -> None:
        self._engine, self._public, self._bits = engine, public, slots.bits
        self._name = f"pool/{token}"
        self._per_plaintext = slots.groups_per_plaintext(public.plain_bits)
        self._kernels = CandidateKernels(engine, public, self._per_plaintext, self._name)
        self._worker_of = np.zeros(records, dtype=np.int32)
        self._place_of = np.zeros(records, dtype=np.int64)
        self._blocks = 0
        self.received = 0
        self.operations: dict[str, int] = {"additions": 0, "packings": 0, "obfuscators": 0}
        self.products = 0

    async def add_block(self, first: int, ciphertexts: bytes) -> None:
        """Keep the ciphertexts of the records from `first` on.

        Raises:
            Malformed: not whole ciphertexts, none of this key, or more than there are records.
            Conflict: `first` is not the next record.
        """
        count, rest = divmod(len(ciphertexts), self._public.ciphertext_bytes)
        if rest or self.received + count > len(self._worker_of):
            raise Malformed(f"{len(ciphertexts)} bytes are not the ciphertexts of records that are still to come")
        if first != self.received:
            raise Conflict(f"the ciphertexts of record {first} came when those of record {self.received} were due")
        if not self._blocks:
            opening = (handed(self._public), self._bits, self._per_plaintext)
            await self._kernels.everywhere(open_pool, *[opening] * self._engine.workers)
        worker = self._blocks % self._engine.workers
        start = await self._engine.call(worker, keep, self._name, ciphertexts)
        self._worker_of[first : first + count] = worker
        self._place_of[first : first + count] = start + np.arange(count)
        self._blocks += 1
        self.received += count

    async def candidates(
        self, nodes: Sequence[NodeTask], shapes: Sequence[tuple[int, bool] | Shape], drawn: int
    ) -> bytes:
        """Packed, re-randomised left sums of every candidate of every node, node-major.

        Args:
            nodes: the nodes' records, bins and orders.
            drawn: the number of records of all nodes of a level together, a record as often as it counts.
            shapes: those of the columns of the nodes' bins; missing is bin n_bins.

        Raises:
            ValueError: the ciphertexts are not all there, or a bin or an order does not fit the shapes.
        """
        if self.received < len(self._worker_of):
            raise ValueError(f"{self.received} of {len(self._worker_of)} ciphertexts are there")
        kinds = [Shape(*kind) for kind in shapes]
        radices = [shape.n_bins + shape.has_missing for shape in kinds]
        count = sum(shape.sums for shape in kinds)
        for node in nodes:
            if sorted(node.order.tolist()) != list(range(count)):
                raise ValueError(f"not a permutation of the {count} candidates")
            if node.codes.size and ((node.codes < 0).any() or (node.codes >= np.array(radices)).any()):
                raise ValueError("a bin is outside its feature's range")
        if not nodes or not count:
            return b""
        # A node's records lie in the workers where their ciphertexts are kept.
        parts: list[list[tuple[Ints, Ints]]] = [[] for _ in range(self._engine.workers)]
        for node in nodes:
            worker_of = self._worker_of[node.rows]
            for worker, part in enumerate(parts):
                here = worker_of == worker
                part.append((self._place_of[node.rows[here]], node.codes[here]))
        answers = await self._kernels.everywhere(pool_bins, *[(part, radices) for part in parts])
        partial = [products for products, _ in answers]
        packed, additions = await self._kernels.finish(partial, kinds, [node.order for node in nodes])
        # What was multiplied is known to this party alone; what it reports follows from the layout.
        self.products += additions + sum(products for _, products in answers)
        self.operations["additions"] += candidate_products(drawn, kinds, len(nodes), self._engine.workers)
        self.operations["packings"] += len(packed) // self._public.ciphertext_bytes
        self.operations["obfuscators"] += len(packed) // self._public.ciphertext_bytes
        return packed

    async def close(self) -> None:
        """Free the workers' memory."""
        self._engine.forget(close_tree, self._name)
