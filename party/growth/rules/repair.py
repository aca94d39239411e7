"""`grafting` and `refit`: the label holder alone repairs a finished model of noisy labels (`treetap.trees.repair`).

It needs the leaf that every record reached in each tree: arrays `reached-T` of the job's files, which go when the model
is published. What it makes depends on clean labels. It is for the label holder's own files, and no message depends on
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from treetap.arrays import Ints
from treetap.errors import DataError
from treetap.models.line_file import Line
from treetap.models.own_split import OwnSplit
from treetap.models.store import HIDES_CONSTANTS, REPAIRED, VALUES
from treetap.party.defences.checks import refuse_repair
from treetap.party.growth.rule import Draft, Part, Rule
from treetap.party.growth.split_table import SplitTable
from treetap.party.runtime.job_store import JobStore
from treetap.party.setup.labelled_table import LabelledTable
from treetap.trees.ensemble import Tree
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.repair import NoisyModel, repair


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


class Repair(Rule):
    """Values of leaves from labels as they are, once all trees are stored; predictions use those of one variant."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._reached = ReachedLeaves(part.context.store)

    def resumed(self, stored: int) -> None:
        """Look for the leaves that records reached in the stored trees."""
        self._reached.check(stored)

    def selected(self, data: LabelledTable) -> None:
        self._data = data

    def binned(self, table: SplitTable) -> None:
        self._table = table

    def constrained(self, parties: Sequence[str]) -> None:
        """New weights do not fit the bounds of the old ones."""
        refuse_repair(parties)

    def finish(self, tree: int, growing: GrowingTree) -> None:
        """Store the records of each leaf, before the tree."""
        self._reached.keep(tree, {leaf: growing.rows[leaf] for leaf in growing.leaves()}, len(growing.values))

    async def publish(self, draft: Draft) -> None:
        """Store the repairs of all trees."""
        own, context = self.part.config.defences, self.part.context
        used = "_".join(name for name in ("grafting", "refit") if getattr(own, name))
        lines = await context.offload(lambda: self.lines(draft.lines))
        kept = context.store.lines(REPAIRED)
        for number, line in enumerate(lines):
            kept.put(line, number)
        draft.values = [Tree.from_dict(line[used]) for line in lines]
        draft.entries |= {HIDES_CONSTANTS: True, VALUES: used}
        draft.kinds.append(REPAIRED)

    def lines(self, stored: Sequence[Line]) -> list[Line]:
        """A line of `REPAIRED` for each stored tree; all variants of it are computed.

        Raises:
            DataError: leaves of records are damaged.
        """
        data, params, features = self._data, self.part.params, self._data.table.features
        own = [OwnSplit.from_dict(entry) for line in stored for entry in line["own"]]
        entries = [(split.candidate, split.threshold) for split in own]
        model = NoisyModel(
            trees=[Tree.from_dict(line["tree"]) for line in stored],
            reached=self._reached.of,
            noisy=data.labels.values,
            clean=data.known.values,
            classes=len(data.labels.classes),
            party=self.part.context.party,
            bins=lambda tree: self._table.own_columns_of_tree(tree, params, lambda: features).bins,
            entries=entries,
            goes_left=lambda split, rows: own[split.handle].goes_left(features[rows, own[split.handle].feature]),
        )
        lines = []
        for tree in repair(model, params):
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
