"""One party's published model in short: parties, parameters, metrics, importances, how many trees and how large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from treetap import terminal
from treetap.commands.options import reading
from treetap.errors import BadInput, DataError
from treetap.models.arrays import Array
from treetap.models.own_split import OwnSplit
from treetap.models.store import (
    CELLS,
    COLUMN_PRIVACY,
    SPACES,
    VALUES,
    WEIGHTS,
    read_history,
    read_manifest,
    read_model,
    read_weights,
)
from treetap.names import check_name, did_you_mean
from treetap.party.config import read
from treetap.privacy.column_privacy import sentences
from treetap.privacy.zcdp import statement
from treetap.tables.typed import named_type, value_of
from treetap.terminal import text
from treetap.trees.ensemble import ROOT, Importance, Tree, importance, importance_by_owner, used_of
from treetap.trees.pivodl_params import PivodlParams

Json = dict[str, Any]
#: Entries of a manifest, of whatever kind, that are shown as they are.
_SHOWN = (
    *("label_holder", "feature_parties", "aggregator", "parties", "objective", "classes", "params", "weighted"),
    *("base_model", "labelled_records", CELLS, SPACES, VALUES),
    *("epochs", "best_epoch", "widths", "wire_type", "threads", "reproducible"),
)


def find(model: str, config: Path | None) -> Path:
    """The folder of a model: itself, or that of a name in the state folder of a party's configuration."""
    folder = Path(model) if config is None else read(config).state / "models" / model
    with reading(folder):
        if not (folder / "manifest.json").is_file():
            more = "; name a published model's folder, or its name and --config" if config is None else ""
            if folder.parent.is_dir():
                more += did_you_mean(
                    folder.name, (sibling.name for sibling in folder.parent.iterdir() if sibling.is_dir())
                )
            raise BadInput(f"{folder}: there is no published model{more}")
    return folder


@contextmanager
def understanding(folder: Path) -> Iterator[None]:
    """Report a model whose files are what was published, and yet are none of a model, as `DataError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"{folder}: is not a model that this command can read ({error!r})") from error


def describe(folder: Path) -> Json:
    """A party's published model as JSON types, with no threshold, no weight and no scaler.

    Raises:
        DataError: there is none, it is damaged, or of another format.
    """
    with reading(folder):
        manifest, history = read_manifest(folder), read_history(folder)
        of_network = WEIGHTS in manifest["files"]
        arrays = read_weights(folder)[1] if of_network else {}
        lines = [] if of_network else read_model(folder)[1]
    with understanding(folder):
        role, metrics = manifest["role"], manifest.get("training_metrics", {})
        kind = {"label_holder": _of_label_holder, "feature_party": _of_feature_party, "party": _of_party}[role]
        return {
            "model": check_name(manifest["job"]),
            "format": manifest["version"],
            **{name: manifest[name] for name in ("party", "role", "protocol")},
            **({"label_holder": manifest["party"]} if role == "label_holder" else {}),
            **{name: manifest[name] for name in _SHOWN if name in manifest},
            **({"metrics": {name: it if it is None else float(it) for name, it in metrics.items()}} if metrics else {}),
            **(_of_network(manifest, arrays) if of_network else kind(manifest, lines)),
            **({"history": history} if history else {}),
        }


def print_model(described: Json) -> None:
    """Print the description, a line for each entry, and a table for each kind of importances."""
    for name, value in described.items():
        for line in value if name == "privacy" else [value]:
            if name not in ("importance", "history"):
                terminal.out.print(text(f"{name.replace('_', ' ')}: {_shown(line)}"), soft_wrap=True)
    for title, rows in described.get("importance", {}).items():
        if rows:
            table = terminal.table(title.replace("_", " "), *(key for key in rows[0] if key != "name"))
            for row in rows:
                table.add_row(*(text(_shown(value)) for value in row.values()))
            terminal.out.print(table)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.6g}" if isinstance(value, float) else "not set" if value is None else str(value)


def _of_label_holder(manifest: Json, lines: list[Json]) -> Json:
    """Figures and importances of the trees that all parties know: of those alone a card tells."""
    own = {split["handle"]: OwnSplit.from_dict(split).feature_name(manifest) for line in lines for split in line["own"]}
    trees = tuple(Tree.from_dict(line["tree"]) for line in lines)
    used = used_of(trees, manifest["best_round"], manifest["trees_per_round"])
    of_features = importance(used, lambda split: own[split.handle] if split.owner == manifest["party"] else "")
    kind, noised = named_type(manifest["class_type"]), manifest.get(COLUMN_PRIVACY, {})
    classes = (value_of(name, kind) for name in manifest["classes"])
    shapes = (([split.node for split in tree.splits], [leaf.node for leaf in tree.leaves]) for tree in trees)
    return {
        "classes": [value if isinstance(value, bool | int | float) else str(value) for value in classes],
        "trees": {"stored": len(trees), "used": len(used), **_sizes(shapes)},
        **({"privacy": sentences(noised)} if noised else {}),
        "importance": {"parties": _by_gain(importance_by_owner(used)), "own_features": _by_gain(of_features)},
    }


def _of_feature_party(manifest: Json, lines: list[Json]) -> Json:
    """How often the party's features split; gains and leaf weights are known to the label holder alone."""
    own = (OwnSplit.from_dict(split).feature_name(manifest) for line in lines for split in line["splits"])
    noise = manifest.get(COLUMN_PRIVACY)
    return {
        "trees": {"stored": len(lines), "leaves": sum(len(line["leaves"]) for line in lines)},
        **({"privacy": sentences({manifest["party"]: noise})} if noise else {}),
        "importance": {"own_features": _by_splits(own)},
    }


def _of_party(manifest: Json, lines: list[Json]) -> Json:
    """The same where all parties have one role: they know whose each split is, and who keeps each weight."""
    own = (OwnSplit.from_dict(split).feature_name(manifest) for line in lines for split in line["splits"])
    shapes = (([row["node"] for row in line["nodes"]], [leaf["node"] for leaf in line["leaves"]]) for line in lines)
    known = {field.name for field in fields(PivodlParams)}
    params = PivodlParams(**{name: value for name, value in manifest["params"].items() if name in known})
    return {
        "trees": {"stored": len(lines), "used": len(lines), **_sizes(shapes)},
        "weights": dict(Counter(leaf["keeper"] for line in lines for leaf in line["leaves"]).most_common()),
        "privacy": statement(params),
        "importance": {
            "parties": _by_splits(row["source"] for line in lines for row in line["nodes"]),
            "own_features": _by_splits(own),
        },
    }


def _sizes(shapes: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Json:
    """All leaves, and the depth of the deepest tree; ValueError for nodes, inner and outer ones, that make no tree."""
    leaves = depth = 0
    for inner, outer in shapes:
        whole = [ROOT, *(child for node in inner for child in (2 * node, 2 * node + 1))]
        if sorted(whole) != sorted([*inner, *outer]) or max(outer) >= 1 << 32:
            raise ValueError("its nodes make no tree")
        leaves, depth = leaves + len(outer), max(depth, max(outer).bit_length() - 1)
    return {"leaves": leaves, "depth": depth}


def _by_gain(importances: Mapping[str, Importance]) -> list[Json]:
    """Rows by falling gain; a name that is empty has none."""
    rows = [
        {"name": name, "weight": it.weight, "gain": it.gain, "cover": it.cover, "total_gain": it.total_gain}
        for name, it in importances.items()
        if name
    ]
    return sorted(rows, key=lambda row: -row["total_gain"])


def _by_splits(names: Iterable[str]) -> list[Json]:
    return [{"name": name, "weight": count} for name, count in Counter(names).most_common()]


def _of_network(manifest: Json, arrays: Mapping[str, Array]) -> Json:
    """The party's inputs by name, and its models: settings, number of weights, and shapes of layers by name."""
    networks = []
    for name in ("bottom", "top"):
        layers = {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
        if layers:
            weights = sum(array.size for array in layers.values())
            shapes = {key: list(array.shape) for key, array in layers.items()}
            networks.append({"name": name, "settings": manifest[name], "weights": weights, "layers": shapes})
    return {"inputs": [*manifest["inputs"]["columns"], *manifest["inputs"]["images"]], "networks": networks}
