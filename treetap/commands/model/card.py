"""Model cards: the publishable part of a model, as JSON and as one HTML page that loads nothing.

A label holder has it or, where all parties have one role, each of them. It contains topology (owners and handles),
importances, metrics, parties, protocol, parameters, and disclosures. It contains no thresholds, leaf weights, base
margin, gains and covers of single splits, class values, and, unless requested, no feature names. Of a network it
contains settings that all parties know and the layers of the top, no weight and no scaler.
"""

from __future__ import annotations

import json
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from google.protobuf.descriptor import Descriptor

from treetap.commands.model import network_view
from treetap.commands.model.view import describe, reading
from treetap.errors import BadInput, ConfigError, DataError, Malformed
from treetap.models.durable import write_whole
from treetap.models.sealed import Seal
from treetap.models.store import COLUMN_PRIVACY
from treetap.pages.page import render
from treetap.pages.pictures import Table, percent
from treetap.privacy.column_privacy import sentences
from treetap.protocols.registry import training
from treetap.wire.disclosure import CLASSES, disclosure_table
from treetap.wire.tap_file import files_of
from treetap.wire.transcript import summarise
from treetap.wire.v2 import alignment_pb2, protocols_pb2, setup_pb2

Json = dict[str, Any]
CARD_VERSION = 1


def export(folder: Path, out: Path, *, names: bool, seal: Seal | None = None) -> list[Path]:
    """Write model.json and model.html below `out`; `BadInput` where that is not possible. `seal`: see `card`."""
    content = card(folder, names=names, seal=seal)
    try:
        out.mkdir(parents=True, exist_ok=True)
        files = [out / "model.json", out / "model.html"]
        write_whole(files[0], (json.dumps(content, indent=1, allow_nan=False) + "\n").encode(), mode=0o644)
        write_whole(files[1], page(content).encode(), mode=0o644)
    except OSError as failure:
        raise BadInput(f"--out {out}: cannot be written: {failure.strerror}") from None
    return files


def card(folder: Path, *, names: bool, seal: Seal | None = None) -> Json:
    """The card of a model; `names` adds the importances of the party's own features, by name.

    `seal`: of the state folder that the model lies in, if it has a state key.
    """
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
        "metrics": described["metrics"],
        **({"weighted": True} if described.get("weighted") else {}),
        **(
            network_view.published(described, names=names)
            if "networks" in described
            else _of_trees(described, names=names)
        ),
        "disclosure": {
            "classes": _classes(described["protocol"]),
            "transcript": _transcript(folder, described["model"], seal),
        },
    }


def _of_trees(described: Json, *, names: bool) -> Json:
    return {
        "trees": {"stored": len(described["trees"]), "used": described["used_trees"]},
        "importance": {
            "parties": described["importance"]["parties"],
            **({"own_features": described["importance"]["own_features"]} if names else {}),
        },
        **({"privacy": sentences(described[COLUMN_PRIVACY])} if COLUMN_PRIVACY in described else {}),
        **({key: described[key] for key in ("party", "privacy", "weights")} if described["role"] == "party" else {}),
        "topology": [(_shared_shape if described["role"] == "party" else _shape)(tree) for tree in described["trees"]],
    }


def _shape(tree: Json) -> Json:
    return {
        "tree": tree["tree"],
        "outputs": tree["outputs"],
        "splits": [{key: split[key] for key in ("node", "owner", "handle")} for split in tree["splits"]],
        "leaves": [leaf["node"] for leaf in tree["leaves"]],
    }


def _shared_shape(tree: Json) -> Json:
    """The same of a tree whose splits have a source and a party that opened them, and whose leaves have keepers."""
    return {
        "tree": tree["tree"],
        "splits": [
            {"node": split["node"], "owner": split["source"], "handle": split["handle"], "opener": split["opener"]}
            for split in tree["splits"]
        ],
        "leaves": [leaf["node"] for leaf in tree["leaves"]],
        "keepers": [leaf["keeper"] for leaf in tree["leaves"]],
    }


def _classes(protocol: str) -> list[Json]:
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


def _transcript(folder: Path, model: str, seal: Seal | None) -> list[Json] | None:
    """Messages and bytes by direction, peer and class, if this party kept a transcript of the training."""
    path = folder.parent.parent / "transcripts" / model
    with reading(path):
        if folder.parent.name != "models" or not path.is_dir() or not files_of(path):
            return None
        try:
            rows = summarise(path, seal=seal)["rows"]
        except Malformed as damage:  # of a file on this machine, not of a message
            raise BadInput(str(damage)) from None
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
