"""Sums of ciphertexts along the chain: entries go out encrypted, are masked on the way, come back as sums (Fed-EINI).

`EntrySums` is the label holder's end, `EntryMasking` a feature party's. The values of an entry are scores or
attributions; both go under one key, in messages of different names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from google.protobuf.message import Message

from party.eini.chain import Advance, ChainPlace
from party.eini.entry_layout import EntryKind, MemberEntries
from party.runtime.context import StepContext, required
from party.runtime.messages import MESSAGE_BYTES, ciphertext_body, ciphertexts_in
from party.runtime.outbox import Series
from treetap.additive.sums.masked_sums import EntryKeyHolder, EntryMember
from treetap.process.together import together
from treetap.protocols.scoring import BLOCK_BYTES
from treetap.trees.leaf_entries import Ints, LeafEntries
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import Floats
from treetap.trees.shapley_entries import AttributionEntries

#: The entries that the label holder sends: of scores, or of Shapley values.
Entries = LeafEntries | AttributionEntries
#: The layout of a hop, with the numbers of its constant entries, in messages.
Layout = Callable[[Any, list[int]], Iterator[Message]]


class EntrySums:
    """The label holder's end of the chain. Without a chain, when every feature party is away, sums stay here.

    Args:
        context: of the attempt.
        chain: the feature parties.
        kind: of the entries.
        entries: of the model.
        values: of an entry.
        slots: values in a ciphertext; an entry takes as many ciphertexts as its values need.
        advance: shows how many records of the block have been sent.
    """

    def __init__(
        self,
        context: StepContext,
        chain: list[str],
        kind: EntryKind,
        entries: Entries,
        values: int,
        slots: int,
        advance: Advance,
    ) -> None:
        self._context, self._chain, self._kind = context, chain, kind
        self._entries, self._values, self._advance = entries, values, advance
        self.slots, self.ciphertexts = slots, -(-values // slots)
        self._owner: EntryKeyHolder | None = None
        self._records = 0  # of the block under way
        self._here: Ints = np.zeros((0, values), dtype=np.int64)  # its sums, if there is no chain

    async def start(self, owner: EntryKeyHolder) -> None:
        """Hand the key to the workers."""
        self._owner = owner
        await owner.start()

    @property
    def fitting(self) -> int:
        """The most records of a block; their varying entries must fit as ciphertexts and as plaintexts. It may be 0."""
        entry = self.ciphertexts * max(required(self._owner).ciphertext_bytes, 8 * self.slots)
        return BLOCK_BYTES // (entry * len(self._entries.varying))

    async def announce(self, layout: Layout) -> None:
        """Send each party of the chain the layout of its hop, and the constant entries to the first one."""
        constant, lay_out = self._entries.constant.tolist(), cast(Callable[[], Sequence[Any]], self._entries.hops)
        hops = await self._context.offload(lay_out)
        layouts = [layout(hop, [] if number else constant) for number, hop in enumerate(hops)]
        send, sent = self._context.outbox.send, zip(self._chain, layouts, strict=True)
        await together(*(send(party, self._kind.layout, messages) for party, messages in sent))
        plain, name = await self._in_slots(await self._context.offload(self._entries.constants)), self._kind.constants
        bodies = [ciphertext_body(name, part) async for part in required(self._owner).encrypt(plain)]
        self._count(name, plain.size // self.slots)
        await send(self._chain[0], name, bodies)

    def values(self, goes_left: GoesLeft, n: int) -> Ints:
        """W_k of the varying entries of n records (n, entries, values)."""
        return self._entries.values(goes_left, n)

    async def send(self, values: Ints, number: int) -> None:
        """Encrypt the entries of a block, (n, entries, values), and send them meanwhile to the first of the chain.

        Memory holds a few messages of ciphertexts for a block of any size.
        """
        if not self._chain:
            self._here = values[:, 0]  # the one entry, which no party further down decides
            return
        owner, name = required(self._owner), self._kind.entries
        self._records, sent = len(values), 0
        plain = await self._in_slots(values)
        total = plain.size // self.slots
        series = self._context.outbox.open(self._chain[0], name, number)
        async for part in owner.encrypt(plain):
            await series.put(ciphertext_body(name, part))
            sent += len(part) // owner.ciphertext_bytes
            self._advance(round(self._records * sent / total))
        await series.close()
        self._count(name, sent)

    async def receive(self, number: int) -> Floats:
        """The sums of the block that was sent, as the last of the chain returns them; opened, out of fixed point."""
        if not self._chain:
            return self._entries.weights(self._here)
        owner = required(self._owner)
        messages = self._context.mailbox.series(self._chain[-1], self._kind.sums, number, 0)
        sums = b"".join([part async for part in ciphertexts_in(messages, self._kind.sums)])
        opened = await owner.open(sums, self._records * self.ciphertexts)
        self._context.costs.operations["decryptions"] += len(sums) // owner.ciphertext_bytes
        return self._entries.weights(opened.reshape(self._records, -1)[:, : self._values])

    async def close(self) -> None:
        """Make the workers forget the key."""
        if self._owner is not None:
            await self._owner.close()

    async def _in_slots(self, values: Ints) -> Ints:
        """Values (…, values) by ciphertext (…, ciphertexts, slots); unused slots hold zero."""
        width = self.ciphertexts * self.slots
        if width == values.shape[-1]:
            return values.reshape(*values.shape[:-1], self.ciphertexts, self.slots)

        def padded() -> Ints:
            whole = np.zeros((*values.shape[:-1], width), dtype=np.int64)
            whole[..., : values.shape[-1]] = values
            return whole.reshape(*values.shape[:-1], self.ciphertexts, self.slots)

        return await self._context.offload(padded)

    def _count(self, name: str, sent: int) -> None:
        """Count ciphertexts that were made and sent."""
        self._context.costs.operations["encryptions"] += sent
        self._context.costs.ciphertexts[name] += sent


class EntryMasking:
    """A feature party's place in the chain.

    Args:
        context: of the attempt.
        place: in the chain.
        kind: of the entries.
        layout: of the entries as they come.
        ciphertexts: of an entry.
        member: masks, adds up, re-randomises.
        width: bytes of a ciphertext.
    """

    def __init__(
        self,
        context: StepContext,
        place: ChainPlace,
        kind: EntryKind,
        layout: MemberEntries,
        ciphertexts: int,
        member: EntryMember,
        width: int,
    ) -> None:
        self._context, self._place, self._kind = context, place, kind
        self._layout, self._ciphertexts, self._member, self._width = layout, ciphertexts, member, width
        self._sends = kind.sums if place.last else kind.entries

    async def start(self) -> None:
        """Hand the layout to the workers, and at the first of the chain the constant entries."""
        constants, name = b"", self._kind.constants
        if self._place.first:
            messages = self._context.mailbox.series(self._place.label_holder, name, 0, 0)
            constants = b"".join([part async for part in ciphertexts_in(messages, name)])
        await self._member.start(constants)

    async def pass_on(self, goes_left: GoesLeft, n: int, number: int) -> None:
        """Take the ciphertexts of a block of n records as they come, pass on those of entries that the masks keep.

        The last of the chain returns the sums: added up, packed, re-randomised.
        """
        context, before = self._context, dict(self._member.operations)
        masks = await context.offload(lambda: np.repeat(self._layout.masks(goes_left, n), self._ciphertexts, axis=1))
        block = self._member.block(masks)
        series = context.outbox.open(self._place.after, self._sends, number)
        try:
            messages = context.mailbox.series(self._place.before, self._kind.entries, number, 0)
            async for part in ciphertexts_in(messages, self._kind.entries):
                await self._put(series, await block.take(part))
                context.progress.done = block.done
            await self._put(series, await block.finish())
        finally:
            await block.close()
        await series.close()
        for name, count in self._member.operations.items():
            context.costs.operations[name] += count - before[name]

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        await self._member.close()

    async def _put(self, series: Series, parts: list[bytes]) -> None:
        """Send to the next of the chain, in messages of bounded size."""
        step = MESSAGE_BYTES // self._width * self._width
        for part in parts:
            for start in range(0, len(part), step):
                body = part[start : start + step]
                self._context.costs.ciphertexts[self._sends] += len(body) // self._width
                await series.put(ciphertext_body(self._sends, body))
