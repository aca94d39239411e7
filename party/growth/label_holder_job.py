"""A training job at the label holder: its table, bins, keys and stored trees, from `prepare` to `publish`.

It is the same for every training protocol; the protocol's label holder adds the loss or criterion, the encrypted values
and the trees.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from treetap.errors import OutOfOrder
from treetap.models.history import read_history
from treetap.models.line_file import Line
from treetap.models.store import (
    CELLS,
    CLEAN_METRICS,
    COLUMN_PRIVACY,
    CONTINUATION,
    HIDES_CONSTANTS,
    HISTORY,
    LEAKAGE,
    REPAIRED,
    TREES,
    VALUES,
)
from treetap.party.alignment.steps import ALIGNED, ALIGNMENT, Alignment, begin_alignment
from treetap.party.config import PartyConfig
from treetap.party.defences.checks import check_own_trees
from treetap.party.defences.clean_labels import Use
from treetap.party.defences.released_sets import SIGNATURES, ReleasedSets
from treetap.party.defences.repair import ReachedLeaves, Repair, published_values
from treetap.party.growth.continuation import BaseModel, keep_continuation
from treetap.party.growth.label_state import LabelState, published_model, stored_rounds, stored_trees
from treetap.party.growth.split_table import SplitTable
from treetap.party.growth.stored_trees import StoredTrees, entry_of
from treetap.party.growth.withheld import mode_of
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.step_order import Next, Outcome, step
from treetap.party.setup.evaluated import check_evaluated, described
from treetap.party.setup.keys import KeyMaker
from treetap.party.setup.labelled_table import LabelledTable, load_labelled_table
from treetap.party.setup.steps import bin_features, manifest_of, without_columns
from treetap.protocols.growth import TreeSizes
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import members_of
from treetap.tables.labels import Labels
from treetap.trees.boosting_rounds import Start
from treetap.trees.ensemble import Tree, deciding_splits, importance_by_owner
from treetap.trees.metrics import finite
from treetap.trees.params import TreeParams
from treetap.trees.slots import Slots
from treetap.trees.withholding import NOTHING
from treetap.wire.metric_history import columns
from treetap.wire.v2 import setup_pb2


class LabelHolderJob:
    """The labelled table of a job with the trees that are stored of it.

    Attributes:
        sizes: those of the job, as far as they are known.
        alignment: this party's part in finding the common records.
        withholding: what the other parties do not see.
        stored: the trees on disk.
        reached: the leaves of their records, where values are to be repaired.
        noised: by feature party whose sums have noise, the manifest's entry on it.
    """

    def __init__(
        self,
        config: PartyConfig,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        params: TreeParams,
        trees: int,
        slots: Callable[[Labels], Slots],
        keys: KeyMaker,
        label_slots: Callable[[Labels], int] = lambda _: 0,
    ) -> None:
        """`trees`: the most that the job grows.

        `slots`: the layout of a record's plaintext; raises `BadInput` if the labels do not fit the job. `keys`: makes
        the attempt's key pair, or what takes its place. `label_slots`:
        the number of its last slots that hold a record's class beside what the protocol sums.
        """
        self.withholding = config.withholding
        self._label_slots = label_slots
        self._config, self._context, self._spec, self._params, self._slots = config, context, spec, params, slots
        self._keys = keys
        self.stored = StoredTrees(context, "own")
        self.reached = ReachedLeaves(context.store, kept=config.defences.private_values)
        self._base = BaseModel.of(context, spec, params, noisy=config.defences.label_dp is not None)
        members, rounds = members_of(spec, context.coordinator), self.base_trees + trees
        self.sizes = TreeSizes(members=members, key=KeyKind.of(spec), params=params, rounds=rounds)
        self.alignment = Alignment(context, spec.alignment, "min_common_records", self.sizes)
        self.noised: dict[str, dict[str, float]] = {}
        self._data: LabelledTable | None = None
        self._split_table: SplitTable | None = None
        self._state: LabelState | None = None

    @step(Next(ALIGNMENT), Next("bin", when=ALIGNED))
    async def prepare(self) -> Outcome:
        """Report the progress of the job.

        1. Read the table and decode its labels; with label differential privacy noisy ones take their place.
        2. Refuse labels that do not fit the job, before the alignment.
        3. Look up the records that an earlier attempt aligned, and the stored trees.
        """
        data = self._data = await load_labelled_table(
            self._context, self._config, self._spec, missing=self._params.missing, objective=self._params.objective
        )
        self.sizes.records = len(data.records.table.ids)
        if not self._context.store.published:
            classes, before = len(data.labels.classes), self.base_trees
            check_own_trees(self._context.party, self._config.defences, self._params, classes, before)
            self._context.policy.limits.check(self._context.party, self._params, before, classes)
        self._slots(data.labels)
        if self._base is not None:
            self._base.check_table(data.table, self._context.store)
        aligned = begin_alignment(self.alignment, data.records)
        stored, published = (
            await self.stored.read_scored(stored_trees(self._context.store)),
            self._context.store.published,
        )
        if not published:
            self.reached.check(stored)
        model = published_model(self._context.store.manifest()) if published else None
        if self._base is not None and not stored:
            history = columns(read_history(self._base.folder))
        else:
            history = columns(stored_rounds(self._context.store, stored))
        return Outcome(
            *([ALIGNED] if aligned else []),
            answer=setup_pb2.Prepared(
                stored_rounds=stored,
                published=published,
                aligned_attempt=aligned,
                model=model,
                history=history,
                without_columns=without_columns(self._config, self._spec),
            ),
        )

    async def start(self) -> Start | None:
        """The beginning of a training that continues from a model, whose trees are stored as the job's first ones."""
        base, store, records = self._base, self._context.store, self.alignment.records
        if base is None:
            return None
        if not stored_trees(store):  # which the scores include: they are stored last
            await self._context.offload(lambda: base.seed_label_holder(store, records), whole=True)
            await self.stored.read()
        return await self._context.offload(lambda: base.start(records, self.data.labels))

    @property
    def base_trees(self) -> int:
        """The number of trees of the model from which the job continues; 0 once its own model is published."""
        return 0 if self._base is None else self._base.trees

    def select_common(self) -> LabelledTable:
        """The common records and their labels, which are the job's data from now on.

        Raises:
            Refused: fewer records of the eval table than the policy asks for have a weight above 0, hence count.
        """
        self._data = self.data.take(self.alignment.records)
        self.sizes.records = len(self._data.records.table.ids)
        measured = self._data.measured
        if measured is not None and measured.weights is not None:
            check_evaluated(self._context, int(np.count_nonzero(measured.weights)), scores=True)
        return self._data

    async def bin(self, state: LabelState) -> Outcome:
        """Bin the own columns, once for the job, and report the number of trees to grow.

        `state`: the scores after the last stored tree.
        """
        table, training = self.data.records.table, self.data.records.training
        binned = await bin_features(self._context, table, self._params, training)
        self._split_table, self._state = SplitTable(self._context.party, table.columns, binned, training), state
        own, base = self.withholding.own_trees, self.base_trees
        return Outcome(
            answer=setup_pb2.Binned(rounds=state.planned, stopped=state.stopped, own_rounds=own, base_rounds=base),
            first_rounds=(state.trees,),
        )

    def released_sets(self) -> ReleasedSets | None:
        """The account of what feature parties come to know of the labels; None where these are no classes."""
        labels, context = self.data.labels, self._context
        if not labels.classes:
            return None
        return ReleasedSets(
            context.job,
            context.party,
            labels.values,
            len(labels.classes),
            list(self._spec.feature_parties),
            context.store,
            context.policy,
            context.metrics,
            None if self.data.clean is None else self.clean.values,
        )

    async def make_keys(self) -> setup_pb2.PlannedTraffic | None:
        """Generate the attempt's key pair; feature parties get the public key, the workers the secret key.

        Under a lattice agree on the attempt's sizes and public polynomials instead, and report the bytes that follow.
        """
        labels, self.sizes.noised = self.data.labels, bool(self.noised)
        label_slots, own_rounds = self._label_slots(labels), self.withholding.own_trees
        return await self._keys.make(self._slots(labels), label_slots=label_slots, own_rounds=own_rounds)

    @step()
    async def publish(self) -> setup_pb2.PublishedModel:
        """Publish the stored trees as a model, and report it; delete the secret key in the workers.

        Raises:
            OutOfOrder: trees are missing, whatever the coordinator believes.
        """
        state = required(self._state)
        if state.trees < state.planned and not state.stopped:
            raise OutOfOrder(f"publish cannot come now: {state.trees} of {state.planned} trees are stored")
        await self._publish(state)
        await self._keys.close()
        return published_model(self._context.store.manifest())

    @property
    def data(self) -> LabelledTable:
        """The party's table with its labels; after `select_common`, of the common records alone."""
        return required(self._data)

    @property
    def clean(self) -> Labels:
        """The labels of the table's records as they are, for files of the label holder alone: see `LabelledTable`."""
        return self.data.labels if self.data.clean is None else self.data.clean.for_use(Use.OWN_FILES)

    @property
    def split_table(self) -> SplitTable:
        """The binned columns, and the splits made on them."""
        return required(self._split_table)

    async def _publish(self, state: LabelState) -> None:
        lines = await self.stored.read()
        trees = values = [Tree.from_dict(line["tree"]) for line in lines]
        repaired = self._config.defences.private_values
        if repaired:
            values = await self._repaired(lines)
        # also by an earlier attempt, under defences that have been taken out since
        withheld = self.withholding != NOTHING or any(tree.local for tree in trees)
        owners = importance_by_owner(replace(tree, splits=deciding_splits(tree)) for tree in state.used(values))
        manifest = {
            "role": "label_holder",
            "feature_parties": list(self._spec.feature_parties),
            "classes": self.data.labels.classes,
            "class_type": str(self.data.labels.kind),
            **manifest_of(self._context, self._spec, self.data.table, self._params.missing),
            **described(self._spec),
            "trees": len(trees),
            # a withdrawn leaf must not show by an entry that differs from record to record
            **({HIDES_CONSTANTS: True} if repaired or withheld else {}),
            **({VALUES: published_values(self._config.defences)} if repaired else {}),
            **entry_of(CELLS, lines[self.base_trees :]),
            **entry_of(COLUMN_PRIVACY, lines[self.base_trees :]),
            **mode_of(self._params, self._base.manifest if self._base else None),
            **(self._base.described() if self._base else {}),
            **state.summary(),
            "importance_by_party": {
                name: {"weight": part.weight, "gain": part.gain, "cover": part.cover} for name, part in owners.items()
            },
        }
        leakage = [LEAKAGE] if self.data.labels.classes else []
        kinds = [TREES, HISTORY, *leakage, *self._clean_metrics(state), *([REPAIRED] if repaired else [])]
        scores = None if repaired else state.continuation()
        if scores is not None:
            store, records = self._context.store, self.alignment.records[: len(scores)]  # none of an eval table
            signatures = {name: array[: len(scores)] for name, array in (store.load_arrays(SIGNATURES) or {}).items()}
            ids = self.data.records.table.ids[: len(scores)]
            await self._context.offload(lambda: keep_continuation(store, records, scores, signatures, ids), whole=True)
            kinds.append(CONTINUATION)
        self._context.store.publish(manifest, kinds)

    def _clean_metrics(self, state: LabelState) -> list[str]:
        """The file of the metrics by clean labels, written; none where training had these, as the manifest says."""
        if self.data.clean is None:
            return []
        content = {"training_metrics": finite(state.measured(self.clean.values))}
        self._context.store.write(CLEAN_METRICS, json.dumps(content, indent=1).encode())
        return [CLEAN_METRICS]

    async def _repaired(self, stored: list[Line]) -> list[Tree]:
        """Store the stored trees' repairs; returns the variants whose values predictions use."""
        data, params, features = self.data, self._params, self.data.table.features
        repair = Repair(
            party=self._context.party,
            params=params,
            bins=lambda tree: self.split_table.own_columns_of_tree(tree, params, lambda: features).bins,
            features=features,
            reached=self.reached,
            noisy=data.labels.values,
            clean=self.clean.values,
            classes=len(data.labels.classes),
        )
        lines = await self._context.offload(lambda: repair.lines(stored))
        kept = self._context.store.lines(REPAIRED)
        for number, line in enumerate(lines):
            kept.put(line, number)
        return [Tree.from_dict(line[published_values(self._config.defences)]) for line in lines]
