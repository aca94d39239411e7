"""Boosting at the label holder: encrypted gradients for every tree, split choice, leaf weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.alignment.steps import ALIGNED, ALIGNMENT, Alignment, alignment_steps
from party.boosting.gradients import BoostingState
from party.config import PartyConfig
from party.growth.label_holder import TREE_STEPS, LabelHolderGrowth, publish_model, trees_with_scores
from party.growth.split_table import SplitTable
from party.growth.stored_trees import StoredTrees
from party.runtime.context import Step, StepContext, empty_result, required
from party.runtime.messages import sampled_messages
from party.runtime.step_order import OPENING, RESUMED, Next, StepOrder, StepTable
from party.setup.keys import JobKeys, fitting
from party.setup.labelled_table import LabelledTable, load_labelled_table
from party.setup.steps import bin_features
from treetap.paillier.slots import Slots, width_for
from treetap.protocols.job_spec import params_as, taking_part
from treetap.tables.labels import Labels
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.loss import Loss, loss_for
from treetap.trees.params import BoostingParams
from treetap.wire.frame import result
from treetap.wire.v2 import boosting_pb2, control_pb2, setup_pb2

STEPS: StepTable = {
    OPENING: (Next("prepare"),),
    "prepare": (Next(ALIGNMENT), Next("bin", when=ALIGNED)),
    ALIGNMENT: (Next("bin"),),
    "bin": (Next("make_keys"), Next("publish")),
    "make_keys": (Next("begin_tree", RESUMED), Next("publish")),
    **TREE_STEPS,
}


class LabelHolder:
    """Sends new encrypted gradients of the sampled records for every tree."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._config, self._context, self._spec = config, context, spec
        self._params = params_as(spec, BoostingParams)
        members = [spec.label_holder, *spec.feature_parties]
        self._order = StepOrder(STEPS, {ALIGNMENT: alignment_steps(members, spec.alignment, context.party)})
        self._alignment = Alignment(context, members, spec.alignment, self._order)
        self._keys = JobKeys(context, spec)
        self._stored = StoredTrees(context, "own")
        self._growth = LabelHolderGrowth(context, spec, self._order, self._stored, self._keys.open)
        self._data: LabelledTable | None = None
        self._state: BoostingState | None = None
        self._split_table: SplitTable | None = None
        self.steps: Mapping[str, Step] = {
            "prepare": self.prepare,
            **self._alignment.steps,
            "bin": self.bin,
            "make_keys": self.make_keys,
            "begin_tree": self.begin_tree,
            "choose_splits": self._growth.choose_splits,
            "apply_splits": self._growth.apply_splits,
            "relay_children": self._growth.relay_children,
            "finish_tree": self._growth.finish_tree,
            "store_tree": self._growth.store_tree,
            "publish": self.publish,
        }

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Report the progress of the job.

        1. Read the table and decode its labels.
        2. Refuse labels that do not fit the job, before the alignment.
        3. Look up the records that an earlier attempt aligned, and the stored trees.
        """
        self._order.check(request)
        data = self._data = await load_labelled_table(
            self._context, self._config, self._spec, missing=self._params.missing, objective=self._params.objective
        )
        self._slots(data.labels)
        aligned = self._alignment.begin(data.table.ids, data.table.rows, data.table.path, keep=True)
        stored, published = await trees_with_scores(self._context.store, self._stored), self._context.store.published
        self._order.done(request, *([ALIGNED] if aligned else []))
        return result(setup_pb2.Prepared(stored_rounds=stored, published=published, aligned_attempt=aligned))

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Report the number of trees to grow.

        1. Select the common records and their labels.
        2. Load the scores after the last stored tree.
        3. Bin the own columns, once for the job.
        """
        self._order.check(request)
        data = self._data = required(self._data).take(self._alignment.records)
        loss = self._loss(data.labels)
        loss.check(data.labels.values)
        state = self._state = BoostingState(self._params, loss, data.labels, self._context.store)
        binned = await bin_features(self._context, data.table, self._params.max_bin)
        self._split_table = SplitTable(self._context.party, data.table.columns, binned)
        self._order.first_rounds = (state.trees,)
        self._order.done(request)
        return result(setup_pb2.Binned(rounds=state.planned, stopped=state.stopped))

    async def make_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Generate or reload the key pair; feature parties get the public key, the workers the secret key."""
        self._order.check(request)
        await self._keys.make(self._slots(required(self._data).labels))
        self._order.done(request)
        return empty_result()

    async def begin_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 1 of a tree.

        1. Compute g and h at the scores of the round's start, and draw the records.
        2. Send the drawn records to every party that takes part, and their g and h: packed, encrypted once, streamed.
        3. Begin the tree.
        """
        t = request.round
        self._order.check(request)
        values, scale, sampled = required(self._state).derivatives(t)
        rows = np.flatnonzero(sampled)
        if parties := taking_part(self._spec, t):
            for party in parties:
                await self._context.outbox.send(party, "sampled_records", sampled_messages(rows, len(values)), round=t)
            await self._keys.stream(values[rows], "gradients", boosting_pb2.Gradients, parties, t)
        split_table = required(self._split_table)
        split_table.next_handle_is(self._stored.first_handle(t))
        columns = split_table.columns_of_tree(t, self._params, permuted=False)
        criterion = BoostingCriterion(scale, self._params)
        self._growth.plant(
            t, values, criterion, columns, required(self._state), max_depth=self._params.max_depth, subtract=True
        )
        self._order.done(request)
        return empty_result()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Publish the stored trees as a model; delete the job's secret key and other files for the training only."""
        self._order.check(request)
        data, state = required(self._data), required(self._state)
        await publish_model(self._context, self._spec, data, self._params.missing, state, self._stored)
        await self.close()
        self._order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Delete the key in the workers."""
        await self._keys.close()

    def _slots(self, labels: Labels) -> Slots:
        """A record's plaintext, g_0.., h_0.., 1, each slot wide enough for the sum over all records.

        Raises:
            DataError: the labels do not fit the loss.
            BadInput: one record does not fit a plaintext of the job's key.
        """
        loss = self._loss(labels)
        loss.check(labels.values)
        records, outputs = len(labels.values), self._params.outputs_per_tree(len(labels.classes))
        g_max, h_max = loss.bounds()
        widths = [width_for(records, g_max)] * outputs + [width_for(records, h_max)] * outputs + [width_for(records, 1)]
        remedy = "multi_strategy = 'one_output_per_tree' or a longer key"
        return fitting(Slots(tuple(widths)), labels, self._spec.key_bits, remedy)

    def _loss(self, labels: Labels) -> Loss:
        return loss_for(self._params.objective, len(labels.classes))
