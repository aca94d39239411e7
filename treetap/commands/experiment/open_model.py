"""A model with the split tables of all parties, which no party of a federation has: its scores of any records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model
from treetap.trees.ensemble import Ensemble, Split, Tree, route
from treetap.trees.local_values import Bools, Floats, Ints, reached_values

#: The meaning of a split's handle, by its owner's table.
Meaning = Callable[[Split], OwnSplit]


def scores(ensemble: Ensemble, meaning: Meaning, features: Mapping[str, Floats]) -> Floats:
    """Scores (n, outputs) of n records; `features`: party → its columns (n, d), NaN where missing."""

    def goes_left(split: Split, rows: Ints) -> Bools:
        own = meaning(split)
        return np.asarray(own.goes_left(features[split.owner][rows, own.feature]))

    n = len(next(iter(features.values())))
    reached = (reached_values(tree, route(tree.splits, n, goes_left), goes_left) for tree in ensemble.used_trees)
    return ensemble.summed(reached, n)


def hidden(ensemble: Ensemble) -> dict[str, int]:
    """How much of the trees is the label holder's alone.

    `local_subtrees`: subtrees that it grew alone; `hidden_nodes`: their nodes that no other party knows, all but the
    roots.
    """
    local = [subtree for tree in ensemble.trees for subtree in tree.local]
    below = sum(len(subtree.splits) + len(subtree.leaves) - 1 for subtree in local)
    return {"local_subtrees": len(local), "hidden_nodes": below}


def open_shards(models: Mapping[str, Path]) -> tuple[Ensemble, Meaning]:
    """The model of a finished job, from the shards of its parties below the folder of an experiment.

    `models`: party → its published model. Raises DataError: see `treetap.models.store.read_model`.
    """
    shards = {party: read_model(folder) for party, folder in models.items()}
    own: dict[tuple[str, int], OwnSplit] = {}
    ensemble = None
    for party, (manifest, lines) in shards.items():
        for split in (each for line in lines for each in line["own" if "own" in line else "splits"]):
            own[party, int(split["handle"])] = OwnSplit.from_dict(split)
        if manifest["role"] == "label_holder":
            ensemble = Ensemble(
                objective=manifest["objective"],
                classes=len(manifest["classes"]),
                base_margin=tuple(manifest["base_margin"]),
                trees=tuple(Tree.from_dict(line["tree"]) for line in lines),
                trees_per_round=manifest["trees_per_round"],
                best_round=manifest["best_round"],
                averaged=manifest.get("averaged", False),
            )
    assert ensemble is not None  # a job of one label holder
    return ensemble, lambda split: own[split.owner, split.handle]
