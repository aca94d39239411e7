"""Fed-EINI at a feature party: the entries that its own columns allow go on, all others become zero."""

from __future__ import annotations

from collections.abc import Mapping

from party.attributions.feature_party import Attributions
from party.config import PartyConfig
from party.eini.layout import SCORES, take_layout
from party.prediction.chain import ChainPlace, blaming, check_hides, take_block
from party.prediction.entry_scheme import EntryMasking
from party.prediction.expected import ShardSize, block_records, entries, public_key
from party.prediction.feature_names import NAMES
from party.prediction.member_entries import MemberEntries
from party.prediction.opened_model import OpenedModel
from party.prediction.step_rows import ATTRIBUTED, OPENING_ROWS, UNATTRIBUTED
from party.prediction.tree_model import OwnSplits
from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import Expected, Receives
from party.runtime.job_store import Store
from party.runtime.step_order import NEXT_ROUND, THIS_ROUND, Next, StepTable
from party.runtime.steps import Step
from party.setup.steps import take_key
from treetap.additive.sums.masked_sums import EntryMember, entry_slots
from treetap.protocols.key_options import KeyKind
from treetap.wire.v2 import control_pb2, prediction_pb2

STEPS: StepTable = {
    **OPENING_ROWS,
    NAMES: (Next("take_key"),),
    "take_key": (Next("mask_block"),),
    "mask_block": (Next("mask_attributions", THIS_ROUND, ATTRIBUTED), Next("mask_block", NEXT_ROUND, UNATTRIBUTED)),
    "mask_attributions": (Next("mask_block", NEXT_ROUND),),
}


class FeatureParty:
    """A feature party of the chain."""

    def __init__(
        self, config: PartyConfig, store: Store, context: StepContext, opening: prediction_pb2.OpenModel
    ) -> None:
        """Raises Refused if the policy does not allow attributions or the key's length; else as `OpenedModel`."""
        self._context, self._opening = context, opening
        self._attributions: Attributions | None = None
        if opening.attributions:
            context.policy.check_emits(context.party, opening.recipient, ["EXPLANATION"])
        context.policy.check_key(config.name, KeyKind.of(opening.parameters.eini))
        self._place = ChainPlace.of(context.party, opening)
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._model = OwnSplits.of_feature_party(self._opened)
        self._opened.names.give(self._model.names())
        if opening.attributions:
            self._attributions = Attributions(context, opening, self._opened, self._model, self._place)
        self._layout: MemberEntries | None = None
        self._scheme: EntryMasking | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self._opened.open_model,
            **self._opened.steps,
            "take_key": self.take_key,
            "mask_block": self.mask_block,
            **(self._attributions.steps if self._attributions else {}),
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`."""
        opened, place, key = self._opened, self._place, KeyKind.of(self._opening.parameters.eini)
        size = ShardSize(opened.shard, "splits")
        leaves = size.leaves * key.ciphertext_bytes
        return {
            **opened.receives,
            **public_key(place.label_holder, key),
            "entry_layout": Expected([place.label_holder], size.layout),
            **block_records(place.label_holder, opened.records),
            **entries(place, SCORES, lambda: leaves, leaves),
            **(self._attributions.receives(size) if self._attributions else {}),
        }

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the public key of this prediction, the entry that each leaf is in, and the constant entries."""
        self._opened.order.check(request)
        context, options, place = self._context, self._opening.parameters.eini, self._place
        key = await take_key(context, place.label_holder, KeyKind.of(options), lambda slots, _: entry_slots(slots))
        public, slots = key.public, key.slots
        messages = context.mailbox.series(place.label_holder, "entry_layout", 0, 0)
        outputs = len(slots.widths)
        layout = await take_layout(messages, context.party, place.label_holder, self._opened.shard, outputs)
        layout.check_place(place)
        check_hides(context, layout.spare, "a sum")
        obfuscation = None if place.last else options.obfuscation
        token = f"{context.job}/{context.attempt}"
        member = EntryMember(context.engine, public, slots, layout.outgoing, layout.constant, obfuscation, token)
        self._layout = layout
        self._scheme = EntryMasking(context, member, place, SCORES, public.ciphertext_bytes)
        await self._scheme.start()
        if self._attributions is not None:
            await self._attributions.begin(public, outputs)
        self._opened.order.done(request)
        return empty_result()

    async def mask_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Stages 1 and 2 for a block of records.

        1. Take the records of the block from the label holder,
        2. compute their 0/1 vectors from the own columns (equation 9),
        3. apply these to the entries as they come (equation 13) and pass each on re-randomised while others come;
           the last of the chain sums them (equation 14), packs, re-randomises and returns the sums.
        """
        self._opened.order.check(request)
        number, context, layout = request.round, self._context, required(self._layout)
        rows = await take_block(context, self._place.label_holder, number, len(self._opened.aligned.ids))
        with blaming(self._place.before, number):
            goes_left = self._model.directions(rows)
            masks = await context.offload(lambda: layout.masks(goes_left, len(rows)))
            await required(self._scheme).pass_on(masks, number)
        context.mailbox.forget(number)
        if self._attributions is not None:
            self._attributions.after_scores(rows)
        self._opened.order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        scheme, self._scheme = self._scheme, None
        if scheme is not None:
            await scheme.close()
        if self._attributions is not None:
            await self._attributions.close()
