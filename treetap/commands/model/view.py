"""One party's published model: importances, and trees in which other parties' splits have a handle or a name."""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.tree import Tree as Drawing

from party.config import read
from treetap import terminal
from treetap.commands.model import network_view, tree_view
from treetap.commands.model.schema import check, check_history
from treetap.errors import BadInput, DataError
from treetap.models.durable import write_whole
from treetap.models.history import Metrics, csv_of, names_in, read_history
from treetap.models.own_split import OwnSplit
from treetap.models.store import (
    COLUMN_PRIVACY,
    WEIGHTS,
    Names,
    read_manifest,
    read_model,
    read_names,
    read_repaired,
    read_weights,
)
from treetap.models.valued_trees import valued_trees
from treetap.names import did_you_mean
from treetap.privacy.column_privacy import sentences
from treetap.terminal import text

Json = dict[str, Any]
#: Errors of a disk that takes no more.
_OF_WRITING = {errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EROFS}


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
def reading(folder: Path) -> Iterator[None]:
    """Report a file that cannot be read, or written, as bad input: a party's state is for the party's own user."""
    try:
        yield
    except OSError as failure:
        own = "; a party's files are for its own user, so ask as that user" if failure.errno == errno.EACCES else ""
        done = "written" if failure.errno in _OF_WRITING else "read"
        raise BadInput(f"{failure.filename or folder}: cannot be {done}: {failure.strerror}{own}") from None


def describe(folder: Path) -> Json:
    """A party's published model as JSON types, for that party only: it contains thresholds and weights.

    Raises:
        DataError: there is none, it is damaged, or of another format.
    """
    with reading(folder):
        manifest = read_manifest(folder)
        of_network = WEIGHTS in manifest["files"]
        arrays = read_weights(folder)[1] if of_network else {}
        shards, repaired, names = ([], [], {}) if of_network else _trees(folder)
        history = read_history(folder)
    try:
        if of_network:
            shown = network_view.described(manifest, arrays)
        elif manifest["role"] == "party":
            shown = tree_view.party_described(manifest, shards, _meaning)
        elif manifest["role"] == "label_holder":
            trees = valued_trees(manifest, shards, repaired, manifest["party"], str(folder))
            shown = tree_view.label_holder_described(manifest, trees, names, _meaning)
        else:
            shown = _feature_party(manifest, shards)
        described = {
            "model": manifest["job"],
            "format": manifest["version"],
            "party": manifest["party"],
            "role": manifest["role"],
            "protocol": manifest["protocol"],
            **shown,
            **({"history": history} if history else {}),
        }
        return check(described, folder)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"{folder}: is not a model that this command can read ({error!r})") from error


def _trees(folder: Path) -> tuple[list[Json], list[Json], Names]:
    """The lines of a model's trees, of their repairs, and the names that other parties have told."""
    return read_model(folder)[1], read_repaired(folder), read_names(folder)


def _meaning(split: OwnSplit, manifest: Json) -> Json:
    right = split.right_categories(manifest)
    return {
        "feature": split.feature_name(manifest),
        "threshold": None if math.isinf(split.threshold) else split.threshold,
        "missing_left": split.missing_left,
        **({} if right is None else {"categories": right}),
        "left": split.condition(manifest, left=True),
        "right": split.condition(manifest, left=False),
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
                "splits": [{"node": split.node, "handle": split.handle} | _meaning(split, manifest) for split in own],
                "leaves": [
                    [{"handle": handle, "left": bool(left)} for handle, left in leaf] for leaf in shard["leaves"]
                ],
            }
        )
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return {
        "label_holder": manifest["label_holder"],
        **({COLUMN_PRIVACY: {manifest["party"]: manifest[COLUMN_PRIVACY]}} if COLUMN_PRIVACY in manifest else {}),
        "importance": {"own_features": [{"name": name, "weight": weight} for name, weight in ranked]},
        "trees": trees,
    }


def select(described: Json, tree: int | None) -> Json:
    """The description with one tree only; `BadInput` if there is no such tree."""
    if tree is None:
        return described
    if "networks" in described:
        raise BadInput(f"--tree {tree}: model {described['model']} is a network and has no trees; leave --tree out")
    kept = [shown for shown in described["trees"] if shown["tree"] == tree]
    if not kept:
        raise BadInput(f"--tree {tree}: model {described['model']} has trees 0 to {len(described['trees']) - 1}")
    return {**described, "trees": kept}


def print_model(described: Json) -> None:
    """Print the description as text and trees."""
    whose = f"{described['party']} ({described['role'].replace('_', ' ')})"
    lines = [f"model {described['model']} of {whose}, {described['protocol']}"]
    # each kind of model has its own entries: the schema has checked them
    if "networks" in described:
        lines += network_view.headline(described)
    elif described["role"] == "party":
        lines += tree_view.party_headline(described)
    elif described["role"] == "label_holder":
        lines += tree_view.label_holder_headline(described)
    else:
        lines.append(f"label holder {described['label_holder']}; gains and leaf weights are known there alone")
        lines += sentences(described.get(COLUMN_PRIVACY, {}))
    for line in lines:
        terminal.out.print(text(line))
    if "networks" in described:
        for table in network_view.tables(described):
            terminal.out.print(table)
        return
    for title, rows in described["importance"].items():
        if rows:
            table = terminal.table(title.replace("_", " "), *(key for key in rows[0] if key != "name"))
            for row in rows:
                table.add_row(
                    *(text(f"{value:.6g}" if isinstance(value, float) else str(value)) for value in row.values())
                )
            terminal.out.print(table)
    draw = {"party": tree_view.party_drawn, "label_holder": tree_view.label_holder_drawn, "feature_party": _listed}[
        described["role"]
    ]
    for tree in described["trees"]:
        terminal.out.print(draw(tree))


def _listed(tree: Json) -> Drawing:
    """A feature party's view of a tree: its own splits, and its branches on the way to each leaf."""
    root = Drawing(text(f"tree {tree['tree']}, {len(tree['leaves'])} leaves"))
    for split in tree["splits"]:
        root.add(text(f"node {split['node']} #{split['handle']}: {split['left']}"))
    for number, branches in enumerate(tree["leaves"]):
        way = ", ".join(f"#{branch['handle']} {'left' if branch['left'] else 'right'}" for branch in branches)
        root.add(text(f"leaf number {number}: {way or 'no own split on the way'}"))
    return root


Rounds = Sequence[Metrics]


def history_of(folder: Path) -> Rounds:
    """The metrics after each round, by name; `BadInput` where the model in the folder has none."""
    with reading(folder):
        rounds, role = check_history(read_history(folder), folder), read_manifest(folder)["role"]
    if not any(rounds):
        whose = "; the label holder's part has them" if role == "feature_party" else ""
        raise BadInput(f"{folder}: has no metrics of rounds{whose}")
    return rounds


def write_csv(rounds: Rounds, path: Path) -> None:
    """Write the history as CSV: see `csv_of`."""
    try:
        write_whole(path, csv_of(rounds).encode(), mode=0o644)
    except OSError as failure:
        raise BadInput(f"--csv {path}: cannot be written: {failure.strerror}") from None


def print_history(rounds: Rounds) -> None:
    """Print a row per round."""
    names = names_in(rounds)
    table = terminal.table("round", *names)
    for number, row in enumerate(rounds):
        values = (row.get(name) for name in names)
        table.add_row(str(number), *(text("" if value is None else f"{value:.6f}") for value in values))
    terminal.out.print(table)
