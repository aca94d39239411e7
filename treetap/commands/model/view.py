"""One party's published model in short: parties, parameters, metrics, importances, how many trees and how large.

Model cards: the publishable part of a model, as JSON and as one HTML page that loads nothing.

A label holder has it or, where all parties have one role, each of them. It contains topology (owners and handles),
importances, metrics, parties, protocol, parameters, and disclosures. It contains no thresholds, leaf weights, base
margin, gains and covers of single splits, class values, and, unless requested, no feature names. Of a network it
contains settings that all parties know and the layers of the top, no weight and no scaler.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from google.protobuf.descriptor import Descriptor

from treetap import terminal
from treetap.commands.options import reading
from treetap.errors import BadInput, ConfigError, DataError, Malformed, cannot, did_you_mean
from treetap.models.arrays import Array
from treetap.models.durable import make_ignored_folder, write_whole
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
from treetap.names import check_name
from treetap.pages.page import drawn, render
from treetap.pages.pictures import percent
from treetap.pages.section import Table
from treetap.party.config import read
from treetap.privacy.column_privacy import sentences
from treetap.privacy.zcdp import statement
from treetap.protocols.registry import training
from treetap.tables.label_columns import named_type, value_of
from treetap.terminal import text
from treetap.trees.ensemble import ROOT, Importance, Tree, importance, importance_by_owner, used_of
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.disclosure import CLASSES, disclosure_table
from treetap.wire.transcript import files_of, summarise
from treetap.wire.v2 import alignment_pb2, protocols_pb2, setup_pb2

Json = dict[str, Any]
#: Entry of a manifest: the model from which its training went on.
BASE = "base_model"
#: Entries of a manifest, of whatever kind, that are shown as they are.
_SHOWN = (
    *("label_holder", "feature_parties", "aggregator", "parties", "objective", "classes", "params", "weighted"),
    *(BASE, "labelled_records", CELLS, SPACES, VALUES),
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
                    folder.name, (it.name for it in folder.parent.iterdir() if it.is_dir() and it != folder)
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
            heads = (title.replace("_", " "), *(key for key in rows[0] if key != "name"))
            terminal.print_table(heads, (map(_shown, row.values()) for row in rows))


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


log = logging.getLogger(__name__)
CARD_VERSION = 2


def export(folder: Path, out: Path, *, names: bool) -> list[Path]:
    """Write model.json and model.html below `out`; `BadInput` where that is not possible."""
    content = card(folder, names=names)
    with cannot("be written", f"--out {out}"):
        make_ignored_folder(out, 0o777)
        files = [out / "model.json", out / "model.html"]
        write_whole(files[0], (json.dumps(content, indent=1, allow_nan=False) + "\n").encode(), mode=0o644)
        if (told := drawn(files[1], lambda: page(content))) is None:
            return files[:1]
        write_whole(files[1], told.encode(), mode=0o644)
    return files


def card(folder: Path, *, names: bool) -> Json:
    """The card of a model; `names` adds the importances of the party's own features, by name."""
    described = describe(folder)
    if described["role"] == "feature_party":
        raise BadInput(f"{folder}: is a feature party's part of a model; the label holder's is the one to export")
    return {
        "card": CARD_VERSION,
        "treetap": version("treetap"),
        "model": described["model"],
        "format": described["format"],
        "protocol": described["protocol"],
        "parties": {key: described[key] for key in ("label_holder", "feature_parties", "parties") if key in described},
        "objective": described["objective"],
        "classes": len(described["classes"]),
        "parameters": described["params"],
        "metrics": described.get("metrics", {}),
        **{key: described[key] for key in ("weighted", "privacy") if key in described},
        **(_card_of_network if "networks" in described else _of_trees)(folder, described, names=names),
        "disclosure": {
            "classes": classes_of(described["protocol"]),
            "transcript": _transcript(folder, described["model"]),
        },
    }


def _of_trees(folder: Path, described: Json, *, names: bool) -> Json:
    """Numbers of trees, importances, and of each tree who owns its splits and, with one role, who keeps its leaves."""
    of_party, topology = described["role"] == "party", []
    with reading(folder), understanding(folder):
        for line in read_model(folder)[1]:
            tree = line if of_party else line["tree"]
            rows = [{"owner": row["source"], **row} for row in tree["nodes"]] if of_party else tree["splits"]
            known = ("node", "owner", "handle", "opener") if of_party else ("node", "owner", "handle")
            topology.append(
                {
                    "tree": tree["tree" if of_party else "index"],
                    **({} if of_party else {"outputs": tree["outputs"]}),
                    "splits": [{key: row[key] for key in known} for row in rows],
                    "leaves": [leaf["node"] for leaf in tree["leaves"]],
                    **({"keepers": [leaf["keeper"] for leaf in tree["leaves"]]} if of_party else {}),
                }
            )
    kinds = ("parties", "own_features") if names else ("parties",)
    return {
        "trees": {key: described["trees"][key] for key in ("stored", "used")},
        "importance": {kind: described["importance"][kind] for kind in kinds},
        **({key: described[key] for key in ("party", "weights")} if of_party else {}),
        "topology": topology,
    }


def _card_of_network(_: Path, described: Json, *, names: bool) -> Json:
    """The settings that all parties know, and the top; `names`: also those of the label holder's inputs.

    The first layer of the label holder's own model would tell the number of its inputs.
    """
    public = ("name", "settings")
    return {
        "epochs": {"trained": described["epochs"], "best": described["best_epoch"]},
        "widths": described["widths"],
        "networks": [
            network if network["name"] == "top" else {key: network[key] for key in public}
            for network in described["networks"]
        ],
        **({"own_inputs": described["inputs"]} if names else {}),
    }


def classes_of(protocol: str) -> list[Json]:
    """Disclosure class → the messages of this training that carry it, from the descriptors.

    They are those of set-up and alignment, the protocol's own, and those of the files that its own imports.
    """
    try:
        described = training(protocol)
    except ConfigError:
        raise DataError(f"protocol {protocol!r} of the model is none of this version of treetap") from None
    own = cast(Descriptor, protocols_pb2.Parameters.DESCRIPTOR.fields_by_name[described.field].message_type).file
    carried: defaultdict[str, list[str]] = defaultdict(list)
    for row in disclosure_table([setup_pb2.DESCRIPTOR, alignment_pb2.DESCRIPTOR, *own.dependencies, own]):
        if row.disclosure == "PUBLIC_KEY" and not described.grows_trees:
            continue  # a message of set-up that only jobs with keys have
        carried[row.disclosure].append(f"{row.message.rpartition('.')[2]}.{row.field}")
    return [
        {"class": name, "learns": declared.tells, "fields": carried[name]}
        for name, declared in CLASSES.items()
        if name in carried
    ]


def _transcript(folder: Path, model: str) -> list[Json] | None:
    """Messages and bytes by direction, peer and class, if this party kept a transcript of the training."""
    path = folder.parent.parent / "transcripts" / model
    with reading(path):
        if folder.parent.name != "models" or not path.is_dir() or not files_of(path):
            return None
        try:
            rows = summarise(path)["rows"]
        except Malformed as fault:  # damaged, or of an earlier version, whose models are exported all the same
            log.warning("messages are not counted: %s", fault)
            return None
    totals: defaultdict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        if row["kind"] in ("received", "sent"):
            total = totals[row["kind"], row["peer"], row["class"]]
            total[0] += row["messages"]
            total[1] += row["bytes"]
    return [
        {"direction": kind, "peer": peer, "class": name, "messages": messages, "bytes": size}
        for (kind, peer, name), (messages, size) in sorted(totals.items())
    ]


def page(content: Json) -> str:
    """The card as HTML: styles and drawings inline, nothing loaded, every text escaped."""
    trees = [
        {
            **tree,
            "at": {split["node"]: f"{split['owner']} #{split['handle']}" for split in tree["splits"]},
            "kept": dict(zip(tree["leaves"], tree.get("keepers", []), strict=False)),
        }
        for tree in content.get("topology", [])
    ]
    charts = {
        title: [{**row, "percent": percent(_size(row), max(map(_size, rows)))} for row in rows]
        for title, rows in content.get("importance", {}).items()
    }
    transcript = Table(
        ["direction", "peer", "class", "messages", "bytes"],
        [[str(cell) for cell in row.values()] for row in content["disclosure"]["transcript"] or []],
        "Messages of the writer by direction, peer and class",
    )
    writer = content.get("party") or content["parties"]["label_holder"]
    return render(
        *("treetap.commands.model", "card.html.j2"),
        card=content,
        trees=trees,
        charts=charts,
        writer=writer,
        transcript=transcript,
    )


def _size(row: Json) -> float:
    """The length of a bar: total gain or, where no party keeps gains, the number of splits."""
    return float(row["total_gain"] if "total_gain" in row else row["weight"])
