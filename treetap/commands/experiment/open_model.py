"""A model with the split tables of all parties, which no party of a federation has: its scores of any records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from treetap.models.own_split import OwnSplit
from treetap.models.store import VALUES, read_model, read_repaired
from treetap.trees.ensemble import Ensemble, Split, Tree, route
from treetap.trees.local_values import Bools, Floats, Ints, reached_values

#: The meaning of a split's handle, by its owner's table.
Meaning = Callable[[Split], OwnSplit]
#: The model of noisy labels as it was trained, and its repairs by their names in a shard → names in a report.
AS_TRAINED = "label_dp"
REPAIRED = {"refit": "label_dp + refit", "grafting": "grafting", "grafting_refit": "grafting + refit"}


@dataclass(frozen=True)
class OpenModel:
    """A model in all variants that its label holder has.

    `trained`: as it was trained. `repairs`: name in a report → the same shapes with other values; none of a model whose
    labels were clean. `published`: the one that predictions use.
    """

    trained: Ensemble
    repairs: dict[str, Ensemble]
    published: Ensemble
    meaning: Meaning


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


def open_shards(models: Mapping[str, Path]) -> OpenModel:
    """The model of a finished job, from the shards of its parties below the folder of an experiment.

    `models`: party → its published model. Raises DataError: see `treetap.models.store.read_model`.
    """
    own: dict[tuple[str, int], OwnSplit] = {}
    found: tuple[Ensemble, dict[str, Ensemble], Ensemble] | None = None
    for party, folder in models.items():
        manifest, lines = read_model(folder)
        repaired = read_repaired(folder)
        for split in (each for line in (*lines, *repaired) for each in line["own" if "own" in line else "splits"]):
            own[party, int(split["handle"])] = OwnSplit.from_dict(split)
        if manifest["role"] != "label_holder":
            continue
        trained = Ensemble(
            objective=manifest["objective"],
            classes=len(manifest["classes"]),
            base_margin=tuple(manifest["base_margin"]),
            trees=tuple(Tree.from_dict(line["tree"]) for line in lines),
            trees_per_round=manifest["trees_per_round"],
            best_round=manifest["best_round"],
            averaged=manifest.get("averaged", False),
        )
        repairs = {
            name: replace(trained, trees=tuple(Tree.from_dict(line[key]) for line in repaired))
            for key, name in REPAIRED.items()
            if repaired
        }
        found = trained, repairs, repairs[REPAIRED[manifest[VALUES]]] if VALUES in manifest else trained
    assert found is not None  # a job of one label holder
    return OpenModel(*found, lambda split: own[split.owner, split.handle])
