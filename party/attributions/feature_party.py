"""Attributions at a feature party of a Fed-EINI prediction: the same masks on further entries, block by block.

after                  may come
open_model …           as in a prediction of scores alone, up to
take_key               mask_block(0)
mask_block(b)          mask_attributions(b)
mask_attributions(b)   mask_block(b+1)
"""

from __future__ import annotations

import numpy as np

from party.attributions.layout import AttributedLayout, take_layout
from party.config import PartyConfig
from party.eini.feature_party import FeatureParty as EiniFeatureParty
from party.runtime.context import Tools, done, have
from party.runtime.job_store import Store
from treetap.errors import Malformed
from treetap.paillier.masked_sums import SLOT_BITS, EntryMember, ciphertexts_of
from treetap.paillier.public_key import PublicKey
from treetap.paillier.slots import Slots
from treetap.wire.v2 import control_pb2, prediction_pb2


class FeatureParty(EiniFeatureParty):
    """Answers the steps of a feature party.

    Raises:
        Refused: its policy does not let EXPLANATION go to the label holder; whichever of the chain returns the sums.
    """

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel) -> None:
        tools.law.check_emits(tools.party, opening.label_holder, ["EXPLANATION"])
        super().__init__(config, store, tools, opening)
        self._attributed: AttributedLayout | None = None
        self._attributing: EntryMember | None = None
        self._ciphertexts = 1  # of an entry
        self.steps = {**self.steps, "mask_attributions": self.mask_attributions}

    async def mask_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The scores of a block; then its attributions."""
        result = await super().mask_block(request)
        self._order.then(("mask_attributions", request.round, 0))
        return result

    async def mask_attributions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Keep the entries of the block that the own columns allow, pass them on; the last of the chain: the sums."""
        number = request.round
        self._order.check(("mask_attributions", number, request.stage))
        tools, layout, rows = self._tools, have(self._attributed), self.rows
        goes_left = self.directions(rows)
        masks = await tools.offload(lambda: layout.masks(goes_left, len(rows)))
        tools.meter.done, tools.meter.total = 0, len(rows)
        whole = np.repeat(masks, self._ciphertexts, axis=1)
        with self.blaming(number):
            await self._through(have(self._attributing), number, whole, "attribution_entries", "attribution_sums")
        tools.mailbox.forget(number)
        self._order.then(("mask_block", number + 1, 0))
        return done()

    async def close(self) -> None:
        """The workers forget the ciphertexts."""
        await super().close()
        if self._attributing is not None:
            member, self._attributing = self._attributing, None
            await member.close()

    async def also_begin(self, public: PublicKey, outputs: int) -> None:
        """Which entries there are, as many ciphertexts each as its values need, and those that never change."""
        tools, opening = self._tools, self._opening
        sender = opening.label_holder
        parcels = tools.mailbox.series(sender, "attribution_layout", 0, 0)
        layout = await take_layout(parcels, tools.party, sender, self._trees, outputs, last=self.last)
        if len(layout.constant) and self.before != sender:
            raise Malformed(f"{sender} sends constant entries to the first of the chain only, {tools.party} is not it")
        fault = (
            f"its own splits of this model leave {layout.spare:.1f} bits beyond those of a sum and of the attributions "
            f"to {layout.players} players"
        )
        tools.law.check_paths(tools.party, np.array([layout.spare]), fault)
        count, slots = ciphertexts_of(layout.players * outputs, public.bits)
        each = np.arange(count)
        member = EntryMember(
            tools.engine,
            public,
            Slots((SLOT_BITS,) * slots),
            (layout.outgoing[:, np.newaxis] * count + each).ravel(),
            (layout.constant[:, np.newaxis] * count + each).ravel(),
            None if self.last else opening.parameters.eini.obfuscation,
            f"{tools.job}/{tools.attempt}/attributions",
        )
        self._attributed, self._attributing, self._ciphertexts = layout, member, count
        await member.start(await self._constants("constant_attributions"))
