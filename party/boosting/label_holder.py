"""Boosting at the label holder: encrypted gradients for every tree, split choice, leaf weights.

Its scores are on disk after every tree.
"""

from __future__ import annotations

import logging

import numpy as np

from treetap.errors import DataError
from treetap.party.alignment.steps import ALIGNMENT
from treetap.party.boosting.ciphers import encrypted_values
from treetap.party.boosting.layout import BoostingLayout, layout
from treetap.party.config import PartyConfig
from treetap.party.growth.column_noise import NoisedParties
from treetap.party.growth.label_holder import AFTER_BEGINNING, LabelHolderGrowth
from treetap.party.growth.label_holder_job import LabelHolderJob
from treetap.party.growth.label_state import SCORES, stored_trees
from treetap.party.growth.messages import sampled_messages
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.job_store import JobStore
from treetap.party.runtime.step_order import OPENING, RESUMED, Next, Outcome, role, step, steps_of
from treetap.party.setup.evaluated import Measured
from treetap.protocols.growth import MOST_CLASSES
from treetap.protocols.job_spec import params_as, taking_part
from treetap.protocols.key_options import KeyKind
from treetap.tables.labels import Labels
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import MeasuredRounds, Start, Weights
from treetap.trees.growing_tree import with_zeros
from treetap.trees.loss import Loss, loss_for
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots
from treetap.wire.v2 import control_pb2, setup_pb2

log = logging.getLogger(__name__)


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, LabelHolderJob, LabelHolderGrowth)
class LabelHolder:
    """Sends new encrypted gradients of the sampled records for every tree."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, BoostingParams)
        withholding = self._withholding = config.withholding
        self._limited = withholding.xi is not None
        trees = self._params.n_estimators * self._params.trees_per_round(MOST_CLASSES)
        encrypted = self._encrypted = encrypted_values(context, spec, lambda: self.sizes, self._most_trees)
        job = self._job = LabelHolderJob(
            config, context, spec, self._params, trees, self._slots, encrypted, self._classes_in_slots
        )
        growth = self._growth = LabelHolderGrowth(context, spec, job, encrypted.open_offer, encrypted.next_stage)
        self._state: BoostingState | None = None
        self._noised = NoisedParties(context, spec, self._params, BoostingLayout(self._params), withholding)
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
        try:
            start = await self._job.start()
            state = BoostingState(self._params, data.labels, self._context.store, weights, evaluated, start)
        except DataError as failure:
            raise failure.at(self._context.party) from None
        if start is not None and not stored_trees(self._context.store):
            state.save()
        self._state = state
        self._growth.shown.released = self._job.released_sets()
        return await self._job.bin(state)

    @step(Next("begin_tree", RESUMED), Next("publish"))
    async def make_keys(self) -> setup_pb2.PlannedTraffic | None:
        """Generate the attempt's key pair, and send the public key.

        Raises:
            Refused: sums of a feature party have noise, and the policy does not take such.
            ConfigError: the job has more trees than that noise is for, or its parties have defences that do not go
                together.
        """
        labels = self._job.data.labels
        slots = 2 * self._params.outputs_per_tree(len(labels.classes)) + 1
        self._job.noised = await self._noised.hear(self._most_trees(), len(labels.values), slots)
        return await self._job.make_keys()

    @step(*AFTER_BEGINNING)
    async def begin_tree(self, request: control_pb2.StepRequest) -> Outcome:
        """Step 1 of a tree.

        1. Compute g and h at the scores of the round's start, and draw the records.
        2. Send the drawn records to every party that takes part, and their g and h: packed, encrypted once, streamed.
           With ID-LMID the class of a record is in the same ciphertext; where Eq. 6 counts records that are not drawn,
           all are sent, those with g = h = 0.
        3. Begin the tree, which the label holder may grow alone.

        Raises:
            OutOfOrder: a party has said after the keys were made that its sums have noise.
        """
        await self._noised.check_late()
        t = request.round
        values, scale, sampled = required(self._state).derivatives(t)
        labels, withholding = self._job.data.labels, self._withholding
        values, limit = withholding.counted(values, labels.values, len(labels.classes), sampled)
        alone = withholding.grows_alone(t)
        rows = np.arange(len(values)) if limit is not None and withholding.shown else np.flatnonzero(sampled)
        total = len(self._job.data.records.table.ids)
        if not alone and (parties := taking_part(self._spec, t)):
            await self._growth.shown.show_draw(t, parties, lambda: sampled_messages(rows, total))
            await self._encrypted.begin(t, values, rows, parties)
        split_table = self._job.split_table
        split_table.next_handle_is(self._job.stored.first_handle(t))
        columns = split_table.columns_of_tree(t, self._params, permuted=False)
        criterion = BoostingCriterion(scale, self._params)
        state, rules = required(self._state), self._params.expansion
        shared = self._growth.plant(
            t,
            with_zeros(values, total),
            criterion,
            columns,
            state,
            rules=rules,
            subtract=True,
            limit=limit,
            alone=alone,
            noised=self._noised.noises,
        )
        return Outcome(shared)

    async def close(self) -> None:
        """Delete the key in the workers."""
        await self._encrypted.close()

    def _most_trees(self) -> int:
        """The most trees of an attempt."""
        return self._params.n_estimators * self._params.trees_per_round(len(self._job.data.labels.classes))

    def _slots(self, labels: Labels) -> Slots:
        """The layout of a record's plaintext: see `treetap.party.boosting.layout`.

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
        slots = layout(self._params, records, outputs, self._classes_in_slots(labels), [*self._noised.noises.values()])
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
        """The slots for the class of a record, whose sums Eq. 6 of ID-LMID takes."""
        return len(labels.classes) if self._limited else 0

    def _loss(self, labels: Labels) -> Loss:
        return loss_for(self._params.objective, len(labels.classes))


class BoostingState(MeasuredRounds):
    """The rounds of a job; see `LabelState`."""

    def __init__(
        self,
        params: BoostingParams,
        labels: Labels,
        store: JobStore,
        weights: Weights = None,
        evaluated: Measured | None = None,
        start: Start | None = None,
    ) -> None:
        """`store`: that of the job; the other arguments are those of `MeasuredRounds`.

        Raises:
            DataError: the weights do not fit the job, or the stored scores are of another table.
        """
        super().__init__(params, len(labels.classes), labels.values, weights, evaluated, start)
        self._store = store
        arrays = store.load_arrays(SCORES)
        if arrays is not None:
            self.load(arrays)

    def save(self) -> None:
        self._store.save_arrays(SCORES, self.state())
