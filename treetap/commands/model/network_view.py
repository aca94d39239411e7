"""A party's share of a network: its inputs with their scalers, its own model and, at the label holder, the top.

Weights are counted and not shown: `numpy.load` reads them from the party's `weights.npz`. No party has another's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.table import Table

from treetap import terminal
from treetap.models.arrays import Array
from treetap.terminal import text

Json = dict[str, Any]
#: Entries of a manifest with the settings of a model, in the order in which records pass through: its arrays' names
#: begin with the entry's.
MODELS = ("bottom", "top")


def described(manifest: Json, arrays: Mapping[str, Array]) -> Json:
    """The party's models as JSON types, without a weight."""
    content: Json = {
        "label_holder": manifest["party"] if manifest["role"] == "label_holder" else manifest["label_holder"],
        "epochs": manifest["epochs"],
        "wire_type": manifest["wire_type"],
        "threads": manifest["threads"],
        "reproducible": manifest["reproducible"],
        "inputs": _inputs(manifest["inputs"]),
        "networks": [
            _network(name, manifest[name], layers) for name in MODELS if (layers := list(_layers(name, arrays)))
        ],
    }
    if manifest["role"] == "feature_party":
        return content
    return content | {
        "feature_parties": list(manifest["feature_parties"]),
        "widths": dict(manifest["widths"]),
        "party_dropout": dict(manifest["params"]["party_dropout"]),
        "objective": manifest["objective"],
        "classes": list(manifest["classes"]),
        "params": manifest["params"],
        "metrics": manifest["training_metrics"],
        "best_epoch": manifest["best_epoch"],
    }


def published(shown: Json, *, names: bool) -> Json:
    """The network in a card of the label holder's description: settings that all parties know, and the top.

    The first layer of the label holder's own model would tell the number of its inputs. `names`: also their names.
    """
    own = [row["name"] for kind in ("columns", "images") for row in shown["inputs"][kind]]
    return {
        "epochs": {"trained": shown["epochs"], "best": shown["best_epoch"]},
        "widths": shown["widths"],
        "networks": [
            network if network["name"] == "top" else {key: network[key] for key in ("name", "settings")}
            for network in shown["networks"]
        ],
        **({"own_inputs": own} if names else {}),
    }


def _inputs(scaler: Json) -> Json:
    indicated = set(scaler["indicated"])
    columns = zip(scaler["columns"], scaler["mean"], scaler["deviation"], strict=True)
    return {
        "columns": [
            {"name": name, "mean": mean, "deviation": deviation, "indicator": place in indicated}
            for place, (name, mean, deviation) in enumerate(columns)
        ],
        "images": [
            {"name": name, **{key: list(image[key]) for key in ("shape", "mean", "deviation")}}
            for name, image in scaler["images"].items()
        ],
    }


def _network(name: str, settings: Json, layers: list[Json]) -> Json:
    return {"name": name, "settings": settings, "weights": sum(row["numbers"] for row in layers), "layers": layers}


def _layers(name: str, arrays: Mapping[str, Array]) -> Iterator[Json]:
    """The arrays of a model, buffers of its norms included."""
    for key, array in arrays.items():
        if key.startswith(f"{name}/"):
            yield {
                "name": key.removeprefix(f"{name}/"),
                "shape": list(array.shape),
                "numbers": math.prod(array.shape),
            }


def headline(shown: Json) -> list[str]:
    """The parties, the metrics of the best epoch and what the job fixes of the arithmetic, a line each."""
    lines = []
    if shown["role"] == "label_holder":
        parties = ", ".join(f"{name} (width {width})" for name, width in shown["widths"].items())
        used = f"epoch {shown['best_epoch'] + 1} of {shown['epochs']}"
        lines.append(f"{shown['objective']} with {parties}; {used} is used")
        measured = (f"{name} {value:.4f}" for name, value in shown["metrics"].items() if value is not None)
        lines += [line] if (line := ", ".join(measured)) else []
        lines += [f"trained without {name} in {share:.0%} of the batches" for name, share in _omitted(shown)]
    else:
        lines.append(f"label holder {shown['label_holder']}; {shown['epochs']} epochs; metrics are known there alone")
    lines.append(f"numbers between parties: {shown['wire_type']}; threads: {shown['threads']}")
    if shown["reproducible"]:
        lines.append("initial weights follow from the job's seed, which every party knows (reproducible = true)")
    return lines


def _omitted(shown: Json) -> Iterable[tuple[str, float]]:
    return ((name, share) for name, share in shown["party_dropout"].items() if share > 0)


def tables(shown: Json) -> Iterator[Table]:
    """The inputs and how they are scaled, and the layers of each model."""
    inputs = shown["inputs"]
    if inputs["columns"] or inputs["images"]:
        made = terminal.table("input", "shape", "mean", "deviation", "missing cells")
        for row in inputs["columns"]:
            made.add_row(text(row["name"]), "1", *_shown(row), "indicated" if row["indicator"] else "")
        for row in inputs["images"]:
            made.add_row(text(row["name"]), _size(row["shape"]), *_shown(row), "")
        yield made
    for network in shown["networks"]:
        made = terminal.table(f"{network['name']}, {network['weights']:,} weights", "shape", "numbers")
        for row in network["layers"]:
            made.add_row(text(row["name"]), _size(row["shape"]), f"{row['numbers']:,}")
        yield made


def _shown(row: Json) -> tuple[str, str]:
    def joined(value: float | list[float]) -> str:
        return ", ".join(f"{number:.6g}" for number in (value if isinstance(value, list) else [value]))

    return joined(row["mean"]), joined(row["deviation"])


def _size(shape: list[int]) -> str:
    return " x ".join(map(str, shape)) or "1"
