"""Models of trees as JSON types and as drawings, with values: the label holder's, and one of parties of one role.

Label holder: its description has values and local subtrees as predictions use them. Importances of parties count the
splits that all parties know, and what a card takes from a description is of these alone.

Where all parties have one role they know the shape: of each split its source and the split party that opened it, of
each leaf the party that keeps its weight. Thresholds are known at the source alone, a weight at its keeper and, with
noise or exactly, at those to whom it was sent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from rich.text import Text
from rich.tree import Tree as Drawing

from treetap.models.own_split import OwnSplit
from treetap.models.store import CELLS, COLUMN_PRIVACY, VALUES, Names
from treetap.models.valued_trees import ValuedTrees
from treetap.privacy.column_privacy import sentences
from treetap.privacy.zcdp import statement
from treetap.tables.typed import named_type, value_of
from treetap.terminal import text
from treetap.trees.ensemble import ROOT, Importance, Leaf, Split, Tree, importance, importance_by_owner, used_of
from treetap.trees.local_values import covering
from treetap.trees.pivodl_params import PivodlParams

Json = dict[str, Any]
#: The own side of a split, with names from the party's manifest.
Meaning = Callable[[OwnSplit, Json], Json]


def label_holder_described(manifest: Json, trees: ValuedTrees, names: Names, meaning: Meaning) -> Json:
    """The model as JSON types; `names`: features that other parties have told."""
    own = {split.handle: split for tree in trees.own for split in tree}
    name = manifest["party"]
    best, each_round = manifest["best_round"], manifest["trees_per_round"]
    used = used_of(trees.public, best, each_round)
    alone = [subtree for tree in used_of(trees.valued, best, each_round) for subtree in tree.local]

    def feature(split: Split) -> str:
        return own[split.handle].feature_name(manifest) if split.owner == name else ""

    def shown(split: Split) -> Json:
        row = asdict(split)
        if split.owner == name:
            row |= meaning(own[split.handle], manifest)
        elif split.handle in names.get(split.owner, {}):
            row["feature"] = names[split.owner][split.handle]
        return row

    importances = {"parties": _by_gain(importance_by_owner(used)), "own_features": _by_gain(importance(used, feature))}
    # of the label holder alone: a card leaves these out
    if alone:
        importances["features_of_local_subtrees"] = _by_gain(importance(alone, feature))
    if names:
        importances["told_features"] = _by_gain(importance(used, lambda s: _told(s, names)))
    return {
        "label_holder": name,
        "feature_parties": manifest["feature_parties"],
        "objective": manifest["objective"],
        "classes": _classes(manifest),
        "params": manifest["params"],
        "metrics": manifest["training_metrics"],
        **({"weighted": True} if manifest.get("weighted") else {}),
        **{key: manifest[key] for key in ("base_model", CELLS, COLUMN_PRIVACY) if key in manifest},
        "used_trees": len(used),
        "importance": importances,
        **({VALUES: manifest[VALUES]} if VALUES in manifest else {}),
        "trees": [_valued_tree(tree, shown) for tree in trees.valued],
    }


def _classes(manifest: Json) -> list[Any]:
    """The label's values in the type of its column, as far as JSON has it."""
    kind = named_type(manifest["class_type"])
    values = (value_of(name, kind) for name in manifest["classes"])
    return [value if isinstance(value, bool | int | float) else str(value) for value in values]


def _told(split: Split, names: Names) -> str:
    """Owner and feature of another party's split, if the owner has sent the name; else empty."""
    name = names.get(split.owner, {}).get(split.handle)
    return "" if name is None else f"{split.owner}: {name}"


def _by_gain(importances: Mapping[str, Importance]) -> list[Json]:
    """Rows by falling gain; a name that is empty has none."""
    rows = [
        {
            "name": name,
            "weight": of_name.weight,
            "gain": of_name.gain,
            "cover": of_name.cover,
            "total_gain": of_name.total_gain,
        }
        for name, of_name in importances.items()
        if name
    ]
    return sorted(rows, key=lambda row: -row["total_gain"])


def _valued_tree(tree: Tree, shown: Callable[[Split], Json]) -> Json:
    covered = covering(tree)
    leaves = [
        row | ({"local": covered[row["node"]].root} if row["node"] in covered else {}) for row in _leaves(tree.leaves)
    ]
    local = [
        {"root": subtree.root, "splits": [shown(split) for split in subtree.splits], "leaves": _leaves(subtree.leaves)}
        for subtree in tree.local
    ]
    return {
        "tree": tree.index,
        "outputs": list(tree.outputs),
        "splits": [shown(split) for split in tree.splits],
        "leaves": leaves,
        **({"local": local} if local else {}),
    }


def _leaves(leaves: Sequence[Leaf]) -> list[Json]:
    return [asdict(leaf) | {"weights": list(leaf.weights)} for leaf in leaves]


def label_holder_headline(shown: Json) -> list[str]:
    """The feature parties, the metrics, and whose values predictions use, a line each."""
    measured = ((name, value) for name, value in shown["metrics"].items() if value is not None)
    lines = [
        f"{shown['objective']} with {', '.join(shown['feature_parties'])}; {shown['used_trees']} trees used",
        ", ".join(f"{name} {value:.4f}" for name, value in measured),
    ]
    if shown.get("weighted"):
        lines[-1] += "; weighted by sample weights"
    if base := shown.get("base_model"):
        lines.append(f"continues {base['name']}, whose trees are the first {base['trees']}")
    if CELLS in shown:
        cells = ", ".join(f"{party} {least}" for party, least in sorted(shown[CELLS].items()))
        lines.append(f"fewest drawn records in a bin that is summed: {cells}")
    lines += sentences(shown.get(COLUMN_PRIVACY, {}))
    if VALUES in shown:
        lines.append(f"values of leaves: {shown[VALUES]}, by clean labels, for the label holder alone")
    return lines


def label_holder_drawn(tree: Json) -> Drawing:
    """A tree, the left child first; then the local subtrees, which no other party knows."""
    root = Drawing(text(f"tree {tree['tree']}, outputs {', '.join(map(str, tree['outputs']))}"))
    _draw(root, tree, ROOT)
    for subtree in tree.get("local", ()):
        own = root.add(text(f"local subtree at node {subtree['root']}, known to the label holder alone"))
        _draw(own, subtree, subtree["root"])
    return root


def _draw(drawing: Drawing, tree: Json, root: int) -> None:
    splits = {split["node"]: split for split in tree["splits"]}
    leaves = {leaf["node"]: leaf for leaf in tree["leaves"]}

    def label(node: int, came: str) -> Text:
        if node in leaves and "local" in leaves[node]:
            return text(f"{came}leaf {node}: by the local subtree at node {leaves[node]['local']}")
        if node in leaves:
            return text(f"{came}leaf {node}: " + ", ".join(f"{weight:.6g}" for weight in leaves[node]["weights"]))
        split = splits[node]
        said = split.get("left", split.get("feature"))  # of another party's split no side, and perhaps no name
        what = f"{split['owner']} #{split['handle']}" + ("" if said is None else f": {said}")
        return text(f"{came}{what}  (gain {split['gain']:.6g}, cover {split['cover']:.6g})")

    _grow(drawing, splits, label, root)


def party_described(manifest: Json, shards: list[Json], meaning: Meaning) -> Json:
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


def _tree(shard: Json, manifest: Json, meaning: Meaning) -> Json:
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


def party_headline(shown: Json) -> list[str]:
    """The parties, the metrics, what the party holds and what the noise covers, a line each."""
    # all parties know at whom each weight is, and no more
    kept = sum(row["leaves"] for row in shown["weights"])
    own = next((row["leaves"] for row in shown["weights"] if row["name"] == shown["party"]), 0)
    measured = (f"{name} {value:.4f}" for name, value in shown["metrics"].items() if value is not None)
    return [
        f"{shown['objective']} with {', '.join(name for name in shown['parties'] if name != shown['party'])}; "
        f"{shown['used_trees']} trees",
        *([line] if (line := ", ".join(measured)) else []),
        f"labels of {shown['labelled_records']} records; weights of {own} of {kept} leaves, others at "
        + (", ".join(f"{row['name']} ({row['leaves']})" for row in shown["weights"] if row["name"] != shown["party"])),
        *shown["privacy"],
    ]


def party_drawn(tree: Json) -> Drawing:
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

    root = Drawing(text(f"tree {tree['tree']}"))
    _grow(root, splits, label, ROOT)
    return root


def _grow(drawing: Drawing, splits: Collection[int], label: Callable[[int, str], Text], node: int) -> None:
    """Draw a node and all below it, the left child first; `label`: of a node, and the way to it."""

    def grow(at: Drawing, parent: int) -> None:
        for child, came in ((2 * parent, "left  "), (2 * parent + 1, "right ")):
            if parent in splits:
                grow(at.add(label(child, came)), child)

    grow(drawing.add(label(node, "")), node)
