"""One attack on one party's transcript, as `treetap attack` runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attacks.audit import scores
from attacks.id2graph.settings import Settings, usual_discount
from attacks.networks.names import ATTACKS as ON_NETWORKS
from attacks.networks.settings import NetworkSettings
from attacks.pivodl import findings as pivodl
from attacks.registry import Outcome, attack
from attacks.view.own_table import load_labels, load_own_table
from attacks.view.view import View, read_view
from treetap import terminal
from treetap.errors import BadInput
from treetap.protocols.libraries import require_library
from treetap.protocols.registry import training
from treetap.tables.labels import Labels
from treetap.tables.reading import Table

_NETWORK = ", ".join(ON_NETWORKS)


@dataclass(frozen=True)
class Task:
    """The arguments of an attack. `labels`: (file, column, id column), for scoring alone.

    `model`, `known`, `network`: of attacks on split networks the folder of the published model, labels that the party
    is assumed to know as (file, column, id column), and their settings.
    """

    name: str
    transcript: Path
    job: str | None
    ca: Path | None
    revoked: Path | None
    party: str | None
    table: Path | None
    use: list[str] | None
    id: str
    classes: int | None
    received_only: bool
    drawn_only: bool
    labels: tuple[Path, str, str] | None
    settings: dict[str, Any]
    model: Path | None = None
    known: tuple[Path, str, str] | None = None
    network: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The result of a task. `table` is None if the attacker's own was not given."""

    view: View
    table: Table | None
    outcome: Outcome
    report: dict[str, Any]


def run(task: Task) -> Found:
    """Read the transcript, run the attack, score it.

    Raises:
        BadInput: a file cannot be used, or the number of groups is not given.
        Malformed: the transcript was changed.
    """
    view = read_view(task.transcript, task.job, task.party, task.ca, task.revoked)
    if view.network is not None and task.name != "cl":
        raise BadInput(f"job {view.job} trained a split network, which has no leaves: attacks on it are {_NETWORK}")
    table = None if task.table is None else load_own_table(task.table, view, task.id, task.use)
    labels = _labels(task, view, table)
    if task.name == "cl" and table is None:
        raise BadInput("attack cl clusters the attacker's own columns: say --columns FILE")
    clusters = task.classes if task.classes is not None else None if labels is None else len(labels.classes)
    if clusters is None and task.name != "uni":
        raise BadInput("say --classes C: the number of groups of records to look for")
    settings = Settings.read({"discount": usual_discount(view.protocol)} | task.settings)
    leaves = (view.received_only() if task.received_only else view).leaves(drawn_only=task.drawn_only)
    features = None if table is None else table.features
    wanted = 2 if clusters is None else clusters  # uni, the only attack that needs none, ignores it
    outcome = attack(task.name, leaves, view.records, features, wanted, settings)
    sizes = np.sort(np.unique(outcome.clusters, return_counts=True)[1])[::-1]
    report = {
        "attack": outcome.attack,
        "party": view.party,
        "job": view.job,
        "protocol": view.protocol,
        "records": view.records,
        "trees": len(view.trees),
        "leaves": [len(each) for each in leaves],
        "received_only": task.received_only,
        "drawn_only": task.drawn_only,
        "groups": outcome.found,
        "alone": outcome.alone,
        "modularity": outcome.modularity,
        "clusters": len(sizes),
        "largest_clusters": sizes[:100].tolist(),
        **scores(labels, outcome.clusters),
        "seconds": outcome.seconds,
        "parameters": outcome.parameters,
        "faults": list(view.faults),
        "signed": str(view.anchor),
    }
    return Found(view, table, outcome, report)


def run_pivodl(task: Task) -> dict[str, Any]:
    """Run one of PIVODL's attacks, which sort no records into groups; returns its report.

    Raises:
        BadInput: a file cannot be used, or the transcript is of another protocol's job.
        Malformed: the transcript was changed.
    """
    view = read_view(task.transcript, task.job, task.party, task.ca, task.revoked)
    if view.pivodl is None:
        raise BadInput(f"attack {task.name} is on transcripts of pivodl; job {view.job} is one of {view.protocol}")
    table = None if task.table is None else load_own_table(task.table, view, task.id, task.use)
    labels, features = _labels(task, view, table), None if table is None else table.features
    found = pivodl.findings(view.pivodl, view.records, features, labels, only=task.name)
    return {
        "attack": task.name,
        "party": view.party,
        "job": view.job,
        "protocol": view.protocol,
        "records": view.records,
        "trees": len(view.trees),
        **found[task.name],
        "faults": list(view.faults),
        "signed": str(view.anchor),
    }


def run_network(task: Task) -> dict[str, Any]:
    """Run one of the attacks on split networks; returns its report.

    Raises:
        BadInput: a file cannot be used, a library is missing, the transcript is of another protocol's job, or the
            attack cannot run on what is given.
        Malformed: the transcript was changed, or a gradient does not fit its batch.
    """
    view = read_view(task.transcript, task.job, task.party, task.ca, task.revoked)
    if view.network is None:
        raise BadInput(f"attack {task.name} is on transcripts of splitnn; job {view.job} is one of {view.protocol}")
    require_library(view.protocol, training(view.protocol))
    from attacks.networks.party_audit import PartyFiles, audited_party

    table = None if task.table is None else load_own_table(task.table, view, task.id, task.use)
    labels = _labels(task, view, table)
    files = PartyFiles(task.table, task.id, task.model, task.known)
    settings = NetworkSettings.read(task.network)
    found = audited_party(view, files, table, labels, task.classes, settings, task.name)
    if found[task.name] is None:
        raise BadInput(f"attack {task.name}: {found['reasons'][task.name]}")
    return {
        "attack": task.name,
        "party": view.party,
        "job": view.job,
        "protocol": view.protocol,
        **{name: found[name] for name in ("epochs", "attacked", "sat_out", "width", "amplified")},
        **found[task.name],
        "reasons": found["reasons"],
        "faults": list(view.faults),
        "signed": str(view.anchor),
    }


def show_network(report: dict[str, Any]) -> None:
    """Print the report of `run_network` to the terminal: single figures, then each list as a table."""
    show_pivodl({key: value for key, value in report.items() if not isinstance(value, list) or key == "faults"})
    for name, value in report.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = terminal.table(*(key.replace("_", " ") for key in value[0]))
            for each in value:
                rows.add_row(*(terminal.text(_cell(key, cell)) for key, cell in each.items()))
            terminal.out.print(terminal.text(name.replace("_", " ")))
            terminal.out.print(rows)


def _cell(name: str, value: Any) -> str:
    """A cell of a report's table; an accuracy over draws with its deviation."""
    if isinstance(value, dict):
        spread = "" if value["deviation"] is None else f" ± {value['deviation']:.4f}"
        return f"{value['accuracy']:.4f}{spread}"
    return "all" if value is None and name == "epoch" else _figure(name, value)


def _figure(name: str, value: Any) -> str:
    """A figure of a report; an AUC below one half as that of the opposite guess, which knows as much."""
    if name == "auc" and value is not None and value < 0.5:
        return f"{1 - value:.4f} (inverted)"
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def show_pivodl(report: dict[str, Any]) -> None:
    """Print the report of `run_pivodl` to the terminal."""
    for fault in report["faults"]:
        terminal.err.print(f"note: {fault}", soft_wrap=True)
    rows = terminal.table("", "")
    for name, value in report.items():
        if isinstance(value, list):
            continue
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for key, each in inner:
            rows.add_row(" ".join(f"{name} {key}".split()).replace("_", " "), terminal.text(_figure(key or name, each)))
    terminal.out.print(rows)


def write(found: Found, path: Path) -> None:
    """Write id and group of every record, as Parquet: the id as the table has it, without one `position`, from 0."""
    groups = pa.array(found.outcome.clusters)
    if found.table is None:
        content = pa.table({"position": pa.array(np.arange(found.view.records)), "group": groups})
    else:
        table = found.table
        content = pa.table([table.ids.array.cast(table.id_type), groups], names=[table.id_column, "group"])
    try:
        pq.write_table(content, path, compression="zstd")
    except OSError as failure:
        raise BadInput(f"{path}: cannot be written: {failure.strerror or failure}") from None


def show_found(found: Found, out: Path | None) -> None:
    """Print the report to the terminal."""
    report = found.report
    for fault in report["faults"]:
        terminal.err.print(f"note: {fault}", soft_wrap=True)
    rows = terminal.table("", "")
    rows.add_row("transcript", report["signed"])
    known = f"{sum(report['leaves'])} leaves of {report['trees']} trees, {report['records']} records"
    rows.add_row("attacker", f"{report['party']}, job {report['job']} ({report['protocol']})")
    rows.add_row("knows", known + (", by messages alone" if report["received_only"] else ""))
    if report["groups"] is not None:
        rows.add_row("groups found", str(report["groups"]))
    if report["modularity"] is not None:
        rows.add_row("modularity", f"{report['modularity']:.4f}")
    largest = ", ".join(map(str, report["largest_clusters"][:10])) + (", …" if report["clusters"] > 10 else "")
    rows.add_row("guesses", f"{report['clusters']} clusters, of {largest} records")
    for name in ("v_measure", "homogeneity", "completeness", "ari", "nmi", "accuracy"):
        if report[name] is not None:
            rows.add_row(name.replace("_", " "), f"{report[name]:.4f}")
    rows.add_row("seconds", f"{sum(report['seconds'].values()):.2f}")
    terminal.out.print(rows)
    if out is not None:
        terminal.out.print(f"groups: {out}", soft_wrap=True)


def _labels(task: Task, view: View, table: Table | None) -> Labels | None:
    if task.labels is None:
        return None
    if table is None:
        raise BadInput("--labels are found by the ids of the party's table: say --columns FILE")
    if view.regression:
        raise BadInput(f"job {view.job} has numbers for labels: groups are scored against classes only")
    path, column, id_column = task.labels
    return load_labels(path, column, table, id_column)
