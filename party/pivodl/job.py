"""A PIVODL job at a party: its table with the labels that it has, its bins and its stored trees.

Every party has the same role. The first party of the job is the one that reports rounds and publishes last.
"""

from __future__ import annotations

import logging

import numpy as np

from treetap.errors import DataError, OutOfOrder, naming
from treetap.models.keyed_ids import TRAINED_IDS, trained_ids
from treetap.models.store import TRAINED_ON
from treetap.party.alignment.steps import Alignment
from treetap.party.config import PartyConfig
from treetap.party.defences.clean_labels import LabelRules, Use, read_some
from treetap.party.growth.split_table import SplitTable
from treetap.party.growth.stored_trees import StoredTrees, ended_round, published_model, shard, stored_trees
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.leaf_weights import check_budget
from treetap.party.pivodl.participant import OwnLabels, Participant
from treetap.party.runtime.context import required
from treetap.party.runtime.step_order import ALIGNED, ALIGNMENT, Next, Outcome, step
from treetap.party.setup.steps import PUBLISHED, UNPUBLISHED, bin_features, load_job_table, manifest_of, table_config
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import members_of
from treetap.protocols.pivodl import PivodlSizes
from treetap.tables.labels import PartialLabels
from treetap.tables.reading import Table
from treetap.trees.pivodl_rules import Moments, SharedLabelLoss
from treetap.wire.metric_history import columns
from treetap.wire.v2 import setup_pb2

log = logging.getLogger(__name__)
#: The name under which a party keeps the moments of all labels.
MOMENTS = "moments"


class PivodlJob:
    """The table and the stored trees of one job at one party.

    Attributes:
        sizes: those of the job, as far as they are known.
        alignment: this party's part in finding the common records.
        stored: the trees on disk.
    """

    #: The party's table; after `bin`, of the common records alone.
    table: Table

    #: The labels of the common records that this party has.
    own: OwnLabels

    #: The binned columns, and the splits made on them.
    split_table: SplitTable

    def __init__(self, config: PartyConfig, me: Participant) -> None:
        self._config, self._me = config, me
        context, spec = me.context, me.spec
        members = members_of(spec, context.coordinator)
        self.sizes = PivodlSizes(members=members, key=KeyKind.of(spec), params=me.params)
        self.alignment = Alignment(context, spec.alignment, "min_common_records", self.sizes)
        self.stored = StoredTrees(context, "splits")
        self._labels = PartialLabels(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        self._begun = False

    @step(Next(ALIGNMENT, when=UNPUBLISHED), Next("bin", when=ALIGNED), Next("publish", when=PUBLISHED))
    async def prepare(self) -> Outcome:
        """Report the progress of the job at this party.

        1. Read the table, and decode the labels that it has.
        2. Look up the records that an earlier attempt aligned, and the stored trees.

        Raises:
            DataError: the party has no features, or a label is none of the job's classes.
            Refused: the job's noise costs more than its `label_budget` leaves.
        """
        me, context = self._me, self._me.context
        own = table_config(self._config, me.spec.table)
        params, with_label = me.params, own.label is not None
        table = await load_job_table(context, self._config, me.spec, with_label=with_label, missing=params.missing)
        if not table.columns:
            raise DataError(
                f"{table.path}: the configuration names no columns of features for this table; every party of the job "
                "has some"
            ).at(context.party)
        if own.label is not None:
            with naming(context.party):
                rules = LabelRules.of(context.party, self._config.defences, context.policy)
                held = read_some(table, own.label, params.objective, params.class_names, rules)
                self._labels = held.for_use(Use.TRAINING)
        self.table, self.sizes.records = table, len(table.ids)
        check_budget(me)
        if len(me.parties) == 2:
            log.warning(
                "job %s has two parties: each split party can subtract its own sums from those that it opens, and "
                "masks hide nothing",
                context.job,
            )
        table = self.table
        aligned = self.alignment.begin(table.ids, table.rows, table.path, keep=True)
        stored, published = await self.stored.read_scored(stored_trees(context.store)), context.store.published
        reports = published and me.name == me.spec.aggregator
        model = published_model(context.store.manifest()) if reports else None
        history = columns(self.stored.rounds(stored))
        return Outcome(
            PUBLISHED if published else UNPUBLISHED,
            *([ALIGNED] if aligned else []),
            answer=setup_pb2.Prepared(
                stored_rounds=stored, published=published, aligned_attempt=aligned, model=model, history=history
            ),
            first_rounds=range(stored + 1),  # the first party may have stored fewer
        )

    @step(Next("exchange_party_keys"), Next("publish"))
    async def bin(self) -> setup_pb2.Binned | None:
        """Select the common records with their labels, bin their columns once for the job, report the trees to grow."""
        me = self._me
        table = self.table = self.table.take(self.alignment.records)
        self.sizes.records = len(table.ids)
        labels = self._labels.take(self.alignment.records)
        self.own = OwnLabels(labels.rows, labels.values, len(table.ids))
        if me.params.needs_moments:  # before any party encrypts its own
            with naming(me.name):
                Moments.of(labels.values)
        binned = await bin_features(me.context, table, me.params)
        self.split_table = SplitTable(me.name, table.columns, binned)
        return setup_pb2.Binned(rounds=me.params.n_estimators) if me.name == me.spec.aggregator else None

    def begin_scores(self, loss: SharedLabelLoss) -> None:
        """Set the own scores to those after the last stored tree; keep the scales of the loss on disk."""
        store, moments = self._me.context.store, loss.moments or Moments(0, 0, 0)
        numbers = [str(number) for number in (moments.total, moments.squares, moments.count)]
        store.save_arrays(MOMENTS, {"numbers": np.array(numbers)})
        self.own.begin(loss, store)
        self._begun = True

    @step()
    async def publish(self) -> setup_pb2.PublishedModel | None:
        """Publish the stored trees as a model; the first party reports it.

        Raises:
            OutOfOrder: trees are missing, whatever the coordinator believes.
        """
        context, me = self._me.context, self._me
        if not context.store.published:
            planned = me.params.n_estimators
            if self.stored.count < planned:
                raise OutOfOrder(f"publish cannot come now: {self.stored.count} of {planned} trees are stored")
            if not self._begun:  # an attempt that has only models left to publish takes the scales on disk
                arrays = required(context.store.load_arrays(MOMENTS))
                total, squares, count = (int(number) for number in arrays["numbers"])
                self.begin_scores(SharedLabelLoss(self._me.params, Moments(total, squares, count) if count else None))
            params, loss = me.params, self.own.loss
            context.store.publish(
                {
                    "role": "party",
                    "aggregator": me.spec.aggregator,
                    "parties": me.parties,
                    "classes": params.class_names,
                    "class_type": "string",
                    **manifest_of(me.context, me.spec, self.table, params.missing),
                    TRAINED_ON: len(self.table.ids),
                    "trees": self.stored.count,
                    "trees_per_round": 1,
                    TRAINED_IDS: trained_ids(self.table.ids),
                    "best_round": None,
                    "objective": params.objective,
                    "base_margin": [float(margin) for margin in loss.base],
                    "label_scale": loss.label_scale,
                    "base_score": loss.base_score,
                    "labelled_records": len(self.own.rows),
                    "params": params.to_dict(),
                    "training_metrics": self.own.metrics,
                },
                shard(await self.stored.read()),
            )
        return published_model(context.store.manifest()) if me.name == me.spec.aggregator else None

    def store(self, tree: GrowingTree) -> None:
        """Store this party's part of a tree, then the scores that include it."""
        context, index = self._me.context, tree.index
        self.stored.add(index, tree.line() | ended_round(index, index + 1, self.own.metrics))
        self.own.save(context.store, index + 1)
        context.mailbox.forget(index)
