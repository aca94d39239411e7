"""The label holder's scores in boosting, on disk after every tree, and what the model's manifest has of them."""

from __future__ import annotations

from typing import Any

from party.growth.label_state import SCORES, Floats, finite
from party.runtime.job_store import JobStore
from party.setup.evaluated import Measured
from treetap.tables.labels import Labels
from treetap.trees.boosting_rounds import BoostingRounds, Start, Weights
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams


class BoostingState(BoostingRounds):
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
        """`store`: that of the job; the other arguments are those of `BoostingRounds`.

        Raises:
            DataError: the weights do not fit the job, or the stored scores are of another table.
        """
        super().__init__(params, len(labels.classes), labels.values, weights, evaluated, start)
        self._store = store
        self.metrics: dict[str, float] = {}
        arrays = store.load_arrays(SCORES)
        if arrays is not None:
            self.load(arrays)

    def add(self, tree: Tree, values: Floats) -> None:
        """See `LabelState`."""
        super().add(tree, values)
        self.metrics = self._metrics(self._scores, self._labels) if self.ends_a_round else {}

    def save(self) -> None:
        """See `LabelState`."""
        self._store.save_arrays(SCORES, self.state())

    def used(self, trees: list[Tree]) -> list[Tree]:
        """See `LabelState`."""
        return trees if self.best_round is None else trees[: (self.best_round + 1) * self.trees_per_round]

    def summary(self) -> dict[str, Any]:
        """See `LabelState`."""
        return {
            "objective": self._params.objective,
            "base_margin": self.base_margin.tolist(),
            "trees_per_round": self.trees_per_round,
            "best_round": self.best_round,
            "params": self._params.to_dict(),
            **({"weighted": True} if self._weights is not None else {}),
            "training_metrics": finite(self.measured()),
        }
