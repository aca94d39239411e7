"""A feature party's encrypted histograms by sets: the words of a tree's root serve all of its nodes.

A node's sums are over its own records, in bins that may be its own too, so that every candidate of every node has a
u_k, a second half and first halves of its own. A worker keeps words and the zeros; a node's codes are brought with it:

    words     records dealt out in turn ──► worker: those of the node, added to its cells
    products  range of features ──► worker: sums of a·I of some columns' cells, over blocks with a record of the node;
              then the candidates of one column after the other, hidden and answered in one call

A worker holds the words that it got, 13 bytes each, and 64 kB for each cell of some columns, `CELLS_AT_ONCE` at most
where one column has no more. Its u_k are forgotten with the call that draws them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.arrays import Words
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import kernels, left_sums, radices
from treetap.lattice.histogram_sums import (
    ANSWERED_US,
    BYTE_US,
    CELLS_AT_ONCE,
    HIDDEN_US,
    PRODUCT_US,
    PRODUCTS_PER_CALL,
    Codes,
    ReceivedWords,
    Rows,
    at_once,
    carried,
    codes_of,
    features_of,
)
from treetap.native.histogram_arrays import DEGREE, MOST_BLOCKS, SEED_BYTES, WORD_BYTES, ZERO_BLOCK, Binned, Reals
from treetap.process.together import in_order, together
from treetap.trees.candidates import Shape
from treetap.workers.engines import Engine

Places = npt.NDArray[np.uint32]
#: Words' calls that are under way in a worker.
_AHEAD = 2
#: Microseconds of a call that keeps what it is given.
KEPT_US = 20.0


class HistogramSets(ReceivedWords):
    """Answers for any sets of records under one query's words; learns nothing of the values.

    Args:
        engine: workers.
        parameters: those of the job.
        seed: of the public polynomials.
    """

    def __init__(self, engine: Engine, parameters: HistogramParameters, seed: bytes) -> None:
        super().__init__(engine, parameters)
        self._seed, self._kept = seed, dict[int, int]()  # the worker of words, by the first record

    async def start(self) -> None:
        """Have every worker make ready for words."""
        await self._make(NodeSums, self._parameters, self._seed)

    async def _take(self, first: int, words: bytes) -> None:
        self._kept[first] = self._next_worker()
        await self._on(self._kept[first], NodeSums.keep, first, words, us=KEPT_US)

    async def _take_zeros(self, words: bytes) -> None:
        await self._on_all(NodeSums.keep_zeros, words, us=KEPT_US)

    async def answer(
        self, rows: Rows, codes: Rows, shapes: Sequence[Shape], order: Rows, plus: Words | None = None
    ) -> tuple[bytes, bytes]:
        """First and second halves of all candidates of a node, drawn anew; candidate `order[k]` at place k.

        Args:
            rows: (n,) its records, ascending, each once; there may be none.
            codes: (n, d) their bins in this node, missing = n_bins.
            shapes: those of the d features, of which the candidates follow.
            order: the canonical numbers of the candidates.
            plus: words (candidates, words, 2) to be added to the sums (`added`, `sum_masks`), in this order.

        Raises:
            Malformed: words lack.
            ValueError: rows, codes and shapes disagree.
        """
        self._check_whole()
        agreed = self._parameters
        if len(rows) and not (rows[0] >= 0 and rows[-1] < agreed.records and (np.diff(rows) > 0).all()):
            raise ValueError("the records of a node are not ascending numbers of records")
        columns = self._columns(codes, len(rows), shapes)
        left = left_sums(await self._cells(rows, columns, shapes), shapes)
        if plus is not None:
            left[order] += plus
        halves = await self._halves(rows, columns, shapes, left)
        self.operations["additions"] += agreed.records * len(shapes)
        self.operations["hidden"] += len(order)
        self.operations["answered"] += len(order)
        firsts = np.concatenate([np.empty((0, agreed.words), dtype=np.uint64), *(first for first, _ in halves)])
        seconds = np.frombuffer(b"".join(second for _, second in halves), dtype=np.uint8)
        seconds = seconds.reshape(len(order), agreed.second_half_bytes)[order]
        return kernels().write(np.ascontiguousarray(firsts[order]), agreed.reply_bits), seconds.tobytes()

    def _columns(self, codes: Rows, records: int, shapes: Sequence[Shape]) -> Any:
        """The bins as `_cells` and `_halves` take them."""
        return codes_of(codes, records, shapes)

    async def _cells(self, rows: Rows, columns: Any, shapes: Sequence[Shape]) -> Words:
        """Sums of the words of a node's records by cell: (cells, words, 2)."""
        workers, bins = self._engine.workers, tuple(radices(shapes))
        firsts = list(self._kept)
        cuts = np.searchsorted(rows, [*firsts, self._parameters.records]).tolist()
        calls = (
            (
                first,
                self._on(
                    self._kept[first],
                    NodeSums.sum,
                    first,
                    (rows[start:end] - first).astype(np.uint32),
                    np.ascontiguousarray(columns[:, start:end]),
                    bins,
                    us=BYTE_US * WORD_BYTES * self._parameters.words * (end - start) * (2 + len(bins)),
                ),
            )
            for first, (start, end) in zip(firsts, pairwise(cuts), strict=True)
            if end > start
        )
        async with aclosing(in_order(calls, _AHEAD * workers)) as summed:
            async for _ in summed:
                pass
        return carried(await self._on_all(NodeSums.take, sum(bins), us=KEPT_US))

    async def _halves(
        self, rows: Rows, columns: Any, shapes: Sequence[Shape], left: Words
    ) -> list[tuple[Words, bytes]]:
        """Both halves of the candidates of each feature. `left`: their sums of words."""
        at, calls = 0, []
        for worker, features in enumerate(features_of(shapes, self._engine.workers)):
            count = sum(shapes[f].sums for f in features)
            own = columns[features.start : features.stop], shapes[features.start : features.stop]
            calls.append(self._halves_in(worker, rows, *own, left[at : at + count]))
            at += count
        return [pair for of_worker in await together(*calls) for pair in of_worker]

    async def _halves_in(
        self, worker: int, rows: Rows, columns: Codes, shapes: Sequence[Shape], left: Words
    ) -> list[tuple[Words, bytes]]:
        halves, at = [], 0
        for features in at_once(shapes, CELLS_AT_ONCE):
            some = shapes[features.start : features.stop]
            bins = tuple(radices(some))
            await self._on(worker, NodeSums.begin, bins, us=KEPT_US)
            for blocks, start, end, places in groups_of(rows):
                codes = np.ascontiguousarray(columns[features.start : features.stop, start:end])
                us = PRODUCT_US * min(PRODUCTS_PER_CALL, len(blocks) * sum(bins))
                await self._on(worker, NodeSums.place, blocks, places, codes, us=us)
                while await self._on(worker, NodeSums.multiply, us=us):
                    pass
            for number, shape in enumerate(some):
                part = np.ascontiguousarray(left[at : at + shape.sums])
                seeds = os.urandom(SEED_BYTES), os.urandom(SEED_BYTES)
                us = HIDDEN_US * shape.sums + ANSWERED_US * part.size
                halves.append(await self._on(worker, NodeSums.hide_own, number, shape, part, *seeds, us=us))
                at += shape.sums
        return halves


def groups_of(rows: Rows) -> Iterator[tuple[list[int], int, int, Places]]:
    """Blocks that have records, as many as a transform takes: their numbers, the range of rows, places among them."""
    starts = np.searchsorted(rows, np.arange(int(rows[-1]) // DEGREE + 2 if len(rows) else 1) * DEGREE)
    counts = np.diff(starts)
    blocks = np.flatnonzero(counts)
    for at in range(0, len(blocks), MOST_BLOCKS):
        some = blocks[at : at + MOST_BLOCKS]
        start, end = int(starts[some[0]]), int(starts[some[-1] + 1])
        closer = np.repeat((some - np.arange(len(some))) * DEGREE, counts[some])
        yield some.tolist(), start, end, (rows[start:end] - closer).astype(np.uint32)


class NodeSums:
    """A worker's part: words of records, and what it sums and multiplies of one node."""

    def __init__(self, agreed: HistogramParameters, seed: bytes) -> None:
        self.agreed, self._seed = agreed, seed
        self.words: dict[int, npt.NDArray[np.uint8]] = {}
        self.packed_zeros = b""
        self.zero = kernels().public(seed, ZERO_BLOCK, 1)
        self.sums: Words | None = None
        self.starts, self._bins = [0], tuple[int, ...]()
        self.products = np.zeros((0, 2, DEGREE), dtype=np.uint64)
        self._public: Reals = self.zero
        self._binned, self._inside, self._next = Binned(np.zeros((0, 0), dtype=np.uint8), ()), np.zeros(0, np.uint8), 0

    def keep(self, first: int, words: bytes) -> None:
        """Keep the words of some records."""
        self.words[first] = np.frombuffer(words, dtype=np.uint8).reshape(-1, self.agreed.words * WORD_BYTES)

    def keep_zeros(self, words: bytes) -> None:
        """Keep the next words of the block of zeros."""
        self.packed_zeros += words

    def sum(self, first: int, places: Places, codes: Codes, bins: tuple[int, ...]) -> None:
        """Add the words of some of these records to their cells."""
        words, binned = kernels().unpack(self.words[first][places].reshape(-1), self.agreed.words), Binned(codes, bins)
        if self.sums is None:
            self.sums = np.zeros((binned.cells, self.agreed.words, 2), dtype=np.uint64)
        kernels().sum_words(words, binned, 0, self.sums)

    def take(self, cells: int) -> Words:
        """The sums of words by cell, which are forgotten."""
        sums, self.sums = self.sums, None
        return np.zeros((cells, self.agreed.words, 2), dtype=np.uint64) if sums is None else sums

    def hide_own(self, feature: int, shape: Shape, left: Words, seed: bytes, flood: bytes) -> tuple[Words, bytes]:
        """The same for a feature whose sums of a·I are here."""
        return self.hide(self.products[self.starts[feature] : self.starts[feature + 1]], shape, left, seed, flood)

    def hide(self, products: Words, shape: Shape, left: Words, seed: bytes, flood: bytes) -> tuple[Words, bytes]:
        """Both halves of a feature's candidates, by the sums of a·I of its cells and the left sums of words."""
        agreed = self.agreed
        masks, seconds, _ = kernels().hide(left_sums(products, [shape]), self.zero, agreed.reply_bits, seed, 0)
        zeros = kernels().unpack(self.packed_zeros, agreed.words)
        firsts = kernels().answer(left, zeros, masks, agreed.flood_bits, agreed.reply_bits, flood, 0)
        return firsts, kernels().write(seconds, agreed.reply_bits)

    def begin(self, bins: tuple[int, ...]) -> None:
        """Begin with the products of some features' cells."""
        self._bins, self.starts = bins, np.cumsum([0, *bins]).tolist()
        self.products = np.zeros((self.starts[-1], 2, DEGREE), dtype=np.uint64)

    def place(self, blocks: Sequence[int], places: Places, codes: Codes) -> None:
        """Take the codes (features, n) of records at `places` of these blocks."""
        whole = np.zeros((len(codes), len(blocks) * DEGREE), dtype=np.uint8)
        whole[:, places] = codes
        inside = np.zeros(len(blocks) * DEGREE, dtype=np.uint8)
        inside[places] = 1
        self._binned, self._inside, self._next = Binned(whole, self._bins), inside, 0
        self._public = np.concatenate([kernels().public(self._seed, block, 1) for block in blocks])

    def multiply(self) -> bool:
        """Add the products of these blocks and of the next cells; True if more cells follow."""
        first = self._next
        end = min(first + max(1, PRODUCTS_PER_CALL // len(self._public)), len(self.products))
        kernels().cells(self._public, self._binned, 0, range(first, end), self.products[first:end], self._inside)
        self._next = end
        return end < len(self.products)
