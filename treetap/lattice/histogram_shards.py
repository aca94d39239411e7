"""A feature party's encrypted histograms on its cluster: each worker sums the words of its *shard* of records.

    bins     of the shard's records: once for an attempt, or with each node that has bins of its own
    words    of the shard's records, as they come
    node     its records in the shard ──► sums of words by cell; sums of a·I by cell, for some features at a time

Both sums are of numbers modulo q: the party adds those of all shards, and has what it would have summed itself. What
hides them, u_k, errors, floods and noise, is drawn and added by the party's own processes, once, on the totals.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from treetap.arrays import Words
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import kernels, radices
from treetap.lattice.histogram_sets import HistogramSets, NodeSums, Places, groups_of
from treetap.lattice.histogram_sums import (
    CELLS_AT_ONCE,
    Codes,
    Columns,
    HistogramSums,
    Rows,
    at_once,
    carried,
    codes_of,
)
from treetap.native.histogram_arrays import SEED_BYTES, WORD_BYTES, Binned
from treetap.trees.candidates import Shape
from treetap.workers.cluster.calls import make, on
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
        sizes = self._name, _Shard, self._parameters, self._seed, len(shapes)
        args = {w: (*sizes, first, last - first) for w, (first, last) in enumerate(self._ends)}
        await self._cluster.run(make, args, keep=self._name)
        step = max(1, BINS_BYTES // max(1, len(shapes)))
        for at in range(0, max(last - first for first, last in self._ends) if shapes else 0, step):
            some = [codes[first + at : min(first + at + step, last)] for first, last in self._ends]
            pieces = {w: (at, codes_of(part, len(part), shapes)) for w, part in enumerate(some) if len(part)}
            await self._keep(_Shard.take_bins, pieces)

    def sums(self, engine: Engine, kept: Rows, shapes: Sequence[Shape]) -> HistogramSums:
        """Answers for queries over columns `kept` of these; see `HistogramSums`."""
        return _Sums(self, engine, self._parameters, self._seed, kept, shapes)

    def sets(self, engine: Engine) -> HistogramSets:
        """Answers for sets of records. Where workers have the bins, `codes` of a node are the numbers of columns."""
        return _Sets(self, engine, self._parameters, self._seed)

    async def take(self, first: int, words: bytes) -> None:
        """Hand the words of the next records to their shards; the first of all take the place of those before."""
        width, args = self._parameters.words * WORD_BYTES, dict[int, tuple[Any, ...]]()
        behind = first + len(words) // width
        for worker, (start, end) in enumerate(self._ends):
            some = range(max(first, start), min(behind, end))
            if some:
                args[worker] = some.start - start, words[(some.start - first) * width : (some.stop - first) * width]
        await self._keep(_Shard.take_words, args, anew=not first)

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
        await self._keep(_Shard.enter, args, anew=True)

    async def words(self) -> Words:
        """Sums of the words of the node's records by cell: (cells, words, 2)."""
        return await self._cluster.run(on, self._all(_Shard.sum_all), total=carried)

    async def products(self, shapes: Sequence[Shape]) -> AsyncIterator[Words]:
        """Sums of a·I over the node's records by cell, (cells, 2, DEGREE): those of one feature after the other."""
        for features in at_once(shapes, CELLS_AT_ONCE):
            some = features.start, features.stop
            await self._keep(_Shard.multiply_all, dict.fromkeys(range(len(self._ends)), some), anew=True)
            ends = np.cumsum([0, *radices(shapes[features.start : features.stop])]).tolist()
            for first, last in pairwise(ends):
                pieces = [(at, min(at + CELLS_PER_ANSWER, last)) for at in range(first, last, CELLS_PER_ANSWER)]
                calls = [self._all(_Shard.give, *piece) for piece in pieces]
                yield np.concatenate(
                    [await self._cluster.run(on, call, total=partial(carried, axis=1)) for call in calls]
                )

    def close(self) -> None:
        """Free the workers' memory of these records."""
        self._cluster.forget(self._name)

    async def _keep(
        self, method: Callable[..., None], args: Mapping[int, tuple[Any, ...]], *, anew: bool = False
    ) -> None:
        named = {worker: (self._name, method, *values) for worker, values in args.items()}
        await self._cluster.run(on, named, keep=f"{self._name}{method.__name__}", anew=anew)

    def _all(self, *args: Any) -> dict[int, tuple[Any, ...]]:
        return dict.fromkeys(range(len(self._ends)), (self._name, *args))


class _Sums(HistogramSums):
    """Columns are numbers of those whose bins the shards have."""

    def __init__(self, shards: Shards, *args: Any) -> None:
        super().__init__(*args)
        self._shards = shards

    async def start(self) -> None:
        await self._open(np.zeros((len(self._shapes), 0), dtype=np.uint8))
        for part in self._parts:
            part.keeps = True  # the sums of a·I, which the shards make once
        await self._shards.enter(None, self._codes, self._shapes)

    async def _take(self, first: int, words: bytes) -> None:
        await self._shards.take(first, words)

    async def _cells(self) -> Words:
        return await self._shards.words()

    async def renew(self, order: Rows) -> AsyncGenerator[bytes, None]:
        parts, products = list(enumerate(self._parts)), self._shards.products(self._shapes)
        for worker, group, features in [(at, *group) for at, part in parts for group in enumerate(part.features)]:
            if group not in self._parts[worker].sums:
                cells = np.concatenate([await anext(products) for _ in features])
                await self._on(worker, Columns.add, group, cells)
        async for halves in super().renew(order):
            yield halves


class _Sets(HistogramSets):
    def __init__(self, shards: Shards, *args: Any) -> None:
        super().__init__(*args)
        self._shards = shards

    async def _take(self, first: int, words: bytes) -> None:
        await self._shards.take(first, words)

    def _columns(self, codes: Rows, records: int, shapes: Sequence[Shape]) -> Rows:
        return codes if codes.ndim == 1 else super()._columns(codes, records, shapes)

    async def _cells(self, rows: Rows, columns: Rows, shapes: Sequence[Shape]) -> Words:
        await self._shards.enter(rows, columns, shapes)
        return await self._shards.words()

    async def _halves(
        self, _rows: Rows, _columns: Rows, shapes: Sequence[Shape], left: Words
    ) -> list[tuple[Words, bytes]]:
        halves, at = list[tuple[Words, bytes]](), 0
        async for products in self._shards.products(shapes):
            shape, worker = shapes[len(halves)], len(halves) % self._engine.workers
            part = np.ascontiguousarray(left[at : at + shape.sums])
            seeds = os.urandom(SEED_BYTES), os.urandom(SEED_BYTES)
            halves.append(await self._on(worker, NodeSums.hide, products, shape, part, *seeds))
            at += shape.sums
        return halves


class _Shard(NodeSums):
    """A worker's part: bins and words of all of its records, and what it sums of one node."""

    def __init__(self, agreed: HistogramParameters, seed: bytes, columns: int, first: int, records: int) -> None:
        super().__init__(agreed, seed)
        self.first, self.codes = first, np.zeros((columns, records), dtype=np.uint8)
        self.received = np.zeros((records, agreed.words * WORD_BYTES), dtype=np.uint8)
        self.places: Places = np.zeros(0, dtype=np.uint32)
        self.columns: Any = np.zeros(0, dtype=np.int64)  # their numbers, or bins of the node's records
        self.bins = tuple[int, ...]()

    def take_bins(self, first: int, codes: Codes) -> None:
        """Keep the bins (columns, n) of some records."""
        self.codes[:, first : first + codes.shape[1]] = codes

    def take_words(self, first: int, words: bytes) -> None:
        """Keep the words of some records."""
        some = np.frombuffer(words, dtype=np.uint8).reshape(-1, self.received.shape[1])
        self.received[first : first + len(some)] = some

    def enter(self, places: Places | None, columns: Rows, bins: tuple[int, ...]) -> None:
        """Begin with a node; `places`: its records here, None: all."""
        self.places = np.arange(len(self.received), dtype=np.uint32) if places is None else places
        self.columns, self.bins = columns, bins

    def codes_of(self, features: slice, records: slice) -> Codes:
        """Bins of some of the node's records in some of its columns."""
        codes: Codes = (
            self.columns[features, records]
            if self.columns.ndim == 2
            else self.codes[np.ix_(self.columns[features], self.places[records])]
        )
        return codes

    def sum_all(self) -> Words:
        """Sums of the words of the node's records by cell."""
        width = self.agreed.words
        sums = np.zeros((sum(self.bins), width, 2), dtype=np.uint64)
        for at in range(0, len(self.places), UNPACKED):
            some = slice(at, at + UNPACKED)
            words = kernels().unpack(self.received[self.places[some]].reshape(-1), width)
            kernels().sum_words(words, Binned(self.codes_of(slice(None), some), self.bins), 0, sums)
        return sums

    def multiply_all(self, first: int, last: int) -> None:
        """Make the sums of a·I of some features' cells."""
        self.begin(self.bins[first:last])
        for blocks, start, end, places in groups_of(self.places + np.int64(self.first)):
            self.place(blocks, places, self.codes_of(slice(first, last), slice(start, end)))
            while self.multiply():
                pass

    def give(self, first: int, last: int) -> Words:
        """The sums of a·I of some of these cells."""
        return self.products[first:last]
