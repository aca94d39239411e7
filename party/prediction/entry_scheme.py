"""Sums of ciphertexts along the chain: entries go out encrypted, are masked on the way, come back as sums (Fed-EINI).

`EntryScheme` is the label holder's end, `EntryMasking` a feature party's. The values of an
entry are scores or attributions; both may go under one key, in messages of different names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from party.prediction.chain import ChainPlace
from party.runtime.context import StepContext
from party.runtime.messages import MESSAGE_BYTES, ciphertext_body, ciphertexts_in
from party.runtime.outbox import Series
from treetap.additive.sums.masked_sums import EntryKeyHolder, EntryMember
from treetap.trees.leaf_entries import Ints
from treetap.trees.paths import Bools

#: Most bytes of ciphertexts of one block, all of which may lie at a party before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class MessageNames:
    """The messages of a chain: entries that come once, the entries of a block, the sums of a block."""

    constants: str
    entries: str
    sums: str


class EntryScheme:
    """The label holder's end of the chain.

    Args:
        context: of the attempt.
        owner: encrypts and opens; an entry takes as many ciphertexts as its values need.
        chain: the feature parties.
        names: of the messages.
        values: of an entry.
        advance: shows how many records of the block have been sent.
    """

    def __init__(
        self,
        context: StepContext,
        owner: EntryKeyHolder,
        chain: list[str],
        names: MessageNames,
        values: int,
        advance: Callable[[int], None],
    ) -> None:
        self._context, self._owner, self._chain, self._names = context, owner, chain, names
        self._values, self._advance = values, advance
        self._slots = len(owner.slots.widths)
        self._ciphertexts = -(-values // self._slots)
        self._records = 0  # of the block under way

    async def start(self) -> None:
        """Hand the key to the workers."""
        await self._owner.start()

    def fitting(self, entries: int) -> int:
        """The most records of a block; their varying entries must fit as ciphertexts and as plaintexts. It may be 0."""
        entry = self._ciphertexts * max(self._owner.ciphertext_bytes, 8 * self._slots)
        return BLOCK_BYTES // (entry * entries)

    async def send_constants(self, values: Ints) -> None:
        """The entries that are the same for every record, (entries, values), to the first of the chain."""
        plain = await self._in_slots(values)
        bodies = [ciphertext_body(self._names.constants, part) async for part in self._owner.encrypt(plain)]
        self._count(self._names.constants, plain.size // self._slots)
        await self._context.outbox.send(self._chain[0], self._names.constants, bodies)

    async def send(self, values: Ints, number: int) -> None:
        """Encrypt the entries of a block, (n, entries, values), and send them meanwhile to the first of the chain.

        Memory holds a few messages of ciphertexts for a block of any size.
        """
        self._records, sent = len(values), 0
        plain = await self._in_slots(values)
        total = plain.size // self._slots
        series = self._context.outbox.open(self._chain[0], self._names.entries, number)
        async for part in self._owner.encrypt(plain):
            await series.put(ciphertext_body(self._names.entries, part))
            sent += len(part) // self._owner.ciphertext_bytes
            self._advance(round(self._records * sent / total))
        await series.close()
        self._count(self._names.entries, sent)

    async def receive(self, number: int) -> Ints:
        """The sums of the block that was sent, (n, values), as the last of the chain returns them; opened."""
        messages = self._context.mailbox.series(self._chain[-1], self._names.sums, number, 0)
        sums = b"".join([part async for part in ciphertexts_in(messages, self._names.sums)])
        opened = await self._owner.open(sums, self._records * self._ciphertexts)
        self._context.costs.operations["decryptions"] += len(sums) // self._owner.ciphertext_bytes
        return opened.reshape(self._records, -1)[:, : self._values]

    async def close(self) -> None:
        """Make the workers forget the key."""
        await self._owner.close()

    async def _in_slots(self, values: Ints) -> Ints:
        """Values (…, values) by ciphertext (…, ciphertexts, slots); unused slots hold zero."""
        width = self._ciphertexts * self._slots
        if width == values.shape[-1]:
            return values.reshape(*values.shape[:-1], self._ciphertexts, self._slots)

        def padded() -> Ints:
            whole = np.zeros((*values.shape[:-1], width), dtype=np.int64)
            whole[..., : values.shape[-1]] = values
            return whole.reshape(*values.shape[:-1], self._ciphertexts, self._slots)

        return await self._context.offload(padded)

    def _count(self, name: str, sent: int) -> None:
        """Count ciphertexts that were made and sent."""
        self._context.costs.operations["encryptions"] += sent
        self._context.costs.ciphertexts[name] += sent


class EntryMasking:
    """A feature party's place in the chain.

    Args:
        context: of the attempt.
        member: masks, adds up, re-randomises.
        place: in the chain.
        names: of the messages.
        ciphertext_bytes: width of a ciphertext.
    """

    def __init__(
        self, context: StepContext, member: EntryMember, place: ChainPlace, names: MessageNames, ciphertext_bytes: int
    ) -> None:
        self._context, self._member, self._place, self._names = context, member, place, names
        self._sends = names.sums if place.last else names.entries
        self._width = ciphertext_bytes

    async def start(self) -> None:
        """Hand the layout to the workers, and at the first of the chain the constant entries."""
        constants = b""
        if self._place.first:
            messages = self._context.mailbox.series(self._place.label_holder, self._names.constants, 0, 0)
            constants = b"".join([part async for part in ciphertexts_in(messages, self._names.constants)])
        await self._member.start(constants)

    async def pass_on(self, masks: Bools, number: int) -> None:
        """Take the ciphertexts of a block as they come, pass on those that the masks (n, ciphertexts) keep.

        The last of the chain returns the sums: added up, packed, re-randomised.
        """
        context, before = self._context, dict(self._member.operations)
        block = self._member.block(masks)
        series = context.outbox.open(self._place.after, self._sends, number)
        try:
            messages = context.mailbox.series(self._place.before, self._names.entries, number, 0)
            async for part in ciphertexts_in(messages, self._names.entries):
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
