"""Kernels of one worker over the ciphertexts that it holds, for the sums of one tree and of a forest.

Every kernel takes the worker's memory and the name that a tree, or a pool of ciphertexts for all trees, has there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.paillier.joint_cells import Codes, Table, feature_sums, joint, marginals, multiply_into
from treetap.paillier.packing import Packer
from treetap.paillier.public_key import PublicKey
from treetap.process.together import together
from treetap.worker_process import finish_unit
from treetap.workers import Engine


@dataclass(frozen=True)
class Tree:
    """A worker's parameters of a tree."""

    public: bytes
    bits: int
    per_plaintext: int
    radices: list[int]
    root_groups: list[tuple[int, ...]]
    joint_cells: bool


@dataclass
class Held:
    """Ciphertexts in a worker, in the order in which they came, with the key and the layout of slots."""

    public: PublicKey
    packer: Packer
    values: list[mpz]


@dataclass
class WorkerState(Held):
    """A worker's state of a tree: its records' ciphertexts and bins, and the root's cells."""

    tree: Tree
    codes: list[Codes] = field(default_factory=list)
    root: list[Table] = field(default_factory=list)


def offers(bins: int, missing: bool) -> list[tuple[int, bool]]:
    """(v, missing left?) of each candidate of a feature, in canonical order."""
    if not missing:
        return [(v, False) for v in range(bins - 1)]
    return [(v, left) for v in range(bins) for left in (False, True) if not left or v < bins - 1]


def open_tree(state: dict[str, Any], name: str, tree: Tree) -> None:
    """Make room for a tree."""
    held = _room(tree.public, tree.bits, tree.per_plaintext)
    state[name] = WorkerState(held.public, held.packer, held.values, tree, root=[{} for _ in tree.root_groups])


def open_pool(state: dict[str, Any], name: str, public: bytes, bits: int, per_plaintext: int) -> None:
    """Make room for ciphertexts that stay for many trees."""
    state[name] = _room(public, bits, per_plaintext)


def _room(public: bytes, bits: int, per_plaintext: int) -> Held:
    key = PublicKey.from_bytes(public, allow_512=True)  # the size was accepted where the key was made
    return Held(key, Packer(key, bits, per_plaintext), [])


def keep(state: dict[str, Any], name: str, ciphertexts: bytes) -> int:
    """Keep a block; place of its first ciphertext."""
    held: Held = state[name]
    start = len(held.values)
    held.values += held.public.read(ciphertexts)
    return start


def add(state: dict[str, Any], name: str, codes: Codes, ciphertexts: bytes) -> tuple[int, int]:
    """Keep a block and multiply it into the root's cells; (place of its first ciphertext, products computed)."""
    worker: WorkerState = state[name]
    values = worker.public.read(ciphertexts)
    start = len(worker.values)
    worker.values += values
    worker.codes.append(codes)
    additions = 0
    for group, table in zip(worker.tree.root_groups, worker.root, strict=True):
        occupied = len(table)
        multiply_into(table, joint(codes, group, worker.tree.radices).tolist(), values, worker.public.n_squared)
        additions += len(values) - (len(table) - occupied)
    return start, additions


def root_bins(state: dict[str, Any], name: str) -> tuple[bytes, int]:
    """Part (a) at the root: (all bins of all features, products computed)."""
    worker: WorkerState = state[name]
    tables: dict[int, Table] = {}
    additions = 0
    for group, table in zip(worker.tree.root_groups, worker.root, strict=True):
        parts, products = marginals(table, group, worker.tree.radices, worker.public.n_squared)
        tables.update(parts)
        additions += products
    return _dense(worker.public, [tables[feature] for feature in range(len(tables))], worker.tree.radices), additions


def node_bins(state: dict[str, Any], name: str, nodes: list[npt.NDArray[np.int64]]) -> tuple[bytes, int]:
    """Part (a) below the root, from the places of each node's records: (bins node-major, products computed)."""
    worker: WorkerState = state[name]
    if len(worker.codes) > 1:
        worker.codes = [np.concatenate(worker.codes)]
    empty = np.empty((0, len(worker.tree.radices)), dtype=np.int64)
    tasks = [(places, worker.codes[0][places] if len(places) else empty) for places in nodes]
    return _sum(worker, tasks, worker.tree.radices, worker.tree.joint_cells)


def pool_bins(
    state: dict[str, Any], name: str, nodes: list[tuple[npt.NDArray[np.int64], Codes]], radices: list[int]
) -> tuple[bytes, int]:
    """Part (a) of a pool, from the places and bins of each node's records: (bins node-major, products computed).

    A place that occurs twice counts twice.
    """
    return _sum(state[name], nodes, radices, joint_cells=True)


def _sum(
    held: Held, nodes: list[tuple[npt.NDArray[np.int64], Codes]], radices: list[int], joint_cells: bool
) -> tuple[bytes, int]:
    parts, additions = [], 0
    for places, codes in nodes:
        values = [held.values[place] for place in places.tolist()]
        tables, products = feature_sums(values, codes, radices, held.public.n_squared, joint_cells)
        parts.append(_dense(held.public, tables, radices))
        additions += products
    return b"".join(parts), additions


def _dense(public: PublicKey, tables: list[Table], radices: list[int]) -> bytes:
    """All bins of all features; an empty bin is the trivial ciphertext 1."""
    one = mpz(1)
    return public.write(
        table.get(code, one) for table, radix in zip(tables, radices, strict=True) for code in range(radix)
    )


def left_sums(
    state: dict[str, Any], name: str, partial: list[bytes], shapes: list[tuple[int, bool]]
) -> tuple[bytes, int]:
    """Part (b): merge the workers' bins of consecutive features and make candidates; (left sums, products computed).

    `shapes` has (n_bins, has_missing) of each of them.
    """
    held: Held = state[name]
    modulus = held.public.n_squared
    additions = 0

    def product(left: mpz, right: mpz) -> mpz:
        nonlocal additions
        if left == 1 or right == 1:
            return left * right
        additions += 1
        return left * right % modulus

    bins = held.public.read(partial[0])
    for part in partial[1:]:
        bins = [product(left, right) for left, right in zip(bins, held.public.read(part), strict=True)]
    sums: list[mpz] = []
    start = 0
    for count, missing in shapes:
        running, absent = mpz(1), bins[start + count] if missing else mpz(1)
        for v in range(count if missing else count - 1):
            running = product(running, bins[start + v])
            sums.append(running)
            if missing and v < count - 1:
                sums.append(product(running, absent))
        start += count + missing
        finish_unit()
    return held.public.write(sums), additions


def pack(state: dict[str, Any], name: str, candidates: bytes) -> bytes:
    """Part (c): pack consecutive candidates, each packed ciphertext under a fresh standard obfuscator."""
    held: Held = state[name]
    return held.public.write(held.packer.pack_fresh(held.public.read(candidates)))


def close_tree(state: dict[str, Any], name: str) -> None:
    """Forget a tree, or a pool."""
    state.pop(name, None)


class CandidateKernels:
    """Parts (b) and (c) of the sums over the workers; `name` is the ciphertexts' name there."""

    def __init__(self, engine: Engine, public: PublicKey, per_plaintext: int, name: str) -> None:
        self._engine, self._public, self._per_plaintext, self._name = engine, public, per_plaintext, name

    async def everywhere(self, kernel: Any, *args: tuple[Any, ...]) -> list[Any]:
        """One call per argument tuple, the k-th in worker k."""
        calls = (self._engine.call(worker, kernel, self._name, *values) for worker, values in enumerate(args))
        return await together(*calls)

    async def finish(
        self,
        partial: list[bytes],
        shapes: Sequence[tuple[int, bool]],
        orders: Sequence[npt.NDArray[np.integer[Any]]],
    ) -> tuple[bytes, int]:
        """Packed candidates of every node, and products computed.

        Args:
            partial: per worker the products of its records, (node, feature, bin) in this order.
            shapes: (n_bins, has_missing) per feature.
            orders: for each node the candidate that takes each place.
        """
        left, additions = await self._cumulate(partial, shapes, len(orders))
        width = self._public.ciphertext_bytes
        grid = np.frombuffer(left, dtype=np.uint8).reshape(len(orders), -1, width)
        placed = np.concatenate([node[order] for node, order in zip(grid, orders, strict=True)])
        return await self._pack(placed), additions

    async def _cumulate(
        self, partial: list[bytes], shapes: Sequence[tuple[int, bool]], nodes: int
    ) -> tuple[bytes, int]:
        """Part (b): candidates of every (node, feature) in canonical order, the tasks spread evenly over the
        workers.
        """
        width = self._public.ciphertext_bytes
        tasks = list(shapes) * nodes
        ends = np.cumsum([0, *(bins + missing for bins, missing in tasks)])  # first bin of each task
        cuts = np.searchsorted(ends, np.linspace(0, ends[-1], self._engine.workers + 1)).tolist()
        args = [
            ([part[ends[first] * width : ends[last] * width] for part in partial], tasks[first:last])
            for first, last in pairwise(cuts)
        ]
        answers = await self.everywhere(left_sums, *args)
        return b"".join(sums for sums, _ in answers), sum(additions for _, additions in answers)

    async def _pack(self, candidates: npt.NDArray[np.uint8]) -> bytes:
        """Part (c): whole packed ciphertexts, spread evenly over the workers."""
        packed = -(-len(candidates) // self._per_plaintext)
        workers = self._engine.workers
        cuts = [packed * worker // workers * self._per_plaintext for worker in range(workers + 1)]
        return b"".join(
            await self.everywhere(pack, *[(candidates[first:last].tobytes(),) for first, last in pairwise(cuts)])
        )
