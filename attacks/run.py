"""One attack on one party's transcript, as `treetap attack` runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap import terminal
from treetap.attacks.audit_file import SETTINGS, AuditFile
from treetap.attacks.case import Case, by_known_labels, held, on_network, on_scores, shared_labels
from treetap.attacks.files import AuditedParty, ScoredPrediction
from treetap.attacks.id2graph.attack import Outcome
from treetap.attacks.predictions.evidence import read_scores
from treetap.attacks.published.schema import DecodingSettings
from treetap.attacks.registry import Attack, Needs, attack, row, rows
from treetap.attacks.scores import scores
from treetap.attacks.view.view import View, read_view
from treetap.errors import BadInput, cannot
from treetap.protocols.registry import training


@dataclass(frozen=True)
class Task:
    """An attack by name: the attacker, and what an audit's file says of it.

    `party`: its name may be None where the transcript has it. `file`: job, certificates, classes and labels alone are
    read. `settings`: those of the attack's own schema. `predictions`: the file that the recipient of a prediction
    wrote, whose scores are attacked.
    """

    name: str
    party: AuditedParty
    file: AuditFile
    settings: dict[str, Any] = field(default_factory=dict)
    received_only: bool = False
    predictions: Path | None = None


@dataclass(frozen=True)
class Done:
    """The result of a task. `case` and `outcome`: the attacker and its groups, of an attack that forms some."""

    report: dict[str, Any]
    case: Case | None = None
    outcome: Outcome | None = None


def run(task: Task) -> Done:
    """Read the transcript, run the attack, score it.

    Raises:
        BadInput: a file cannot be used, the transcript gives no such view, a library is missing, the number of groups
            is not given, or the attack cannot run on what is given.
        Malformed: the transcript was changed.
    """
    asked = row(task.name)
    if asked.needs in (Needs.EMBEDDINGS, Needs.SUMS):
        raise BadInput(
            f"attack {task.name} is on columns of a [[victim]]: name it in audit.toml, and run treetap audit"
        )
    if asked.needs == Needs.PUBLISHED:
        raise BadInput(f"attack {task.name} is on a published model: run treetap audit --model FOLDER --table FILE")
    if asked.settings is None and task.settings:
        raise BadInput(f"attack {task.name} has no settings; leave {', '.join(task.settings)} out")
    if asked.needs == Needs.SCORES:
        return Done(_on_scores(task, asked))
    view = read_view(task.party.transcript, task.file.job, task.party.name, task.file.ca, task.file.revoked)
    _check(asked, view)
    case = _case(task, asked, view)
    if asked.needs in (Needs.COLUMNS, Needs.SETS):
        return _grouped(task, case)
    chosen = {asked.name: asked}
    if asked.needs == Needs.GRADIENTS:
        network = on_network(case, chosen)
        beside = ("epochs", "attacked", "sat_out", "width", "amplified")
        figures = _named(asked, network.plain(), network.reasons, beside)
    elif asked.needs == Needs.KNOWN_LABELS:
        known = by_known_labels(case, chosen)
        figures = _named(asked, known.plain(), known.reasons, ("drawn",))
    else:
        figures = shared_labels(case, chosen)[asked.name].plain()
    return Done({**_beginning(task, view), **figures, **_end(view)})


def _check(asked: Attack, view: View) -> None:
    """Raise BadInput where a view is not of the kind that an attack needs."""
    if asked.needs.given_by(view):
        return
    if view.network is not None:
        known = ", ".join(rows(Needs.GRADIENTS))
        what = "has no leaves" if asked.needs in (Needs.SETS, Needs.KNOWN_LABELS) else f"is not by {asked.needs.value}"
        raise BadInput(f"job {view.job} trained a split network, which {what}: attacks on it are cl, {known}")
    raise BadInput(
        f"attack {asked.name} is on transcripts of {asked.needs.value}; job {view.job} is one of {view.protocol}"
    )


def _case(task: Task, asked: Attack, view: View) -> Case:
    """The attacker, as an audit of this party alone has it."""
    if task.file.label is not None and task.party.table is None:
        raise BadInput("--labels are found by the ids of the party's table: say --columns FILE")
    if task.file.label is not None and view.regression and asked.needs in (Needs.COLUMNS, Needs.SETS):
        raise BadInput(f"job {view.job} has numbers for labels: groups are scored against classes only")
    party = task.party.model_copy(update={"name": view.party})
    # an attack by name has no file: its settings stand in the table where an audit file would have them
    table_of = {needs: name for name, needs in SETTINGS.items()} | {Needs.COLUMNS: "settings"}
    given = {} if asked.settings is None else {table_of[asked.needs]: task.settings}
    file = task.file.model_copy(update={**given, "party": [party]})
    table, labels = held(party, view, file)
    classes = file.classes if file.classes is not None else None if labels is None else len(labels.classes)
    return Case(file, party, view.received_only() if task.received_only else view, table, labels, classes)


def _beginning(task: Task, view: View) -> dict[str, Any]:
    named = {"attack": task.name, "party": view.party, "job": view.job, "protocol": view.protocol}
    trees = {"records": view.records, "trees": len(view.trees)} if training(view.protocol).grows_trees else {}
    return {**named, **trees}


def _end(view: View) -> dict[str, Any]:
    return {"faults": list(view.faults), "signed": str(view.anchor)}


def _grouped(task: Task, case: Case) -> Done:
    """Groups of records that should share a label."""
    view, leaves = case.view, case.leaves()
    if task.name == "cl" and case.table is None:
        raise BadInput("attack cl clusters the attacker's own columns: say --columns FILE")
    if case.classes is None and task.name != "uni":
        raise BadInput("say --classes C: the number of groups of records to look for")
    wanted = 2 if case.classes is None else case.classes  # uni, the only attack that needs none, ignores it
    outcome = attack(task.name, leaves, view.records, case.features, wanted, case.settings, view.own_cuts())
    sizes = np.sort(np.unique(outcome.clusters, return_counts=True)[1])[::-1]
    report = {
        **_beginning(task, view),
        "records": view.records,
        "trees": len(view.trees),
        "leaves": [len(of_tree) for of_tree in leaves],
        "received_only": task.received_only,
        "drawn_only": task.file.drawn_only,
        "groups": outcome.found,
        "alone": outcome.alone,
        "modularity": outcome.modularity,
        "clusters": len(sizes),
        "largest_clusters": sizes[:100].tolist(),
        **scores(case.labels, outcome.clusters),
        "seconds": outcome.seconds,
        "parameters": outcome.parameters,
        **({"reason": reason} if (reason := case.reason(task.name)) else {}),
        **_end(view),
    }
    return Done(report, case, outcome)


def _on_scores(task: Task, asked: Attack) -> dict[str, Any]:
    party, job = task.party, task.file.job
    if job is None or party.model is None or party.table is None or task.predictions is None:
        raise BadInput(
            f"attack {asked.name} reads what the recipient of a prediction has: say --job PREDICTION, --model FOLDER, "
            "--columns FILE of the predicted records, and --predictions FILE"
        )
    files = ScoredPrediction.model_construct(
        job=job,
        transcript=party.transcript,
        model=party.model,
        table=party.table,
        scores=task.predictions,
        id=party.id,
    )
    evidence = read_scores(files, DecodingSettings.read(task.settings), task.file.ca, task.file.revoked)
    figures = on_scores(evidence, {asked.name: asked})
    named = {"attack": asked.name, "party": figures.recipient, "job": job, "model": figures.model}
    plain = {**figures.plain(), asked.name: figures.plain().get(asked.name.replace("-", "_"))}
    said = _named(asked, plain, figures.reasons, ("protocol",))
    return {**named, **said, "faults": figures.faults, "signed": figures.signed}


def _named(asked: Attack, plain: dict[str, Any], reasons: dict[str, str], beside: tuple[str, ...]) -> dict[str, Any]:
    """The findings of one attack with some fields that stand beside them. Raises BadInput where it could not run."""
    if plain[asked.name] is None:
        raise BadInput(f"attack {asked.name}: {reasons[asked.name]}")
    return {**{name: plain[name] for name in beside}, **plain[asked.name], "reasons": reasons}


def write(done: Done, path: Path) -> None:
    """Write id and group of every record, as Parquet: the id as the table has it, without one `position`, from 0."""
    assert done.case is not None  # the command asks for a file of groups alone
    assert done.outcome is not None
    groups = pa.array(done.outcome.clusters)
    if (table := done.case.table) is None:
        content = pa.table({"position": pa.array(np.arange(done.case.view.records)), "group": groups})
    else:
        own = table.id_columns
        content = pa.table(
            [*own.at(np.arange(len(table.ids))), groups], schema=pa.schema([*own.fields, ("group", groups.type)])
        )
    with cannot("be written", path):
        pq.write_table(content, path, compression="zstd")


def show(done: Done, out: Path | None = None) -> None:
    """Print the report to the terminal: single figures, then each list as a table."""
    report = done.report
    for fault in report["faults"]:
        terminal.err.print(f"note: {fault}", soft_wrap=True)
    terminal.out.print(_single(report))
    for name, value in report.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            terminal.out.print(terminal.text(name.replace("_", " ")))
            rows = (
                ["all" if cell is None and key == "epoch" else _figure(key, cell) for key, cell in line.items()]
                for line in value
            )
            terminal.print_table((key.replace("_", " ") for key in value[0]), rows)
    if out is not None:
        terminal.out.print(f"groups: {out}", soft_wrap=True)


def _single(report: dict[str, Any]) -> Any:
    """The figures that are no lists, a line each."""
    table = terminal.table("", "")
    for name, value in report.items():
        if isinstance(value, list):
            if value and isinstance(value[0], int):
                table.add_row(name.replace("_", " "), ", ".join(map(str, value[:10])) + ", …" * (len(value) > 10))
            continue
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for key, figure in inner:
            table.add_row(
                " ".join(f"{name} {key}".split()).replace("_", " "), terminal.text(_figure(key or name, figure))
            )
    return table


def _figure(name: str, value: Any) -> str:
    """A figure of a report; an AUC below one half as that of the opposite guess, which knows as much."""
    if isinstance(value, dict):  # over draws, with its deviation
        spread = "" if value["deviation"] is None else f" ± {value['deviation']:.4f}"
        return f"{value['accuracy'] if 'accuracy' in value else value['mean']:.4f}{spread}"
    if name == "auc" and value is not None and value < 0.5:
        return f"{1 - value:.4f} (inverted)"
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
