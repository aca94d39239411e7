"""Rows of a party's split table, each the meaning of a split handle; and the trees of a label holder's model.

The trees are there as all parties know them, and with the values that its predictions use.


`trees.jsonl` has a line per tree, `{"tree": Tree, "own": [OwnSplit]}`; `own` has the splits of local subtrees too. A
model trained on noisy labels can have `repaired.jsonl` beside it: of each tree the same shape with other values, by the
name of the repair, and under `own` the splits of all local subtrees that repairs have added. `values` in the manifest
is the repair that predictions use; without this entry they use the trees of `trees.jsonl`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from treetap.errors import DataError
from treetap.models.store import REPAIRED, VALUES
from treetap.tables.config import DAYS
from treetap.tables.dates import date_text
from treetap.trees.candidates import Candidate
from treetap.trees.ensemble import Tree
from treetap.trees.paths import condition

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True)
class OwnSplit:
    """A row of a party's split table: a handle's meaning. Left: value < threshold, or missing if `missing_left`.

    A split of categories has `categories`, and no threshold (∞): the codes that go right, ascending, by their places in
    the `values` of the column's encoding in the manifest. All others go left, so does one that training has not seen.
    None: a split of numbers.
    """

    handle: int
    node: int
    feature: int
    bin: int
    threshold: float
    missing_left: bool
    categories: tuple[int, ...] | None = None

    def goes_left(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Bools:
        """The mask of those raw values (n,) of the split's column that go left."""
        if self.categories is not None:
            return np.where(np.isnan(values), self.missing_left, ~np.isin(values, self.categories))
        return np.where(np.isnan(values), self.missing_left, values < self.threshold)

    def feature_name(self, manifest: Mapping[str, Any]) -> str:
        """The name of the split's column in its party's manifest."""
        return str(manifest["columns"][self.feature])

    def right_categories(self, manifest: Mapping[str, Any]) -> list[str] | None:
        """The texts of the categories that go right, from the party's manifest; None of a split of numbers."""
        if self.categories is None:
            return None
        values = manifest["categories"][self.feature_name(manifest)]["values"]
        return [str(values[code]) for code in self.categories]

    def condition(self, manifest: Mapping[str, Any], *, left: bool) -> str:
        """The condition for taking a side, with names from the party's manifest."""
        name, right = self.feature_name(manifest), self.right_categories(manifest)
        encoding = manifest["categories"].get(name, {})
        if encoding.get("encode") != DAYS:
            return condition(name, self.threshold, self.missing_left, left, right)
        shown = partial(date_text, utc=bool(encoding.get("utc")))
        return condition(name, self.threshold, self.missing_left, left, shown=shown)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; an infinite threshold, which separates missing cells from the others, is null."""
        content = {**vars(self), "threshold": None if math.isinf(self.threshold) else self.threshold}
        del content["categories"]
        return content if self.categories is None else {**content, "categories": list(self.categories)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> OwnSplit:
        """Back from JSON types."""
        threshold, categories = content["threshold"], content.get("categories")
        if threshold is None:  # a split of categories, or missing cells are on one side alone
            threshold = -math.inf if content["missing_left"] and categories is None else math.inf
        return cls(
            **{**content, "threshold": threshold, "categories": None if categories is None else tuple(categories)}
        )

    @classmethod
    def of(cls, handle: int, node: int, candidate: Candidate, threshold: float) -> OwnSplit:
        """The row of a candidate, its feature numbered among all the party's columns."""
        it = candidate
        return cls(handle, node, it.feature, it.bin, threshold, it.missing_left, it.right)

    @property
    def candidate(self) -> Candidate:
        """The inverse of `of`."""
        return Candidate(self.feature, self.bin, self.missing_left, self.categories)


#: The repairs, each a field of a line.
REPAIRS = ("refit", "grafting", "grafting_refit")


@dataclass(frozen=True)
class ValuedTrees:
    """All trees of a model.

    Attributes:
        public: as all parties know them, with the values of the training.
        valued: the same shapes with the values that predictions use.
        own: of each tree the label holder's own splits, those of local subtrees included.
    """

    public: tuple[Tree, ...]
    valued: tuple[Tree, ...]
    own: tuple[tuple[OwnSplit, ...], ...]


def valued_trees(
    manifest: Mapping[str, Any],
    shard: Sequence[Mapping[str, Any]],
    repaired: Sequence[Mapping[str, Any]],
    party: str,
    model: str,
) -> ValuedTrees:
    """The trees from a model's files: `repaired` are the lines of `REPAIRED`, none where there is no such file.

    `party`: the label holder; `model`: what an error calls the model.

    Raises:
        DataError: the manifest names a repair that the lines do not have, they are not of these trees, or a local
            subtree is not the label holder's own.
    """
    public = valued = tuple(Tree.from_dict(line["tree"]) for line in shard)
    own = tuple(tuple(map(OwnSplit.from_dict, line["own"])) for line in shard)
    name = manifest.get(VALUES)
    if name is not None:
        if name not in REPAIRS:
            raise DataError(f"{model}: the manifest says {VALUES} = {name!r}: must be one of {', '.join(REPAIRS)}")
        if len(repaired) != len(shard):
            raise DataError(f"{model}: {REPAIRED} has {len(repaired)} trees, the model {len(shard)}")
        valued = tuple(Tree.from_dict(line[name]) for line in repaired)
        more = (map(OwnSplit.from_dict, line["own"]) for line in repaired)
        own = tuple((*first, *further) for first, further in zip(own, more, strict=True))
    for tree, other, splits in zip(public, valued, own, strict=True):
        # paths through the tree are agreed with parties that know the public shape alone
        if _shape(tree) != _shape(other):
            raise DataError(f"{model}: {REPAIRED}: tree {tree.index} has not the shape that all parties know")
        if (root := _foreign_root(other, party, {split.handle for split in splits})) is not None:
            raise DataError(f"{model}: tree {tree.index}: the local subtree at node {root} is none of {party}'s own")
    return ValuedTrees(public, valued, own)


def _shape(tree: Tree) -> tuple[Any, ...]:
    splits = [(split.node, split.owner, split.handle) for split in tree.splits]
    return tree.index, tree.outputs, splits, [leaf.node for leaf in tree.leaves]


def _foreign_root(tree: Tree, party: str, handles: Collection[int]) -> int | None:
    """The root of the first local subtree that is no tree below a node of the shape, with splits of these handles."""
    nodes = {split.node for split in tree.splits} | {leaf.node for leaf in tree.leaves}
    for subtree in tree.local:
        inner, outer = [split.node for split in subtree.splits], [leaf.node for leaf in subtree.leaves]
        # in a whole tree the children of the inner nodes, with the root, are all of its nodes
        whole = [subtree.root, *(child for node in inner for child in (2 * node, 2 * node + 1))]
        own = all(split.owner == party and split.handle in handles for split in subtree.splits)
        if subtree.root not in nodes or sorted(whole) != sorted([*inner, *outer]) or not own:
            return subtree.root
    return None
