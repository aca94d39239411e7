"""Fed-EINI at a feature party: the entries that its own columns allow go on, everything else becomes zero.

after            may come
open_model       the steps of the alignment
alignment        take_key
take_key         mask_block(0)
mask_block(b)    mask_block(b+1)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.config import PartyConfig
from party.eini.layout import MemberLayout, take_layout
from party.outbox import PARCEL_BYTES, Series
from party.prediction import Answering
from party.session import Step, Tools, done, have
from party.setup import take_key
from party.store import Store
from treetap.errors import Malformed
from treetap.he.inference import EntryMember
from treetap.he.public import PublicKey
from treetap.trees.leaves import Bools
from treetap.wire.chunks import rows_of
from treetap.wire.v1 import control_pb2, eini_pb2, interactive_pb2, types_pb2


class EntryMasker(Answering):
    """Answers the steps of a feature party: member h of the chain, which goes in the order of the opening."""

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening, "take_key")
        there = [party for party in opening.feature_parties if party not in opening.away]
        chain = [opening.label_holder, *there, opening.label_holder]
        place = chain.index(tools.party)
        self._before, self._after = chain[place - 1], chain[place + 1]
        self._last = self._after == opening.label_holder
        self._layout: MemberLayout | None = None
        self._member: EntryMember | None = None
        self._public: PublicKey | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._alignment.steps,
            "take_key": self.take_key,
            "mask_block": self.mask_block,
        }

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The public key of this prediction, which entry each leaf is in, and the entries that never change."""
        self._order.check(("take_key", request.tree, request.level))
        tools, opening = self._tools, self._opening
        sender = opening.label_holder
        public, slots = await take_key(tools, sender, opening.key_bits)
        parcels = tools.mailbox.series(sender, "entry_layout", 0, 0)
        layout = await take_layout(parcels, tools.party, sender, self._trees, len(slots.widths))
        first = self._before == sender
        if len(layout.constant) and not first:
            raise Malformed(f"{sender} sends constant entries to the first of the chain only, {tools.party} is not it")
        fault = f"its own splits of this model leave {layout.spare:.1f} bits beyond those of a sum"
        tools.law.check_paths(tools.party, np.array([layout.spare]), fault)
        obfuscation = None if self._last else opening.obfuscation
        token = f"{tools.job}/{tools.attempt}"
        member = EntryMember(tools.engine, public, slots, layout.outgoing, layout.constant, obfuscation, token)
        self._layout, self._member, self._public = layout, member, public
        constants: list[bytes] = []
        if first:
            async for parcel in tools.mailbox.series(sender, "constant_entries", 0, 0):
                constants.append(parcel.constant_entries.ciphertexts)
        await member.start(b"".join(constants))
        self._order.then(("mask_block", 0, 0))
        return done()

    async def mask_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Stage 2 for a block of records.

        1. The 0/1 vectors from the own columns (equation 9),
        2. applied to the entries as they come (equation 13), which go on while others come, each of them fresh;
        3. at the last of the chain: summed (equation 14), packed, re-randomised, returned.
        """
        number = request.tree
        self._order.check(("mask_block", number, request.level))
        tools, member, table = self._tools, have(self._member), self._alignment.aligned
        chunks: list[types_pb2.RecordChunk] = []
        async for parcel in tools.mailbox.series(self._opening.label_holder, "block_records", number, 0):
            chunks += parcel.block_records.chunks
        features = table.features[rows_of(chunks, len(table.ids))]

        def goes_left(handle: int) -> Bools:
            split = self.split(handle)
            return split.goes_left(features[:, split.feature])

        layout = have(self._layout)
        masks = await tools.offload(lambda: layout.masks(goes_left, len(features)))
        before = dict(member.operations)
        block = member.block(masks)
        series = tools.outbox.open(self._after, "leaf_sums" if self._last else "leaf_entries", number)
        tools.meter.done, tools.meter.total = 0, len(features)
        try:
            async for parcel in tools.mailbox.series(self._before, "leaf_entries", number, 0):
                await self._pass_on(series, await block.take(parcel.leaf_entries.ciphertexts))
                tools.meter.done = block.done
            await self._pass_on(series, await block.finish())
        except Malformed as failure:
            raise Malformed(f"{self._before}, block {number}: {failure}") from failure
        finally:
            await block.close()
        await series.close()
        for name, count in member.operations.items():
            tools.ledger.operations[name] += count - before[name]
        tools.mailbox.forget(number)
        self._order.then(("mask_block", number + 1, 0))
        return done()

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
                self._tools.ledger.ciphertexts["leaf_sums" if self._last else "leaf_entries"] += len(body) // width
                if self._last:
                    await series.put(eini_pb2.LeafSums(ciphertexts=body))
                else:
                    await series.put(eini_pb2.LeafEntries(ciphertexts=body))
