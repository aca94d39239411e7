"""Repair of a finished model of noisy labels, by the label holder alone: see `treetap.trees.grafting`.

It needs the leaf that every record reached in each tree: arrays `reached-T` of the job's files, which go when the model
is published. What it makes depends on clean labels. It is for the label holder's own files, and no message depends on
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treetap.errors import DataError
from treetap.models.line_file import Line
from treetap.models.own_split import OwnSplit
from treetap.party.defences.settings import Defences
from treetap.party.runtime.job_store import JobStore
from treetap.trees.ensemble import Split, Tree
from treetap.trees.grafting import NoisyModel
from treetap.trees.params import TreeParams
from treetap.trees.repair import repair
from treetap.trees.tree_bins import GlobalBins, NodeBins

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
Floats = np.ndarray[tuple[int, int], np.dtype[np.float64]]


class ReachedLeaves:
    """Of each stored tree the leaves (N,), as heap numbers of the shape that all parties know."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def keep(self, tree: int, rows: Mapping[int, Ints], records: int) -> None:
        """Store the records of each leaf of a tree, before the tree itself; N is `records`."""
        reached = np.zeros(records, dtype=np.int32)
        for leaf, here in rows.items():
            reached[here] = leaf
        self._store.save_arrays(_name(tree), {"leaves": reached})

    def check(self, trees: int) -> None:
        """Raise `DataError` if trees of this number are stored, and the leaves of one of them are not."""
        for tree in range(trees):
            if not self._store.has(f"{_name(tree)}.npz"):
                raise DataError(
                    f"{self._store.folder}: has no leaves of records of tree {tree}: grafting or refit under "
                    "[defences] was added after it was grown; take it out again, or cancel the job and train anew"
                )

    def of(self, tree: int) -> Ints:
        """The leaves (N,) of a stored tree, which `check` has found; `DataError` if they are damaged."""
        arrays = self._store.load_arrays(_name(tree))
        assert arrays is not None
        return arrays["leaves"].astype(np.int64)


def _name(tree: int) -> str:
    return f"reached-{tree}"


def published_values(defences: Defences) -> str:
    """The variant whose values predictions use."""
    if defences.grafting and defences.refit:
        return "grafting_refit"
    return "grafting" if defences.grafting else "refit"


@dataclass(frozen=True)
class Repair:
    """The label holder's data of a job on N records.

    `bins`: of a tree, its own columns as they were when the tree was grown. `features`: (N, d) these columns, NaN where
    missing. `noisy`, `clean`: class numbers (N,).
    """

    party: str
    params: TreeParams
    bins: Callable[[int], GlobalBins | NodeBins]
    features: Floats
    reached: ReachedLeaves
    noisy: Ints
    clean: Ints
    classes: int

    def lines(self, stored: Sequence[Line]) -> list[Line]:
        """A line of `REPAIRED` for each stored tree; all variants of it are computed.

        Raises:
            DataError: leaves of records are damaged.
        """
        own = [OwnSplit.from_dict(entry) for line in stored for entry in line["own"]]
        entries = [(split.candidate, split.threshold) for split in own]
        model = NoisyModel(
            trees=[Tree.from_dict(line["tree"]) for line in stored],
            reached=self.reached.of,
            noisy=self.noisy,
            clean=self.clean,
            classes=self.classes,
            party=self.party,
            bins=self.bins,
            entries=entries,
            goes_left=lambda split, rows: self._goes_left(own, split, rows),
        )
        lines = []
        for tree in repair(model, self.params):
            # grafted subtrees continue the numbering of handles: only their splits are new
            new = {
                split.handle: OwnSplit.of(split.handle, split.node, entry, cut)
                for variant in (tree.grafting, tree.grafting_refit)
                for subtree in variant.local
                for split in subtree.splits
                if split.handle >= len(own)
                for entry, cut in [entries[split.handle]]
            }
            more = {name: getattr(tree, name).to_dict() for name in ("refit", "grafting", "grafting_refit")}
            lines.append({**more, "own": [new[handle].to_dict() for handle in sorted(new)]})
        return lines

    def _goes_left(self, own: Sequence[OwnSplit], split: Split, rows: Ints) -> Bools:
        entered = own[split.handle]
        return entered.goes_left(self.features[rows, entered.feature])
