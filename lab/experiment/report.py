"""Gain and cost of a run, gathered from the parties' accounts and their shards, and their tables for a terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from treetap import terminal
from treetap.lab.experiment.results import (
    Importance,
    Prediction,
    Traffic,
)
from treetap.models.store import WEIGHTS, read_manifest, read_model
from treetap.trees import ensemble
from treetap.trees.ensemble import Tree, used_of
from treetap.wire.v2 import jobs_pb2

#: Classes that every job sends to every process; the tables for people leave them out or put them last.
PLAIN = ("CONTROL", "TOPOLOGY", "METRIC")


def collect(statuses: list[jobs_pb2.JobStatus], models: Mapping[str, Path]) -> dict[str, Any]:
    """The costs of jobs, as `RunResult` has them, and importances by feature."""
    ciphertexts: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    steps: defaultdict[str, dict[str, float]] = defaultdict(dict)
    rss: dict[str, float] = {}
    cpu: defaultdict[str, float] = defaultdict(float)
    for status in statuses:
        for of_party in status.accounts:
            account = of_party.account
            for count in account.ciphertexts:
                ciphertexts[count.name] += count.count
            for count in account.operations:
                operations[count.name] += count.count
            for second in account.seconds:
                own = steps[of_party.party]
                own[second.name] = own.get(second.name, 0.0) + second.amount
            for peak in account.peak_rss_mb:
                rss[peak.name] = max(rss.get(peak.name, 0.0), peak.amount)
            for used in account.cpu_seconds:
                cpu[used.name] += used.amount
    return {
        "traffic": traffic(statuses),
        "ciphertexts": dict(ciphertexts),
        "operations": dict(operations),
        "seconds_by_step": dict(steps),
        "peak_rss_mb": rss,
        "cpu_seconds": dict(cpu),
        "importance": importance(models),
    }


def traffic(statuses: list[jobs_pb2.JobStatus]) -> list[Traffic]:
    """Bytes by sender, receiver and class in jobs, a row each."""
    sizes: Counter[tuple[str, str, str, str]] = Counter()
    messages: Counter[tuple[str, str, str, str]] = Counter()
    accounts = [of_party.account for status in statuses for of_party in status.accounts]
    for row in (row for account in accounts for row in account.traffic):
        key = (getattr(row, "from"), row.to, row.step, row.disclosure)
        sizes[key] += row.bytes
        messages[key] += row.messages
    return [
        Traffic.model_validate(
            {"from": a, "to": b, "step": step, "class": kind, "messages": messages[a, b, step, kind], "bytes": size}
        )
        for (a, b, step, kind), size in sorted(sizes.items())
    ]


def importance(models: Mapping[str, Path]) -> list[Importance]:
    """Gain, cover and number of splits by feature: needs every party's shard, which no party has. A network has none.

    Raises:
        DataError: a shard is of a newer format, or differs from the published one.
    """
    if any(WEIGHTS in read_manifest(folder)["files"] for folder in models.values()):
        return []
    read = {party: read_model(folder) for party, folder in models.items()}
    holders = [model for model in read.values() if model[0]["role"] == "label_holder"]
    if not holders:  # no party keeps gains
        counted = Counter(
            (party, manifest["columns"][split["feature"]])
            for party, (manifest, lines) in read.items()
            for line in lines
            for split in line["splits"]
        )
        return [
            Importance(party=party, feature=name, weight=weight, gain=None, cover=None)
            for (party, name), weight in counted.most_common()
        ]
    manifest, shard = holders[0]
    # a split is named by its owner and a handle; its feature stands in the owner's shard alone
    feature = {
        (party, split["handle"]): own["columns"][split["feature"]]
        for party, (own, lines) in read.items()
        for line in lines
        for split in (line["own"] if "own" in line else line["splits"])
    }
    trees = tuple(Tree.from_dict(line["tree"]) for line in shard)
    used = used_of(trees, manifest["best_round"], manifest["trees_per_round"])
    totals = ensemble.importance(used, lambda split: (split.owner, feature[split.owner, split.handle]))
    return [
        Importance(party=party, feature=name, weight=total.weight, gain=total.gain, cover=total.cover)
        for (party, name), total in sorted(totals.items(), key=lambda item: -item[1].total_gain)
    ]


def dropped_columns(models: Mapping[str, Path]) -> dict[str, list[str]]:
    """Per party the constant columns that it trained without, by its manifest."""
    return {party: read_manifest(folder).get("dropped_columns", []) for party, folder in models.items()}


def received(traffic: Sequence[Traffic]) -> tuple[dict[str, Counter[str]], list[str]]:
    """Class → receiver → bytes, and all receivers; what every job sends, and the coordinator, come last."""
    sizes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in traffic:
        sizes[row.disclosure][row.receiver] += row.bytes
    parties = sorted({name for row in sizes.values() for name in row}, key=lambda name: (name == "coordinator", name))
    return {kind: sizes[kind] for kind in sorted(sizes, key=lambda kind: (kind in PLAIN, kind))}, parties


def predict_table(predictions: Mapping[str, Prediction]) -> Table:
    """Each prediction protocol's time, its difference from the centralised model, and its bytes by class."""
    every = list(predictions.values())
    table = Table("", *predictions, title="Predictions")
    table.add_row("seconds", *(f"{one.seconds:.2f}" for one in every))
    table.add_row("sent", *(terminal.size(one.bytes) for one in every))
    differences = [one.max_difference for one in every]
    shown = ("not comparable" if value is None else f"{value:.1e}" for value in differences)
    table.add_row("largest difference", *shown)
    # what every job sends tells nothing about a protocol
    for kind in sorted({row.disclosure for one in every for row in one.traffic} - {*PLAIN}):
        sizes = [sum(row.bytes for row in one.traffic if row.disclosure == kind) for one in every]
        table.add_row(kind, *(terminal.size(value) if value else "·" for value in sizes))
    return table


def written(value: float | None) -> str:
    """A figure for a reader."""
    return "undefined" if value is None else f"{value:.4f}"
