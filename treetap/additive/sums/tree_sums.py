"""A feature party's encrypted candidate sums: of one tree of gradients (SecureBoost, Algorithm 1), and of a forest.

    blocks ──► worker k mod workers: kept as integers; a tree's are multiplied into the root's cells at once
    candidates:
      (a) each worker multiplies its own records per (node, feature, bin)
      (b) per (node, feature): workers are merged, bins become left sums of split candidates
      (c) candidates in permuted order are packed, each packed ciphertext with a fresh standard obfuscator

Each part is spread over all workers. Blocks stay in their worker, those of a forest's labels for all trees of the job;
between parts only places, bins and products travel. A ciphertext of a 2048-bit key takes 512 bytes, and about 50 more
as a number in a worker's memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.sums.joint_cells import plan
from treetap.additive.sums.kernels import CandidateSums, Held, HeldTree
from treetap.errors import Conflict, Malformed
from treetap.process.together import ended
from treetap.trees.candidates import Shape
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine

Rows = npt.NDArray[np.integer]
_ABSENT, _ON_THE_WAY = -1, -2
Ints = npt.NDArray[np.integer[Any]]


class EncryptedSums(CandidateSums):
    """Sums ciphertexts of one tree's gradients per split candidate; learns nothing, since it holds no key.

    One call at a time; a cancelled one leaves no call to a worker under way, except for blocks, until `close`.

    Candidates in canonical order, feature by feature. A feature without missing values offers v = 0..n_bins-2, whose
    left sum holds the bins ≤ v. One with missing values offers for v = 0..n_bins-1 (v, missing right) and then, if
    v < n_bins-1, (v, missing left), whose left sum has the missing bin added. A feature of categories offers each
    against the rest, whose left sum holds the others (missing left, and then, with missing values, right), or its bins
    as they are, for the label holder to partition.

    Args:
        engine: workers.
        public: the label holder's key.
        slots: layout of one record's plaintext.
        codes: (N, d) integer bins, missing = n_bins; d may be 0.
        shapes: those of the features.
        joint_cells: True if features may share joint cells (`treetap.additive.sums.joint_cells`); off only for
            measurements.

    Attributes:
        n_candidates: candidates per node.

    Raises:
        ValueError: codes and shapes disagree.
        PlaintextOverflow: one record does not fit a plaintext of this key.
    """

    def __init__(
        self,
        engine: Engine,
        public: PublicKey,
        slots: Slots,
        codes: npt.NDArray[np.integer],
        shapes: Sequence[tuple[int, bool] | Shape],
        *,
        joint_cells: bool = True,
    ) -> None:
        if codes.ndim != 2 or codes.shape[1] != len(shapes):
            raise ValueError(f"codes of shape {codes.shape} do not have one column for each of {len(shapes)} features")
        self._shapes = [Shape(*kind) for kind in shapes]
        radices = [shape.n_bins + shape.has_missing for shape in self._shapes]
        if codes.size and ((codes.min(axis=0) < 0).any() or (codes.max(axis=0) >= np.array(radices)).any()):
            raise ValueError("a bin is outside its feature's range")
        super().__init__(engine, public, slots, len(codes))
        self._codes, self._radices, self._joint_cells = codes, radices, joint_cells
        self._worker_of[:] = _ABSENT
        self._under_way: list[asyncio.Future[None]] = []
        self.n_candidates = sum(shape.sums for shape in self._shapes)

    async def add_block(self, rows: Rows, ciphertexts: bytes) -> None:
        """Take a block of ciphertexts and multiply it into the root's cells.

        So that every worker has work, up to workers - 1 blocks are still under way on return; errors about their
        ciphertexts are then raised by a later `add_block` or `candidates`. A block that is refused changes nothing.

        Args:
            rows: position of each ciphertext's record, 0..N-1.
            ciphertexts: their blocks, concatenated.

        Raises:
            Malformed: another number of ciphertexts than rows, a row outside the table, or no ciphertexts.
            Conflict: a row that came before.
        """
        rows = np.asarray(rows, dtype=np.int64)
        if len(ciphertexts) != len(rows) * self._public.ciphertext_bytes:
            raise Malformed(
                f"{len(rows)} records need {len(rows) * self._public.ciphertext_bytes} bytes of ciphertexts, "
                f"got {len(ciphertexts)}"
            )
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self._codes)):
            raise Malformed(f"a block names a record outside the {len(self._codes)} common ones")
        await self._open()
        ascending = (rows[1:] > rows[:-1]).all()
        if (self._worker_of[rows] != _ABSENT).any() or not (ascending or len(np.unique(rows)) == len(rows)):
            raise Conflict("a record's ciphertext came twice in one tree")
        worker = self._blocks % self._engine.workers
        self._blocks += 1
        self._worker_of[rows] = _ON_THE_WAY
        self._under_way.append(asyncio.ensure_future(self._accumulate(worker, rows, ciphertexts)))
        await self._settle(self._engine.workers - 1)

    async def candidates(
        self,
        nodes: Sequence[Rows] | None,
        permutation: npt.NDArray[np.integer],
        merged: Sequence[npt.NDArray[np.integer]] | None = None,
        noise: npt.NDArray[np.int64] | None = None,
    ) -> bytes:
        """Packed, re-randomised left sums of every candidate of every node.

        Args:
            nodes: records of each node; only those whose ciphertexts came count. None is the root: all that came.
            permutation: candidate `permutation[k]` takes place k in each node.
            merged: for each node the bin in which the records of each bin of a feature are counted, (features, bins).
            noise: (sums, S) to be added, node-major and in this order.

        Returns:
            Concatenated ciphertexts of `groups_per_plaintext` candidates each, node-major.
        """
        if sorted(permutation.tolist()) != list(range(self.n_candidates)):
            raise ValueError(f"not a permutation of the {self.n_candidates} candidates")
        await self._open()
        await self._settle(0)
        count = 1 if nodes is None else len(nodes)
        if count == 0 or self.n_candidates == 0:
            return b""
        partial = await self._sum_bins(nodes, merged)
        came = int(np.count_nonzero(self._worker_of != _ABSENT))
        return await self.finish(partial, self._shapes, [permutation] * count, came, noise)

    async def close(self) -> None:
        """Free the workers' memory of this tree; results of blocks still under way are dropped."""
        await ended(self._under_way)
        await super().close()

    async def _accumulate(self, worker: int, rows: Rows, ciphertexts: bytes) -> None:
        """Have a worker keep a block, and note the places of its ciphertexts."""
        try:
            start, additions = await self._on(worker, HeldTree.add, self._codes[rows], ciphertexts)
        except BaseException:
            self._worker_of[rows] = _ABSENT
            raise
        self._worker_of[rows] = worker
        self._place_of[rows] = start + np.arange(len(rows))
        self.products += additions

    async def _settle(self, allowed: int) -> None:
        """Wait until at most `allowed` blocks are under way; raise the error of one that failed."""
        while len(self._under_way) > allowed:
            oldest = self._under_way[0]
            try:
                # Shielded: a cancelled caller must not remove a block from its worker.
                await asyncio.shield(oldest)
            finally:
                if oldest.done() and oldest in self._under_way:
                    self._under_way.remove(oldest)

    async def _open(self) -> None:
        """Create this tree in every worker before any other call; again if the caller was cancelled meanwhile."""
        if self._parts:
            return
        rows = len(self._codes) // self._engine.workers
        single: list[tuple[int, ...]] = [(feature,) for feature in range(len(self._radices))]
        groups = plan(self._codes, self._radices, rows) if self._joint_cells else single
        sizes = self._bits, self._per_plaintext, self._radices, groups
        await self._make(HeldTree, self._public, *sizes, self._joint_cells)

    async def _sum_bins(
        self, nodes: Sequence[Rows] | None, merged: Sequence[npt.NDArray[np.integer]] | None
    ) -> list[tuple[bytes, int]]:
        """Part (a): per worker the products of its records, (node, feature, bin) in this order; their number."""
        workers = self._engine.workers
        if nodes is None:
            return await self._on_all(HeldTree.root_bins)
        parts: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(workers)]
        for rows in nodes:
            worker_of = self._worker_of[rows]
            for worker in range(workers):
                parts[worker].append(self._place_of[rows[worker_of == worker]])
        return await self.everywhere(HeldTree.node_bins, *[(part, merged) for part in parts])


@dataclass(frozen=True)
class NodeTask:
    """The input of one node's sums: records (n,), a record as often as it counts, their bins (n, d), and the order
    (candidates,) in which the candidates are sent."""

    rows: Ints
    codes: Ints
    order: Ints


class PooledSums(CandidateSums):
    """One ciphertext per record, summed per split candidate for any number of trees; learns nothing, having no key.

    Args:
        engine: workers.
        public: the label holder's key.
        slots: layout of one record's plaintext.
        records: N.

    Attributes:
        received: ciphertexts that have come, those of the records 0, 1, … in this order.

    Raises:
        PlaintextOverflow: one record does not fit a plaintext of this key.
    """

    def __init__(self, engine: Engine, public: PublicKey, slots: Slots, records: int) -> None:
        super().__init__(engine, public, slots, records)
        self.received = 0

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
            await self._make(Held, self._public, self._bits, self._per_plaintext)
        worker = self._blocks % self._engine.workers
        start = await self._on(worker, Held.keep, ciphertexts)
        self._worker_of[first : first + count] = worker
        self._place_of[first : first + count] = start + np.arange(count)
        self._blocks += 1
        self.received += count

    async def candidates(
        self,
        nodes: Sequence[NodeTask],
        shapes: Sequence[tuple[int, bool] | Shape],
        drawn: int,
        noise: npt.NDArray[np.int64] | None = None,
    ) -> bytes:
        """Packed, re-randomised left sums of every candidate of every node, node-major.

        Args:
            nodes: the nodes' records, bins and orders.
            drawn: the number of records of all nodes of a level together, a record as often as it counts.
            shapes: those of the columns of the nodes' bins; missing is bin n_bins.
            noise: (sums, S) to be added, node-major and in the nodes' orders.

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
        partial = await self.everywhere(Held.bins, *[(part, radices) for part in parts])
        return await self.finish(partial, kinds, [node.order for node in nodes], drawn, noise)
