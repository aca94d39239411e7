"""What explained predictions are compared with: the joined model, in the clear, on the world's own records."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.library.trees.attributed import Attributions, attribute
from tests.library.trees.decisions import all_masks
from tests.worlds import World
from treetap.arrays import Bools
from treetap.models.store import read_model
from treetap.trees.ensemble import Ensemble, Split, Tree


class Joined:
    """All shards put together, and all blocks of the new records: what no party of a federation has."""

    def __init__(self, states: dict[str, Path], here: World, job: str = "job") -> None:
        self.holder = next(iter(states))
        models = {name: read_model(state / "models" / job) for name, state in states.items()}
        manifests = {name: manifest for name, (manifest, _) in models.items()}
        shards = {name: shard for name, (_, shard) in models.items()}
        about = manifests[self.holder]
        trees = tuple(Tree.from_dict(line["tree"]) for line in shards[self.holder])
        self.ensemble = Ensemble(
            about["objective"],
            len(about["classes"]),
            tuple(about["base_margin"]),
            trees,
            about["trees_per_round"],
            about["best_round"],
            about.get("averaged", False),
        )
        self.columns = {name: each["columns"] for name, each in manifests.items()}
        self.splits: dict[tuple[str, int], dict[str, Any]] = {
            (name, split["handle"]): split
            for name, shard in shards.items()
            for tree in shard
            for split in tree.get("splits", tree.get("own"))
        }
        self.blocks = dict(here.newcomers)
        self.n = len(here.new[0])

    def name(self, split: Split) -> str:
        """The feature of a split."""
        return str(self.columns[split.owner][self.splits[split.owner, split.handle]["feature"]])

    def goes_left(self, split: Split) -> Bools:
        """Which of the new records go left."""
        own = self.splits[split.owner, split.handle]
        values = self.blocks[split.owner][:, own["feature"]]
        threshold = math.inf if own["threshold"] is None else own["threshold"]
        return np.where(np.isnan(values), own["missing_left"], values < threshold)

    def player(self, split: Split) -> str:
        """The label holder's features one by one, feature parties as a whole."""
        return f"own:{self.name(split)}" if split.owner == self.holder else split.owner

    def attributions(self) -> Attributions:
        """Shapley values in the clear."""
        masks = all_masks(self.ensemble, self.n, self.goes_left, self.player)
        used = {self.player(split) for tree in self.ensemble.used_trees for split in tree.splits}
        own = sorted(player for player in used if player.startswith("own:"))
        return attribute(self.ensemble, self.player, masks, [*own, *list(self.columns)[1:]], self.n)

    def reached(self, decide: Callable[[Split], Bools | None]) -> list[dict[int, list[int]]]:
        """Of each new record, per used tree, the leaves (heap numbers) that some splits leave open; a naive walk."""
        found = []
        for record in range(self.n):
            open_leaves: dict[int, list[int]] = {}
            for tree in self.ensemble.used_trees:
                splits = {split.node: split for split in tree.splits}
                pending, leaves = [1], []
                while pending:
                    node = pending.pop()
                    if node not in splits:
                        leaves.append(node)
                        continue
                    sides = decide(splits[node])
                    if sides is None or sides[record]:
                        pending.append(2 * node)
                    if sides is None or not sides[record]:
                        pending.append(2 * node + 1)
                open_leaves[tree.index] = sorted(leaves)
            found.append(open_leaves)
        return found
