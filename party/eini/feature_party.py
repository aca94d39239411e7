"""Fed-EINI at a feature party: the entries that its own columns allow go on, everything else becomes zero."""

from __future__ import annotations

from party.config import PartyConfig
from party.eini.blocks import BlockMasker
from party.eini.layout import MemberLayout, take_layout
from party.runtime.context import Tools, have
from party.runtime.job_store import Store
from party.runtime.messages import ciphertext_body, ciphertexts_in
from party.runtime.outbox import PARCEL_BYTES, Series
from party.setup.steps import take_key
from treetap.errors import Malformed
from treetap.paillier.masked_sums import EntryMember
from treetap.paillier.public_key import PublicKey
from treetap.trees.leaf_entries import GoesLeft
from treetap.trees.paths import Bools
from treetap.wire.v2 import prediction_pb2


class FeatureParty(BlockMasker):
    """Answers the steps of a feature party."""

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel) -> None:
        tools.law.check_key(config.name, opening.parameters.eini.key_bits)
        super().__init__(config, store, tools, opening)
        self._layout: MemberLayout | None = None
        self._member: EntryMember | None = None
        self._public: PublicKey | None = None

    async def begin(self) -> None:
        """The public key of this prediction, which entry each leaf is in, and the entries that never change."""
        tools, opening = self._tools, self._opening
        sender = opening.label_holder
        public, slots = await take_key(tools, sender, opening.parameters.eini.key_bits)
        parcels = tools.mailbox.series(sender, "entry_layout", 0, 0)
        layout = await take_layout(parcels, tools.party, sender, self._trees, len(slots.widths))
        if len(layout.constant) and self.before != sender:
            raise Malformed(f"{sender} sends constant entries to the first of the chain only, {tools.party} is not it")
        self.check_paths(layout.spare)
        obfuscation = None if self.last else opening.parameters.eini.obfuscation
        token = f"{tools.job}/{tools.attempt}"
        member = EntryMember(tools.engine, public, slots, layout.outgoing, layout.constant, obfuscation, token)
        self._layout, self._member, self._public = layout, member, public
        await member.start(await self._constants("constant_entries"))
        await self.also_begin(public, len(slots.widths))

    async def also_begin(self, public: PublicKey, outputs: int) -> None:
        """What else begins under this key, for a score of so many columns; with scores alone nothing."""

    async def mask(self, number: int, goes_left: GoesLeft, n: int) -> None:
        """Stage 2 for a block of records.

        1. The 0/1 vectors from the own columns (equation 9),
        2. applied to the entries as they come (equation 13), which go on while others come, each of them fresh;
        3. at the last of the chain: summed (equation 14), packed, re-randomised, returned.
        """
        layout = have(self._layout)
        masks = await self._tools.offload(lambda: layout.masks(goes_left, n))
        await self._through(have(self._member), number, masks, "leaf_entries", "leaf_sums")

    async def close(self) -> None:
        """The workers forget the ciphertexts."""
        if self._member is not None:
            member, self._member = self._member, None
            await member.close()

    async def _constants(self, kind: str) -> bytes:
        """Entries that come once; to the first of the chain only."""
        sender = self._opening.label_holder
        if self.before != sender:
            return b""
        parcels = self._tools.mailbox.series(sender, kind, 0, 0)
        return b"".join([part async for part in ciphertexts_in(parcels, kind)])

    async def _through(self, member: EntryMember, number: int, masks: Bools, entries: str, sums: str) -> None:
        """Take the entries of a block as they come, pass on what the masks (n, entries) keep; the last: the sums."""
        tools, before = self._tools, dict(member.operations)
        block, kind = member.block(masks), sums if self.last else entries
        series = tools.outbox.open(self.after, kind, number)
        try:
            async for part in ciphertexts_in(tools.mailbox.series(self.before, entries, number, 0), entries):
                await self._pass_on(series, kind, await block.take(part))
                tools.meter.done = block.done
            await self._pass_on(series, kind, await block.finish())
        finally:
            await block.close()
        await series.close()
        for name, count in member.operations.items():
            tools.ledger.operations[name] += count - before[name]

    async def _pass_on(self, series: Series, kind: str, parts: list[bytes]) -> None:
        """To the next of the chain, in parcels of bounded size."""
        width = have(self._public).ciphertext_bytes
        step = PARCEL_BYTES // width * width
        for part in parts:
            for start in range(0, len(part), step):
                body = part[start : start + step]
                self._tools.ledger.ciphertexts[kind] += len(body) // width
                await series.put(ciphertext_body(kind, body))
