"""The model of a protocol in which all parties have one role, as one of them holds it.

All parties know the shape: of each split its source and the split party that opened it, of each leaf the party that
keeps its weight. Thresholds are known at the source alone, a weight at its keeper and, with noise or exactly, at those
to whom it was sent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from rich.text import Text
from rich.tree import Tree as Drawing

from treetap.models.own_split import OwnSplit
from treetap.privacy.zcdp import statement
from treetap.terminal import text
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_params import PivodlParams

Json = dict[str, Any]


def described(manifest: Json, shards: list[Json], meaning: Callable[[OwnSplit, Json], Json]) -> Json:
    """The party's shard as JSON types; `meaning`: the own side of a split, with names from the manifest."""
    trees = [_tree(shard, manifest, meaning) for shard in shards]
    features = Counter(split["feature"] for tree in trees for split in tree["splits"] if "feature" in split)
    sources = Counter(split["source"] for tree in trees for split in tree["splits"])
    keepers = Counter(leaf["keeper"] for tree in trees for leaf in tree["leaves"])
    return {
        "aggregator": manifest["aggregator"],
        "parties": list(manifest["parties"]),
        "objective": manifest["objective"],
        "classes": list(manifest["classes"]),
        "params": manifest["params"],
        "privacy": statement(_params(manifest["params"])),
        "metrics": manifest["training_metrics"],
        "used_trees": len(trees),
        "labelled_records": manifest["labelled_records"],
        "importance": {"parties": _ranked(sources), "own_features": _ranked(features)},
        "weights": [{"name": name, "leaves": count} for name, count in keepers.most_common()],
        "trees": trees,
    }


def _params(given: Mapping[str, Any]) -> PivodlParams:
    known = {field.name for field in fields(PivodlParams)}
    known_params = {name: value for name, value in given.items() if name in known}
    return PivodlParams(
        **known_params | {"missing": math.nan if known_params["missing"] is None else known_params["missing"]}
    )


def _ranked(counts: Mapping[str, int]) -> list[Json]:
    return [{"name": name, "weight": count} for name, count in sorted(counts.items(), key=lambda item: -item[1])]


def _tree(shard: Json, manifest: Json, meaning: Callable[[OwnSplit, Json], Json]) -> Json:
    own = {split.node: split for split in map(OwnSplit.from_dict, shard["splits"])}
    kept = {row["node"]: row["weight"] for row in shard["weights"]}
    return {
        "tree": shard["tree"],
        "splits": [
            dict(row) | (meaning(own[row["node"]], manifest) if row["node"] in own else {}) for row in shard["nodes"]
        ],
        "leaves": [
            dict(row) | ({"weights": kept[row["node"]]} if row["node"] in kept else {}) for row in shard["leaves"]
        ],
    }


def headline(found: Json) -> list[str]:
    """The parties, the metrics, what the party holds and what the noise covers, a line each."""
    kept = sum(row["leaves"] for row in found["weights"])
    own = next((row["leaves"] for row in found["weights"] if row["name"] == found["party"]), 0)
    measured = (f"{name} {value:.4f}" for name, value in found["metrics"].items() if value is not None)
    return [
        f"{found['objective']} with {', '.join(name for name in found['parties'] if name != found['party'])}; "
        f"{found['used_trees']} trees",
        *([line] if (line := ", ".join(measured)) else []),
        f"labels of {found['labelled_records']} records; weights of {own} of {kept} leaves, others at "
        + (", ".join(f"{row['name']} ({row['leaves']})" for row in found["weights"] if row["name"] != found["party"])),
        *found["privacy"],
    ]


def drawn(tree: Json) -> Drawing:
    """A tree, the left child first."""
    splits = {split["node"]: split for split in tree["splits"]}
    leaves = {leaf["node"]: leaf for leaf in tree["leaves"]}

    def label(node: int, came: str) -> Text:
        if node in leaves:
            weights = leaves[node].get("weights")
            shown = f"weight at {leaves[node]['keeper']}" if weights is None else ", ".join(f"{w:.6g}" for w in weights)
            return text(f"{came}leaf {node}: {shown}")
        split = splits[node]
        said = f": {split['left']}" if "left" in split else ""
        return text(f"{came}{split['source']} #{split['handle']}{said}  (opened by {split['opener']})")

    def grow(drawing: Drawing, node: int) -> None:
        for child, came in ((2 * node, "left  "), (2 * node + 1, "right ")):
            if node in splits:
                grow(drawing.add(label(child, came)), child)

    root = Drawing(text(f"tree {tree['tree']}"))
    grow(root.add(label(ROOT, "")), ROOT)
    return root
