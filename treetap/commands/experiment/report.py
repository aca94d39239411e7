"""Gain and cost of a run, gathered from the parties' accounts and their shards, and shown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from treetap import terminal
from treetap.commands.experiment.results import (
    OF_COLUMNS,
    Importance,
    Measures,
    Prediction,
    RunResult,
    Traffic,
    measures,
    summary,
)
from treetap.commands.jobs.progress_view import backends_line, epochs_used, trees_used
from treetap.commands.leakage import leakage_table
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
    if not holders:
        return _splits_by_feature(read)
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


def received_table(traffic: Sequence[Traffic]) -> Table:
    """Bytes received by disclosure class, a column per receiver."""
    sizes, parties = received(traffic)
    table = Table("class", *parties, title="Who received what")
    for kind, row in sizes.items():
        table.add_row(kind, *(terminal.size(row[party]) if row[party] else "·" for party in parties))
    return table


def _splits_by_feature(models: Mapping[str, tuple[dict[str, Any], list[dict[str, Any]]]]) -> list[Importance]:
    """Number of splits by feature, of models in which no party keeps gains."""
    counted = Counter(
        (party, manifest["columns"][split["feature"]])
        for party, (manifest, lines) in models.items()
        for line in lines
        for split in line["splits"]
    )
    return [
        Importance(party=party, feature=name, weight=weight, gain=None, cover=None)
        for (party, name), weight in counted.most_common()
    ]


def seconds_table(seconds: dict[str, float]) -> Table:
    """Wall time by phase."""
    table = Table("phase", "seconds", title="Time")
    for phase, value in seconds.items():
        table.add_row(phase, f"{value:.2f}")
    return table


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


def metrics_table(rows: Mapping[str, Measures], title: str) -> Table:
    """Models, a row each; a dash where a model has not the measure."""
    names = measures(rows.values())
    table = Table("", *names, title=title)
    for label, row in rows.items():
        table.add_row(label, *(written(row[name]) if name in row else "–" for name in names))
    return table


def print_summary(runs: Sequence[RunResult]) -> None:
    """Means and standard deviations over several runs, for a person."""
    rows = summary(runs).metrics
    names = measures(rows.values())
    table = Table("", *names, title=f"Mean ± standard deviation of {len(runs)} runs")
    for label, row in rows.items():
        table.add_row(label, *(row[name].written() if name in row else "–" for name in names))
    terminal.out.print(table)


def written(value: float | None) -> str:
    """A figure for a reader."""
    return "undefined" if value is None else f"{value:.4f}"


def print_run(run: RunResult) -> None:
    """The report of an experiment's run for a person."""
    terminal.out.rule(run.planned.title)
    terminal.out.print(metrics_table(run.metric_rows, "Metrics"))
    for sentence in run.says:
        terminal.out.print(terminal.text(sentence), soft_wrap=True)
    used = "" if run.trees is None else trees_used(**run.trees)
    used += "" if run.epochs is None else epochs_used(**run.epochs)
    if used:
        terminal.out.print(used)
    for line in (*_dropped(run), *_exported(run)):
        terminal.out.print(terminal.text(line), soft_wrap=True)
    terminal.out.print(seconds_table(run.seconds))
    if run.predict:
        terminal.out.print(predict_table(run.predict))
    terminal.out.print(received_table(run.traffic))
    if run.leakage:
        terminal.out.print("\nWhat sets of records say about the label, in nats; bounds are per node, not joint")
        terminal.out.print(leakage_table(run.leakage))
    if best := ", ".join(f"{row.feature} ({row.party})" for row in run.importance[:5]):
        terminal.out.print(terminal.text(f"most important: {best}"))
    # of a network an attack is of an epoch, not after trees
    if run.audit:
        after = "after trees" if run.trees is not None else "epoch"
        scored = terminal.table("party", "attack", "V-measure", after, "accuracy", "groups")
        for party, attacks in run.audit.items():
            for name, results in attacks.items():
                for label, figures in _attack_rows(name, results):
                    scored.add_row(party, label, *figures)
        terminal.out.print(scored)
        for holder, _, said in _columns_read(run.audit):
            terminal.out.print(terminal.text(f"{holder} {said}"), soft_wrap=True)
        terminal.out.print(f"audit: {run.audit_report}", soft_wrap=True)
    peak = max(run.peak_rss_mb.items(), key=lambda item: item[1], default=("", 0.0))
    terminal.out.print(f"largest process: {peak[0]}, {peak[1]:.0f} MiB")
    terminal.out.print(terminal.text(backends_line(run.arithmetic)), soft_wrap=True)
    terminal.out.file.flush()


def _dropped(run: RunResult) -> list[str]:
    """The constant columns that each party left out, a line each."""
    dropped = run.dropped_columns
    return [f"constant, hence dropped of {party}: {', '.join(names)}" for party, names in dropped.items() if names]


def _exported(run: RunResult) -> list[str]:
    """The file for XGBoost, or why there is none."""
    if run.xgboost_fault is not None:
        return [f"no model for XGBoost: {run.xgboost_fault}"]
    return [] if run.xgboost is None else [f"model for XGBoost: {run.xgboost}"]


def _columns_read(audit: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """The attacks on columns: label holder, feature party, and sentences, which follow the label holder's name.

    Of PIVODL each party, and the one whose columns it reads best.
    """
    if not any(key in attacks for attacks in audit.values() for key in (*OF_COLUMNS, "source_columns")):
        return []
    from attacks.features.schema import VictimFigures  # the attacks need an extra
    from attacks.pivodl.schema import SourceColumns
    from attacks.report import columns, pivodl, sums
    from attacks.sums.schema import ColumnFigures

    def by_embeddings(name: str, figures: dict[str, Any]) -> str:
        said = columns.words(VictimFigures.model_validate({**figures, "pictures": []}))
        return f"read embeddings of {name}. {' '.join(said)}"

    def by_sums(name: str, figures: dict[str, Any]) -> str:
        return sums.words(name, ColumnFigures.model_validate({**figures, "picture": None}))

    rows = [
        (holder, name, say(name, figures))
        for holder, attacks in audit.items()
        for key, say in zip(OF_COLUMNS, (by_embeddings, by_sums), strict=True)
        for name, figures in attacks.get(key, {}).items()
    ]
    for reader, attacks in audit.items():
        if "source_columns" in attacks:
            read = pivodl.column_words(SourceColumns.model_validate(attacks["source_columns"]))
            rows += [] if read is None else [(reader, *read)]
    return rows


def readings(runs: Sequence[RunResult]) -> list[list[str]]:
    """The audits in both directions, labels by feature parties and columns by a label holder: run, reader, of, how."""
    rows = []
    for run in runs:
        title, audit = run.planned.title, run.audit or {}
        rows += [[title, name, "labels", said] for name, attacks in audit.items() if (said := _strongest(attacks))]
        rows += [[title, holder, f"columns of {name}", said] for holder, name, said in _columns_read(audit)]
    return rows


def _strongest(attacks: Mapping[str, Any]) -> str:
    """A party's attack on labels with the largest V-measure beside CL; empty where none has one."""
    scored = {
        name: figures["v_measure"]
        for name, figures in attacks.items()
        if name not in OF_COLUMNS and figures.get("v_measure") is not None
    }
    own = scored.pop("cl", None)
    best = max(scored, key=scored.__getitem__, default=None)
    if best is None:
        return ""
    beside = "" if own is None else f"; by its own columns alone {written(own)}"
    return f"its groups of records have a V-measure of {written(scored[best])} ({best}{beside})."


def _attack_rows(name: str, results: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Rows of an attack: its name, V-measure, trees or epoch, accuracy and groups; none without such a figure."""
    if name in OF_COLUMNS:
        return []
    if name == "gradient-clusters":
        epoch = "all" if results["epoch"] is None else str(results["epoch"] + 1)
        measures = (written(results["v_measure"]), epoch, written(results["accuracy"]), str(results["clusters"]))
        return [(name, measures)]
    if name in ("gradient-labels", "known-neighbours", "known-regression"):
        return [(name, ("", "", _by_known_labels(results), ""))]
    if name == "completion":
        return [
            (
                f"{name}, {row['head']}, {'tuned' if row['tuned'] else 'frozen'}, {row['known']} labels",
                (
                    "",
                    "",
                    f"{written(row['completed']['accuracy'])} ({written(row['untrained']['accuracy'])} untrained)",
                    "",
                ),
            )
            for row in results["rows"]
        ]
    if "v_measure" in results:
        sizes = (str(results["after_trees"] or ""), written(results["accuracy"]), str(results["groups"] or ""))
        return [(name, (written(results["v_measure"]), *sizes))]
    return (
        [(name, ("", "", _either_way(results["accuracy"], results["inverted"]), ""))] if "accuracy" in results else []
    )


def _by_known_labels(results: dict[str, Any]) -> str:
    """The accuracy by known labels and gradients, or nodes of trees beside the party's own columns."""
    if "nodes" not in results:
        return written((results["inferred"] or {}).get("accuracy"))
    own = "" if results["columns"] is None else f" ({written(results['columns']['accuracy']['mean'])} alone)"
    return written(results["nodes"]["accuracy"]["mean"]) + own


def _either_way(accuracy: float | None, inverted: float | None) -> str:
    """The accuracy of a guess or, of two classes, of its opposite, which knows as much: the larger."""
    if accuracy is None or inverted is None or accuracy >= inverted:
        return written(accuracy)
    return f"{written(inverted)} (inverted)"
