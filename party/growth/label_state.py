"""The label holder's labels and scores while trees grow, whatever the trees are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from party.runtime.job_store import JobStore
from treetap.trees.ensemble import Tree

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
#: The name under which every label state keeps its scores on disk.
SCORES = "scores"


class LabelState(Protocol):
    """Scores after the last stored tree, and what follows from them."""

    trees: int  #: how many trees the scores have in them
    planned: int  #: trees of the job at most
    stopped: bool  #: whether the last stored tree is to be the last
    metrics: dict[str, float]  #: after the last tree, where it ended a round

    def outputs(self, tree: int) -> tuple[int, ...]:
        """The columns of the score that a tree adds to."""
        ...

    def add(self, tree: Tree, rows: Mapping[int, Rows]) -> None:
        """Add a finished tree's leaves, given the records of each, and measure."""
        ...

    def save(self) -> None:
        """Put everything on disk, whole or not at all."""
        ...

    def used(self, trees: list[Tree]) -> list[Tree]:
        """The trees that predictions use."""
        ...

    def summary(self) -> dict[str, Any]:
        """The part of the model's manifest that is about neither trees nor columns."""
        ...


def stored_trees(store: JobStore) -> int:
    """How many trees the scores on disk have in them."""
    arrays = store.load_arrays(SCORES)
    return 0 if arrays is None else int(arrays["trees"])
