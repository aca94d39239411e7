"""Figures of cells from the file of results, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from resumable import Results
from seed_figures import Found
from sensfl_cells import FEDERATED_SCALE, Cell

#: Seeds that a page looks for.
SEEDS = range(10)
#: What the attacks are given: the training records' embeddings of the last epoch, between whose batches the weights
#: change, or the test records' embeddings in a prediction by the trained model.
SOURCES = (TRAINING, PREDICTION) = ("training", "prediction")
SCALES = ("raw", "standardised")


class Figures:
    """The figures of a file of results at full scale."""

    def __init__(self, results: Results, seeds: Sequence[int] = SEEDS) -> None:
        self._results, self._seeds = results, seeds

    def of(self, cell: Cell, *path: str) -> Found | None:
        """A figure of a cell, by the names that lead to it, over all seeds that have it; None if none has."""
        found = [_at(self.result(replace(cell, seed=seed)), path) for seed in self._seeds]
        values = tuple(value for value in found if value is not None)
        return Found(values) if values else None

    def result(self, cell: Cell, asked: str = "", *, small: bool = False) -> dict[str, Any]:
        """The result of a cell, empty without one; `small`: at the scale of federations."""
        key = cell.key() | (FEDERATED_SCALE.key() if small else {}) | ({"asked": asked} if asked else {})
        return self._results.get(key) or {}


def _at(content: Any, path: Sequence[str]) -> Any:
    """The value at a path of names; entries of a list have theirs in `name` or `attack`; None if there is none."""
    for name in path:
        if isinstance(content, list):
            content = next((each for each in content if name in (each.get("name"), each.get("attack"))), None)
        else:
            content = (content or {}).get(name)
    return content
