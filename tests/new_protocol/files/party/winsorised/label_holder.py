"""Trees of winsorised labels at the label holder: key and labels out once, then the growth of every tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from party.alignment.steps import ALIGNED, ALIGNMENT, Alignment, alignment_steps
from party.config import PartyConfig
from party.growth.label_holder import TREE_STEPS, LabelHolderGrowth, publish_model, trees_with_scores
from party.growth.label_state import SCORES
from party.growth.split_table import SplitTable
from party.growth.stored_trees import StoredTrees
from party.runtime.context import Step, StepContext, empty_result, required
from party.runtime.job_store import JobStore
from party.runtime.messages import Rows, drawn_messages
from party.runtime.step_order import OPENING, RESUMED, Next, StepOrder, StepTable
from party.setup.keys import JobKeys, fitting
from party.setup.labelled_table import LabelledTable, load_labelled_table
from party.setup.steps import bin_features
from treetap.paillier.slots import Slots, width_for
from treetap.protocols.job_spec import params_as, taking_part
from treetap.protocols.winsorised import WinsorisedParams
from treetap.tables.labels import Labels
from treetap.trees import metrics
from treetap.trees.ensemble import Tree
from treetap.trees.forest_criterion import ForestCriterion, Targets, targets
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, setup_pb2, winsorised_pb2

STEPS: StepTable = {
    OPENING: (Next("prepare"),),
    "prepare": (Next(ALIGNMENT), Next("bin", when=ALIGNED)),
    ALIGNMENT: (Next("bin"),),
    "bin": (Next("share_targets"), Next("publish")),
    "share_targets": (Next("begin_tree", RESUMED),),
    **TREE_STEPS,
}


class MeanScores:
    """Sums (N, 1) of leaf means over the stored trees: see `LabelState`."""

    def __init__(self, params: WinsorisedParams, labels: Labels, store: JobStore) -> None:
        self._params, self._labels, self._store = params, labels, store
        self.planned, self.stopped, self.metrics = params.n_estimators, False, dict[str, float]()
        stored = store.load_arrays(SCORES) or {"trees": np.array(0), "sums": np.zeros((len(labels.values), 1))}
        self.trees, self._sums = int(stored["trees"]), stored["sums"]

    def outputs(self, tree: int) -> tuple[int, ...]:  # noqa: ARG002 - each tree predicts everything
        return (0,)

    def add(self, tree: Tree, rows: Mapping[int, Rows]) -> None:
        for leaf in tree.leaves:
            self._sums[rows[leaf.node]] += leaf.weights
        self.trees += 1
        found = metrics.evaluate("squared_error", self._sums[:, 0] / self.trees, self._labels.values)
        self.metrics = {f"train_{name}": value for name, value in found.items()}

    def save(self) -> None:
        self._store.save_arrays(SCORES, {"trees": np.array(self.trees), "sums": self._sums})

    def used(self, trees: list[Tree]) -> list[Tree]:
        return trees

    def summary(self) -> dict[str, Any]:
        return {
            "objective": self._params.objective,
            "averaged": True,
            "base_margin": [0.0],
            "trees_per_round": 1,
            "best_round": None,
            "params": self._params.to_dict(),
            "training_metrics": self.metrics,
        }


class LabelHolder:
    """The winsorised label of every record encrypted once per attempt; per tree only the draw travels."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._config, self._context, self._spec = config, context, spec
        self._params = params_as(spec, WinsorisedParams)
        members = [spec.label_holder, *spec.feature_parties]
        self._order = StepOrder(STEPS, {ALIGNMENT: alignment_steps(members, spec.alignment, context.party)})
        self._alignment = Alignment(context, members, spec.alignment, self._order)
        self._keys = JobKeys(context, spec)
        self._stored = StoredTrees(context, "own")
        self._growth = LabelHolderGrowth(context, spec, self._order, self._stored, self._keys.open)
        self._data: LabelledTable | None = None
        self._targets: Targets | None = None
        self._state: MeanScores | None = None
        self._split_table: SplitTable | None = None
        growth = ("choose_splits", "apply_splits", "relay_children", "finish_tree", "store_tree")
        self.steps: Mapping[str, Step] = {
            "prepare": self.prepare,
            **self._alignment.steps,
            "bin": self.bin,
            "share_targets": self.share_targets,
            "begin_tree": self.begin_tree,
            **{name: getattr(self._growth, name) for name in growth},
            "publish": self.publish,
        }

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Read the table, and look for the records and trees of an earlier attempt."""
        self._order.check(request)
        data = self._data = await load_labelled_table(
            self._context, self._config, self._spec, missing=self._params.missing, objective=self._params.objective
        )
        aligned = self._alignment.begin(data.table.ids, data.table.rows, data.table.path, keep=True)
        stored = await trees_with_scores(self._context.store, self._stored)
        self._order.done(request, *([ALIGNED] if aligned else []))
        published = self._context.store.published
        return result(setup_pb2.Prepared(stored_rounds=stored, published=published, aligned_attempt=aligned))

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the common records, winsorise their labels, bin their columns."""
        self._order.check(request)
        data = self._data = required(self._data).take(self._alignment.records)
        self._targets = targets(self._params.winsorised(data.labels.values), self._params.objective, 0)
        state = self._state = MeanScores(self._params, data.labels, self._context.store)
        binned = await bin_features(self._context, data.table, self._params.max_bin)
        self._split_table = SplitTable(self._context.party, data.table.columns, binned)
        self._order.first_rounds = (state.trees,)
        self._order.done(request)
        return result(setup_pb2.Binned(rounds=state.planned, stopped=state.stopped))

    async def share_targets(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Send the public key, and under it the target and 1 of every record."""
        self._order.check(request)
        found, labels = required(self._targets), required(self._data).labels
        records = len(labels.values)
        slots = Slots((width_for(records, found.largest), width_for(records, 1)))
        await self._keys.make(fitting(slots, labels, self._spec.key_bits, "a longer key"))
        plain, parties = np.hstack([found.values, np.ones_like(found.values)]), list(self._spec.feature_parties)
        await self._keys.stream(plain, "encrypted_targets", winsorised_pb2.EncryptedTargets, parties)
        self._order.done(request)
        return empty_result()

    async def begin_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 1 of a tree: draw its records, send the draw, plant the tree."""
        t = request.round
        self._order.check(request)
        found, params, split_table = required(self._targets), self._params, required(self._split_table)
        drawn = params.drawn(t, len(found.values))
        for party in taking_part(self._spec, t):
            await self._context.outbox.send(party, "sampled_records", drawn_messages(drawn, len(drawn)), round=t)
        split_table.next_handle_is(self._stored.first_handle(t))
        columns = split_table.columns_of_tree(t, params, permuted=False)
        values = np.hstack([found.values, np.ones_like(found.values)]) * drawn[:, None]
        criterion, state = ForestCriterion(found, params.of_forest()), required(self._state)
        self._growth.plant(t, values, criterion, columns, state, max_depth=params.max_depth, subtract=True)
        self._order.done(request)
        return empty_result()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Make a model of the stored trees."""
        self._order.check(request)
        data, state = required(self._data), required(self._state)
        await publish_model(self._context, self._spec, data, self._params.missing, state, self._stored)
        await self.close()
        self._order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Release the key in the workers."""
        await self._keys.close()
