"""A random forest at the label holder: labels encrypted once, split choice, leaf values, metrics after each tree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treetap.arrays import Ints
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.config import PartyConfig
from treetap.party.forest.ciphers import ForestLayout, layout
from treetap.party.growth.ciphers import encrypted_values
from treetap.party.growth.label_holder import AFTER_BEGINNING, LabelHolderGrowth
from treetap.party.growth.label_holder_job import LabelHolderJob
from treetap.party.growth.messages import drawn_messages
from treetap.party.growth.offered_candidates import Offer
from treetap.party.growth.stored_trees import resumed
from treetap.party.runtime.context import CountedBody, StepContext, required
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, RESUMED, Next, Outcome, role, step, steps_of
from treetap.protocols.growth import sums_shared
from treetap.protocols.job_spec import params_as, taking_part
from treetap.protocols.key_options import KeyKind
from treetap.tables.labels import Labels
from treetap.trees.boosting_rounds import ForestRounds
from treetap.trees.forest_criterion import ForestCriterion, Targets, check_labels, targets
from treetap.trees.growing_tree import with_zeros
from treetap.trees.params import ForestParams
from treetap.trees.slots import Slots
from treetap.wire.v2 import control_pb2, forest_pb2, setup_pb2


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, LabelHolderJob, LabelHolderGrowth)
class LabelHolder:
    """Sends the encrypted label of every record once per attempt, and per tree only the draw."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, ForestParams)
        withholding = config.withholding
        #: Eq. 6 of ID-LMID counts all records of a node, gains count the drawn ones.
        self._sums_of_all = withholding.xi is not None and withholding.shown
        trees, on_lattice = self._params.n_estimators, KeyKind.of(spec).on_lattice
        #: Where each node has words, these classes are in them; ciphertexts serve both sums.
        self._classes_in_slots = self._sums_of_all and on_lattice
        encrypted = self._encrypted = encrypted_values(
            context,
            spec,
            lambda: self.sizes,
            lambda: trees,
            "encrypted_labels",
            forest_pb2.EncryptedLabels,
            common=lambda: self._job.common,
            slots=lambda party: self._slots(self._job.labels_of(party)),
            shared=True,
            once=not self._params.bootstrap,
        )
        job = self._job = LabelHolderJob(
            config,
            context,
            spec,
            self._params,
            trees,
            self._slots,
            encrypted,
            self._label_slots,
            ForestLayout(self._params, on_lattice, sums_shared(spec)),
        )
        opens = encrypted.open_offer if sums_shared(spec) else self._open_sums
        growth = self._growth = LabelHolderGrowth(context, spec, job, opens, encrypted.next_stage)
        self._state: ForestRounds | None = None
        self._targets: Targets | None = None
        self.sizes = job.sizes
        self.sizes.sums_of_each += self._sums_of_all and not on_lattice
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
        least, further = self._context.policy.labels.min_evaluated_records, data.measured and data.measured[0]
        rounds = ForestRounds(self._params, len(data.labels.classes), data.labels.values, further, least)
        state = self._state = resumed(rounds, self._context.store)
        return await self._job.bin(state)

    @step(Next("share_labels"), Next("publish"))
    async def make_keys(self) -> setup_pb2.PlannedTraffic | None:
        """Generate the attempt's key pair, and send the public key; see `LabelHolderJob.make_keys`."""
        labels = self._job.data.labels
        slots = layout(self._params, len(labels.values), self._targets_of(labels).values.shape[1])
        return await self._job.make_keys(self._params.n_estimators, len(slots.widths))

    @step(Next("begin_tree", RESUMED))
    async def share_labels(self) -> None:
        """Send the feature parties every record's encrypted label (one-hot, or fixed point), once per attempt.

        Under a lattice nothing, unless words serve all trees.
        """
        plain = required(self._targets).values
        if not self._counts:
            plain = np.concatenate([plain, _ones(plain)], axis=1)
        await self._encrypted.share(plain)

    @step(*AFTER_BEGINNING)
    async def begin_tree(self, request: control_pb2.StepRequest) -> Outcome:
        """Step 1 of a tree.

        1. Draw its records, and take the own columns in the bins of the job or of its nodes.
        2. Send the draw to every party that takes part; with ID-LMID ask for sums over undrawn records too. Under a
           lattice encrypt the labels of the draw.
        3. Begin the tree, which the label holder may grow alone.
        """
        t = request.round
        await self._job.begin_tree(t)
        params, aims, table = self._params, required(self._targets), self._job.data.records.table
        total = len(table.ids)
        drawn = params.drawn(t, len(aims.values))
        columns = self._job.split_table.own_columns_of_tree(t, params, lambda: table.features)
        plain = np.concatenate([aims.values, _ones(aims.values)], axis=1) * drawn[:, None]
        summed = self._job.summed(t, plain, drawn > 0, counts=self._counts)
        parties = [] if summed.alone else taking_part(self._spec, t)

        def draw(common: PartnerRecords) -> Iterator[CountedBody]:
            of_party = with_zeros(drawn, total)[common.places]
            return drawn_messages(of_party, len(of_party), sums_of_all=self._sums_of_all)

        await self._growth.shown.show_draw(t, parties, draw)
        if parties:
            values = summed.values
            encrypted = np.delete(values, aims.values.shape[1], axis=1) if self._counts else values
            encrypted = self._job.encrypted(encrypted, drawn > 0)
            await self._encrypted.begin(t, encrypted, np.arange(len(values)), parties)
        criterion, state = ForestCriterion(aims, params), required(self._state)
        subtract = params.binning == "global"
        return await self._growth.plant(t, summed, criterion, columns, state, rules=params.expansion, subtract=subtract)

    async def _open_sums(self, offer: Offer) -> Ints:
        """Open candidate sums; the number of records is not sent where it is the sum of the class counts.

        With `sums_of_all` those over all records of the nodes are behind those over the drawn ones.
        """
        opened = await self._encrypted.open_offer(offer)
        if not self._counts:
            return opened
        classes = len(self._job.data.labels.classes)
        return np.insert(opened, classes, opened[:, :classes].sum(axis=1), axis=1)

    def _label_slots(self, labels: Labels) -> int:
        """The slots for the class of a record that a tree draws or does not, whose sums Eq. 6 of ID-LMID takes."""
        return len(labels.classes) if self._classes_in_slots else 0

    def _slots(self, labels: Labels) -> Slots:
        """The layout of a record's plaintext: see `treetap.party.forest.ciphers`.

        Raises:
            DataError: the labels do not fit the criterion.
            BadInput: one record does not fit a plaintext of the job's key.
            Refused: a lattice hides no further attempt.
        """
        outputs, key = self._targets_of(labels).values.shape[1], KeyKind.of(self._spec)
        records, shared = len(labels.values), sums_shared(self._spec)
        slots = layout(self._params, records, outputs, self._label_slots(labels), self._job.rooms, shared=shared)
        remedy = "a longer key" if key.bits else "labels of fewer classes"
        if self._classes_in_slots:
            remedy += ", or leave out id_lmid, which adds a slot for each class"
        self._encrypted.fit(slots, labels, remedy)
        return slots

    def _targets_of(self, labels: Labels) -> Targets:
        check_labels(labels.values, self._params.criterion, len(labels.classes))
        return targets(labels.values, self._params.criterion, len(labels.classes))

    @property
    def _counts(self) -> bool:
        return self._params.criterion == "gini"


def _ones(values: Ints) -> Ints:
    """A slot with 1 for every record, (N, 1)."""
    return np.ones((len(values), 1), dtype=np.int64)
