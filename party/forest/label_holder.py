"""A random forest at the label holder: labels encrypted once, split choice, leaf values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from party.alignment.steps import ALIGNMENT
from party.config import PartyConfig
from party.forest.forest_scores import ForestScores
from party.forest.layout import layout
from party.growth.label_holder import AFTER_BEGINNING, LabelHolderGrowth
from party.growth.label_holder_job import LabelHolderJob
from party.growth.messages import drawn_messages
from party.growth.split_table import with_zeros
from party.runtime.context import StepContext, required
from party.runtime.messages import CountedBody
from party.runtime.step_order import OPENING, RESUMED, Next, Outcome, role, step, steps_of
from party.setup.keys import fitting
from treetap.additive.sums.slots import Slots
from treetap.process.together import together
from treetap.protocols.job_spec import params_as, taking_part
from treetap.protocols.key_options import KeyKind
from treetap.tables.labels import Labels
from treetap.trees.forest_criterion import ForestCriterion, Targets, check_labels, targets
from treetap.trees.growing_tree import Ints
from treetap.trees.params import ForestParams
from treetap.wire.v2 import control_pb2, forest_pb2, setup_pb2


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, LabelHolderJob, LabelHolderGrowth)
class LabelHolder:
    """Sends the encrypted label of every record once per attempt, and per tree only the draw."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, ForestParams)
        withholding = self._withholding = config.withholding
        #: Eq. 6 of ID-LMID counts all records of a node, gains count the drawn ones.
        self._sums_of_all = withholding.xi is not None and withholding.shown
        job = self._job = LabelHolderJob(config, context, spec, self._params, self._params.n_estimators, self._slots)
        growth = self._growth = LabelHolderGrowth(context, spec, job.sizes, job.stored, job.reached, self._open_sums)
        self._state: ForestScores | None = None
        self._targets: Targets | None = None
        self.sizes = job.sizes
        self.sizes.sums_of_each += self._sums_of_all
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment})

    @step(Next("make_keys"), Next("publish"))
    async def bin(self) -> Outcome:
        """Report the number of trees to grow.

        1. Select the common records and their labels.
        2. Load the scores after the last stored tree.
        3. Bin the own columns, once for the job.
        """
        data = self._job.select_common()
        self._targets = self._targets_of(data.labels)
        least = self._context.policy.min_evaluated_records
        state = self._state = ForestScores(self._params, data.labels, self._context.store, data.measured, least)
        self._growth.account(self._job.released_sets())
        return await self._job.bin(state)

    @step(Next("share_labels"), Next("publish"))
    async def make_keys(self) -> None:
        """Generate the attempt's key pair, and send the public key."""
        await self._job.make_keys()

    @step(Next("begin_tree", RESUMED))
    async def share_labels(self) -> None:
        """Send the feature parties every record's encrypted label (one-hot, or fixed point), once per attempt."""
        plain = required(self._targets).values
        if not self._counts:
            plain = np.concatenate([plain, _ones(plain)], axis=1)
        await self._job.keys.stream(
            plain, "encrypted_labels", forest_pb2.EncryptedLabels, list(self._spec.feature_parties)
        )

    @step(*AFTER_BEGINNING)
    async def begin_tree(self, request: control_pb2.StepRequest) -> Outcome:
        """Step 1 of a tree.

        1. Draw its records, and take the own columns in the bins of the job or of its nodes.
        2. Send the draw to every party that takes part; with ID-LMID ask for sums over undrawn records too.
        3. Begin the tree, which the label holder may grow alone.
        """
        t = request.round
        params, aims, table = self._params, required(self._targets), self._job.data.records.table
        total = len(table.ids)
        drawn = params.drawn(t, len(aims.values))
        split_table = self._job.split_table
        split_table.next_handle_is(self._job.stored.first_handle(t))
        columns = split_table.own_columns_of_tree(t, params, lambda: table.features)
        alone, send = self._withholding.grows_alone(t), self._context.outbox.send
        parties = [] if alone else taking_part(self._spec, t)

        def draw() -> Iterator[CountedBody]:
            return drawn_messages(with_zeros(drawn, total), total, sums_of_all=self._sums_of_all)

        await together(*(send(party, "sampled_records", draw(), round=t) for party in parties))
        values = np.concatenate([aims.values, _ones(aims.values)], axis=1) * drawn[:, None]
        labels = self._job.data.labels
        values, limit = self._withholding.counted(
            values, labels.values, len(labels.classes), drawn > 0, has_counts=self._counts
        )
        criterion, subtract = ForestCriterion(aims, params), params.binning == "global"
        shared = self._growth.plant(
            t,
            with_zeros(values, total),
            criterion,
            columns,
            required(self._state),
            rules=params.expansion,
            subtract=subtract,
            limit=limit,
            alone=alone,
        )
        return Outcome(shared)

    async def close(self) -> None:
        """Delete the key in the workers."""
        await self._job.keys.close()

    async def _open_sums(self, packed: bytes, groups: int) -> Ints:
        """Decrypt candidate sums; the number of records is not sent where it is the sum of the class counts.

        With `sums_of_all` those over all records of the nodes come behind those over the drawn ones.
        """
        opened = await self._job.keys.open(packed, groups * (1 + self._sums_of_all))
        sums, of_all = opened[:groups], opened[groups:]
        parts = [sums, sums.sum(axis=-1, keepdims=True)] if self._counts else [sums]
        return np.concatenate([*parts, of_all] if self._sums_of_all else parts, axis=-1)

    def _slots(self, labels: Labels) -> Slots:
        """The layout of a record's plaintext: see `party.forest.layout`.

        Raises:
            DataError: the labels do not fit the criterion.
            BadInput: one record does not fit a plaintext of the job's key.
        """
        outputs = self._targets_of(labels).values.shape[1]
        slots = layout(self._params, len(labels.values), outputs)
        key = KeyKind.of(self._spec)
        return fitting(slots, labels, key, key.remedy)

    def _targets_of(self, labels: Labels) -> Targets:
        check_labels(labels.values, self._params.criterion, len(labels.classes))
        return targets(labels.values, self._params.criterion, len(labels.classes))

    @property
    def _counts(self) -> bool:
        return self._params.criterion == "gini"


def _ones(values: Ints) -> Ints:
    """A slot with 1 for every record, (N, 1)."""
    return np.ones((len(values), 1), dtype=np.int64)
