"""Kernels of one worker over the ciphertexts that it holds, for the sums of one tree and of a forest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.additive.paillier.public_key import Packer, PublicKey
from treetap.additive.residues.batches import Batch
from treetap.additive.sums.joint_cells import BinProducts, Codes, RootCells, bin_products
from treetap.process.together import together
from treetap.trees.candidates import Kind, Shape
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine, InWorkers


class Held:
    """Ciphertexts in a worker, in the order in which they came, with the key and the layout of slots.

    They are factors: only products by cells are taken of them.
    """

    def __init__(self, public: PublicKey, bits: int, per_plaintext: int) -> None:
        self.public = public
        self.packer = Packer(public, bits, per_plaintext)
        self.count = 0
        self._blocks: list[Batch] = []

    def keep(self, ciphertexts: bytes) -> int:
        """Keep a block; place of its first ciphertext."""
        start = self.count
        self._append(ciphertexts)
        return start

    def _append(self, ciphertexts: bytes) -> Batch:
        values = self.public.read_factors(ciphertexts)
        self._blocks.append(values)
        self.count += len(values)
        return values

    @property
    def values(self) -> Batch:
        """All ciphertexts, in one batch."""
        if len(self._blocks) != 1:
            joined = np.empty((self.count, *self.public.ring.ones(0).shape[1:]), dtype=self.public.ring.ones(0).dtype)
            first = 0
            while self._blocks:  # each is released once it is copied, so that memory does not double
                block = self._blocks.pop(0)
                joined[first : first + len(block)] = block
                first += len(block)
            self._blocks = [joined]
        return self._blocks[0]

    def bins(self, nodes: list[tuple[npt.NDArray[np.int64], Codes]], radices: list[int]) -> tuple[bytes, int]:
        """Part (a), from the places and bins of each node's records: (bins node-major, products computed).

        A place that occurs twice counts twice.
        """
        return self._written(bin_products(self.public.ring, self.values, nodes, radices))

    def _written(self, products: BinProducts) -> tuple[bytes, int]:
        """Bins as bytes, an empty one as the trivial ciphertext 1; products computed."""
        return self.public.write_products(products.values, products.factors), products.computed

    def left_sums(self, partial: list[bytes], shapes: list[Shape]) -> tuple[bytes, int]:
        """Part (b): merge the workers' bins of consecutive features, make candidates; (left sums, products computed).

        `shapes`: those of the features. The bins of categories that are to be partitioned stay as they are.
        """
        # Each worker has the bins of its own records: their products are the bins of all.
        bins = _Sums.read(self.public, partial[0])
        for part in partial[1:]:
            bins.multiply(np.arange(len(bins.values)), _Sums.read(self.public, part))
        starts = np.cumsum([0, *(shape.n_bins + shape.has_missing for shape in shapes)])[:-1]
        first = np.cumsum([0, *(shape.sums for shape in shapes)])
        sums = _Sums.ones(self.public, int(first[-1]))
        kinds = {kind: [f for f, shape in enumerate(shapes) if shape.kind is kind] for kind in Kind}
        # The label holder orders the categories of a partition itself, and gets one sum for each.
        for f in kinds[Kind.PARTITIONS]:
            categories = np.arange(shapes[f].n_bins)
            sums.put(first[f] + categories, bins.take(starts[f] + categories))
        computed = 0
        for make, kind in ((_cuts, Kind.NUMBERS), (_against_the_rest, Kind.ONE_HOT)):
            if chosen := kinds[kind]:
                counts = np.array([shapes[f].n_bins for f in chosen], dtype=np.int64)
                missing = np.array([shapes[f].has_missing for f in chosen], dtype=np.bool_)
                computed += make(self.public, bins, sums, starts[chosen], first[:-1][chosen], counts, missing)
        return self.public.write(sums.values), bins.computed + sums.computed + computed

    def pack(self, candidates: bytes, added: Sequence[int] = ()) -> bytes:
        """Part (c): pack consecutive candidates, each packed ciphertext under a fresh standard obfuscator.

        `added`: plaintexts to add to the packed ones.
        """
        packed = self.packer.pack_fresh(self.public.read(candidates))
        return self.public.write(self.public.shifted(packed, added) if added else packed)


class HeldTree(Held):
    """A worker's part of a tree: its records' ciphertexts and bins, and the root's cells."""

    def __init__(
        self,
        public: PublicKey,
        bits: int,
        per_plaintext: int,
        radices: list[int],
        root_groups: list[tuple[int, ...]],
        joint_cells: bool,
    ) -> None:
        super().__init__(public, bits, per_plaintext)
        self._radices, self._joint_cells = radices, joint_cells
        self._codes: list[Codes] = []
        self._root = RootCells(public.ring, root_groups, radices)

    def add(self, codes: Codes, ciphertexts: bytes) -> tuple[int, int]:
        """Keep a block and multiply it into the root's cells; (place of its first ciphertext, products computed)."""
        start = self.count
        values = self._append(ciphertexts)
        self._codes.append(codes.copy())
        return start, self._root.add(values, codes)

    def root_bins(self) -> tuple[bytes, int]:
        """Part (a) at the root: (all bins of all features, products computed)."""
        return self._written(self._root.bins())

    def node_bins(self, nodes: list[npt.NDArray[np.int64]], merged: Sequence[Codes] | None = None) -> tuple[bytes, int]:
        """Part (a) below the root, from the places of each node's records: (bins node-major, products computed).

        `merged`: for each node the bin in which the records of each bin are counted, (features, bins).
        """
        if len(self._codes) > 1:
            self._codes = [np.concatenate(self._codes)]
        empty = np.empty((0, len(self._radices)), dtype=np.int64)
        tasks = [(places, self._codes[0][places] if len(places) else empty) for places in nodes]
        if merged is not None:
            every = np.arange(len(self._radices))
            tasks = [(places, bins[every, codes]) for (places, codes), bins in zip(tasks, merged, strict=True)]
        return self._written(bin_products(self.public.ring, self.values, tasks, self._radices, self._joint_cells))


def _cuts(
    public: PublicKey,
    bins: _Sums,
    sums: _Sums,
    starts: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    missing: npt.NDArray[np.bool_],
) -> int:
    """Left sums of the cuts of features whose bins and sums begin at `starts` and `first`; products beside those."""
    running, at = _Sums.ones(public, len(counts)), first.copy()
    for v in range(int(counts.max(initial=0))):
        here = np.flatnonzero(v < counts - ~missing)
        running.multiply(here, bins.take(starts[here] + v))
        sums.put(at[here], running.take(here))
        at[here] += 1
        both = here[missing[here] & (v < counts[here] - 1)]
        sums.put(at[both], running.take(both))
        sums.multiply(at[both], bins.take(starts[both] + counts[both]))
        at[both] += 1
    return running.computed


def _against_the_rest(
    public: PublicKey,
    bins: _Sums,
    sums: _Sums,
    starts: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    missing: npt.NDArray[np.bool_],
) -> int:
    """Left sums of the categories against the rest: the products of the others, made without a division.

    Arguments and result: see `_cuts`.
    """
    ahead, behind = _Sums.ones(public, len(counts)), _Sums.ones(public, len(counts))
    largest, step = int(counts.max(initial=0)), 1 + missing
    for v in range(largest):
        here = np.flatnonzero(v < counts)
        sums.put(first[here] + v * step[here], ahead.take(here))
        ahead.multiply(here, bins.take(starts[here] + v))
    for v in reversed(range(largest)):
        here = np.flatnonzero(v < counts)
        at = first[here] + v * step[here]
        sums.multiply(at, behind.take(here))
        behind.multiply(here, bins.take(starts[here] + v))
        both = missing[here]
        sums.put(at[both] + 1, sums.take(at[both]))
        sums.multiply(at[both], bins.take((starts + counts)[here[both]]))
    return ahead.computed + behind.computed


class _Sums:
    """Ciphertexts of sums of which some are empty: the trivial ciphertext 1, which takes no product."""

    def __init__(self, public: PublicKey, values: Batch, occupied: npt.NDArray[np.bool_]) -> None:
        self._public, self.values, self._occupied = public, values, occupied
        self.computed = 0

    @classmethod
    def read(cls, public: PublicKey, data: bytes) -> _Sums:
        return cls(public, public.read(data), ~public.trivial(data))

    @classmethod
    def ones(cls, public: PublicKey, count: int) -> _Sums:
        return cls(public, public.ring.ones(count), np.zeros(count, dtype=np.bool_))

    def take(self, at: npt.NDArray[np.int64]) -> _Sums:
        return _Sums(self._public, self.values[at], self._occupied[at])

    def put(self, at: npt.NDArray[np.int64], other: _Sums) -> None:
        self.values[at], self._occupied[at] = other.values, other._occupied

    def multiply(self, at: npt.NDArray[np.int64], other: _Sums) -> None:
        """Multiply the sums at different places by others."""
        both = self._occupied[at] & other._occupied
        only = ~self._occupied[at] & other._occupied
        self.values[at[both]] = self._public.ring.multiply(self.values[at[both]], other.values[both])
        self.values[at[only]] = other.values[only]
        self._occupied[at] |= other._occupied
        self.computed += int(np.count_nonzero(both))


class CandidateSums(InWorkers):
    """Parts (b) and (c) of the sums over the workers, and their account.

    Args:
        engine: workers.
        public: the label holder's key.
        slots: layout of one record's plaintext.
        records: N.

    Attributes:
        operations: products ("additions", by layout), packed ciphertexts ("packings") and fresh standard obfuscators
            ("obfuscators") so far; no count depends on the data.
        products: products computed so far, which depends on the data.

    Raises:
        PlaintextOverflow: one record does not fit a plaintext of this key.
    """

    def __init__(self, engine: Engine, public: PublicKey, slots: Slots, records: int) -> None:
        super().__init__(engine)
        self._public, self._bits, self._slots = public, slots.bits, slots
        self._per_plaintext = slots.groups_per_plaintext(public.plain_bits)
        # The place of each record's ciphertext: its worker and its index there.
        self._worker_of = np.zeros(records, dtype=np.int32)
        self._place_of = np.zeros(records, dtype=np.int64)
        self._blocks = 0
        self.operations: dict[str, int] = {"additions": 0, "packings": 0, "obfuscators": 0}
        self.products = 0

    async def everywhere(self, method: Any, *args: tuple[Any, ...]) -> list[Any]:
        """One call per argument tuple, the k-th of worker k's part."""
        return await together(*(self._on(worker, method, *values) for worker, values in enumerate(args)))

    async def finish(
        self,
        partial: Sequence[tuple[bytes, int]],
        shapes: Sequence[Shape],
        orders: Sequence[npt.NDArray[np.integer[Any]]],
        records: int,
        noise: npt.NDArray[np.int64] | None = None,
    ) -> bytes:
        """Packed candidates of every node.

        Args:
            partial: per worker the products of its records, (node, feature, bin) in this order, and how many it took.
            shapes: those of the features.
            orders: for each node the candidate that takes each place.
            records: those of all nodes of a level together, a record as often as it counts.
            noise: (sums, S) to be added to the sums, node-major and in these orders.
        """
        left, additions = await self._cumulate([products for products, _ in partial], shapes, len(orders))
        width = self._public.ciphertext_bytes
        grid = np.frombuffer(left, dtype=np.uint8).reshape(len(orders), -1, width)
        placed = np.concatenate([node[order] for node, order in zip(grid, orders, strict=True)])
        packed = await self._pack(placed, [] if noise is None else self._plaintexts(noise))
        # What was multiplied depends on the data, and is known to this party alone. What it reports follows from the
        # layout: a record enters one bin of each feature at most, the workers' bins are merged, and each candidate
        # takes one product, one of a category against the rest up to three.
        self.products += additions + sum(computed for _, computed in partial)
        bins = sum(shape.n_bins + shape.has_missing for shape in shapes)
        of_node = (self._engine.workers - 1) * bins + sum(shape.products for shape in shapes)
        self.operations["additions"] += records * len(shapes) + len(orders) * of_node
        self.operations["packings"] += len(packed) // width
        self.operations["obfuscators"] += len(packed) // width
        return packed

    async def _cumulate(self, partial: list[bytes], shapes: Sequence[Shape], nodes: int) -> tuple[bytes, int]:
        """Part (b): candidates of every (node, feature) in canonical order, the tasks spread evenly over the
        workers.
        """
        width = self._public.ciphertext_bytes
        tasks = list(shapes) * nodes
        ends = np.cumsum([0, *(task.n_bins + task.has_missing for task in tasks)])  # first bin of each task
        cuts = np.searchsorted(ends, np.linspace(0, ends[-1], self._engine.workers + 1)).tolist()
        args = [
            ([part[ends[first] * width : ends[last] * width] for part in partial], tasks[first:last])
            for first, last in pairwise(cuts)
        ]
        answers = await self.everywhere(Held.left_sums, *args)
        return b"".join(sums for sums, _ in answers), sum(additions for _, additions in answers)

    async def _pack(self, candidates: npt.NDArray[np.uint8], added: Sequence[int]) -> bytes:
        """Part (c): whole packed ciphertexts, spread evenly over the workers; `added`: a plaintext for each."""
        size = self._per_plaintext
        packed, workers = -(-len(candidates) // size), self._engine.workers
        cuts = [packed * worker // workers for worker in range(workers + 1)]
        parts = [
            (candidates[first * size : last * size].tobytes(), added[first:last]) for first, last in pairwise(cuts)
        ]
        return b"".join(await self.everywhere(Held.pack, *parts))

    def _plaintexts(self, numbers: npt.NDArray[np.int64]) -> list[int]:
        """Numbers (sums, S), as many sums to a plaintext as fit."""
        groups, size = self._slots.encode([numbers[:, slot] for slot in range(numbers.shape[1])]), self._per_plaintext
        return [
            sum(group << (self._bits * place) for place, group in enumerate(groups[first : first + size]))
            for first in range(0, len(groups), size)
        ]
