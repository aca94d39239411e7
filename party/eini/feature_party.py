"""Fed-EINI at a feature party: what its own columns allow goes on, all else becomes zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treetap.arrays import Bools
from treetap.party.eini.entry_layout import ChainPlace, cipher_of, sizes_of
from treetap.party.prediction.look_up import RaisedList
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.steps import (
    ATTRIBUTED,
    NAMES,
    OPENING_ROWS,
    UNATTRIBUTED,
    Block,
    TakenBlocks,
    blaming,
    conditions_of,
    steps_asked_for,
)
from treetap.party.prediction.tree_model import NamesSent, OwnSplits
from treetap.party.runtime.context import required
from treetap.party.runtime.step_order import (
    ALIGNMENT,
    ANY,
    LATER,
    NEXT_ROUND,
    SAME,
    THIS_ROUND,
    Next,
    Phase,
    role,
    step,
    steps_of,
)
from treetap.wire.v2 import control_pb2

if TYPE_CHECKING:  # of the two ciphers a job imports its own
    from treetap.party.eini import entries, lattice

    Masking = entries.EntryMasking | lattice.FeaturePartyEnd


@role(
    {
        **OPENING_ROWS,
        NAMES: (Next("take_key"),),
        "answer_look_ups": (Next("mask_block", SAME), Next("mask_block", LATER), Next("answer_look_ups", LATER)),
    },
    OpenedModel,
    RaisedList,
)
class FeatureParty:
    """A feature party of the chain."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises Refused if the policy does not allow attributions or the key's length; else as `OpenedModel`."""
        self._context, self._opening = job.context, job.opening
        opening = self._opening
        if opening.attributions:
            job.context.policy.check_emits(job.context.party, opening.recipient, ["EXPLANATION"])
        self._place = ChainPlace.of(job.context.party, opening)
        self.sizes = sizes_of(job)
        self._opened = OpenedModel(job, self.sizes)
        self._splits = OwnSplits.of_feature_party(self._opened, self.sizes)
        cipher = cipher_of(job)
        self._end: entries.FeaturePartyEnd | lattice.FeaturePartyEnd = cipher.FeaturePartyEnd(
            job, self._opened, self.sizes, self._place
        )
        self._list = RaisedList(job, self._opened)
        self._blocks = TakenBlocks(job.context, opening, self._list.check)
        self._block: Block | None = None  # the one at hand
        names = self._splits.phase(job, NamesSent(job, self._splits.names()))
        phases: dict[str, Phase] = {ALIGNMENT: self._opened.alignment, NAMES: names}
        steps = steps_of(self, self._opened, self._list, phases=phases, conditions=conditions_of(job.opening))
        self.steps = steps_asked_for(
            job.opening, steps, attributed=["mask_attributions"], looked_up=["answer_look_ups"]
        )

    @step(Next("mask_block"), Next("answer_look_ups", ANY))
    async def take_key(self) -> None:
        """Take the public key of this prediction, and what each ciphertext depends on of the own splits."""
        await self._end.take_key()

    @step(
        Next("mask_attributions", THIS_ROUND, ATTRIBUTED),
        Next("mask_block", NEXT_ROUND, UNATTRIBUTED),
        Next("answer_look_ups", LATER),
    )
    async def mask_block(self, request: control_pb2.StepRequest) -> None:
        """Stages 1 and 2 for a block of records.

        1. Take the records of the block from the label holder,
        2. compute their 0/1 vectors from the own columns (equation 9); all of a record that it lacks are missing,
        3. apply these to the ciphertexts as they come (equation 13) and pass each on re-randomised while others come;
           the last of the chain sums them (equation 14) and returns the sums, so that they tell nothing of the masks.
        """
        self._block = await self._blocks.take(request.round, self._opened.aligned.ids, self._opened.ways)
        await self._mask(request.round, self._end.scores)

    @step(Next("mask_block", NEXT_ROUND))
    async def mask_attributions(self, request: control_pb2.StepRequest) -> None:
        """Pass on the block's entries of attributions, under the masks of its scores."""
        self._context.progress.done, self._context.progress.total = 0, required(self._block).records
        await self._mask(request.round, self._end.attributions)

    async def _mask(self, number: int, masking: Masking | None) -> None:
        """Steps 2 and 3, which are the same for scores and attributions."""
        assert masking is not None  # the order has `take_key` first
        rows, spent, records, places = required(self._block)
        directions = self._splits.directions(rows)

        def goes_left(handle: int) -> Bools:
            """Records that this party lacks go as missing values do, one of which no query is left right everywhere.

            So the score of the latter tells nothing of its columns.
            """
            left = np.full(records, self._splits.split(handle).missing_left)
            left[places] = directions(handle) & ~spent
            return left

        with blaming(self._place.before, number):
            await masking.pass_on(goes_left, records, number)
        self._context.mailbox.forget(number)
