"""Key holder and member on workers: columns are dealt out to them in turn.

Each worker holds, at a member, its own part of every open block's sum: one ciphertext per output
and worker, whatever the number of columns.

A feature party: masks columns that it cannot read, and adds them up or passes them on.

The key owner knows every ciphertext it sent and all noise in them. To hide the masks from it, the last member adds a
fresh encryption of zero, which makes the second polynomial look uniform, and noise flooding
(`treetap.lattice.parameters`). To hide them from the next member, which has no key, every ciphertext passed on gets a
fresh encryption of zero. The owner and a later member together could read the masks of an earlier one.

The number and size of ciphertexts and the operations on them do not depend on the masks.

Where there are few records, several columns lie side by side in one ciphertext. Nothing adds slots up under encryption
here, so the last member adds random numbers that cancel in each record's sum (`blinds`), and the owner, who reads
uniform numbers, adds them up itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import TypeVar

import numpy as np

from treetap.arrays import Bools, Ints
from treetap.errors import Malformed, OutOfOrder
from treetap.lattice.parameters import PARAMETERS_BYTES, PARTIAL_SUMS, Parameters
from treetap.lattice.scheme import LatticeKey, scheme_of, to_bytes
from treetap.native.lattice import Polynomial, Ring
from treetap.process.together import in_order, together
from treetap.usage import finish_unit
from treetap.workers.engines import Engine, InWorkers


class Member:
    """Holds the label holder's public key.

    Args:
        agreed: the job's parameters, from this party's own record of the agreement.
        public: the result of `LatticeKey.public_bytes`.

    Raises:
        Malformed: other parameters than agreed, or not just a public key.
    """

    def __init__(self, agreed: Parameters, public: bytes) -> None:
        if public[:PARAMETERS_BYTES] != agreed.to_bytes():  # a peer's sizes are compared, and never computed with
            raise Malformed("the label holder's key has other lattice parameters than this job agreed on")
        self.parameters = agreed
        self.scheme = scheme_of(agreed)
        self._key = self.scheme.ring.montgomery(self.scheme.public_key(public[PARAMETERS_BYTES:]))

    def fresh_zero(self) -> Polynomial:
        """An encryption of zero under the public key, (2, primes, N)."""
        return self.scheme.ring.encrypted_zero(self._key)

    def pass_on(self, mask: Bools, ciphertexts: Sequence[bytes]) -> list[bytes]:
        """Columns with their entries outside the mask (n ≤ N,) blanked, under fresh randomness: for the next member.

        Raises:
            Malformed: not ciphertexts of these parameters, or a mask longer than they are.
        """
        factor, passed = self.factor(mask), []
        for data in ciphertexts:
            kept = self.fresh_zero()
            self.add_product(kept, factor, data)
            passed.append(to_bytes(kept))
            finish_unit()
        return passed

    def factor(self, mask: Bools) -> Polynomial:
        """The polynomial that blanks the slots outside a mask (n ≤ N,). Raises Malformed for a longer mask."""
        if len(mask) > self.parameters.degree:
            raise Malformed(f"a mask of {len(mask)} records for ciphertexts of {self.parameters.degree} slots")
        return self.scheme.ring.mask(mask)

    def add_product(self, total: Polynomial, factor: Polynomial, data: bytes) -> None:
        """Add a ciphertext times a mask's polynomial to another. Raises Malformed as `Scheme.ciphertext` does."""
        for kept, half in zip(total, self.scheme.ciphertext(data), strict=True):
            self.scheme.ring.multiply_add(kept, half, factor)


class MaskedSum:
    """Sums Σ_columns mask · column of one block of at most N records, one sum per output.

    It holds one ciphertext per output, however many columns come. `finish` ends it.
    """

    def __init__(self, member: Member, outputs: int = 1) -> None:
        self._member = member
        self._sums = [member.fresh_zero() for _ in range(outputs)]
        self._none = [0] * outputs
        self._columns = self._none
        self._zeros = 1
        self._ended = False
        self._floods: list[Polynomial] = []

    def draw(self) -> None:
        """Draw the flooding noise of every output now, so that `finish` need not; each draw is added once."""
        while len(self._floods) < len(self._sums):
            self._floods.append(self._member.scheme.ring.flood(self._member.parameters.flood))
            finish_unit()

    def add(self, mask: Bools, ciphertexts: Sequence[bytes], outputs: Sequence[int] | None = None) -> None:
        """Add a masked column: mask (n ≤ N,), a ciphertext for each of `outputs`, or without them for all.

        Raises:
            Malformed: not ciphertexts of these parameters, or another number than outputs.
            OutOfOrder: more columns than agreed, or after the end.
        """
        places = range(len(self._sums)) if outputs is None else outputs
        if len(ciphertexts) != len(places):
            raise Malformed(f"{len(ciphertexts)} ciphertexts of a column with {len(places)} outputs")
        self._count([int(k in places) for k in range(len(self._sums))], 0)
        factor = self._member.factor(mask)
        for place, data in zip(places, ciphertexts, strict=True):
            self._member.add_product(self._sums[place], factor, data)
            finish_unit()

    def merge(self, other: MaskedSum) -> None:
        """Add another worker's part of the same block, which ends it. Raises OutOfOrder beyond the agreed columns."""
        other._count(self._none, 0)
        other._ended = True
        self._count(other._columns, other._zeros)
        ring = self._member.scheme.ring
        for total, more in zip(self._sums, other._sums, strict=True):
            for own, half in zip(total, more, strict=True):
                ring.add(own, half)

    def finish(self, side_by_side: int = 1, n: int = 0) -> list[bytes]:
        """One flooded ciphertext per output, for the key owner. Raises OutOfOrder the second time.

        Args:
            side_by_side: columns in one ciphertext; their slots are blinded where it is more than one.
            n: records, hence slots of a column.
        """
        self._count(self._none, 0)
        self._ended = True
        ring = self._member.scheme.ring
        self.draw()
        answers = []
        for total in self._sums:
            if side_by_side > 1:
                ring.add(total[0], ring.message(blinds(ring, side_by_side, n)))
            ring.add(total[0], self._floods.pop())
            answers.append(to_bytes(total))
            finish_unit()
        return answers

    def _count(self, columns: Sequence[int], zeros: int) -> None:
        """Check the number of columns and fresh zeros, for which alone the noise is bounded."""
        if self._ended:
            raise OutOfOrder("this masked sum has ended")
        self._columns = [
            have + more for have, more in zip(self._columns, columns or [0] * len(self._sums), strict=True)
        ]
        self._zeros += zeros
        if max(self._columns) > self._member.parameters.columns:
            raise OutOfOrder(f"more than the agreed {self._member.parameters.columns} columns in one masked sum")
        if self._zeros > PARTIAL_SUMS:
            raise OutOfOrder(f"a masked sum is made of at most {PARTIAL_SUMS} parts")


def blinds(ring: Ring, columns: int, n: int) -> Ints:
    """Numbers between -t/2 and t/2 for the slots of columns side by side, (columns·n,), which cancel over the columns.

    All but one column of them are uniform modulo t and independent.
    """
    drawn = ring.blinds((columns - 1) * n)
    last = -drawn.reshape(columns - 1, n).sum(axis=0) % ring.plain
    numbers = np.concatenate([drawn, last])
    numbers[numbers > ring.plain // 2] -= ring.plain
    return numbers


T = TypeVar("T")
#: A ciphertext's place: (index of its mask among those that come with it, the output that it adds to).
Place = tuple[int, int]
IN_FLIGHT_PER_WORKER = 2


class LatticeKeyHolder(InWorkers):
    """Encrypts and opens on an engine, until `close`."""

    def __init__(self, engine: Engine, key: LatticeKey) -> None:
        super().__init__(engine)
        self._parts = [key] * engine.workers

    async def encrypt(self, groups: Iterable[Sequence[Ints] | Ints]) -> AsyncIterator[list[bytes]]:
        """Encrypt groups of columns, each column (n ≤ N,), reading at most two groups per worker ahead.

        Yields:
            Each group's ciphertexts, in order.

        Raises:
            PlaintextOverflow: a number that does not fit its slot.
        """
        workers = self._engine.workers
        calls = ((None, self._on(number % workers, _encrypt, group)) for number, group in enumerate(groups))
        async with aclosing(in_order(calls, IN_FLIGHT_PER_WORKER * workers)) as encrypted:
            async for _, ciphertexts in encrypted:
                yield ciphertexts

    async def open(self, sums: Sequence[bytes], n: int) -> Ints:
        """Decrypt returned sums: (len(sums), n).

        Raises:
            Malformed: one is not a sum under this key and these parameters.
        """
        calls = (self._on(place % self._engine.workers, LatticeKey.decrypt, data, n) for place, data in enumerate(sums))
        opened = await together(*calls)
        return np.array(opened, dtype=np.int64).reshape(len(sums), n)


class LatticeMember(InWorkers):
    """Masks columns on an engine, and adds them up if it is the last member.

    Args:
        engine: workers.
        agreed: the job's parameters.
        public: the label holder's public bytes.
        outputs: sums of a block.
    """

    def __init__(self, engine: Engine, agreed: Parameters, public: bytes, outputs: int = 1) -> None:
        super().__init__(engine)
        self._agreed = agreed
        self._public = public
        self._outputs = outputs
        self._turn = 0
        self._used: dict[int, set[int]] = {}

    async def start(self) -> None:
        """Give every worker the public key. Raises Malformed as `Member` does."""
        await self._make(_Member, self._agreed, self._public, self._outputs)

    def prepare(self) -> None:
        """Have every worker draw the randomness of a next sum, one that has none drawn, and do not wait for it."""
        for worker, part in enumerate(self._parts):
            self._engine.begin(worker, _Member.prepare, part)

    async def pass_on(self, masks: Sequence[Bools], ciphertexts: Sequence[bytes], owns: Sequence[int]) -> list[bytes]:
        """Masked and refreshed ciphertexts for the next member; `owns` is each ciphertext's mask (n ≤ N,).

        Raises:
            Malformed: see `Member.pass_on`.
        """
        return await self._on(self._next(), _Member.pass_on, list(masks), list(ciphertexts), list(owns))

    async def add(
        self, block: int, masks: Sequence[Bools], ciphertexts: Sequence[bytes], places: Sequence[Place]
    ) -> None:
        """Add ciphertexts of a block of records to its sums, each with its place among the masks (n ≤ N,) and outputs.

        Raises:
            Malformed, OutOfOrder: see `MaskedSum.add`.
        """
        worker = self._next()
        self._used.setdefault(block, set()).add(worker)
        await self._on(worker, _Member.add, block, list(masks), list(ciphertexts), list(places))

    async def finish(self, block: int, side_by_side: int = 1, n: int = 0) -> list[bytes]:
        """The flooded sums of a block, one per output; every `add` to it must have returned.

        Raises:
            OutOfOrder: more columns than agreed.
        """
        first, *others = sorted(self._used.pop(block, {0}))
        parts = await together(*(self._on(worker, _Member.ended, block) for worker in others))
        return await self._on(first, _Member.finish, block, parts, side_by_side, n)

    async def drop(self, block: int) -> None:
        """Forget the sums of a block that is not finished."""
        for worker in self._used.pop(block, set()):
            self._engine.begin(worker, _Member.drop, self._parts[worker], block)

    def _next(self) -> int:
        worker = self._turn
        # each worker's part of a sum has an encryption of zero of its own
        self._turn = (worker + 1) % min(self._engine.workers, PARTIAL_SUMS)
        return worker


class _Member:
    """A worker's state for a member: the public key and its part of each open block."""

    def __init__(self, agreed: Parameters, public: bytes, outputs: int) -> None:
        self.member = Member(agreed, public)
        self.outputs = outputs
        self.sums: dict[int, MaskedSum] = {}
        self.drawn: MaskedSum | None = None  # empty, its randomness drawn ahead

    def prepare(self) -> None:
        """Draw the randomness of a next sum, unless it is drawn."""
        if self.drawn is None:
            self.drawn = MaskedSum(self.member, self.outputs)
            self.drawn.draw()

    def pass_on(self, masks: list[Bools], ciphertexts: list[bytes], owns: list[int]) -> list[bytes]:
        """Masked and refreshed ciphertexts."""
        places = [(own, 0) for own in owns]
        passed: list[bytes] = []
        for mask, columns, _ in _of_one_mask(masks, ciphertexts, places):
            passed += self.member.pass_on(mask, columns)
        return passed

    def add(self, block: int, masks: list[Bools], ciphertexts: list[bytes], places: list[Place]) -> None:
        """Add ciphertexts to a block's sums."""
        for mask, column, outputs in _of_one_mask(masks, ciphertexts, places):
            self._sum_of(block).add(mask, column, outputs)

    def ended(self, block: int) -> MaskedSum:
        """This worker's part of a block's sums, which ends here."""
        total = self._sum_of(block)
        del self.sums[block]
        return total

    def finish(self, block: int, parts: list[MaskedSum], side_by_side: int, n: int) -> list[bytes]:
        """The sums of a block, with the parts of other workers."""
        total = self.ended(block)
        for part in parts:
            total.merge(part)
        return total.finish(side_by_side, n)

    def drop(self, block: int) -> None:
        """Forget a block that is not finished."""
        self.sums.pop(block, None)

    def _sum_of(self, block: int) -> MaskedSum:
        if block not in self.sums:
            drawn, self.drawn = self.drawn, None
            self.sums[block] = drawn or MaskedSum(self.member, self.outputs)
        return self.sums[block]


def _encrypt(key: LatticeKey, columns: Sequence[Ints] | Ints) -> list[bytes]:
    ciphertexts = []
    for column in columns:
        ciphertexts.append(key.encrypt(column))
        finish_unit()
    return ciphertexts


def _of_one_mask(
    masks: list[Bools], ciphertexts: list[bytes], places: list[Place]
) -> Iterator[tuple[Bools, list[bytes], list[int]]]:
    """Neighbours of one mask together, so that it is encoded once: (mask, ciphertexts, outputs)."""
    if len(ciphertexts) != len(places):
        raise Malformed(f"{len(ciphertexts)} ciphertexts for {len(places)} places")
    for own, group in groupby(zip(places, ciphertexts, strict=True), key=lambda pair: pair[0][0]):
        pairs = list(group)
        yield masks[own], [data for _, data in pairs], [output for (_, output), _ in pairs]
