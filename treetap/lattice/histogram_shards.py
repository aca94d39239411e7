"""A feature party's encrypted histograms on its cluster: each worker sums the words of its *shard* of records.

    bins     of the shard's records: once for an attempt, or with each node that has bins of its own
    words    of the shard's records, as they come
    node     its records in the shard ──► sums of words by cell; sums of a·I by cell, for some features at a time

Both sums are of numbers modulo q: the party adds those of all shards, and has what it would have summed itself. What
hides them, u_k, errors, floods and noise, is drawn and added by the party's own processes, once, on the totals.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import Words, kernels, left_sums, radices
from treetap.lattice.histogram_sets import HistogramSets, Places, Products, at_once, groups_of, hide
from treetap.lattice.histogram_sums import Candidates, Codes, HistogramSums, Rows, carried, codes_of
from treetap.native.histogram_arrays import SEED_BYTES, WORD_BYTES, Binned
from treetap.trees.candidates import Shape
from treetap.workers.engines import Engine

if TYPE_CHECKING:
    from treetap.workers.cluster.engine import Cluster

#: Bytes of bins in a call, records whose words are unpacked at once, and cells whose sums of a·I are in an answer.
BINS_BYTES, UNPACKED, CELLS_PER_ANSWER = 2**22, 2**16, 64


class Shards:
    """All records of a feature party, for one attempt at a job.

    Args:
        cluster: its workers, each of which gets as many neighbouring records.
        parameters: those of the job.
        seed: of the public polynomials.
        token: names the attempt in the workers' memory.
    """

    def __init__(self, cluster: Cluster, parameters: HistogramParameters, seed: bytes, token: str) -> None:
        self._cluster, self._parameters, self._seed, self._name = cluster, parameters, seed, f"shards/{token}/"
        cuts = np.linspace(0, parameters.records, cluster.workers + 1).astype(np.int64).tolist()
        self._ends = list(pairwise(cuts))

    async def start(self, codes: Rows, shapes: Sequence[Shape]) -> None:
        """Hand every worker the bins of its records in all columns, (N, d); d = 0 if nodes have bins of their own.

        Raises:
            ValueError: codes and shapes disagree.
        """
        sizes = (self._parameters, self._seed, len(shapes))
        await self._keep(_open, {w: (*sizes, first, last - first) for w, (first, last) in enumerate(self._ends)})
        step = max(1, BINS_BYTES // max(1, len(shapes)))
        for at in range(0, max(last - first for first, last in self._ends) if shapes else 0, step):
            some = [codes[first + at : min(first + at + step, last)] for first, last in self._ends]
            await self._keep(
                _take_bins, {w: (at, codes_of(part, len(part), shapes)) for w, part in enumerate(some) if len(part)}
            )

    async def take(self, first: int, words: bytes) -> None:
        """Hand the words of the next records to their shards; the first of all take the place of those before."""
        width, args = self._parameters.words * WORD_BYTES, dict[int, tuple[Any, ...]]()
        behind = first + len(words) // width
        for worker, (start, end) in enumerate(self._ends):
            some = range(max(first, start), min(behind, end))
            if some:
                args[worker] = some.start - start, words[(some.start - first) * width : (some.stop - first) * width]
        await self._keep(_take_words, args, anew=not first)

    async def enter(self, rows: Rows | None, columns: Rows, shapes: Sequence[Shape]) -> None:
        """Begin with a node.

        Args:
            rows: its records, ascending; None: all.
            columns: numbers of columns whose bins the workers have, (d,); or bins of these records, (d, n).
            shapes: those of the d columns.
        """
        args = dict[int, tuple[Any, ...]]()
        for worker, (first, last) in enumerate(self._ends):
            places, start, end = None, first, last
            if rows is not None:
                start, end = np.searchsorted(rows, (first, last)).tolist()
                places = (rows[start:end] - first).astype(np.uint32)
            own = columns if columns.ndim == 1 else np.ascontiguousarray(columns[:, start:end])
            args[worker] = places, own, tuple(radices(shapes))
        await self._keep(_enter, args, anew=True)

    async def words(self) -> Words:
        """Sums of the words of the node's records by cell: (cells, words, 2)."""
        return await self._total(_sum, (), carried)

    async def products(self, shapes: Sequence[Shape]) -> AsyncIterator[Words]:
        """Sums of a·I over the node's records by cell, (cells, 2, DEGREE): those of one feature after the other."""
        for features in at_once(shapes):
            await self._keep(
                _multiply, dict.fromkeys(range(len(self._ends)), (features.start, features.stop)), anew=True
            )
            ends = np.cumsum([0, *radices(shapes[features.start : features.stop])]).tolist()
            for first, last in pairwise(ends):
                pieces = [(at, min(at + CELLS_PER_ANSWER, last)) for at in range(first, last, CELLS_PER_ANSWER)]
                yield np.concatenate([await self._total(_give, piece, _carried_products) for piece in pieces])

    def close(self) -> None:
        """Free the workers' memory of these records."""
        self._cluster.forget(self._name)

    async def _keep(
        self, kernel: Callable[..., None], args: Mapping[int, tuple[Any, ...]], *, anew: bool = False
    ) -> None:
        named = {worker: (self._name, *values) for worker, values in args.items()}
        await self._cluster.run(kernel, named, keep=f"{self._name}{kernel.__name__}", anew=anew)

    async def _total(
        self, kernel: Callable[..., Words], args: tuple[Any, ...], total: Callable[[list[Words]], Words]
    ) -> Words:
        return await self._cluster.run(kernel, dict.fromkeys(range(len(self._ends)), (self._name, *args)), total=total)


class ShardedSums(HistogramSums):
    """Answers for queries over columns whose bins the shards have. `kept`: their numbers among these."""

    def __init__(
        self,
        engine: Engine,
        shards: Shards,
        parameters: HistogramParameters,
        seed: bytes,
        kept: Rows,
        shapes: Sequence[Shape],
        token: str,
    ) -> None:
        super().__init__(engine, parameters, seed, kept, shapes, token)
        self._shards, self._multiplied = shards, False

    async def start(self) -> None:
        owned = [self._shapes[features.start : features.stop] for features in self._features]
        await self._everywhere(_open_candidates, *((self._parameters, self._seed, shapes) for shapes in owned))
        await self._shards.enter(None, self._codes, self._shapes)

    async def _take(self, first: int, words: bytes) -> None:
        await self._shards.take(first, words)

    async def _cells(self) -> Words:
        return await self._shards.words()

    async def _sum_products(self) -> None:
        if self._multiplied:
            return
        feature, owners = 0, [worker for worker, features in enumerate(self._features) for _ in features]
        async for products in self._shards.products(self._shapes):
            await self._engine.call(owners[feature], _add_feature, self._name, products, self._shapes[feature])
            feature += 1
        self._multiplied = True


class ShardedSets(HistogramSets):
    """Answers for sets of records. Where shards have the bins, `codes` of an answer are numbers of their columns."""

    def __init__(
        self, engine: Engine, shards: Shards, parameters: HistogramParameters, seed: bytes, token: str
    ) -> None:
        super().__init__(engine, parameters, seed, token)
        self._shards = shards

    async def _take(self, first: int, words: bytes) -> None:
        await self._shards.take(first, words)

    def _columns(self, codes: Rows, records: int, shapes: Sequence[Shape]) -> Rows:
        return codes if codes.ndim == 1 else super()._columns(codes, records, shapes)

    async def _cells(self, rows: Rows, columns: Rows, shapes: Sequence[Shape]) -> Words:
        await self._shards.enter(rows, columns, shapes)
        return await self._shards.words()

    async def _halves(
        self, rows: Rows, columns: Rows, shapes: Sequence[Shape], left: Words
    ) -> list[tuple[Words, bytes]]:
        del rows, columns  # which have been entered
        halves, at = list[tuple[Words, bytes]](), 0
        async for products in self._shards.products(shapes):
            shape, worker = shapes[len(halves)], len(halves) % self._engine.workers
            part, seeds = (
                np.ascontiguousarray(left[at : at + shape.sums]),
                (os.urandom(SEED_BYTES), os.urandom(SEED_BYTES)),
            )
            halves.append(await self._engine.call(worker, hide, self._name, products, shape, part, *seeds))
            at += shape.sums
        return halves


class _Shard(Products):
    """A worker's part: bins and words of its records, and what it sums of one node."""

    def __init__(self, agreed: HistogramParameters, seed: bytes, columns: int, first: int, records: int) -> None:
        super().__init__(seed)
        self.agreed, self.first = agreed, first
        self.codes: Codes = np.zeros((columns, records), dtype=np.uint8)
        self.words = np.zeros((records, agreed.words * WORD_BYTES), dtype=np.uint8)
        self.places: Places = np.zeros(0, dtype=np.uint32)
        self.columns: Any = np.zeros(0, dtype=np.int64)  # their numbers, or bins of the node's records
        self.bins = tuple[int, ...]()

    def codes_of(self, features: slice, records: slice) -> Codes:
        """Bins of some of the node's records in some of its columns."""
        own: Codes = (
            self.columns[features, records]
            if self.columns.ndim == 2
            else self.codes[np.ix_(self.columns[features], self.places[records])]
        )
        return own


_carried_products = partial(carried, axis=1)


def _open_candidates(
    state: dict[str, Any], name: str, agreed: HistogramParameters, seed: bytes, shapes: Sequence[Shape]
) -> None:
    state[name] = Candidates(agreed, seed, shapes)


def _add_feature(state: dict[str, Any], name: str, products: Words, shape: Shape) -> None:
    candidates: Candidates = state[name]
    candidates.add(left_sums(products, [shape]))


def _open(
    state: dict[str, Any], name: str, agreed: HistogramParameters, seed: bytes, columns: int, first: int, records: int
) -> None:
    state[name] = _Shard(agreed, seed, columns, first, records)


def _take_bins(state: dict[str, Any], name: str, first: int, codes: Codes) -> None:
    shard: _Shard = state[name]
    shard.codes[:, first : first + codes.shape[1]] = codes


def _take_words(state: dict[str, Any], name: str, first: int, words: bytes) -> None:
    shard: _Shard = state[name]
    some = np.frombuffer(words, dtype=np.uint8).reshape(-1, shard.words.shape[1])
    shard.words[first : first + len(some)] = some


def _enter(state: dict[str, Any], name: str, places: Places | None, columns: Rows, bins: tuple[int, ...]) -> None:
    shard: _Shard = state[name]
    shard.places = np.arange(len(shard.words), dtype=np.uint32) if places is None else places
    shard.columns, shard.bins = columns, bins


def _sum(state: dict[str, Any], name: str) -> Words:
    shard: _Shard = state[name]
    width = shard.agreed.words
    sums = np.zeros((sum(shard.bins), width, 2), dtype=np.uint64)
    for at in range(0, len(shard.places), UNPACKED):
        some = slice(at, at + UNPACKED)
        words = kernels().unpack(shard.words[shard.places[some]].reshape(-1), width)
        kernels().sum_words(words, Binned(shard.codes_of(slice(None), some), shard.bins), 0, sums)
    return sums


def _multiply(state: dict[str, Any], name: str, first: int, last: int) -> None:
    shard: _Shard = state[name]
    shard.begin(shard.bins[first:last])
    for blocks, start, end, places in groups_of(shard.places + np.int64(shard.first)):
        shard.place(blocks, places, shard.codes_of(slice(first, last), slice(start, end)))
        while shard.multiply():
            pass


def _give(state: dict[str, Any], name: str, first: int, last: int) -> Words:
    shard: _Shard = state[name]
    return shard.products[first:last]
