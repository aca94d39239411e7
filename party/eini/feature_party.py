"""Fed-EINI at a feature party: what its own columns allow goes on, all else becomes zero."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.eini.chain import ChainPlace, Masking, member_end
from party.prediction.blocks import blaming, take_block
from party.prediction.expected import block_records
from party.prediction.feature_names import NAMES, NamesSent
from party.prediction.job import PredictionJob
from party.prediction.opened_model import OpenedModel
from party.prediction.step_rows import ATTRIBUTED, OPENING_ROWS, UNATTRIBUTED
from party.prediction.tree_model import OwnSplits
from party.runtime.context import Step, empty_result, required
from party.runtime.expected import Receives
from party.runtime.messages import Rows
from party.runtime.step_order import NEXT_ROUND, THIS_ROUND, Next, StepTable
from treetap.wire.v2 import control_pb2

STEPS: StepTable = {
    **OPENING_ROWS,
    NAMES: (Next("take_key"),),
    "take_key": (Next("mask_block"),),
    "mask_block": (Next("mask_attributions", THIS_ROUND, ATTRIBUTED), Next("mask_block", NEXT_ROUND, UNATTRIBUTED)),
    "mask_attributions": (Next("mask_block", NEXT_ROUND),),
}


class FeatureParty:
    """A feature party of the chain."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises Refused if the policy does not allow attributions or the key's length; else as `OpenedModel`."""
        self._context, opening = job.context, job.opening
        if opening.attributions:
            job.context.policy.check_emits(job.context.party, opening.recipient, ["EXPLANATION"])
        self._place = ChainPlace.of(job.context.party, opening)
        self._opened = OpenedModel(job, STEPS)
        self._splits = OwnSplits.of_feature_party(self._opened)
        self._end = member_end(job, self._opened, self._place)
        self._rows: Rows = np.zeros(0, dtype=np.int64)  # of the block at hand
        self.steps: Mapping[str, Step] = {
            "open_model": self._opened.open_model,
            **self._opened.steps,
            **NamesSent(job, self._opened.order, self._splits.names()).steps,
            "take_key": self.take_key,
            "mask_block": self.mask_block,
            **({"mask_attributions": self.mask_attributions} if opening.attributions else {}),
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`."""
        blocks = block_records(self._place.label_holder, self._opened.records)
        return {**self._opened.receives, **blocks, **self._end.receives}

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the public key of this prediction, and what each ciphertext depends on of the own splits."""
        self._opened.order.check(request)
        await self._end.take_key()
        self._opened.order.done(request)
        return empty_result()

    async def mask_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Stages 1 and 2 for a block of records.

        1. Take the records of the block from the label holder,
        2. compute their 0/1 vectors from the own columns (equation 9),
        3. apply these to the ciphertexts as they come (equation 13) and pass each on re-randomised while others come;
           the last of the chain sums them (equation 14) and returns the sums, so that they tell nothing of the masks.
        """
        self._opened.order.check(request)
        total = len(self._opened.aligned.ids)
        self._rows = await take_block(self._context, self._place.label_holder, request.round, total)
        return await self._mask(request, required(self._end.scores))

    async def mask_attributions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Pass on the block's entries of attributions, under the masks of its scores."""
        self._opened.order.check(request)
        self._context.progress.done, self._context.progress.total = 0, len(self._rows)
        return await self._mask(request, required(self._end.attributions))

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        await self._end.close()

    async def _mask(self, request: control_pb2.StepRequest, masking: Masking) -> control_pb2.StepResult:
        """Steps 2 and 3, which are the same for scores and attributions."""
        number = request.round
        with blaming(self._place.before, number):
            await masking.pass_on(self._splits.directions(self._rows), len(self._rows), number)
        self._context.mailbox.forget(number)
        self._opened.order.done(request)
        return empty_result()
