"""The lattice scheme along the chain: columns go out encrypted, are masked on the way, and come back as sums.

`LatticeScheme` is the label holder's end, `LatticeMasking` a feature party's.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from party.lattice.layout import MemberColumns
from party.prediction.chain import ChainPlace
from party.runtime.context import StepContext
from party.runtime.messages import MESSAGE_BYTES
from party.runtime.outbox import Series
from treetap.errors import Malformed
from treetap.lattice.columns import NodeColumns, Page, widest
from treetap.lattice.kernels import IN_FLIGHT_PER_WORKER, LatticeKeyHolder, LatticeMember
from treetap.lattice.parameters import Parameters
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import Floats
from treetap.wire.v2 import lattice_pb2

Ints = npt.NDArray[np.int64]
#: Most bytes of ciphertexts of one block, all of which may lie at the first of the chain before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024
#: A ciphertext of a block: its page and its output.
Unit = tuple[Page, int]


@dataclass(frozen=True)
class BlockColumns:
    """The columns of a block of n records, computed page by page as they are sent.

    `base`: D(root), summed over trees (outputs, n), once all pages have been computed.
    """

    columns: NodeColumns
    pages: Sequence[Page]
    numbers: Iterator[Ints]
    base: Ints

    @classmethod
    def of(cls, columns: NodeColumns, pages: Sequence[Page], goes_left: GoesLeft, outputs: int, n: int) -> BlockColumns:
        """The columns by the own splits' answers for n records."""
        base = np.zeros((outputs, n), dtype=np.int64)
        return cls(columns, pages, columns.pages(goes_left, n, pages, base), base)

    def sums(self, opened: Ints) -> Floats:
        """The sums of leaf weights (n, outputs): D(root) added to the sums that the chain returned.

        Raises:
            Malformed: a sum that no choice of one leaf per tree can have.
        """
        return self.columns.weights(opened, self.base)


class LatticeScheme:
    """The label holder's end of the chain; `advance` shows how many records of the block have been sent."""

    def __init__(
        self,
        context: StepContext,
        owner: LatticeKeyHolder,
        parameters: Parameters,
        outputs: int,
        chain: list[str],
        advance: Callable[[int], None],
    ) -> None:
        self._context, self._owner, self._parameters, self._outputs = context, owner, parameters, outputs
        self._chain, self._advance = chain, advance
        self._slots = 0  # of an output's sum that the block under way fills

    async def start(self) -> None:
        """Hand the key to the workers."""
        await self._owner.start()

    async def send(self, block: BlockColumns, number: int) -> None:
        """Encrypt the columns page by page, and send them to the first of the chain while the next are encrypted."""
        context, n = self._context, block.base.shape[1]
        self._slots, sent = widest(block.pages) * n, 0
        total = sum(len(page.outputs) for page in block.pages)
        series = context.outbox.open(self._chain[0], "lattice_columns", number)
        groups = _in_groups(block.numbers, 2 * MESSAGE_BYTES // self._parameters.ciphertext_bytes)
        async for part in self._owner.encrypt(groups):
            await series.put(lattice_pb2.LatticeColumns(ciphertexts=part))
            sent += len(part)
            self._advance(n * sent // total)
        await series.close()
        context.costs.operations["encryptions"] += sent
        context.costs.ciphertexts["lattice_columns"] += sent

    async def receive(self, number: int) -> Ints:
        """The sums of the block that was sent, (outputs, columns side by side · n), opened.

        Raises:
            Malformed: not one sum for each output, or one that is not under this key.
        """
        answers: list[bytes] = []
        async for message in self._context.mailbox.series(self._chain[-1], "lattice_sums", number, 0):
            answers += message.protocol.lattice.lattice_sums.ciphertexts
        if len(answers) != self._outputs:
            raise Malformed(f"{len(answers)} sums of {self._outputs} outputs")
        opened = await self._owner.open(answers, self._slots)
        self._context.costs.operations["decryptions"] += len(answers)
        return opened

    async def close(self) -> None:
        """Make the workers forget the key."""
        await self._owner.close()


class LatticeMasking:
    """A feature party's place in the chain; `serving`: blocks come one by one, and what they need is drawn between."""

    def __init__(
        self,
        context: StepContext,
        member: LatticeMember,
        layout: MemberColumns,
        parameters: Parameters,
        place: ChainPlace,
        serving: bool,
    ) -> None:
        self._context, self._member, self._layout = context, member, layout
        self._parameters, self._place = parameters, place
        self._draws_ahead = serving and place.last
        self._sends = "lattice_sums" if place.last else "lattice_columns"

    async def start(self) -> None:
        """Hand the public key to the workers."""
        await self._member.start()
        if self._draws_ahead:
            self._member.prepare()

    async def pass_on(self, goes_left: GoesLeft, n: int, number: int) -> None:
        """Mask the ciphertexts of a block of n records page by page as they come, re-randomise them and pass them on.

        The last of the chain adds them up, floods and returns the sums.
        """
        context, member, shape, degree = self._context, self._member, self._layout.shape, self._parameters.degree
        if n > degree:
            raise Malformed(f"{n} records, a ciphertext has {degree} slots")
        pages = shape.pages(n, degree)
        units = [(page, output) for page in pages for output in page.outputs]
        left = functools.cache(goes_left)
        series = context.outbox.open(self._place.after, self._sends, number)
        under_way: deque[asyncio.Task[list[bytes]]] = deque()
        came = masked = 0
        try:
            async for message in context.mailbox.series(self._place.before, "lattice_columns", number, 0):
                data = list(message.protocol.lattice.lattice_columns.ciphertexts)
                mine = units[came : came + len(data)]
                came += len(data)
                if len(mine) < len(data):
                    break
                if data:
                    under_way.append(asyncio.ensure_future(self._mask(number, mine, data, left, n)))
                while len(under_way) > IN_FLIGHT_PER_WORKER * context.engine.workers:
                    masked += await self._settle(series, under_way)
                    context.progress.done = n * masked // len(units)
            if came != len(units):
                raise Malformed(f"{n} records and {shape.columns} columns are {len(units)} ciphertexts, got {came}")
            while under_way:
                masked += await self._settle(series, under_way)
                context.progress.done = n * masked // len(units)
            if self._place.last:
                await self._put(series, await member.finish(number, widest(pages), n))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await member.drop(number)
        await series.close()
        if self._draws_ahead:
            member.prepare()
        context.costs.operations["masked_products"] += masked

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        await self._member.close()

    async def _mask(
        self, number: int, units: Sequence[Unit], data: Sequence[bytes], left: GoesLeft, n: int
    ) -> list[bytes]:
        """Mask some ciphertexts; returns those to pass on, none at the last of the chain."""
        pages = list(dict.fromkeys(page for page, _ in units))
        masks = [self._layout.mask(page, left, n) for page in pages]
        owns = [pages.index(page) for page, _ in units]
        if self._place.last:
            places = [(own, output) for own, (_, output) in zip(owns, units, strict=True)]
            await self._member.add(number, masks, data, places)
            return [b""] * len(data)
        return await self._member.pass_on(masks, data, owns)

    async def _settle(self, series: Series, under_way: deque[asyncio.Task[list[bytes]]]) -> int:
        """Wait for the oldest and pass it on; returns the number of its ciphertexts."""
        done = await under_way[0]
        under_way.popleft()
        if not self._place.last:
            await self._put(series, done)
        return len(done)

    async def _put(self, series: Series, ciphertexts: Sequence[bytes]) -> None:
        """Send to the next of the chain, in messages of bounded size."""
        body = lattice_pb2.LatticeSums if self._place.last else lattice_pb2.LatticeColumns
        count = max(1, MESSAGE_BYTES // self._parameters.ciphertext_bytes)
        for start in range(0, len(ciphertexts), count):
            part = ciphertexts[start : start + count]
            self._context.costs.ciphertexts[self._sends] += len(part)
            await series.put(body(ciphertexts=part))


def _in_groups(pages: Iterable[Ints], count: int) -> Iterator[list[Ints]]:
    """The numbers of `count` ciphertexts at a time, (slots,) each, in the order of pages and outputs."""
    group: list[Ints] = []
    for page in pages:
        for numbers in page:
            group.append(numbers)
            if len(group) >= count:
                yield group
                group = []
    if group:
        yield group
