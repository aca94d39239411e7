"""Boosting at the label holder: encrypted gradients for every tree, split choice, leaf weights.

Its scores are on disk after every tree.
"""

from __future__ import annotations

import logging

import numpy as np

from treetap.errors import DataError
from treetap.party.boosting.ciphers import BoostingLayout, layout
from treetap.party.config import PartyConfig
from treetap.party.growth.ciphers import encrypted_values
from treetap.party.growth.label_holder import AFTER_BEGINNING, LabelHolderGrowth
from treetap.party.growth.label_holder_job import LabelHolderJob
from treetap.party.growth.messages import sampled_messages
from treetap.party.growth.stored_trees import SCORES, resumed, stored_trees
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, RESUMED, Next, Outcome, role, step, steps_of
from treetap.protocols.growth import MOST_CLASSES, sums_shared
from treetap.protocols.job_spec import params_as, taking_part
from treetap.protocols.key_options import KeyKind
from treetap.tables.labels import Labels
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.loss import Loss, loss_for
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots
from treetap.wire.v2 import boosting_pb2, control_pb2, setup_pb2

log = logging.getLogger(__name__)


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, LabelHolderJob, LabelHolderGrowth)
class LabelHolder:
    """Sends new encrypted gradients of the sampled records for every tree."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, BoostingParams)
        self._limited = config.withholding.xi is not None
        self._shared = sums_shared(spec)
        trees = self._params.n_estimators * self._params.trees_per_round(MOST_CLASSES)
        encrypted = self._encrypted = encrypted_values(
            context,
            spec,
            lambda: self.sizes,
            self._most_trees,
            "gradients",
            boosting_pb2.Gradients,
            common=lambda: self._job.common,
            slots=lambda party: self._slots(self._job.labels_of(party)),
        )
        job = self._job = LabelHolderJob(
            config,
            context,
            spec,
            self._params,
            trees,
            self._slots,
            encrypted,
            self._classes_in_slots,
            BoostingLayout(self._params, self._shared),
        )
        growth = self._growth = LabelHolderGrowth(context, spec, job, encrypted.open_offer, encrypted.next_stage)
        self._state: BoostingRounds | None = None
        self.sizes = job.sizes
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment})

    @step(Next("make_keys"), Next("publish"))
    async def bin(self) -> Outcome:
        """Report the number of trees to grow.

        1. Select the common records and their labels.
        2. Load the scores after the last stored tree. The first time of a job that continues from a model, store that
           model's trees and the scores after them.
        3. Bin the own columns, once for the job.
        """
        data = self._job.select_common()
        self._loss(data.labels).check(data.labels.values)
        weights, evaluated = data.table.weights, data.measured
        classes, values = len(data.labels.classes), data.labels.values
        try:
            start = await self._job.start()
            state = resumed(
                BoostingRounds(self._params, classes, values, weights, evaluated, start, data.table.offsets),
                self._context.store,
            )
        except DataError as failure:
            raise failure.at(self._context.party) from None
        if start is not None and not stored_trees(self._context.store):
            self._context.store.save_arrays(SCORES, state.state() | self._job.first.known)
        self._state = state
        return await self._job.bin(state)

    @step(Next("begin_tree", RESUMED), Next("publish"))
    async def make_keys(self) -> setup_pb2.PlannedTraffic | None:
        """Generate the attempt's key pair, and send the public key; see `LabelHolderJob.make_keys`."""
        outputs = self._params.outputs_per_tree(len(self._job.data.labels.classes))
        return await self._job.make_keys(self._most_trees(), 2 * outputs + 1)

    @step(*AFTER_BEGINNING)
    async def begin_tree(self, request: control_pb2.StepRequest) -> Outcome:
        """Step 1 of a tree.

        1. Compute g and h at the scores of the round's start, and draw the records.
        2. Send the drawn records to every party that takes part, and their g and h: packed, encrypted once, streamed.
           A rule may have the class of a record in the same ciphertext, and records sent that are not drawn, with
           g = h = 0.
        3. Begin the tree, which the label holder may grow alone.
        """
        t, state = request.round, required(self._state)
        await self._job.begin_tree(t)
        values, scale, sampled = state.derivatives(t)
        summed = self._job.summed(t, values, sampled)
        rows = np.arange(len(values)) if summed.every else np.flatnonzero(sampled)
        if not summed.alone and (parties := taking_part(self._spec, t)):
            await self._growth.shown.show_draw(t, parties, lambda of: sampled_messages(of.of(rows), len(of)))
            encrypted = summed.values[:, :-1] if self._shared else summed.values  # where a weight counts records
            await self._encrypted.begin(t, self._job.encrypted(encrypted, sampled), rows, parties)
        columns = self._job.split_table.columns_of_tree(t, self._params, permuted=False)
        criterion = BoostingCriterion.of(scale, state.unit, self._params, state.of_records)
        return await self._growth.plant(
            t, summed, criterion, columns, state, rules=self._params.expansion, subtract=True
        )

    def _most_trees(self) -> int:
        """The most trees of an attempt."""
        return self._params.n_estimators * self._params.trees_per_round(len(self._job.data.labels.classes))

    def _slots(self, labels: Labels) -> Slots:
        """The layout of a record's plaintext: see `treetap.party.boosting.ciphers`.

        Raises:
            DataError: the labels do not fit the loss.
            BadInput: one record does not fit a plaintext of the job's key.
            Refused: a lattice hides no further attempt.
        """
        loss = self._loss(labels)
        loss.check(labels.values)
        records, outputs = len(labels.values), self._params.outputs_per_tree(len(labels.classes))
        key = KeyKind.of(self._spec)
        remedy = " or ".join(["multi_strategy = 'one_output_per_tree'", *(["a longer key"] if key.bits else [])])
        if self._limited:
            remedy += ", or leave out id_lmid, which adds a slot for each class"
        plain = layout(self._params, records, outputs)
        classes, rooms = self._classes_in_slots(labels), self._job.rooms
        slots = layout(self._params, records, outputs, classes, rooms, shared=self._shared)
        self._encrypted.fit(slots, labels, remedy)
        if self._limited and not key.on_lattice:  # which tells its words
            log.info(
                "job %s: id_lmid adds no ciphertext of a record; a ciphertext of candidates holds %d sums, without "
                "id_lmid %d",
                self._context.job,
                slots.groups_per_plaintext(key.plain_bits),
                plain.groups_per_plaintext(key.plain_bits),
            )
        return slots

    def _classes_in_slots(self, labels: Labels) -> int:
        """The slots for the class of a record, whose sums Eq. 6 of ID-LMID takes, and a screening that opens them."""
        return len(labels.classes) if self._limited or (self._spec.screen and not self._shared) else 0

    def _loss(self, labels: Labels) -> Loss:
        return loss_for(self._params.objective, len(labels.classes))
