"""Trees of winsorised labels at the label holder: key and labels out once, then the growth of every tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from treetap.arrays import Floats
from treetap.party.config import PartyConfig
from treetap.party.growth.label_holder import SHARED, LabelHolderGrowth
from treetap.party.growth.label_holder_job import LabelHolderJob
from treetap.party.growth.messages import drawn_messages
from treetap.party.growth.stored_trees import resumed
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.step_order import (
    ALIGNMENT,
    OPENING,
    RESUMED,
    THIS_ROUND,
    Next,
    Outcome,
    role,
    step,
    steps_of,
)
from treetap.party.setup.steps import JobKeys, fitting
from treetap.party.winsorised.layout import layout
from treetap.protocols.job_spec import params_as, taking_part
from treetap.protocols.key_options import KeyKind
from treetap.protocols.winsorised import WinsorisedParams
from treetap.tables.labels import Labels
from treetap.trees import metrics
from treetap.trees.ensemble import Tree
from treetap.trees.forest_criterion import ForestCriterion, Targets, targets
from treetap.trees.slots import Slots
from treetap.wire.v2 import control_pb2, setup_pb2, winsorised_pb2


class MeanScores:
    """Sums (N, 1) of leaf means over the stored trees: see `LabelState`."""

    def __init__(self, params: WinsorisedParams, labels: Labels) -> None:
        self._params, self._labels = params, labels
        self.planned, self.trees_per_round = params.n_estimators, 1
        self.stopped, self.metrics = False, dict[str, float]()
        self.trees, self._sums = 0, np.zeros((len(labels.values), 1))

    def outputs(self, tree: int) -> tuple[int, ...]:  # noqa: ARG002 - each tree predicts everything
        return (0,)

    def add(self, tree: Tree, values: Floats) -> None:  # noqa: ARG002 - every tree adds to the one column
        self._sums += values
        self.trees += 1
        found = metrics.evaluate("squared_error", self._sums[:, 0] / self.trees, self._labels.values)
        self.metrics = {f"train_{name}": value for name, value in found.items()}

    def state(self) -> dict[str, Any]:
        return {"trees": np.array(self.trees), "sums": self._sums}

    def load(self, arrays: dict[str, Any]) -> None:
        self.trees, self._sums = int(arrays["trees"]), arrays["sums"]

    def used(self, trees: list[Tree]) -> list[Tree]:
        return trees

    def continuation(self) -> None:
        """See `LabelState`: a training of this protocol begins anew."""

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


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, LabelHolderJob, LabelHolderGrowth)
class LabelHolder:
    """The winsorised label of every record encrypted once per attempt; per tree only the draw travels."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, WinsorisedParams)
        keys, trees = JobKeys(context, spec), self._params.n_estimators
        job = self._job = LabelHolderJob(config, context, spec, self._params, trees, self._slots, keys)
        self._keys = keys
        growth = self._growth = LabelHolderGrowth(
            context, spec, job, lambda offer: keys.open(offer.ciphertexts, offer.sums)
        )
        self._targets: Targets | None = None
        self._state: MeanScores | None = None
        self.sizes = job.sizes
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment})

    @step(Next("share_targets"), Next("publish"))
    async def bin(self) -> Outcome:
        """Take the common records, winsorise their labels, bin their columns."""
        data = self._job.select_common()
        self._targets = self._targets_of(data.labels)
        state = self._state = resumed(MeanScores(self._params, data.labels), self._context.store)
        return await self._job.bin(state)

    @step(Next("begin_tree", RESUMED))
    async def share_targets(self) -> None:
        """Send the public key, and under it the target and 1 of every record."""
        found = required(self._targets)
        await self._keys.make(self._slots(self._job.data.labels))
        plain, parties = np.hstack([found.values, np.ones_like(found.values)]), list(self._spec.feature_parties)
        await self._keys.stream(plain, "encrypted_targets", winsorised_pb2.EncryptedTargets, parties)

    @step(Next("choose_splits", THIS_ROUND, SHARED))
    async def begin_tree(self, request: control_pb2.StepRequest) -> Outcome:
        """Step 1 of a tree: draw its records, send the draw, plant the tree."""
        t = request.round
        await self._job.begin_tree(t)
        found, params, split_table = required(self._targets), self._params, self._job.split_table
        drawn = params.drawn(t, len(found.values))
        for party in taking_part(self._spec, t):
            await self._context.outbox.send(party, "sampled_records", drawn_messages(drawn, len(drawn)), round=t)
        columns = split_table.columns_of_tree(t, params, permuted=False)
        values = np.hstack([found.values, np.ones_like(found.values)]) * drawn[:, None]
        criterion, state = ForestCriterion(found, params.of_forest()), required(self._state)
        summed = self._job.summed(t, values, drawn > 0)
        return await self._growth.plant(t, summed, criterion, columns, state, rules=params.expansion, subtract=True)

    def _slots(self, labels: Labels) -> Slots:
        self._targets_of(labels)
        return fitting(layout(len(labels.values)), labels, KeyKind.of(self._spec), "a longer key")

    def _targets_of(self, labels: Labels) -> Targets:
        return targets(self._params.winsorised(labels.values), self._params.objective, 0)
