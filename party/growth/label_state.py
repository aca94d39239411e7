"""The label holder's labels and scores while trees grow, common to all training protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from party.runtime.job_store import JobStore
from treetap.trees.ensemble import Tree

Values = np.ndarray[tuple[int], np.dtype[Any]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
#: The name under which every label state keeps its scores on disk.
SCORES = "scores"


class LabelState(Protocol):
    """Scores after the last stored tree, with the metrics and the stopping rule."""

    trees: int  #: number of trees that the scores include
    planned: int  #: most trees of the job
    trees_per_round: int  #: trees that a round grows
    metrics: dict[str, float]  #: metrics after the last tree, if it ended a round

    @property
    def stopped(self) -> bool:
        """True if no tree is to follow the last stored one."""
        ...

    def outputs(self, tree: int) -> tuple[int, ...]:
        """The columns of the score that a tree adds to."""
        ...

    def add(self, tree: Tree, values: Floats) -> None:
        """Add the values (N, outputs) that a finished tree gives to the records, and compute the metrics."""
        ...

    def save(self) -> None:
        """Store the state atomically."""
        ...

    def used(self, trees: list[Tree]) -> list[Tree]:
        """The trees that predictions use."""
        ...

    def measured(self, labels: Values) -> dict[str, float]:
        """Metrics of the trees that predictions use, by these labels (N,) of the records."""
        ...

    def summary(self) -> dict[str, Any]:
        """The part of the model's manifest beside trees and columns."""
        ...

    def continuation(self) -> Floats | None:
        """The scores (N, outputs) after all trees, from which a later training may continue; None: none may."""
        ...


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics as a file has them: one that is no finite number is null."""
    return {name: value if np.isfinite(value) else None for name, value in metrics.items()}


def stored_trees(store: JobStore) -> int:
    """The number of trees that the stored scores include."""
    arrays = store.load_arrays(SCORES)
    return 0 if arrays is None else int(arrays["trees"])
