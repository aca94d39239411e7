"""A feature party's encrypted histograms on workers: sums of words by cells, and candidates that are hidden.

    words       message ──► worker in turn: added to the cells, a pair of words of 52 bits each
    candidates  range of features ──► worker: sums of a·I of its cells, once for these columns; for a few queries one
                u_k and second half for each candidate; for each query its first halves

A worker holds 64 kB for a candidate and 4 kB for its u_k, and the transforms of 64 blocks at a time. Of few candidates
one worker has all.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from treetap.arrays import Words
from treetap.errors import Malformed
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import blocks_of, kernels, left_sums, radices
from treetap.native.histogram_arrays import (
    DEGREE,
    HALF_BITS,
    MOST_BINS,
    MOST_BLOCKS,
    SEED_BYTES,
    WORD_BYTES,
    ZERO_BLOCK,
    Binned,
    Reals,
    Small,
)
from treetap.process.together import together
from treetap.trees.candidates import Shape
from treetap.usage import finish_unit
from treetap.workers.engines import Engine, InWorkers

T = TypeVar("T")
Rows = npt.NDArray[np.integer[Any]]
Codes = npt.NDArray[np.uint8]
#: Cells times blocks whose products one call adds up, some 12 µs each; candidates that one call hides, 0.1 ms each;
#: columns whose candidates one call makes.
PRODUCTS_PER_CALL, CANDIDATES_PER_CALL, COLUMNS_PER_CALL = 8192, 1024, 8
#: Candidates of which one worker has the first ones alone.
FEW = 256
#: Microseconds of the kernels' slowest form on Sapphire Rapids (`benchmarks/lattice_training.py --forms plain`): a
#: product, with its share of its polynomial's transform; a candidate that is hidden; half a word of one that is
#: answered; a byte that is written or read.
PRODUCT_US, HIDDEN_US, ANSWERED_US, BYTE_US = 50.0, 170.0, 2.5, 0.001


class ReceivedWords(InWorkers, ABC):
    """Words of every record as they come, and of the block of zeros behind them; dealt out to workers in turn.

    Args:
        engine: workers.
        parameters: those of the job.

    Attributes:
        expected: words that come, of every record and of a block of zeros.
        operations: "additions" of words, candidates "hidden" and "answered" so far; no count depends on the data.
    """

    def __init__(self, engine: Engine, parameters: HistogramParameters) -> None:
        super().__init__(engine)
        self._parameters = parameters
        self.expected = parameters.records + DEGREE
        self.operations: dict[str, int] = {"additions": 0, "hidden": 0, "answered": 0}
        self._received = self._turn = 0

    async def add_block(self, first: int, count: int, words: bytes) -> None:
        """Take the words of the next records, some at a time; those of the block of zeros are the last.

        Raises:
            Malformed: they are not the next ones, or their number is another.
        """
        width = self._parameters.words * WORD_BYTES
        if first != self._received or not 0 < count <= self.expected - first or len(words) != count * width:
            raise Malformed(f"words of {count} records from {first} on are not those that are due")
        self._received += count
        behind = max(0, self._parameters.records - first) * width
        if own := words[:behind]:
            await self._take(first, own)
        if zeros := words[behind:]:
            await self._take_zeros(zeros)

    @abstractmethod
    async def _take(self, first: int, words: bytes) -> None:
        """Take the words of the next records."""

    @abstractmethod
    async def _take_zeros(self, words: bytes) -> None:
        """Take the next words of the block of zeros."""

    def _next_worker(self) -> int:
        worker, self._turn = self._turn, (self._turn + 1) % self._engine.workers
        return worker

    def _check_whole(self) -> None:
        if self._received != self.expected:
            raise Malformed(f"a query has {self._received} words, not {self.expected}")


def codes_of(codes: Rows, records: int, shapes: Sequence[Shape]) -> Codes:
    """Bins of records (records, d), missing = n_bins, as kernels take and keep them: (d, records) uint8, read-only.

    Raises:
        ValueError: codes and shapes disagree.
    """
    cells = radices(shapes)
    if codes.shape != (records, len(shapes)) or max(cells, default=0) > MOST_BINS:
        raise ValueError(f"codes of shape {codes.shape} are not bins of {len(shapes)} features")
    if codes.size and ((codes.min(axis=0) < 0).any() or (codes.max(axis=0) >= np.array(cells)).any()):
        raise ValueError("a bin is outside its feature's range")
    made = np.array(codes.T, dtype=np.uint8, order="C")
    made.flags.writeable = False
    return made


def features_of(shapes: Sequence[Shape], workers: int) -> list[range]:
    """The features whose candidates a worker hides, with as many cells for each worker as can be."""
    ends = np.cumsum([0, *radices(shapes)])
    cuts = np.searchsorted(ends, np.linspace(0, ends[-1], workers + 1)).tolist()
    return [range(first, max(first, last)) for first, last in pairwise(cuts)]


def carried(partial: Sequence[Words], axis: int = -1) -> Words:
    """Sums of workers, of two halves each, added up modulo q: both halves come out below 2^52.

    `axis`: of the two halves.
    """
    cells = partial[0].copy()
    for more in partial[1:]:
        cells += more
    low, high = np.moveaxis(cells, axis, 0)
    high += low >> HALF_BITS  # the kernel takes no sums over cells times workers uncarried
    cells &= (1 << HALF_BITS) - 1
    return cells


class HistogramSums(ReceivedWords):
    """Answers one query after the other over the same columns; learns nothing of the values, since it has no secret.

    Args:
        engine: workers.
        parameters: those of the job.
        seed: of the public polynomials.
        codes: (N, d) bins, missing = n_bins.
        shapes: those of the features.

    Raises:
        ValueError: codes and shapes disagree.
    """

    def __init__(
        self,
        engine: Engine,
        parameters: HistogramParameters,
        seed: bytes,
        codes: Rows,
        shapes: Sequence[Shape],
    ) -> None:
        super().__init__(engine, parameters)
        self._seed, self._codes, self._shapes = seed, codes, list(shapes)
        workers = max(1, min(engine.workers, sum(shape.sums for shape in shapes) // FEW))
        self._features = features_of(shapes, workers)
        self._zeros, self._multiplied = b"", False
        self._counted = [sum(shapes[f].sums for f in features) for features in self._features]

    async def start(self) -> None:
        """Hand the columns to every worker."""
        await self._open(codes_of(self._codes, self._parameters.records, self._shapes))

    async def _open(self, codes: Codes) -> None:
        self._binned = Binned(codes, tuple(radices(self._shapes)))
        self._sums: Words = np.zeros((self._binned.cells, self._parameters.words, 2), dtype=np.uint64)
        sizes = self._parameters, self._seed, self._binned, self._shapes
        calls = (self._engine.call(worker, Columns, *sizes, features) for worker, features in enumerate(self._features))
        self._parts = await together(*calls)

    async def _take(self, first: int, words: bytes) -> None:
        us = BYTE_US * len(words) * (1 + len(self._shapes)) + (0 if first else BYTE_US * self._sums.nbytes)
        await self._engine.call(self._next_worker(), self._add_words, first, words, us=us)

    def _add_words(self, first: int, words: bytes) -> None:
        """A kernel: add some records' words to their cells."""
        if not first:
            self._sums[:] = 0
        kernels().sum_words(kernels().unpack(words, self._parameters.words), self._binned, first, self._sums)

    async def _take_zeros(self, words: bytes) -> None:
        self._zeros += words

    async def renew(self, order: Rows) -> bytes:
        """Draw new u_k for all candidates; their second halves, candidate `order[k]` at place k."""
        if not self._multiplied:
            await self._sum_products()
            self._multiplied = True
        parts = await together(
            *(self._renew(worker, os.urandom(SEED_BYTES), count) for worker, count in enumerate(self._counted))
        )
        width = self._parameters.second_half_bytes
        rows = np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(-1, width)
        self.operations["hidden"] += len(rows)
        return rows[order].tobytes()

    async def answer(self, order: Rows) -> bytes:
        """The first halves of all candidates under the query whose words have come, in the order of `renew`."""
        agreed = self._parameters
        self._check_whole()
        self._received = 0
        self.operations["additions"] += agreed.records * len(self._shapes)
        left, at, calls = left_sums(await self._cells(), self._shapes), 0, []
        for worker, count in enumerate(self._counted):
            part = np.ascontiguousarray(left[at : at + count])
            us = ANSWERED_US * part.size + BYTE_US * len(self._zeros)
            calls.append(self._on(worker, Columns.answer, part, self._zeros, os.urandom(SEED_BYTES), us=us))
            at += count
        firsts, self._zeros = np.concatenate(await together(*calls)), b""
        self.operations["answered"] += len(firsts)
        return kernels().write(np.ascontiguousarray(firsts[order]), agreed.reply_bits)

    async def _cells(self) -> Words:
        """Sums of the words that have come, by cell: (cells, words, 2)."""
        return self._sums

    async def _renew(self, worker: int, seed: bytes, count: int) -> bytes:
        parts = []
        for first in range(0, count, CANDIDATES_PER_CALL):
            some = min(CANDIDATES_PER_CALL, count - first)
            parts.append(await self._on(worker, Columns.hide, first, some, seed, us=HIDDEN_US * some))
        return b"".join(parts)

    async def _sum_products(self) -> None:
        """Sums of a·I for every candidate."""
        products = blocks_of(self._parameters.records) * sum(radices(self._shapes))
        us = PRODUCT_US * min(PRODUCTS_PER_CALL, products)

        async def in_worker(worker: int) -> None:
            while await self._on(worker, Columns.multiply, us=us):
                pass

        await together(*(in_worker(worker) for worker in range(len(self._parts))))


class Columns:
    """A worker's part: the products of its features' cells, and their candidates."""

    def __init__(
        self, agreed: HistogramParameters, seed: bytes, binned: Binned, shapes: Sequence[Shape], features: range
    ) -> None:
        self.agreed, self.binned, self._seed = agreed, binned, seed
        self._own = range(int(self.binned.starts[features.start]), int(self.binned.starts[features.stop]))
        self.zero = kernels().public(seed, ZERO_BLOCK, 1)
        own = shapes[features.start : features.stop]
        count, cells, blocks = sum(shape.sums for shape in own), len(self._own), blocks_of(agreed.records)
        self.candidates: Words = np.empty((count, 2, DEGREE), dtype=np.uint64)
        self.masks: Small = np.zeros((count, DEGREE), dtype=np.int8)
        self._made = 0
        self._public: tuple[int, Reals] = (-1, self.zero)
        self._products = np.zeros((cells, 2, DEGREE), dtype=np.uint64)
        self._at_once = max(1, PRODUCTS_PER_CALL // min(MOST_BLOCKS, blocks))
        firsts = [(block, cell) for block in range(0, blocks, MOST_BLOCKS) for cell in range(0, cells, self._at_once)]
        self._steps = iter(firsts)
        self._features = zip(own, pairwise(np.cumsum([0, *radices(own)]).tolist()), strict=True)

    def add(self, shape: Shape, products: Words) -> None:
        """Take the next feature, by the sums of a·I of its cells."""
        sums = left_sums(products, [shape])
        self.candidates[self._made : self._made + len(sums)] = sums
        self._made += len(sums)

    def hide(self, first: int, count: int, seed: bytes) -> bytes:
        """Draw new u_k for some candidates; their second halves."""
        sums, agreed = self.candidates[first : first + count], self.agreed
        masks, halves, _ = kernels().hide(sums, self.zero, agreed.reply_bits, seed, first)
        self.masks[first : first + count] = masks
        return kernels().write(halves, agreed.reply_bits)

    def answer(self, left: Words, zeros: bytes, seed: bytes) -> Words:
        """First halves of all candidates under these u_k, by the left sums of words."""
        agreed, zero = self.agreed, kernels().unpack(zeros, self.agreed.words)
        return kernels().answer(left, zero, self.masks, agreed.flood_bits, agreed.reply_bits, seed, 0)

    def multiply(self) -> bool:
        """Add up the products of some blocks and cells, or make of them some features' candidates; False if all are."""
        if (step := next(self._steps, None)) is not None:
            self._add_products(*step)
            return True
        for shape, (cell, end) in islice(self._features, COLUMNS_PER_CALL):
            self.add(shape, self._products[cell:end])
            finish_unit()
        if self._made < len(self.candidates):
            return True
        self._products, self._public = np.zeros((0, 2, DEGREE), dtype=np.uint64), (-1, self.zero)
        return False

    def _add_products(self, block: int, cell: int) -> None:
        blocks = min(MOST_BLOCKS, blocks_of(self.agreed.records) - block)
        if self._public[0] != block:
            self._public = block, kernels().public(self._seed, block, blocks)
        cells = self._own[cell : cell + self._at_once]
        kernels().cells(self._public[1], self.binned, block, cells, self._products[cell : cell + len(cells)])
