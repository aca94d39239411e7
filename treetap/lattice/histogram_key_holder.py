"""The label holder of encrypted histograms on workers: queries' words, and the opening of what comes back.

A query's secrets come of its seed, which each call brings: nobody remembers them. Blocks of records are dealt out to
the workers in turn, as many in a call as a message holds words of; their public polynomials are kept. Second halves
stay packed, in the files in which they came, and a few of them are read at a time.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from os import SEEK_END
from typing import IO, TypeVar

import numpy as np

from treetap.arrays import Ints, Words
from treetap.errors import Malformed
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import Opener, blocks_of, encode, first_halves_bytes, kernels, moduli_of
from treetap.native.histogram_arrays import DEGREE, WORD_BYTES, ZERO_BLOCK, Reals, Secrets
from treetap.process.together import in_order, together
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine, InWorkers

T = TypeVar("T")
IN_FLIGHT_PER_WORKER = 2
#: Most bytes of the words of one call and message.
BLOCK_BYTES = 3 << 19
#: Microseconds of the kernels' slowest form, as in `histogram_sums`: a word of a block of records, with its polynomial
#: and secret; a candidate's second half that is read; a word of a candidate that is opened.
WORDS_US, READ_US, OPENED_US = 280.0, 10.0, 10.0
#: Candidates that one call opens, some 10 µs each, before a further worker has a share of them.
CANDIDATES_PER_CALL = 512
#: Candidates whose second halves are read together, 32 kB each.
READ_AT_ONCE = 64


class HistogramKeyHolder(InWorkers):
    """Encrypts and opens on an engine.

    Args:
        engine: workers.
        parameters: those of the job.
        slots: layout of a record's plaintext.
        seed: of the public polynomials, drawn by all parties together.
    """

    def __init__(self, engine: Engine, parameters: HistogramParameters, slots: Slots, seed: bytes) -> None:
        super().__init__(engine)
        self.parameters, self._slots, self._seed = parameters, slots, seed
        self._opener = Opener(parameters, slots)
        self._public: dict[tuple[int, int], Reals] = {}  # polynomials by first block and number of blocks
        self._second_halves: dict[str, tuple[int, IO[bytes]]] = {}  # by party, and their number
        self._reading = threading.Lock()  # of a place in such a file

    async def encrypt(self, values: Ints, query: bytes) -> AsyncIterator[tuple[int, int, bytes]]:
        """The words of all records' values (N, S) under the query of a seed, and of a block of zeros behind them.

        Yields:
            (first record, records, words), in order, of `BLOCK_BYTES` at most: one, where that holds all.

        Raises:
            PlaintextOverflow: a value does not fit its slot.
        """
        workers, width = self._engine.workers, self.parameters.words * WORD_BYTES
        most, records = BLOCK_BYTES // width, len(values)
        size = max(1, most // DEGREE) * DEGREE
        firsts = range(0, blocks_of(records) * DEGREE + DEGREE, size)
        calls = (
            (
                min(first, records),
                self._engine.call(
                    number % workers,
                    self._words,
                    *(first, values, size, query),
                    us=WORDS_US * self.parameters.words * blocks_of(min(size, records + DEGREE - first)),
                ),
            )
            for number, first in enumerate(firsts)
        )
        async with aclosing(in_order(calls, IN_FLIGHT_PER_WORKER * workers)) as encrypted:
            async for first, words in encrypted:
                count = len(words) // width
                for at in range(0, count, most):
                    some = min(most, count - at)
                    yield first + at, some, words[at * width : (at + some) * width]

    async def keep_second_halves(self, party: str, halves: IO[bytes], candidates: int) -> None:
        """Keep a file of a party's second halves for the queries to come, and close the one before.

        Raises:
            Malformed: they are those of another number of candidates.
        """
        if halves.seek(0, SEEK_END) != candidates * self.parameters.second_half_bytes:
            raise Malformed(f"second halves of {candidates} candidates have other sizes")
        if party in self._second_halves:
            self._second_halves[party][1].close()
        self._second_halves[party] = candidates, halves

    async def open(self, party: str, firsts: bytes, candidates: int, query: bytes) -> Ints:
        """Open the first halves of a party's candidates: (candidates, S).

        Raises:
            Malformed: a sum has more noise than an honest one, or is none of slots; not said which.
        """
        opened = await self._each(self._sums, party, firsts, candidates, query)
        return np.concatenate([np.empty((0, len(self._slots.widths)), dtype=np.int64), *opened])

    async def residues(self, party: str, firsts: bytes, candidates: int, query: bytes) -> Words:
        """Open no more than the residues of a party's sums modulo the t_j, which masks may hide: (candidates, words).

        Raises:
            Malformed: a sum has more noise than an honest one.
        """
        opened = await self._each(self._residues, party, firsts, candidates, query)
        return np.concatenate([np.empty((0, self.parameters.words), dtype=np.uint64), *opened])

    async def _each(
        self, kernel: Callable[..., T], party: str, firsts: bytes, candidates: int, query: bytes
    ) -> list[T]:
        """What a kernel makes of some candidates after the other."""
        words, bits = self.parameters.words, self.parameters.reply_bits
        if len(firsts) != first_halves_bytes(self.parameters, candidates):
            raise Malformed(f"{candidates} candidates have other sizes")
        numbers, (count, kept) = _read(firsts, (candidates, words), bits), self._second_halves[party]
        if count != candidates:
            raise Malformed("first halves are not of as many candidates as the second ones before")
        calls = (
            self._engine.call(
                worker,
                kernel,
                *(kept, first, numbers[first:last], query),
                us=(READ_US + OPENED_US * words) * (last - first),
            )
            for worker, first, last in self._shares(candidates, CANDIDATES_PER_CALL)
        )
        return await together(*calls)

    async def close(self) -> None:
        """Free what the workers have made."""
        for _, halves in self._second_halves.values():
            halves.close()
        self._public, self._second_halves = {}, {}

    def _words(self, first: int, values: Ints, size: int, query: bytes) -> bytes:
        """A kernel: the words of `size` records from `first` on, those of the block of zeros behind the last block."""
        parts, some = [], np.ascontiguousarray(values[first : first + size])
        secrets = kernels().secrets(query, self.parameters.words)
        try:
            if len(some):
                parts.append(
                    self._encrypted(first // DEGREE, blocks_of(len(some)), encode(self._slots, some), secrets, query)
                )
            if blocks_of(len(values)) * DEGREE < first + size:
                parts.append(self._encrypted(ZERO_BLOCK, 1, DEGREE, secrets, query))
        finally:
            secrets.forget()
        return b"".join(parts)

    def _encrypted(self, block: int, count: int, plain: Words | int, secrets: Secrets, query: bytes) -> bytes:
        if (public := self._public.get((block, count))) is None:
            public = self._public[block, count] = kernels().public(self._seed, block, count)
        words, _ = kernels().encrypt(public, block, secrets, query, moduli_of(self.parameters), plain)
        return words.tobytes()

    def _sums(self, kept: IO[bytes], first: int, firsts: Words, query: bytes) -> Ints:
        """A kernel: the sums of some candidates."""
        return self._opener.sums(self._residues(kept, first, firsts, query))

    def _residues(self, kept: IO[bytes], first: int, firsts: Words, query: bytes) -> Words:
        """A kernel: the residues of some candidates, of which second halves of `READ_AT_ONCE` are in memory."""
        agreed, width, residues, largest = self.parameters, self.parameters.second_half_bytes, [], 0.0
        secrets = kernels().secrets(query, agreed.words)
        try:
            for at in range(0, len(firsts), READ_AT_ONCE):
                some = firsts[at : at + READ_AT_ONCE]
                with self._reading:
                    kept.seek((first + at) * width)
                    read = kept.read(len(some) * width)
                seconds = _read(read, (len(some), DEGREE), agreed.reply_bits)
                opened, noise = kernels().open(seconds, some, secrets, agreed.reply_bits, moduli_of(agreed))
                residues.append(opened)
                largest = max(largest, noise)
        finally:
            secrets.forget()
        if largest > agreed.noise_share:
            raise Malformed("a sum has more noise than sums of words can have")
        return np.concatenate(residues)


def _read(data: bytes, shape: tuple[int, ...], bits: int) -> Words:
    try:
        return kernels().read(data, shape, bits)
    except ValueError as failure:
        raise Malformed(f"halves of sums cannot be read: {failure}") from None
