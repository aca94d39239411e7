"""A PIVODL job at a party: its table with the labels that it has, its bins and its stored trees.

Every party has the same role. The first party of the job is the one that reports rounds and publishes last.
"""

from __future__ import annotations

import logging

import numpy as np

from party.alignment.steps import ALIGNED, ALIGNMENT, Alignment
from party.config import PartyConfig
from party.defences.clean_labels import LabelRules, Use, read_some
from party.growth.label_state import stored_trees
from party.growth.published_model import published_model
from party.growth.round_history import keep_round, stored_rounds
from party.growth.split_table import SplitTable
from party.growth.stored_trees import StoredTrees
from party.pivodl.own_labels import OwnLabels
from party.pivodl.setting import Setting
from party.runtime.context import empty_result, required
from party.runtime.expected import expected_of
from party.runtime.step_order import StepOrder, StepTable
from party.setup.steps import PUBLISHED, UNPUBLISHED, bin_features, load_job_table, manifest_of, table_config
from treetap.errors import DataError, OutOfOrder
from treetap.models.store import HISTORY, TREES
from treetap.models.trained_ids import TRAINED_IDS, trained_ids
from treetap.protocols.alignment import ALIGNMENTS
from treetap.protocols.messages import JobSizes, members_of
from treetap.tables.partial_labels import PartialLabels
from treetap.tables.reading import Table
from treetap.trees.shared_label_loss import Moments, SharedLabelLoss
from treetap.wire.frame import result
from treetap.wire.metric_history import columns
from treetap.wire.v2 import control_pb2, setup_pb2

log = logging.getLogger(__name__)
#: The name under which a party keeps the moments of all labels.
MOMENTS = "moments"


class PivodlJob:
    """The table and the stored trees of one job at one party.

    Attributes:
        order: the steps of the job that may come next.
        alignment: this party's part in finding the common records.
        stored: the trees on disk.
    """

    def __init__(self, config: PartyConfig, setting: Setting, table: StepTable) -> None:
        """`table`: the role's steps, with the phase `ALIGNMENT`."""
        self._config, self._setting = config, setting
        context, spec = setting.context, setting.spec
        self.sizes = JobSizes(members=members_of(spec, context.coordinator))
        self.alignment = Alignment(context, spec.alignment, "min_common_records", self.sizes)
        self.order = StepOrder(table, {ALIGNMENT: self.alignment.sequence})
        self.receives = expected_of(ALIGNMENTS[spec.alignment], context.party, self.sizes)
        self.stored = StoredTrees(context, "splits")
        self._table: Table | None = None
        self._labels = PartialLabels(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        self._own: OwnLabels | None = None
        self._split_table: SplitTable | None = None
        self._begun = False

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Report the progress of the job at this party.

        1. Read the table, and decode the labels that it has.
        2. Look up the records that an earlier attempt aligned, and the stored trees.

        Raises:
            DataError: the party has no features, or a label is none of the job's classes.
        """
        self.order.check(request)
        setting, context = self._setting, self._setting.context
        await self._load()
        if len(setting.parties) == 2 and not setting.params.centralised_labels:
            log.warning(
                "job %s has two parties: each split party can subtract its own sums from those that it opens, and "
                "masks hide nothing",
                context.job,
            )
        table = self.table
        aligned = self.alignment.begin(table.ids, table.rows, table.path, keep=True)
        stored, published = await self.stored.read_scored(stored_trees(context.store)), context.store.published
        self.order.first_rounds = range(stored + 1)  # the first party may have stored fewer
        reports = published and setting.me == setting.spec.aggregator
        model = published_model(context.store.manifest()) if reports else None
        history = columns(stored_rounds(context.store, stored))
        self.order.done(request, PUBLISHED if published else UNPUBLISHED, *([ALIGNED] if aligned else []))
        return result(
            setup_pb2.Prepared(
                stored_rounds=stored, published=published, aligned_attempt=aligned, model=model, history=history
            )
        )

    async def _load(self) -> None:
        setting, context = self._setting, self._setting.context
        own = table_config(self._config, setting.spec.table)
        params, with_label = setting.params, own.label is not None
        table = await load_job_table(context, self._config, setting.spec, with_label=with_label, missing=params.missing)
        if not table.columns:
            raise DataError(
                f"{table.path}: the configuration names no columns of features for this table; every party of the job "
                "has some"
            ).at(context.party)
        if own.weight is not None:
            raise DataError(
                f"{table.path}: weight column {own.weight!r}: protocol 'pivodl' has no sample weights: its thresholds "
                "and the noise of its leaves count each record once; train by boosting, or on a table without weight"
            ).at(context.party)
        if own.label is not None:
            try:
                rules = LabelRules.of(context.party, self._config.defences, context.policy)
                held = read_some(table, own.label, params.objective, params.class_names, rules)
                self._labels = held.for_use(Use.TRAINING)
            except DataError as failure:
                raise failure.at(context.party) from None
        self._table = table

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Select the common records with their labels, bin their columns once for the job, report the trees to grow."""
        self.order.check(request)
        setting = self._setting
        table = self._table = self.table.take(self.alignment.records)
        setting.records = len(table.ids)
        labels = self._labels.take(self.alignment.records)
        self._own = OwnLabels(labels.rows, labels.values, setting.records)
        if setting.params.needs_moments:  # before any party encrypts its own
            try:
                Moments.of(labels.values)
            except DataError as failure:
                raise failure.at(setting.me) from None
        binned = await bin_features(setting.context, table, setting.params)
        self._split_table = SplitTable(setting.me, table.columns, binned)
        told = result(setup_pb2.Binned(rounds=setting.params.n_estimators))
        self.order.done(request)
        return told if setting.me == setting.spec.aggregator else empty_result()

    def begin_scores(self) -> None:
        """Set the own scores to those after the last stored tree, once the loss is known; keep its scales on disk."""
        setting, store = self._setting, self._setting.context.store
        moments = setting.loss.moments or Moments(0, 0, 0)
        numbers = [str(each) for each in (moments.total, moments.squares, moments.count)]
        store.save_arrays(MOMENTS, {"numbers": np.array(numbers), "known": np.array(setting.knows_scales)})
        self.own.begin(setting.loss, store)
        self._begun = True

    def _begin_scores_again(self) -> None:
        """The same in an attempt that has only models left to publish, by the scales on disk."""
        setting, arrays = self._setting, self._setting.context.store.load_arrays(MOMENTS)
        total, squares, count = (int(each) for each in required(arrays)["numbers"])
        setting.knows_scales = bool(required(arrays)["known"])
        setting.loss = SharedLabelLoss(setting.params, Moments(total, squares, count) if count else None)
        self.begin_scores()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Publish the stored trees as a model; the first party reports it.

        Raises:
            OutOfOrder: trees are missing, whatever the coordinator believes.
        """
        self.order.check(request)
        context, setting = self._setting.context, self._setting
        if not context.store.published:
            planned = setting.params.n_estimators
            if self.stored.count < planned:
                raise OutOfOrder(f"publish cannot come now: {self.stored.count} of {planned} trees are stored")
            if not self._begun:
                self._begin_scores_again()
            context.store.publish(self._manifest(), (TREES, HISTORY))
        reports = setting.me == setting.spec.aggregator
        told = result(published_model(context.store.manifest())) if reports else empty_result()
        self.order.done(request)
        return told

    def _manifest(self) -> dict[str, object]:
        setting, params = self._setting, self._setting.params
        return {
            "role": "party",
            "aggregator": setting.spec.aggregator,
            "parties": setting.parties,
            "classes": params.class_names,
            "class_type": "string",
            **manifest_of(setting.context, setting.spec, self.table, params.missing),
            "trees": self.stored.count,
            "trees_per_round": 1,
            TRAINED_IDS: trained_ids(self.table.ids),
            "best_round": None,
            "objective": params.objective,
            "base_margin": [float(each) for each in setting.loss.base],
            "label_scale": setting.loss.label_scale if setting.knows_scales else None,
            "base_score": setting.loss.base_score if setting.knows_scales else None,
            "labelled_records": len(self.own.rows),
            "params": params.to_dict(),
            "training_metrics": self.own.metrics,
        }

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Store this party's part of the tree, then the scores that include it, before answering."""
        self.order.check(request)
        setting, index = self._setting, request.round
        self.stored.add(index, setting.tree.line())
        keep_round(setting.context.store, index, index + 1, self.own.metrics)
        self.own.save(setting.context.store, index + 1)
        setting.context.mailbox.forget(index)
        self.order.done(request)
        return empty_result()

    @property
    def table(self) -> Table:
        """The party's table; after `bin`, of the common records alone."""
        return required(self._table)

    @property
    def own(self) -> OwnLabels:
        """The labels of the common records that this party has."""
        return required(self._own)

    @property
    def split_table(self) -> SplitTable:
        """The binned columns, and the splits made on them."""
        return required(self._split_table)

    def records(self) -> int:
        """The number of the party's records; after `bin`, of the common ones."""
        return 0 if self._table is None else len(self._table.ids)
