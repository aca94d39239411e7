"""A party's work with whole lists of blinded identifiers: over its workers, from and to other parties, in files.

A list is in memory a few messages or calls at a time only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from party.runtime.context import StepContext
from treetap.errors import Malformed
from treetap.process.together import together
from treetap.protocols.alignment import Plan, owners
from treetap.protocols.messages import JobSizes
from treetap.psi import kernels
from treetap.psi.group import POINT_BYTES, Exponent
from treetap.psi.lists import PointList, Rows, common, shuffled
from treetap.tables.record_ids import Ids
from treetap.wire.v2 import alignment_pb2
from treetap.workers.engines import Engine, KeyEngine

#: Points in one message: 1 MiB.
POINTS_PER_MESSAGE = 32_768
#: Points in one call to a worker: some tenths of a second of work, so that progress is reported often.
POINTS_PER_CALL = 4_096
#: Calls that wait at a worker or run there: one is sent while another is at work.
CALLS_PER_WORKER = 2


class BlindedLists:
    """Makes, checks, raises, sends and receives lists for one attempt at a job."""

    def __init__(self, context: StepContext, plan: Plan, sizes: JobSizes) -> None:
        """`sizes`: take the lengths of the others' lists, once they have been here."""
        self._context, self._plan, self._sizes, self._members = context, plan, sizes, sizes.members.parties

    async def blinded(self, ids: Ids, order: Rows, exponent: Exponent) -> PointList:
        """The ids at these places, in this order, hashed to the group and raised."""

        def call(first: int, last: int) -> tuple[Any, ...]:
            return exponent.for_kernel(), *ids.take(order[first:last]).packed()

        made = PointList(self._context.scratch.file(), len(order))
        await self._spread(self._secret_workers, kernels.blind, call, len(order), "raised identifiers", made)
        return made

    async def raised(self, points: PointList, exponent: Exponent) -> PointList:
        """A new list of all points, checked and raised, in their order."""

        def call(first: int, last: int) -> tuple[Any, ...]:
            return exponent.for_kernel(), points.take(first, last - first)

        made = PointList(self._context.scratch.file(), len(points))
        await self._spread(self._secret_workers, kernels.raise_points, call, len(points), "raised identifiers", made)
        return made

    async def check(self, points: PointList) -> None:
        """Raise `Malformed` for invalid points, in lists that are only compared; raising a list checks it too."""

        def call(first: int, last: int) -> tuple[Any, ...]:
            return (points.take(first, last - first),)

        await self._spread(self._context.engine, kernels.check_points, call, len(points), "checked identifiers", None)

    async def shuffled(self, points: PointList) -> PointList:
        """The points in a new order; the list is closed."""
        return await self._context.offload(lambda: shuffled(points, self._context.scratch.file), whole=True)

    async def common(self, own: PointList, *others: PointList, kept: Callable[[bytes, Rows], None]) -> None:
        """Give `kept` the points that all lists hold, in order and by parts, and their places in the first."""

        def work() -> None:
            for points, places in common(self._context.scratch.file, own, *others):
                kept(points.tobytes(), places)

        await self._context.offload(work, whole=True)

    async def check_distinct(self, points: PointList) -> None:
        """Raise `Malformed` for a list that has a point twice."""
        await self.common(points, kept=lambda _, __: None)

    def empty(self) -> PointList:
        return PointList(self._context.scratch.file())

    async def send(self, to: str, points: PointList | None, stage: int) -> list[PointList]:
        """Send a list; returns none, so that sending and taking can be awaited together."""
        blocks: Iterator[bytes] = iter(()) if points is None else points.blocks(POINTS_PER_MESSAGE)
        bodies = (alignment_pb2.BlindedIds(points=block) for block in blocks)
        await self._context.outbox.send(to, "blinded_ids", bodies, stage=stage)
        return []

    async def take_all(self, senders: Sequence[int], stage: int) -> list[PointList]:
        """The lists that these members send, by their places."""
        return await together(*(self._take(self._members[sender], stage) for sender in senders))

    async def _take(self, sender: str, stage: int) -> PointList:
        made, rest = self.empty(), b""
        place = self._members.index(self._context.party)
        owner = owners(self._plan, place).get((self._members.index(sender), stage))
        async for message in self._context.mailbox.series(sender, "blinded_ids", 0, stage):
            block = rest + message.alignment.blinded_ids.points
            whole = len(block) // POINT_BYTES * POINT_BYTES
            made.append(block[:whole])
            rest = block[whole:]
            if owner is not None:
                self._context.ledger.check_list(self._members[owner], len(made))
        if rest:
            size = len(made) * POINT_BYTES + len(rest)
            raise Malformed(f"{sender} sent {size} bytes of blinded identifiers, no whole number of points")
        if owner is not None and owner != place:  # the own list is compared with the own ids
            before = self._sizes.lists.setdefault(owner, len(made))
            if len(made) != before:
                whose = f"blinded identifiers of {self._members[owner]}: they were {before} before"
                raise Malformed(f"{sender} sent {len(made)} {whose}")
        return made

    @property
    def _secret_workers(self) -> KeyEngine:
        """The workers that get ids and exponents."""
        return self._context.key_engine

    async def _spread(
        self,
        engine: Engine,
        kernel: Callable[..., bytes],
        call: Callable[[int, int], tuple[Any, ...]],
        total: int,
        operation: str,
        made: PointList | None,
    ) -> None:
        """Distribute `total` points over an engine's workers, write the results to their places, and report progress.

        `call`: the kernel's arguments for the points from the first to before the last.
        """
        progress = self._context.progress
        progress.done, progress.total = 0, total
        parts = iter(range(0, total, POINTS_PER_CALL))

        async def work(worker: int) -> None:
            for first in parts:
                last = min(first + POINTS_PER_CALL, total)
                block = await engine.call(worker, kernel, *call(first, last))
                if made is not None:
                    made.put(first, block)
                progress.done += last - first

        await together(*(work(worker) for worker in range(engine.workers) for _ in range(CALLS_PER_WORKER)))
        self._context.costs.operations[operation] += total
