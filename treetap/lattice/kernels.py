"""Key holder and member on worker processes: columns are dealt out to the workers in turn.

Each worker holds the key it needs and, at a member, its own part of every open block's sum: one ciphertext per output
and worker, whatever the number of columns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from treetap.errors import Malformed
from treetap.lattice.key_holder import LatticeKey
from treetap.lattice.member import MaskedSum, Member
from treetap.lattice.parameters import PARTIAL_SUMS, Parameters
from treetap.process.signs_of_life import finish_unit
from treetap.process.together import in_order, together
from treetap.workers.engines import Engine, call_all, drop, make, on

T = TypeVar("T")
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: A ciphertext's place: (index of its mask among those that come with it, the output that it adds to).
Place = tuple[int, int]
IN_FLIGHT_PER_WORKER = 2


class LatticeKeyHolder:
    """Encrypts and opens on an engine; `token` names this job in the workers' memory."""

    def __init__(self, engine: Engine, key: LatticeKey, token: str) -> None:
        self._engine = engine
        self._key = key
        self._name = f"lattice-owner/{token}"

    async def start(self) -> None:
        """Hand the key to every worker."""
        await call_all(self._engine, make, self._name, LatticeKey.from_worker, self._key.for_worker())

    async def encrypt(self, groups: Iterable[Sequence[Ints] | Ints]) -> AsyncIterator[list[bytes]]:
        """Encrypt groups of columns, each column (n ≤ N,), reading at most two groups per worker ahead.

        Yields:
            Each group's ciphertexts, in order.

        Raises:
            PlaintextOverflow: a number that does not fit its slot.
        """
        workers = self._engine.workers
        calls = (
            (None, self._engine.call(number % workers, on, self._name, _encrypt, group))
            for number, group in enumerate(groups)
        )
        async with aclosing(in_order(calls, IN_FLIGHT_PER_WORKER * workers)) as encrypted:
            async for _, ciphertexts in encrypted:
                yield ciphertexts

    async def open(self, sums: Sequence[bytes], n: int) -> Ints:
        """Decrypt returned sums: (len(sums), n).

        Raises:
            Malformed: one is not a sum under this key and these parameters.
        """
        calls = (
            self._engine.call(place % self._engine.workers, on, self._name, LatticeKey.decrypt, data, n)
            for place, data in enumerate(sums)
        )
        opened = await together(*calls)
        return np.array(opened, dtype=np.int64).reshape(len(sums), n)

    async def close(self) -> None:
        """Make every worker forget the key."""
        self._engine.forget(drop, self._name)


class LatticeMember:
    """Masks columns on an engine, and adds them up if it is the last member.

    Args:
        engine: workers.
        agreed: the job's parameters.
        public: the label holder's public bytes.
        token: names this job in the workers' memory.
        outputs: sums of a block.
    """

    def __init__(self, engine: Engine, agreed: Parameters, public: bytes, token: str, outputs: int = 1) -> None:
        self._engine = engine
        self._agreed = agreed
        self._public = public
        self._outputs = outputs
        self._name = f"lattice-member/{token}"
        self._turn = 0
        self._used: dict[int, set[int]] = {}

    async def start(self) -> None:
        """Give every worker the public key. Raises Malformed as `Member` does."""
        await call_all(self._engine, make, self._name, _Member, self._agreed, self._public, self._outputs)

    def prepare(self) -> None:
        """Have every worker draw the randomness of a next sum, one that has none drawn, and do not wait for it."""
        self._engine.forget(_prepare, self._name)

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
        partials = await together(*(self._on(worker, _Member.partial, block) for worker in others))
        return await self._on(first, _Member.finish, block, partials, side_by_side, n)

    async def drop(self, block: int) -> None:
        """Forget the sums of a block that is not finished."""
        workers = self._used.pop(block, set())
        if workers:
            self._engine.forget(on, self._name, _Member.drop, block)

    async def close(self) -> None:
        """Make every worker forget the job."""
        self._engine.forget(drop, self._name)

    async def _on(self, worker: int, method: Callable[..., T], *args: Any) -> T:
        return await self._engine.call(worker, on, self._name, method, *args)

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

    def partial(self, block: int) -> tuple[list[int], int, list[bytes]]:
        """This worker's part of a block's sums, which ends here."""
        return self._sum_of(block, end=True).partial()

    def finish(
        self, block: int, partials: list[tuple[list[int], int, list[bytes]]], side_by_side: int, n: int
    ) -> list[bytes]:
        """The sums of a block, with the parts of other workers."""
        total = self._sum_of(block, end=True)
        for partial in partials:
            total.merge(partial)
        return total.finish(side_by_side, n)

    def drop(self, block: int) -> None:
        """Forget a block that is not finished."""
        self.sums.pop(block, None)

    def _sum_of(self, block: int, end: bool = False) -> MaskedSum:
        if block not in self.sums:
            drawn, self.drawn = self.drawn, None
            self.sums[block] = drawn or MaskedSum(self.member, self.outputs)
        return self.sums.pop(block) if end else self.sums[block]


def _encrypt(key: LatticeKey, columns: Sequence[Ints] | Ints) -> list[bytes]:
    ciphertexts = []
    for column in columns:
        ciphertexts.append(key.encrypt(column))
        finish_unit()
    return ciphertexts


def _prepare(state: dict[str, Any], name: str) -> None:
    worker: _Member | None = state.get(name)  # None: the job has been left meanwhile
    if worker is not None and worker.drawn is None:
        worker.drawn = MaskedSum(worker.member, worker.outputs)
        worker.drawn.draw()


def _of_one_mask(
    masks: list[Bools], ciphertexts: list[bytes], places: list[Place]
) -> Iterator[tuple[Bools, list[bytes], list[int]]]:
    """Neighbours of one mask together, so that it is encoded once: (mask, ciphertexts, outputs)."""
    if len(ciphertexts) != len(places):
        raise Malformed(f"{len(ciphertexts)} ciphertexts for {len(places)} places")
    for own, group in groupby(zip(places, ciphertexts, strict=True), key=lambda pair: pair[0][0]):
        pairs = list(group)
        yield masks[own], [data for _, data in pairs], [output for (_, output), _ in pairs]
