"""Fed-EINI at a feature party: the entries that its own columns allow go on, everything else becomes zero."""

from __future__ import annotations

from party.config import PartyConfig
from party.eini.blocks import BlockMasker, GoesLeft
from party.eini.layout import MemberLayout, take_layout
from party.outbox import PARCEL_BYTES, Series
from party.session import Tools, have
from party.setup import take_key
from party.store import Store
from treetap.errors import Malformed
from treetap.he.inference import EntryMember
from treetap.he.public import PublicKey
from treetap.wire.v1 import eini_pb2, interactive_pb2


class EntryMasker(BlockMasker):
    """Answers the steps of a feature party."""

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening)
        self._layout: MemberLayout | None = None
        self._member: EntryMember | None = None
        self._public: PublicKey | None = None

    async def begin(self) -> None:
        """The public key of this prediction, which entry each leaf is in, and the entries that never change."""
        tools, opening = self._tools, self._opening
        sender = opening.label_holder
        public, slots = await take_key(tools, sender, opening.key_bits)
        parcels = tools.mailbox.series(sender, "entry_layout", 0, 0)
        layout = await take_layout(parcels, tools.party, sender, self._trees, len(slots.widths))
        first = self.before == sender
        if len(layout.constant) and not first:
            raise Malformed(f"{sender} sends constant entries to the first of the chain only, {tools.party} is not it")
        self.check_paths(layout.spare)
        obfuscation = None if self.last else opening.obfuscation
        token = f"{tools.job}/{tools.attempt}"
        member = EntryMember(tools.engine, public, slots, layout.outgoing, layout.constant, obfuscation, token)
        self._layout, self._member, self._public = layout, member, public
        constants: list[bytes] = []
        if first:
            async for parcel in tools.mailbox.series(sender, "constant_entries", 0, 0):
                constants.append(parcel.constant_entries.ciphertexts)
        await member.start(b"".join(constants))

    async def mask(self, number: int, goes_left: GoesLeft, n: int) -> None:
        """Stage 2 for a block of records.

        1. The 0/1 vectors from the own columns (equation 9),
        2. applied to the entries as they come (equation 13), which go on while others come, each of them fresh;
        3. at the last of the chain: summed (equation 14), packed, re-randomised, returned.
        """
        tools, member, layout = self._tools, have(self._member), have(self._layout)
        masks = await tools.offload(lambda: layout.masks(goes_left, n))
        before = dict(member.operations)
        block = member.block(masks)
        series = tools.outbox.open(self.after, "leaf_sums" if self.last else "leaf_entries", number)
        try:
            async for parcel in tools.mailbox.series(self.before, "leaf_entries", number, 0):
                await self._pass_on(series, await block.take(parcel.leaf_entries.ciphertexts))
                tools.meter.done = block.done
            await self._pass_on(series, await block.finish())
        finally:
            await block.close()
        await series.close()
        for name, count in member.operations.items():
            tools.ledger.operations[name] += count - before[name]

    async def close(self) -> None:
        """The workers forget the ciphertexts."""
        if self._member is not None:
            member, self._member = self._member, None
            await member.close()

    async def _pass_on(self, series: Series, parts: list[bytes]) -> None:
        """To the next of the chain, in parcels of bounded size."""
        width = have(self._public).ciphertext_bytes
        step = PARCEL_BYTES // width * width
        for part in parts:
            for start in range(0, len(part), step):
                body = part[start : start + step]
                self._tools.ledger.ciphertexts["leaf_sums" if self.last else "leaf_entries"] += len(body) // width
                if self.last:
                    await series.put(eini_pb2.LeafSums(ciphertexts=body))
                else:
                    await series.put(eini_pb2.LeafEntries(ciphertexts=body))
