"""Model cards: the publishable part of a model, as JSON and as one HTML page that loads nothing.

A label holder has it or, where all parties have one role, each of them. It contains topology (owners and handles),
importances, metrics, parties, protocol, parameters, and disclosures. It contains no thresholds, leaf weights, base
margin, gains and covers of single splits, class values, and, unless requested, no feature names. Of a network it
contains settings that all parties know and the layers of the top, no weight and no scaler.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from google.protobuf.descriptor import Descriptor

from treetap.commands.model.view import describe, understanding
from treetap.commands.options import reading
from treetap.errors import BadInput, ConfigError, DataError, Malformed
from treetap.models.durable import make_ignored_folder, write_whole
from treetap.models.store import read_model
from treetap.pages.page import drawn, render
from treetap.pages.pictures import percent
from treetap.pages.section import Table
from treetap.protocols.registry import training
from treetap.wire.disclosure import CLASSES, disclosure_table
from treetap.wire.transcript import files_of, summarise
from treetap.wire.v2 import alignment_pb2, protocols_pb2, setup_pb2

log = logging.getLogger(__name__)
Json = dict[str, Any]
CARD_VERSION = 2


def export(folder: Path, out: Path, *, names: bool) -> list[Path]:
    """Write model.json and model.html below `out`; `BadInput` where that is not possible."""
    content = card(folder, names=names)
    try:
        make_ignored_folder(out, 0o777)
        files = [out / "model.json", out / "model.html"]
        write_whole(files[0], (json.dumps(content, indent=1, allow_nan=False) + "\n").encode(), mode=0o644)
        if (told := drawn(files[1], lambda: page(content))) is None:
            return files[:1]
        write_whole(files[1], told.encode(), mode=0o644)
    except OSError as failure:
        raise BadInput(f"--out {out}: cannot be written: {failure.strerror}") from None
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
        **(_of_network if "networks" in described else _of_trees)(folder, described, names=names),
        "disclosure": {
            "classes": _classes(described["protocol"]),
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


def _of_network(_: Path, described: Json, *, names: bool) -> Json:
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
