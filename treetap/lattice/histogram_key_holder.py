"""The label holder of encrypted histograms on workers: queries' words, and the opening of what comes back.

A query's secrets come of its seed, which each call brings: nobody remembers them. Blocks of records are dealt out to
the workers in turn; their public polynomials are kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import numpy as np

from treetap.arrays import Ints, Words
from treetap.errors import Malformed
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import Opener, blocks_of, encode, first_halves_bytes, kernels, moduli_of
from treetap.native.histogram_arrays import DEGREE, WORD_BYTES, ZERO_BLOCK, Reals
from treetap.process.together import in_order, together
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine, InWorkers

IN_FLIGHT_PER_WORKER = 2
#: Most bytes of the words of one call and message.
BLOCK_BYTES = 3 << 19
#: Microseconds of the kernels' slowest form, as in `histogram_sums`: a word of a block of records, with its polynomial
#: and secret; a candidate's second half that is read; a word of a candidate that is opened.
WORDS_US, READ_US, OPENED_US = 280.0, 25.0, 10.0


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
        self._second_halves: dict[str, list[Words]] = {}  # by party, of each worker's share
        block = parameters.words * DEGREE * WORD_BYTES
        #: Blocks of records that one call encrypts.
        self._together = max(1, min(BLOCK_BYTES // block, -(-blocks_of(parameters.records) // engine.workers)))

    async def encrypt(self, values: Ints, query: bytes) -> AsyncIterator[tuple[int, int, bytes]]:
        """The words of all records' values (N, S) under the query of a seed, and of a block of zeros behind them.

        Yields:
            (first record, records, words), in order, of `BLOCK_BYTES` at most.

        Raises:
            PlaintextOverflow: a value does not fit its slot.
        """
        workers, size = self._engine.workers, self._together * DEGREE
        width = self.parameters.words * WORD_BYTES
        most = BLOCK_BYTES // width
        parts = [
            *((start, start // DEGREE, values[start : start + size]) for start in range(0, len(values), size)),
            (len(values), ZERO_BLOCK, None),
        ]
        calls = (
            (
                (first, DEGREE if part is None else len(part)),
                self._engine.call(
                    number % workers,
                    self._words,
                    block,
                    None if part is None else np.ascontiguousarray(part),
                    query,
                    us=WORDS_US * self.parameters.words * (1 if part is None else self._together),
                ),
            )
            for number, (first, block, part) in enumerate(parts)
        )
        async with aclosing(in_order(calls, IN_FLIGHT_PER_WORKER * workers)) as encrypted:
            async for (first, count), words in encrypted:
                for at in range(0, count, most):
                    some = min(most, count - at)
                    yield first + at, some, words[at * width : (at + some) * width]

    async def keep_second_halves(self, party: str, halves: bytes, candidates: int) -> None:
        """Keep a party's second halves for the queries to come, a range of candidates in each worker.

        Raises:
            Malformed: they are those of another number of candidates.
        """
        width = self.parameters.second_half_bytes
        if len(halves) != candidates * width:
            raise Malformed(f"second halves of {candidates} candidates have other sizes")
        calls = (
            self._engine.call(
                worker,
                _read,
                halves[first * width : last * width],
                (last - first, DEGREE),
                self.parameters.reply_bits,
                us=READ_US * (last - first),
            )
            for worker, first, last in self._shares(candidates)
        )
        self._second_halves[party] = await together(*calls)

    async def open(self, party: str, firsts: bytes, candidates: int, query: bytes) -> Ints:
        """Open the first halves of a party's candidates: (candidates, S).

        Raises:
            Malformed: a sum has more noise than an honest one, or is none of slots; not said which.
        """
        words, bits = self.parameters.words, self.parameters.reply_bits
        if len(firsts) != first_halves_bytes(self.parameters, candidates):
            raise Malformed(f"{candidates} candidates have other sizes")
        numbers = _read(firsts, (candidates, words), bits)
        shares, seconds = self._shares(candidates), self._second_halves[party]
        if sum(map(len, seconds)) != candidates:
            raise Malformed("first halves are not of as many candidates as the second ones before")
        calls = (
            self._engine.call(
                worker, self._opened, own, numbers[first:last], query, us=OPENED_US * own.size / DEGREE * words
            )
            for (worker, first, last), own in zip(shares, seconds, strict=True)
        )
        return np.concatenate([np.empty((0, len(self._slots.widths)), dtype=np.int64), *await together(*calls)])

    async def close(self) -> None:
        """Free what the workers have made."""
        self._public, self._second_halves = {}, {}

    def _words(self, block: int, values: Ints | None, query: bytes) -> bytes:
        """A kernel: the words of neighbouring blocks of records, or of the block of zeros."""
        plain = DEGREE if values is None else encode(self._slots, values)
        count = 1 if values is None else -(-len(values) // DEGREE)
        if (public := self._public.get((block, count))) is None:
            public = self._public[block, count] = kernels().public(self._seed, block, count)
        secrets = kernels().secrets(query, self.parameters.words)
        try:
            words, _ = kernels().encrypt(public, block, secrets, query, moduli_of(self.parameters), plain)
        finally:
            secrets.forget()
        return words.tobytes()

    def _opened(self, seconds: Words, firsts: Words, query: bytes) -> Ints:
        """A kernel: the sums of some candidates."""
        agreed = self.parameters
        secrets = kernels().secrets(query, agreed.words)
        try:
            residues, noise = kernels().open(seconds, firsts, secrets, agreed.reply_bits, moduli_of(agreed))
        finally:
            secrets.forget()
        if noise > agreed.noise_share:
            raise Malformed("a sum has more noise than sums of words can have")
        return self._opener.sums(residues)


def _read(data: bytes, shape: tuple[int, ...], bits: int) -> Words:
    try:
        return kernels().read(data, shape, bits)
    except ValueError as failure:
        raise Malformed(f"halves of sums cannot be read: {failure}") from None
