"""A model of trees in a prediction: directions of records at a party's own splits, and the label holder's trees."""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from treetap.errors import Malformed
from treetap.models.kept import HIDES_CONSTANTS
from treetap.models.own_split import OwnSplit
from treetap.models.valued_trees import valued_trees
from treetap.party.prediction.opened_model import OpenedModel
from treetap.party.runtime.messages import Rows
from treetap.protocols.scoring import ScoringSizes
from treetap.tables.categories import Category
from treetap.trees.ensemble import Ensemble
from treetap.trees.local_values import GoesLeft
from treetap.trees.missing_party import expected_guesses
from treetap.trees.paths import Bools, Decide, Floats, candidate_leaves

#: Records whose candidate leaves are counted at a time.
COUNTED = 4096


class OwnSplits:
    """The splits of a party's own shard, by handle."""

    def __init__(self, opened: OpenedModel, trees: Iterable[Iterable[OwnSplit]]) -> None:
        """`trees`: those of each tree, in order."""
        self._opened = opened
        self._by_handle: dict[int, OwnSplit] = {}
        self._tree_of: dict[int, int] = {}  # handle → tree
        for number, splits in enumerate(trees):
            for split in splits:
                self._by_handle[split.handle], self._tree_of[split.handle] = split, number
        opened.compare(split.feature for split in self._by_handle.values())

    @classmethod
    def of_feature_party(cls, opened: OpenedModel, sizes: ScoringSizes) -> OwnSplits:
        """Those of a feature party's shard, which bounds the messages about it."""
        shard, lengths = opened.shard, [len(way) for tree in opened.shard for way in tree["leaves"]]
        sizes.trees, sizes.splits = len(shard), sum(len(tree["splits"]) for tree in shard)
        sizes.leaves, sizes.depth = len(lengths), max(lengths, default=0)
        return cls(opened, (map(OwnSplit.from_dict, tree["splits"]) for tree in opened.shard))

    def items(self) -> ItemsView[int, OwnSplit]:
        """Handle → split."""
        return self._by_handle.items()

    def split(self, handle: int) -> OwnSplit:
        """The split of a handle; `Malformed` if this party has none."""
        if handle not in self._by_handle:
            raise Malformed(f"{self._opened.party} has no split {handle} in model {self._opened.name}")
        return self._by_handle[handle]

    def trees(self, handles: Iterable[int]) -> int:
        """The number of trees that have these splits; `Malformed` if this party has none of such a handle."""
        return len({self._tree_of[self.split(handle).handle] for handle in handles})

    def goes_left(self, handle: int, rows: Rows) -> Bools:
        """Directions of some records at a split, (n,), true for left: one column is read."""
        split = self.split(handle)
        return split.goes_left(self._opened.values.column(rows, split.feature))

    def directions(self, rows: Rows) -> GoesLeft:
        """Directions of some records at any split: all columns are gathered once, when the first is needed."""
        columns = cache(lambda: self._opened.values.columns(rows))

        def goes_left(handle: int) -> Bools:
            split = self.split(handle)
            return split.goes_left(columns()(split.feature))

        return goes_left

    def names(self) -> dict[int, str]:
        """Handle → name of the column that the split is on."""
        return named(self._opened.manifest, self._by_handle.values())


class TreeModel:
    """The label holder's part: the shape of the trees, the values of their leaves, and its own splits.

    Attributes:
        ensemble: the trees with the values that predictions use.
        public: the same shapes with the values of the training, from which follows all that is sent or refused.
        hides_constants: no entry of an encrypted prediction may count as constant.
        own: the own splits, those of local subtrees included.
    """

    def __init__(self, opened: OpenedModel) -> None:
        """Raises DataError: see `valued_trees`."""
        self._party, manifest = opened.party, opened.manifest
        trees = valued_trees(manifest, opened.shard, opened.repaired, opened.party, f"model {opened.name}")
        self.public = Ensemble(
            objective=opened.objective,
            classes=len(opened.classes),
            base_margin=tuple(manifest["base_margin"]),
            trees=trees.public,
            trees_per_round=manifest["trees_per_round"],
            best_round=manifest["best_round"],
            averaged=manifest.get("averaged", False),  # forests alone say it
        )
        same = trees.valued is trees.public
        self.ensemble = self.public if same else replace(self.public, trees=trees.valued)
        # which entries are constant would tell where padded trees end
        self.hides_constants = bool(manifest.get(HIDES_CONSTANTS)) or any(tree.padded for tree in trees.public)
        self.own = OwnSplits(opened, trees.own)

    def imputed(self, goes_left: GoesLeft, n: int, away: Collection[str]) -> Floats:
        """The expected share of each record's path that is guessed (n,), as far as the label holder can compute it."""
        return expected_guesses(self.ensemble.used_trees if away else (), n, self._decide(goes_left), away)

    def open_leaves(self, rows: Rows) -> Iterator[Bools]:
        """Of each used tree the leaves that the own columns leave open to some records (n, leaves)."""
        decide = self._decide(self.own.directions(rows))
        for tree in self.ensemble.used_trees:
            yield candidate_leaves(tree, len(rows), decide)

    def count(self, rows: Rows, figure: Callable[[GoesLeft, int], Floats]) -> Floats:
        """A figure of each of some records (n,) by their directions, computed part by part."""
        parts = np.split(rows, range(COUNTED, len(rows), COUNTED))
        return np.concatenate([figure(self.own.directions(part), len(part)) for part in parts])

    def handles_of(self, party: str) -> set[int]:
        """The splits that another party owns."""
        return {split.handle for tree in self.ensemble.trees for split in tree.splits if split.owner == party}

    def _decide(self, goes_left: GoesLeft) -> Decide:
        """The directions of records at the own splits; None at those of others."""
        return lambda split: goes_left(split.handle) if split.owner == self._party else None


def named(manifest: dict[str, Any], splits: Iterable[OwnSplit]) -> dict[int, str]:
    """Handle → name of the column that the split is on. A one-hot feature's own name would show the category."""
    columns, categories = manifest["columns"], manifest["categories"]
    source = {
        feature: column for column, category in categories.items() for feature in Category.from_dict(category).features
    }
    return {split.handle: source.get(columns[split.feature], columns[split.feature]) for split in splits}
