"""Lattice backend of Fed-EINI at a feature party: slots that its own columns exclude become zero, the rest goes on."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Sequence

from party.config import PartyConfig
from party.eini.blocks import BlockMasker
from party.eini.layout import spare_of
from party.lattice.layout import MemberLayout, take_layout
from party.runtime.context import Tools, have
from party.runtime.job_store import Store
from party.runtime.outbox import PARCEL_BYTES, Series
from treetap.errors import Incompatible, Malformed
from treetap.lattice.columns import Page, widest
from treetap.lattice.kernels import IN_FLIGHT_PER_LANE, LatticeMember
from treetap.lattice.parameters import Parameters
from treetap.trees.leaf_entries import GoesLeft
from treetap.wire.v2 import lattice_pb2, prediction_pb2

#: A ciphertext of a block: its page and its output.
Unit = tuple[Page, int]


class FeatureParty(BlockMasker):
    """Answers the steps of a feature party."""

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening)
        self._layout: MemberLayout | None = None
        self._parameters: Parameters | None = None
        self._member: LatticeMember | None = None

    async def begin(self) -> None:
        """On which own turns each column depends, and the key, whose sizes must be those that follow from it."""
        tools, opening = self._tools, self._opening
        sender = opening.label_holder
        parcels = tools.mailbox.series(sender, "column_layout", 0, 0)
        layout = await take_layout(parcels, tools.party, sender, self._trees, len(opening.feature_parties))
        parameters = layout.shape.parameters()
        self.check_paths(spare_of(layout.nodes, parameters.plain_bits))
        public = b""
        async for parcel in tools.mailbox.series(sender, "lattice_key", 0, 0):
            public += parcel.protocol.lattice.lattice_key.public
        token = f"{tools.job}/{tools.attempt}"
        member = LatticeMember(tools.engine, parameters, public, token, layout.shape.outputs)
        self._layout, self._parameters, self._member = layout, parameters, member
        try:
            await member.start()
        except (Malformed, Incompatible) as failure:
            raise type(failure)(f"the key of {sender} cannot be used: {failure}") from failure

    async def mask(self, number: int, goes_left: GoesLeft, n: int) -> None:
        """A block of records.

        1. The masks from the own columns, page by page,
        2. applied to the ciphertexts as they come, which go on while others come, each of them fresh;
        3. at the last of the chain: summed, flooded, returned.
        """
        tools, member, shape = self._tools, have(self._member), have(self._layout).shape
        degree = have(self._parameters).degree
        if n > degree:
            raise Malformed(f"{n} records, a ciphertext has {degree} slots")
        pages = shape.pages(n, degree)
        units = [(page, output) for page in pages for output in page.outputs]
        left = functools.cache(goes_left)
        series = tools.outbox.open(self.after, "lattice_sums" if self.last else "lattice_columns", number)
        under_way: deque[asyncio.Task[list[bytes]]] = deque()
        came = masked = 0
        try:
            async for parcel in tools.mailbox.series(self.before, "lattice_columns", number, 0):
                data = list(parcel.protocol.lattice.lattice_columns.ciphertexts)
                mine = units[came : came + len(data)]
                came += len(data)
                if len(mine) < len(data):
                    break
                if data:
                    under_way.append(asyncio.ensure_future(self._work(number, mine, data, left, n)))
                while len(under_way) > IN_FLIGHT_PER_LANE * tools.engine.lanes:
                    masked += await self._pass_on(series, under_way)
                    tools.meter.done = n * masked // len(units)
            if came != len(units):
                raise Malformed(f"{n} records and {shape.columns} columns are {len(units)} ciphertexts, got {came}")
            while under_way:
                masked += await self._pass_on(series, under_way)
                tools.meter.done = n * masked // len(units)
            if self.last:
                await self._put(series, await member.finish(number, widest(pages), n))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await member.drop(number)
        await series.close()
        tools.ledger.operations["masked_products"] += masked

    async def close(self) -> None:
        """The workers forget the ciphertexts."""
        if self._member is not None:
            member, self._member = self._member, None
            await member.close()

    async def _work(
        self, number: int, units: Sequence[Unit], data: Sequence[bytes], left: GoesLeft, n: int
    ) -> list[bytes]:
        """Mask some ciphertexts: what goes on, nothing at the last of the chain."""
        layout, member = have(self._layout), have(self._member)
        pages = list(dict.fromkeys(page for page, _ in units))
        masks = [layout.mask(page, left, n) for page in pages]
        owns = [pages.index(page) for page, _ in units]
        if self.last:
            await member.add(number, masks, data, [(own, output) for own, (_, output) in zip(owns, units, strict=True)])
            return [b""] * len(data)
        return await member.pass_on(masks, data, owns)

    async def _pass_on(self, series: Series, under_way: deque[asyncio.Task[list[bytes]]]) -> int:
        """Wait for the oldest and let it go on; returns how many ciphertexts it was."""
        done = await under_way[0]
        under_way.popleft()
        if not self.last:
            await self._put(series, done)
        return len(done)

    async def _put(self, series: Series, ciphertexts: Sequence[bytes]) -> None:
        """To the next of the chain, in parcels of bounded size."""
        count = max(1, PARCEL_BYTES // have(self._parameters).ciphertext_bytes)
        for start in range(0, len(ciphertexts), count):
            part = ciphertexts[start : start + count]
            self._tools.ledger.ciphertexts["lattice_sums" if self.last else "lattice_columns"] += len(part)
            if self.last:
                await series.put(lattice_pb2.LatticeSums(ciphertexts=part))
            else:
                await series.put(lattice_pb2.LatticeColumns(ciphertexts=part))
