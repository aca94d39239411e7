"""What is on disk of a growing model: a party's part of the trees, and the label holder's scores after the last one.

Handles number the own splits in the trees: each tree continues after the stored ones, so a regrown tree gets the same.

The scores, their metrics by round and the report on the published model are the same for all training protocols. Until
the model is published, all that is told of a tree is one line, its round's metrics and its account included, and all
arrays that follow from the trees are one file, which comes after the line: a tree counts once both are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol, TypeVar

from treetap.arrays import Array, Floats
from treetap.errors import DataError
from treetap.models.line_file import Line, plain_lines
from treetap.models.store import CLEAN_METRICS, HISTORY, LEAKAGE, TRAINED_ON, TREES, read_history
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.job_store import JobStore
from treetap.trees.ensemble import Tree
from treetap.trees.metrics import finite
from treetap.wire.v2 import setup_pb2, types_pb2

#: What every stored tree has: the tree and the party's own splits, at a feature party its branches to the leaves.
OF_TREES = ("tree", "own", "splits", "leaves")
#: What a tree's line has beside these until the model is published, which has a file of each.
OF_FILES = (HISTORY, LEAKAGE)


class StoredTrees:
    """The shard of one job; each stored tree is a line, with the party's own splits under the key `own`."""

    def __init__(self, context: StepContext, own: str) -> None:
        self._context, self._own = context, own
        self._lines = context.store.lines(TREES)
        self._first = [0]  # handle of each tree, and of the one after the last
        self._metrics: list[dict[str, float | None] | None] = []  # of the round that each ended, as last read

    @property
    def count(self) -> int:
        return self._lines.count()

    async def read(self) -> list[dict[str, Any]]:
        """All stored trees, read off the event loop; first when the job is prepared, since handles follow from them."""
        trees = await self._context.offload(self._lines.read)
        self._first = [0, *accumulate(len(tree[self._own]) for tree in trees)]
        self._metrics = [tree[HISTORY]["metrics"] if HISTORY in tree else None for tree in trees]
        return trees

    async def read_scored(self, scored: int) -> int:
        """Read the stored trees; returns the number of trees that the stored scores include.

        Raises:
            DataError: fewer trees are stored than the scores include, `scored`.
        """
        trees = len(await self.read())
        if trees < scored:
            raise DataError(
                f"{self._context.store.folder}: {TREES} holds {trees} trees, but the scores are those after {scored}; "
                f"bring a back-up of {TREES} back, or cancel the job"
            )
        return scored

    def rounds(self, trees: int) -> list[dict[str, float | None]]:
        """The metrics of the rounds of the first `trees` trees that were read, or of the published model.

        A round whose trees an interruption kept from being stored does not count.
        """
        if self._context.store.published:
            return read_history(self._context.store.model)
        return [metrics for metrics in self._metrics[:trees] if metrics is not None]

    def first_handle(self, tree: int) -> int:
        """The handle of a tree's first own split; all trees before it are stored."""
        return self._first[tree]

    def add(self, index: int, content: dict[str, Any], arrays: dict[str, Array] | None = None) -> None:
        """Put a tree on disk, dropping what an interrupted attempt left at or after it; then the scores after it."""
        self._lines.put(content, index)
        if arrays is not None:
            self._context.store.save_arrays(SCORES, arrays)
        self._first[index + 1 :] = [self._first[index] + len(content[self._own])]


def entries_of(lines: Sequence[Line]) -> Line:
    """What rules have kept beside stored trees, of all trees together: the entries of the manifest."""
    entries: Line = {}
    for line in lines:
        for key, entry in line.items():
            if key not in (*OF_TREES, *OF_FILES):
                entries[key] = entries.get(key, {}) | entry
    return entries


def shard(lines: Sequence[Line]) -> dict[str, bytes]:
    """The files of a model with these stored trees: theirs, and one of each kind that lies beside them."""
    trees = [{key: entry for key, entry in line.items() if key not in OF_FILES} for line in lines]
    files = {TREES: trees, **{kind: [line[kind] for line in lines if kind in line] for kind in OF_FILES}}
    return {kind: plain_lines(own) for kind, own in files.items() if own or kind == TREES}


State = TypeVar("State", bound="LabelState")
#: The name under which every label state keeps its scores on disk.
SCORES = "scores"
#: Before a feature party's name: the array beside these with what it knows of the records after the last stored tree.
KNOWN = "known "


class LabelState(Protocol):
    """Scores after the last stored tree, with the metrics and the stopping rule."""

    trees: int  #: number of trees that the scores include
    planned: int  #: most trees of the job
    trees_per_round: int  #: trees that a round grows
    metrics: dict[str, float]  #: metrics after the last tree, if it ended a round

    @property
    def stopped(self) -> bool:
        """True if no tree is to follow the last stored one."""

    def outputs(self, tree: int) -> tuple[int, ...]:
        """The columns of the score that a tree adds to."""

    def add(self, tree: Tree, values: Floats) -> None:
        """Add the values (N, outputs) that a finished tree gives to the records, and compute the metrics."""

    def state(self) -> dict[str, Array]:
        """What of it is stored after each tree."""

    def load(self, arrays: dict[str, Array]) -> None:
        """Go on from what was stored; `DataError` for one of another table."""

    def used(self, trees: list[Tree]) -> list[Tree]:
        """The trees that predictions use."""

    def measured(self, labels: Array) -> dict[str, float]:
        """Metrics of the trees that predictions use, by these labels (N,) of the records."""

    def summary(self) -> dict[str, Any]:
        """The part of the model's manifest beside trees and columns."""

    def continuation(self) -> Floats | None:
        """The scores (N, outputs) after all trees, from which a later training may continue; None: none may."""


def resumed(state: State, store: JobStore) -> State:
    """The state after the last stored tree. Raises DataError where that is of another table."""
    if (arrays := store.load_arrays(SCORES)) is not None:
        state.load(arrays)
    return state


def stored_trees(store: JobStore) -> int:
    """The number of trees that the stored scores include."""
    arrays = store.load_arrays(SCORES)
    return 0 if arrays is None else int(arrays["trees"])


def known_sets(store: JobStore) -> dict[str, Array]:
    """By feature party the arrays (N,) of `KNOWN`; empty before the first tree is stored."""
    arrays = store.load_arrays(SCORES) or {}
    return {name.removeprefix(KNOWN): array for name, array in arrays.items() if name.startswith(KNOWN)}


def ended_round(number: int, trees: int, metrics: Mapping[str, float]) -> Line:
    """What the line of the last tree of round `number` has beside it, after which `trees` trees are stored."""
    return {HISTORY: {"round": number, "trees": trees, "metrics": finite(metrics)}}


def published_model(manifest: Mapping[str, Any]) -> setup_pb2.PublishedModel:
    """The report on a model, from the label holder's manifest. A metric that is no finite number is left out."""
    trees, best_round = manifest["trees"], manifest["best_round"]
    metrics, noisy = manifest["training_metrics"].items(), CLEAN_METRICS in manifest["files"]
    return setup_pb2.PublishedModel(
        trees=trees,
        records=manifest.get(TRAINED_ON, 0),
        used_trees=trees if best_round is None else (best_round + 1) * manifest["trees_per_round"],
        metrics=[
            types_pb2.NamedMetric(name=name, value=value, noisy=noisy) for name, value in metrics if value is not None
        ],
    )
