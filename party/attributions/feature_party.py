"""Attributions at a feature party of a Fed-EINI prediction: the same masks on further entries, block by block."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.attributions.layout import VALUES, AttributedLayout, take_layout
from party.prediction.chain import ChainPlace, blaming, check_hides
from party.prediction.entry_scheme import EntryMasking
from party.prediction.expected import ShardSize, entries
from party.prediction.opened_model import OpenedModel
from party.prediction.tree_model import OwnSplits
from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import Expected, Receives
from party.runtime.messages import Rows
from party.runtime.steps import Step
from treetap.additive.sums.masked_sums import EntryMember, ciphertexts_of, entry_slots
from treetap.additive.sums.public_keys import PublicKey
from treetap.protocols.key_options import KeyKind
from treetap.protocols.prediction import MOST_ATTRIBUTING, present
from treetap.wire.v2 import control_pb2, prediction_pb2


class Attributions:
    """The part of `party.eini.feature_party` that masks the attributions of each block after its scores."""

    def __init__(
        self,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        opened: OpenedModel,
        model: OwnSplits,
        place: ChainPlace,
    ) -> None:
        self._context, self._opening, self._opened = context, opening, opened
        self._model, self._place = model, place
        self._layout: AttributedLayout | None = None
        self._scheme: EntryMasking | None = None
        self._ciphertexts = 1  # of an entry
        self._rows: Rows = np.zeros(0, dtype=np.int64)  # of the block whose scores have been masked
        self.steps: Mapping[str, Step] = {"mask_attributions": self.mask_attributions}

    def receives(self, size: ShardSize) -> Receives:
        """See `Role.receives`; an entry for each leaf and each set of feature parties on its way."""
        sets = 1 << MOST_ATTRIBUTING
        layout = Expected([self._place.label_holder], lambda: size.layout(sets))
        return {"attribution_layout": layout, **entries(self._place, VALUES, self._entry_bytes)}

    async def begin(self, public: PublicKey, outputs: int) -> None:
        """Take the layout of the entries, each of as many ciphertexts as its values need, and the constant entries.

        `outputs`: columns of the score.
        """
        context, place = self._context, self._place
        messages = context.mailbox.series(place.label_holder, "attribution_layout", 0, 0)
        layout = await take_layout(
            messages,
            context.party,
            place.label_holder,
            self._opened.shard,
            outputs,
            len(present(self._opening)),
            last=place.last,
        )
        found = layout.entries
        found.check_place(place)
        check_hides(context, found.spare, f"a sum and of the attributions to {layout.players} players")
        count, slots = ciphertexts_of(layout.players * outputs, public.plain_bits)
        each = np.arange(count)
        member = EntryMember(
            context.engine,
            public,
            entry_slots(slots),
            (found.outgoing[:, np.newaxis] * count + each).ravel(),
            (found.constant[:, np.newaxis] * count + each).ravel(),
            None if place.last else self._opening.parameters.eini.obfuscation,
            f"{context.job}/{context.attempt}/attributions",
        )
        self._layout, self._ciphertexts = layout, count
        self._scheme = EntryMasking(context, member, place, VALUES, public.ciphertext_bytes)
        await self._scheme.start()

    def after_scores(self, rows: Rows) -> None:
        """Keep the records of the block whose scores have been masked."""
        self._rows = rows

    async def mask_attributions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Pass on the block's entries that the own columns allow; the last of the chain returns the sums."""
        self._opened.order.check(request)
        number, context, rows, layout = request.round, self._context, self._rows, required(self._layout)
        goes_left = self._model.directions(rows)
        masks = await context.offload(lambda: layout.masks(goes_left, len(rows)))
        context.progress.done, context.progress.total = 0, len(rows)
        with blaming(self._place.before, number):
            await required(self._scheme).pass_on(np.repeat(masks, self._ciphertexts, axis=1), number)
        context.mailbox.forget(number)
        self._opened.order.done(request)
        return empty_result()

    def _entry_bytes(self) -> int:
        """Bytes of the entries of one record, once their layout is known."""
        if self._layout is None:
            return 0
        cipher = KeyKind.of(self._opening.parameters.eini).ciphertext_bytes
        return len(self._layout.entries.branches) * self._ciphertexts * cipher

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        scheme, self._scheme = self._scheme, None
        if scheme is not None:
            await scheme.close()
