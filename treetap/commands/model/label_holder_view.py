"""The label holder's model: shape of the trees, values, importances, and the subtrees that it alone knows.

Its description has values and local subtrees as predictions use them. Importances of parties count the splits that all
parties know, and what a card takes from a description is of these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text
from rich.tree import Tree as Drawing

from treetap.models.own_split import OwnSplit
from treetap.models.store import VALUES, Names
from treetap.models.valued_trees import ValuedTrees
from treetap.tables.typed import named_type, value_of
from treetap.terminal import text
from treetap.trees.ensemble import ROOT, Importance, Leaf, Split, Tree, importance, importance_by_owner, used_of
from treetap.trees.local_values import covering

Json = dict[str, Any]
#: The own side of a split, with names from the party's manifest.
Meaning = Callable[[OwnSplit, Json], Json]


def described(manifest: Json, trees: ValuedTrees, names: Names, meaning: Meaning) -> Json:
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

    importances = {"parties": _ranked(importance_by_owner(used)), "own_features": _ranked(importance(used, feature))}
    if alone:
        importances["features_of_local_subtrees"] = _ranked(importance(alone, feature))
    if names:
        importances["told_features"] = _ranked(importance(used, lambda s: _told(s, names)))
    return {
        "label_holder": name,
        "feature_parties": manifest["feature_parties"],
        "objective": manifest["objective"],
        "classes": _classes(manifest),
        "params": manifest["params"],
        "metrics": manifest["training_metrics"],
        **({"weighted": True} if manifest.get("weighted") else {}),
        **({"base_model": manifest["base_model"]} if "base_model" in manifest else {}),
        "used_trees": len(used),
        "importance": importances,
        **({VALUES: manifest[VALUES]} if VALUES in manifest else {}),
        "trees": [_tree(tree, shown) for tree in trees.valued],
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


def _ranked(importances: Mapping[str, Importance]) -> list[Json]:
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


def _tree(tree: Tree, shown: Callable[[Split], Json]) -> Json:
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


def headline(found: Json) -> list[str]:
    """The feature parties, the metrics, and whose values predictions use, a line each."""
    measured = ((name, value) for name, value in found["metrics"].items() if value is not None)
    lines = [
        f"{found['objective']} with {', '.join(found['feature_parties'])}; {found['used_trees']} trees used",
        ", ".join(f"{name} {value:.4f}" for name, value in measured),
    ]
    if found.get("weighted"):
        lines[-1] += "; weighted by sample weights"
    if base := found.get("base_model"):
        lines.append(f"continues {base['name']}, whose trees are the first {base['trees']}")
    if VALUES in found:
        lines.append(f"values of leaves: {found[VALUES]}, by clean labels, for the label holder alone")
    return lines


def drawn(tree: Json) -> Drawing:
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

    def grow(at: Drawing, node: int) -> None:
        for child, came in ((2 * node, "left  "), (2 * node + 1, "right ")):
            if node in splits:
                grow(at.add(label(child, came)), child)

    grow(drawing.add(label(root, "")), root)
