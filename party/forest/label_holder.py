"""A random forest at the label holder: labels encrypted once, split choice, leaf values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.alignment.steps import ALIGNED, ALIGNMENT, Alignment, alignment_steps
from party.config import PartyConfig
from party.forest.out_of_bag import OutOfBagScores
from party.growth.label_holder import TREE_STEPS, LabelHolderGrowth, publish_model, trees_with_scores
from party.growth.split_table import SplitTable
from party.growth.stored_trees import StoredTrees
from party.runtime.context import Step, StepContext, empty_result, required
from party.runtime.messages import drawn_messages
from party.runtime.step_order import OPENING, RESUMED, Next, StepOrder, StepTable
from party.setup.keys import JobKeys, fitting
from party.setup.labelled_table import LabelledTable, load_labelled_table
from party.setup.steps import bin_features
from treetap.paillier.slots import Slots, width_for
from treetap.protocols.job_spec import params_as, taking_part
from treetap.tables.labels import Labels
from treetap.trees import sampling
from treetap.trees.forest_criterion import ForestCriterion, Targets, check_labels, targets
from treetap.trees.growing_tree import Ints
from treetap.trees.params import ForestParams
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, forest_pb2, setup_pb2

STEPS: StepTable = {
    OPENING: (Next("prepare"),),
    "prepare": (Next(ALIGNMENT), Next("bin", when=ALIGNED)),
    ALIGNMENT: (Next("bin"),),
    "bin": (Next("make_keys"), Next("publish")),
    "make_keys": (Next("share_labels"), Next("publish")),
    "share_labels": (Next("begin_tree", RESUMED),),
    **TREE_STEPS,
}


class LabelHolder:
    """Sends the encrypted label of every record once per attempt, and per tree only the draw."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._config, self._context, self._spec = config, context, spec
        self._params = params_as(spec, ForestParams)
        members = [spec.label_holder, *spec.feature_parties]
        self._order = StepOrder(STEPS, {ALIGNMENT: alignment_steps(members, spec.alignment, context.party)})
        self._alignment = Alignment(context, members, spec.alignment, self._order)
        self._keys = JobKeys(context, spec)
        self._stored = StoredTrees(context, "own")
        self._growth = LabelHolderGrowth(context, spec, self._order, self._stored, self._open_sums)
        self._data: LabelledTable | None = None
        self._state: OutOfBagScores | None = None
        self._targets: Targets | None = None
        self._split_table: SplitTable | None = None
        self.steps: Mapping[str, Step] = {
            "prepare": self.prepare,
            **self._alignment.steps,
            "bin": self.bin,
            "make_keys": self.make_keys,
            "share_labels": self.share_labels,
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
        self._targets = self._targets_of(data.labels)
        state = self._state = OutOfBagScores(self._params, data.labels, self._context.store)
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

    async def share_labels(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Send the feature parties every record's encrypted label (one-hot, or fixed point), once per attempt."""
        self._order.check(request)
        plain = required(self._targets).values
        if not self._counts:
            plain = np.concatenate([plain, _ones(plain)], axis=1)
        await self._keys.stream(plain, "encrypted_labels", forest_pb2.EncryptedLabels, list(self._spec.feature_parties))
        self._order.done(request)
        return empty_result()

    async def begin_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 1 of a tree.

        1. Draw its records, and take the own columns in the bins of the job or of its nodes.
        2. Send the draw to every party that takes part.
        3. Begin the tree.
        """
        t = request.round
        self._order.check(request)
        params, found, features = self._params, required(self._targets), required(self._data).table.features
        drawn = sampling.drawn(params.seed, t, len(features), params.subsample, bootstrap=params.bootstrap)
        split_table = required(self._split_table)
        split_table.next_handle_is(self._stored.first_handle(t))
        if params.binning == "per-node":
            columns = split_table.fresh_columns_of_tree(t, params, features, drawn, permuted=False)
        else:
            columns = split_table.columns_of_tree(t, params, permuted=False)
        for party in taking_part(self._spec, t):
            await self._context.outbox.send(party, "sampled_records", drawn_messages(drawn, len(features)), round=t)
        values = np.concatenate([found.values, _ones(found.values)], axis=1) * drawn[:, None]
        criterion, subtract = ForestCriterion(found, params), params.binning == "global"
        self._growth.plant(
            t, values, criterion, columns, required(self._state), max_depth=params.max_depth, subtract=subtract
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

    async def _open_sums(self, packed: bytes, groups: int) -> Ints:
        """Decrypt candidate sums; the number of records is not sent where it is the sum of the class counts."""
        sums = await self._keys.open(packed, groups)
        return np.concatenate([sums, sums.sum(axis=-1, keepdims=True)], axis=-1) if self._counts else sums

    def _slots(self, labels: Labels) -> Slots:
        """The layout of a record's plaintext: one slot per class, for counts; or the target and 1.

        Each slot is wide enough for the sum over all records; a tree draws no more records than there are.

        Raises:
            DataError: the labels do not fit the criterion.
            BadInput: one record does not fit a plaintext of the job's key.
        """
        found, records = self._targets_of(labels), len(labels.values)
        widths = [width_for(records, found.largest)] * found.values.shape[1]
        slots = Slots(tuple(widths if self._counts else [*widths, width_for(records, 1)]))
        return fitting(slots, labels, self._spec.key_bits, "a longer key")

    def _targets_of(self, labels: Labels) -> Targets:
        check_labels(labels.values, self._params.criterion, len(labels.classes))
        return targets(labels.values, self._params.criterion, len(labels.classes))

    @property
    def _counts(self) -> bool:
        return self._params.criterion == "gini"


def _ones(values: Ints) -> Ints:
    """A slot with 1 for every record, (N, 1)."""
    return np.ones((len(values), 1), dtype=np.int64)
