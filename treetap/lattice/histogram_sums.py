"""A feature party's encrypted histograms on workers: sums of words by cells, and candidates that are hidden.

    words       message ──► worker in turn: added to the cells, a pair of words of 52 bits each
    candidates  range of features ──► worker: sums of a·I of its cells, of some features at a time; for a few queries
                one u_k and second half for each candidate; for each query its first halves

A worker holds 4 kB for a candidate's u_k, and the transforms of 64 blocks at a time; 64 kB for a candidate's sums of
a·I, which serve all queries over these columns, unless candidates are many and records few: then these sums are made
anew with the second halves. Those wait in a file until they are sent. Of few candidates one worker has all.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from typing import IO, Any, TypeVar

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
from treetap.workers.engines import Engine, InWorkers

T = TypeVar("T")
Rows = npt.NDArray[np.integer[Any]]
Codes = npt.NDArray[np.uint8]
#: Cells times blocks whose products one call adds up, some 12 µs each.
PRODUCTS_PER_CALL = 8192
#: Cells of neighbouring columns whose products a worker has at once, unless one column has more.
CELLS_AT_ONCE = 512
#: Candidates whose sums of a·I are kept, 64 kB each. Those of more are made anew with every second half, of fewer cells
#: at once, up to this number of blocks of records: beyond, that takes longer than the hiding.
MOST_KEPT, CELLS_ANEW, BLOCKS_ANEW = 2048, 64, 16
#: Most bytes of second halves that are read together.
READ_BYTES = 1 << 20
#: Candidates of which one worker has the first ones alone.
FEW = 256
#: Microseconds of the kernels' slowest form on an EPYC (`benchmarks/lattice_training.py --forms plain`): a
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


def at_once(shapes: Sequence[Shape], most: int) -> Iterator[range]:
    """Neighbouring features of `most` cells together, unless one has more."""
    first, cells = 0, 0
    for feature, radix in enumerate(radices(shapes)):
        if cells and cells + radix > most:
            yield range(first, feature)
            first, cells = feature, 0
        cells += radix
    if cells:
        yield range(first, len(shapes))


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
        scratch: opens a file for second halves that are not sent yet.

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
        scratch: Callable[[], IO[bytes]] = BytesIO,
    ) -> None:
        super().__init__(engine, parameters)
        self._seed, self._codes, self._shapes, self._scratch = seed, codes, list(shapes), scratch
        workers = max(1, min(engine.workers, sum(shape.sums for shape in shapes) // FEW))
        self._features = features_of(shapes, workers)
        self._zeros = b""
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

    async def renew(self, order: Rows) -> AsyncGenerator[bytes, None]:
        """Draw new u_k for all candidates; their second halves, candidate `order[k]` at place k, some at a time."""
        firsts, width = np.cumsum([0, *self._counted]).tolist(), self._parameters.second_half_bytes
        with self._scratch() as halves:
            halves.truncate(len(order) * width)  # too many for memory go to disk from the first on
            await together(*(self._renew(worker, halves, firsts[worker]) for worker in range(len(self._parts))))
            self.operations["hidden"] += len(order)
            for at in range(0, len(order), step := READ_BYTES // width):
                rows = []
                for candidate in order[at : at + step].tolist():
                    halves.seek(candidate * width)
                    rows.append(halves.read(width))
                yield b"".join(rows)

    async def answer(self, order: Rows, plus: Words | None = None) -> bytes:
        """The first halves of all candidates under the query whose words have come, in the order of `renew`.

        `plus`: words (candidates, words, 2) to be added to the sums (`sum_masks`), in this order.
        """
        agreed = self._parameters
        self._check_whole()
        self._received = 0
        self.operations["additions"] += agreed.records * len(self._shapes)
        left, at, calls = left_sums(await self._cells(), self._shapes), 0, []
        if plus is not None:
            left[order] += plus
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

    async def _renew(self, worker: int, halves: IO[bytes], first: int) -> None:
        """Write a worker's second halves into a file; `first`: its first candidate."""
        seed, blocks = os.urandom(SEED_BYTES), blocks_of(self._parameters.records)
        for group, (cells, candidates) in enumerate(self._parts[worker].groups):
            us = PRODUCT_US * min(PRODUCTS_PER_CALL, blocks * len(cells))
            while await self._on(worker, Columns.multiply, group, us=us):
                pass
            hidden = await self._on(worker, Columns.hide, group, seed, us=HIDDEN_US * len(candidates))
            halves.seek((first + candidates.start) * self._parameters.second_half_bytes)
            halves.write(hidden)


class Columns:
    """A worker's part: the products of the cells of some of its features at a time, and their candidates.

    `groups`: the cells, and the candidates among the worker's own, of neighbouring features that are made together.
    """

    def __init__(
        self, agreed: HistogramParameters, seed: bytes, binned: Binned, shapes: Sequence[Shape], features: range
    ) -> None:
        self.agreed, self.binned, self._seed = agreed, binned, seed
        self.zero = kernels().public(seed, ZERO_BLOCK, 1)
        own = self._shapes = shapes[features.start : features.stop]
        starts = binned.starts[features.start :].tolist()
        firsts = np.cumsum([0, *(shape.sums for shape in own)]).tolist()
        self.keeps = firsts[-1] <= MOST_KEPT or blocks_of(agreed.records) > BLOCKS_ANEW
        #: The features of each group, of the worker's own.
        self.features = list(at_once(own, CELLS_AT_ONCE if self.keeps else CELLS_ANEW))
        self.groups = [
            (range(starts[some.start], starts[some.stop]), range(firsts[some.start], firsts[some.stop]))
            for some in self.features
        ]
        self.masks: Small = np.zeros((firsts[-1], DEGREE), dtype=np.int8)
        self.sums: dict[int, Words] = {}  # of a·I, of groups' candidates
        self._public: tuple[int, Reals] = (-1, self.zero)
        self._products, self._steps = np.zeros((0, 2, DEGREE), dtype=np.uint64), list[tuple[int, int]]()

    def add(self, group: int, products: Words) -> None:
        """Take the sums of a·I of a group's cells."""
        features = self.features[group]
        self.sums[group] = left_sums(products, self._shapes[features.start : features.stop])

    def multiply(self, group: int) -> bool:
        """Add up the products of some blocks and cells of a group; False once all its sums are here."""
        if group in self.sums:
            return False
        cells, blocks = self.groups[group][0], blocks_of(self.agreed.records)
        step = max(1, PRODUCTS_PER_CALL // min(MOST_BLOCKS, blocks))
        if not self._steps:
            self._products = np.zeros((len(cells), 2, DEGREE), dtype=np.uint64)
            firsts = range(0, blocks, MOST_BLOCKS)
            self._steps = [(block, at) for block in firsts for at in range(0, len(cells), step)]
        block, at = self._steps.pop(0)
        if self._public[0] != block:
            self._public = block, kernels().public(self._seed, block, min(MOST_BLOCKS, blocks - block))
        some, out = cells[at : at + step], self._products[at : at + step]
        kernels().cells(self._public[1], self.binned, block, some, out)
        if self._steps:
            return True
        self.add(group, self._products)
        self._products, self._public = np.zeros((0, 2, DEGREE), dtype=np.uint64), (-1, self.zero)
        return False

    def hide(self, group: int, seed: bytes) -> bytes:
        """Draw new u_k for a group's candidates, whose sums are here; their second halves."""
        sums, own, agreed = self.sums[group], self.groups[group][1], self.agreed
        masks, halves, _ = kernels().hide(sums, self.zero, agreed.reply_bits, seed, own.start)
        self.masks[own.start : own.stop] = masks
        if not self.keeps:
            del self.sums[group]
        return kernels().write(halves, agreed.reply_bits)

    def answer(self, left: Words, zeros: bytes, seed: bytes) -> Words:
        """First halves of all candidates under these u_k, by the left sums of words."""
        agreed, zero = self.agreed, kernels().unpack(zeros, self.agreed.words)
        return kernels().answer(left, zero, self.masks, agreed.flood_bits, agreed.reply_bits, seed, 0)
