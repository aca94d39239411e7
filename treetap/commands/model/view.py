"""One party's published model: importances, and trees in which other parties' splits have a handle or a name."""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text
from rich.tree import Tree as Drawing

from party.config import read
from treetap import terminal
from treetap.commands.model import party_view
from treetap.commands.model.schema import check
from treetap.errors import BadInput, DataError
from treetap.models.own_split import OwnSplit
from treetap.models.store import Names, read_model, read_names
from treetap.tables.typed import named_type, value_of
from treetap.terminal import text
from treetap.trees.ensemble import ROOT, Importance, Split, Tree, importance, importance_by_owner, used_of
from treetap.trees.paths import condition

Json = dict[str, Any]


def find(model: str, config: Path | None) -> Path:
    """The folder of a model: itself, or that of a name in the state folder of a party's configuration."""
    folder = Path(model) if config is None else read(config).state / "models" / model
    with reading(folder):
        if not (folder / "manifest.json").is_file():
            more = "; name a published model's folder, or its name and --config" if config is None else ""
            raise BadInput(f"{folder}: there is no published model{more}")
    return folder


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Report a file that cannot be read as bad input: a party's state is for the party's own user."""
    try:
        yield
    except OSError as failure:
        own = "; a party's files are for its own user, so ask as that user" if failure.errno == errno.EACCES else ""
        raise BadInput(f"{failure.filename or folder}: cannot be read: {failure.strerror}{own}") from None


def describe(folder: Path) -> Json:
    """A party's published model as JSON types, for that party only: it contains thresholds and weights.

    Raises:
        DataError: there is none, it is damaged, or of a newer format.
    """
    with reading(folder):
        manifest, shards = read_model(folder)
        names = read_names(folder)
    try:
        if manifest["role"] == "party":
            shown = party_view.described(manifest, shards, _meaning)
        elif manifest["role"] == "label_holder":
            shown = _label_holder(manifest, shards, names)
        else:
            shown = _feature_party(manifest, shards)
        found = {
            "model": manifest["job"],
            "format": manifest.get("version", 1),
            "party": manifest["party"],
            "role": manifest["role"],
            "protocol": manifest["protocol"],
            **shown,
        }
        return check(found, folder)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"{folder}: is not a model that this command can read ({error!r})") from error


def _label_holder(manifest: Json, shards: list[Json], names: Names) -> Json:
    trees = tuple(Tree.from_dict(shard["tree"]) for shard in shards)
    own = {row["handle"]: OwnSplit.from_dict(row) for shard in shards for row in shard["own"]}
    name, columns = manifest["party"], manifest["columns"]
    used = used_of(trees, manifest.get("best_round"), manifest["trees_per_round"])
    features = importance(used, lambda s: columns[own[s.handle].feature] if s.owner == name else "")
    features.pop("", None)
    named = importance(used, lambda s: _named_feature(s, names))
    named.pop("", None)
    found = {"parties": _ranked(importance_by_owner(used)), "own_features": _ranked(features)}
    if names:
        found["told_features"] = _ranked(named)
    return {
        "label_holder": name,
        "feature_parties": manifest["feature_parties"],
        "objective": manifest["objective"],
        "classes": _classes(manifest),
        "params": manifest["params"],
        "metrics": manifest["training_metrics"],
        "used_trees": len(used),
        "importance": found,
        "trees": [_tree(tree, name, own, columns, names) for tree in trees],
    }


def _classes(manifest: Json) -> list[Any]:
    """The label's values in the type of its column, as far as JSON has it; text where the manifest does not say it."""
    kind = named_type(manifest.get("class_type", "string"))
    values = (value_of(name, kind) for name in manifest["classes"])
    return [value if isinstance(value, bool | int | float) else str(value) for value in values]


def _named_feature(split: Split, names: Names) -> str:
    """Owner and feature of another party's split, if the owner has sent the name; else empty."""
    name = names.get(split.owner, {}).get(split.handle)
    return "" if name is None else f"{split.owner}: {name}"


def _ranked(found: Mapping[str, Importance]) -> list[Json]:
    rows = [
        {"name": name, "weight": each.weight, "gain": each.gain, "cover": each.cover, "total_gain": each.total_gain}
        for name, each in found.items()
    ]
    return sorted(rows, key=lambda row: -row["total_gain"])


def _tree(tree: Tree, party: str, own: Mapping[int, OwnSplit], columns: list[str], names: Names) -> Json:
    splits = []
    for split in tree.splits:
        row = asdict(split)
        if split.owner == party:
            row |= _meaning(own[split.handle], columns)
        elif split.handle in names.get(split.owner, {}):
            row["feature"] = names[split.owner][split.handle]
        splits.append(row)
    return {
        "tree": tree.index,
        "outputs": list(tree.outputs),
        "splits": splits,
        "leaves": [asdict(leaf) | {"weights": list(leaf.weights)} for leaf in tree.leaves],
    }


def _meaning(split: OwnSplit, columns: list[str]) -> Json:
    return {
        "feature": columns[split.feature],
        "threshold": None if math.isinf(split.threshold) else split.threshold,
        "missing_left": split.missing_left,
        "left": condition(columns[split.feature], split.threshold, split.missing_left, left=True),
        "right": condition(columns[split.feature], split.threshold, split.missing_left, left=False),
    }


def _feature_party(manifest: Json, shards: list[Json]) -> Json:
    columns = manifest["columns"]
    counts: dict[str, int] = {}
    trees = []
    for shard in shards:
        own = [OwnSplit.from_dict(row) for row in shard["splits"]]
        for split in own:
            counts[columns[split.feature]] = counts.get(columns[split.feature], 0) + 1
        trees.append(
            {
                "tree": shard["tree"],
                "splits": [{"node": split.node, "handle": split.handle} | _meaning(split, columns) for split in own],
                "leaves": [
                    [{"handle": handle, "left": bool(left)} for handle, left in leaf] for leaf in shard["leaves"]
                ],
            }
        )
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return {
        "label_holder": manifest["label_holder"],
        "importance": {"own_features": [{"name": name, "weight": weight} for name, weight in ranked]},
        "trees": trees,
    }


def select(found: Json, tree: int | None) -> Json:
    """The description with one tree only; `BadInput` if there is no such tree."""
    if tree is None:
        return found
    kept = [each for each in found["trees"] if each["tree"] == tree]
    if not kept:
        raise BadInput(f"--tree {tree}: model {found['model']} has trees 0 to {len(found['trees']) - 1}")
    return {**found, "trees": kept}


def print_model(found: Json) -> None:
    """Print the description as text and trees."""
    lines = [f"model {found['model']} of {found['party']} ({found['role'].replace('_', ' ')}), {found['protocol']}"]
    if found["role"] == "party":
        lines += party_view.headline(found)
    elif found["role"] == "label_holder":
        lines.append(
            f"{found['objective']} with {', '.join(found['feature_parties'])}; {found['used_trees']} trees used"
        )
        measured = ((name, value) for name, value in found["metrics"].items() if value is not None)
        lines.append(", ".join(f"{name} {value:.4f}" for name, value in measured))
    else:
        lines.append(f"label holder {found['label_holder']}; gains and leaf weights are known there alone")
    for line in lines:
        terminal.out.print(text(line))
    for title, rows in found["importance"].items():
        if rows:
            table = terminal.table(title.replace("_", " "), *(key for key in rows[0] if key != "name"))
            for row in rows:
                table.add_row(
                    *(text(f"{value:.6g}" if isinstance(value, float) else str(value)) for value in row.values())
                )
            terminal.out.print(table)
    draw = {"party": party_view.drawn, "label_holder": _drawn, "feature_party": _listed}[found["role"]]
    for tree in found["trees"]:
        terminal.out.print(draw(tree))


def _drawn(tree: Json) -> Drawing:
    """A label holder's tree, the left child first."""
    splits = {split["node"]: split for split in tree["splits"]}
    leaves = {leaf["node"]: leaf for leaf in tree["leaves"]}

    def label(node: int, came: str) -> Text:
        if node in leaves:
            return text(f"{came}leaf {node}: " + ", ".join(f"{weight:.6g}" for weight in leaves[node]["weights"]))
        split = splits[node]
        said = split.get("left", split.get("feature"))  # of another party's split no side, and perhaps no name
        what = f"{split['owner']} #{split['handle']}" + ("" if said is None else f": {said}")
        return text(f"{came}{what}  (gain {split['gain']:.6g}, cover {split['cover']:.6g})")

    def grow(drawing: Drawing, node: int) -> None:
        for child, came in ((2 * node, "left  "), (2 * node + 1, "right ")):
            if node in splits:
                grow(drawing.add(label(child, came)), child)

    root = Drawing(text(f"tree {tree['tree']}, outputs {', '.join(map(str, tree['outputs']))}"))
    grow(root.add(label(ROOT, "")), ROOT)
    return root


def _listed(tree: Json) -> Drawing:
    """A feature party's view of a tree: its own splits, and its branches on the way to each leaf."""
    root = Drawing(text(f"tree {tree['tree']}, {len(tree['leaves'])} leaves"))
    for split in tree["splits"]:
        root.add(text(f"node {split['node']} #{split['handle']}: {split['left']}"))
    for number, branches in enumerate(tree["leaves"]):
        way = ", ".join(f"#{branch['handle']} {'left' if branch['left'] else 'right'}" for branch in branches)
        root.add(text(f"leaf number {number}: {way or 'no own split on the way'}"))
    return root
