"""`label_dp`, `grafting` and `refit`: figures by labels as they are of a model of noisy ones, and its repair.

`grafting` and `refit`: the label holder alone repairs a finished model of noisy labels (`treetap.trees.repair`).

It needs the leaf that every record reached in each tree: arrays `reached-T` of the job's files, which go when the model
is published. What it makes depends on clean labels. It is for the label holder's own files, and no message depends on
it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from treetap.arrays import Ints
from treetap.errors import ConfigError, DataError
from treetap.models.line_file import Line, plain_lines
from treetap.models.own_split import OwnSplit
from treetap.models.store import CLEAN_METRICS, HIDES_CONSTANTS, REPAIRED, VALUES
from treetap.party.growth.rule import Draft, Rule
from treetap.party.growth.split_table import SplitTable
from treetap.party.runtime.context import required
from treetap.party.setup.labelled_table import LabelledTable
from treetap.protocols.exclusions import Feature, between
from treetap.trees.ensemble import Tree
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.metrics import finite
from treetap.trees.repair import NoisyModel, repair


class CleanMetrics(Rule):
    """A file of the label holder alone: metrics by labels as they are, beside a model of noisy ones (`label_dp`)."""

    async def publish(self, draft: Draft) -> None:
        content = {"training_metrics": finite(required(draft.state).measured(required(draft.data).known.values))}
        draft.files[CLEAN_METRICS] = json.dumps(content, indent=1).encode()


class Repair(Rule):
    """Values of leaves from labels as they are, once all trees are stored; predictions use those of one variant."""

    def resumed(self, stored: int) -> None:
        """Raise `DataError` if the leaves that records reached are not stored of one of so many trees."""
        store = self.part.context.store
        for tree in range(stored):
            if not store.has(f"{_name(tree)}.npz"):
                raise DataError(
                    f"{store.folder}: has no leaves of records of tree {tree}: grafting or refit under [defences] was "
                    "added after it was grown; take it out again, or cancel the job and train anew"
                )

    def selected(self, data: LabelledTable) -> None:
        self._data = data

    def binned(self, table: SplitTable) -> None:
        self._table = table

    def constrained(self, parties: Sequence[str]) -> None:
        """New weights do not fit the bounds of the old ones."""
        raise ConfigError(f"{', '.join(parties)}: {between(Feature.REFIT, Feature.MONOTONE)}")

    def finish(self, tree: int, growing: GrowingTree) -> None:
        """Store the leaf of each record, a heap number of the shape that all parties know, before the tree."""
        reached = np.zeros(len(growing.values), dtype=np.int32)
        for leaf in growing.leaves():
            reached[growing.rows[leaf]] = leaf
        self.part.context.store.save_arrays(_name(tree), {"leaves": reached})

    async def publish(self, draft: Draft) -> None:
        """Add the repairs of all trees."""
        own, context = self.part.config.defences, self.part.context
        used = "_".join(name for name in ("grafting", "refit") if getattr(own, name))
        lines = await context.offload(lambda: self.lines(draft.lines))
        draft.files[REPAIRED] = plain_lines(lines)
        draft.values = [Tree.from_dict(line[used]) for line in lines]
        draft.entries |= {HIDES_CONSTANTS: True, VALUES: used}

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
            reached=self._leaves,
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

    def _leaves(self, tree: int) -> Ints:
        """The leaves (N,) that records reached in a stored tree; `DataError` if they are damaged."""
        return required(self.part.context.store.load_arrays(_name(tree)))["leaves"].astype(np.int64)


def _name(tree: int) -> str:
    return f"reached-{tree}"
