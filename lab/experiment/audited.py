"""The audit at the end of a run of an experiment: its files, and the accuracies that an audit of files lacks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.attacks import audit
from treetap.attacks.audit_file import FILE, AuditFile, audited_runs, known_attacks, read
from treetap.attacks.case import ByTree
from treetap.attacks.document import parse
from treetap.attacks.files import AuditedParty, LabelTable, Victim
from treetap.attacks.report.verdict import short_form, to_do
from treetap.attacks.verdict import Verdict
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, Malformed
from treetap.lab.experiment.baselines import ALONE, UNDEFENDED
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.file_tables import AuditTable
from treetap.lab.experiment.joined_table import content_digest
from treetap.lab.experiment.party_tables import ID, Split, labels_file
from treetap.lab.experiment.results import Measures, RunResult
from treetap.lab.local_federation import keep_table, to_toml
from treetap.models.durable import write_whole
from treetap.pages.page import drawn
from treetap.pages.section import Section
from treetap.protocols.registry import training
from treetap.trees import sampling

REPORT, DOCUMENT = "audit.html", "audit.json"
#: Entries of an attack on columns that are pictures.
PICTURES = ("pictures", "picture")


def write_file(
    folder: Path,
    parties: Sequence[AuditedParty],
    label: LabelTable,
    more: Mapping[str, Any],
    evaluation: LabelTable | None = None,
    victims: Sequence[Victim] = (),
) -> AuditFile:
    """audit.toml of a run, with paths relative to its folder so that the folder can be moved. `more`: further keys."""
    content = {**more, "label": label.near(folder)}
    content |= {} if evaluation is None else {"evaluation": evaluation.near(folder)}
    for name, files in (("party", parties), ("victim", victims)):
        content |= {name: [it.near(folder) for it in files]} if files else {}
    write_whole(folder / FILE, to_toml(content).encode())
    return read(folder)


def run_audit(folder: Path, file: AuditFile, *, by_tree: ByTree) -> dict[str, Any]:
    """The audit document; it and the report are written to the folder."""
    from treetap.attacks.report.page import html

    with progress_view.steps("audit") as progress:
        document = audit.audit(file, by_tree=by_tree, progress=progress).plain()
    write_whole(folder / DOCUMENT, json.dumps(document).encode())
    if (page := drawn(folder / REPORT, lambda: html(document))) is not None:
        write_whole(folder / REPORT, page.encode())
    return document


def verdict_lines(document: Mapping[str, Any]) -> list[str]:
    """Say what each side learned, by an audit's document."""
    return [str(part) for part in Section("", short_form(parse(document))).shown("terminal")]


def audit_folder(folder: Path, *, attacks: Sequence[str] | None = None, by_tree: ByTree = "few") -> dict[str, Any]:
    """Audit a folder that holds audit.toml; the document and the report are written to it.

    Raises:
        BadInput: the file has a fault, an attack is not known, a transcript was changed, nothing can be written, or the
            folder is an experiment's with several runs.
    """
    runs = audited_runs(folder)
    if runs.several:
        raise BadInput(f"{folder}: is the folder of an experiment: name one of its runs, such as {runs.audited[0]}")
    file = read(folder)
    try:
        if attacks is not None:
            file = file.model_copy(update={"attacks": known_attacks(list(attacks))})
        return run_audit(folder, file, by_tree=by_tree)
    except (Malformed, ValueError) as fault:
        raise BadInput(str(fault)) from None
    except OSError as failure:
        raise BadInput(f"{folder}: cannot be written: {failure.strerror}") from None


def scores(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Party → attack → its figures; of PIVODL also what its messages disclose; of a label holder `victims`, of trees
    `columns_read`, by party, without pictures.
    """
    from treetap.attacks.registry import Needs, rows

    return {
        name: {
            **party["attacks"],
            **{key: known[key] for key in rows(Needs.KNOWN_LABELS) if known.get(key) is not None},
            **{key: party[key] for key in rows(Needs.SHARED_LABELS) if key in party},
            **{key: network[key] for key in rows(Needs.GRADIENTS) if network.get(key) is not None},
            **{
                key: {
                    of: {what: it for what, it in victim.items() if what not in PICTURES} for of, victim in by.items()
                }
                for key in ("victims", "columns_read")
                if (by := party.get(key)) is not None
            },
        }
        for name, party in document["parties"].items()
        for network, known in [(party.get("network", {}), party.get("known_labels", {}))]
    }


#: Share of the training records whose columns the label holder is assumed to know, and the fewest and most of them.
_KNOWN, _LEAST_KNOWN, _MOST_KNOWN = 0.1, 10, 2000
#: Settings of a label holder's attack on columns, of trees, where the file asks for none: seconds of work.
_BRIEF = {"steps": 0, "work": 60_000_000, "most_candidates": 1000}


def add_audit(
    run: RunResult, experiment: ExperimentFile, asked: AuditTable, table: pa.Table, drawn: Split, folder: Path
) -> None:
    """Audit the transcripts of all parties but the label holder; its own too, if it records, for attacks on columns.

    `run`: gets the results; from its metrics an audit of networks has the gain over alone. `table`: the joined one.
    """
    feature_parties = [party.name for party in experiment.party if not party.labels]
    parties = [_files(folder, name, columns=drawn.columns[name]) for name in feature_parties]
    more = asked.model_dump(include={"attacks", "classes", "drawn_only", "settings", "known_labels"}, exclude_none=True)
    more |= {
        "ca": "certs/ca.crt",
        "data_digest": content_digest(table),
        "title": f"{folder.parent.name}, {run.planned.title}",
        "defences": experiment.defences.model_dump(exclude_defaults=True),
    }
    if asked.frontier is not None:
        more["frontier"] = os.path.relpath(asked.frontier, folder)
    label = LabelTable(path=labels_file(experiment, folder), column=experiment.data.label, id=ID)
    # of a network accuracies are compared
    evaluation, victims = None, _victims_of_trees(experiment, run, drawn, folder)
    more |= {"sums": _BRIEF if experiment.reads_briefly else asked.sums} if victims else {}
    if not training(experiment.job.protocol).grows_trees:
        more |= {"network": asked.network, "accuracy": _accuracies(experiment, run.metrics)}
        parties = [
            party.model_copy(
                update={
                    "model": folder / party.name / "state" / "models" / "experiment",
                    "evaluation": folder / party.name / "predict.parquet",
                }
            )
            for party in parties
        ]
        evaluation = label.model_copy(update={"path": folder / experiment.in_order[0] / "predict.parquet"})
        victims = _victims(experiment, run, table, drawn, folder)
        more |= {"features": asked.features} if victims else {}
    if victims:
        parties.append(_files(folder, next(party.name for party in experiment.party if party.labels)))
    started = time.monotonic()
    file = write_file(folder, parties, label, more, evaluation, victims)
    unread = ""
    try:
        document = run_audit(folder, file, by_tree=asked.by_tree)
    except BadInput as fault:
        if not victims or not experiment.reads_briefly:
            raise
        # an attack that the file does not ask for must not cost it the others
        unread, parties = str(fault), [party for party in parties if party.name in feature_parties]
        more.pop("sums")
        file = write_file(folder, parties, label, more, evaluation)
        document = run_audit(folder, file, by_tree=asked.by_tree)
    run.audit, report = scores(document), folder / REPORT
    run.audit_report = str(report) if report.exists() else None
    told = parse(document)
    run.verdicts, run.to_do = [_explained(it, experiment, unread) for it in told.verdicts], to_do(told)
    run.audit_seconds = time.monotonic() - started


def _explained(verdict: Verdict, experiment: ExperimentFile, unread: str) -> Verdict:
    """The verdict, with the line by which an attack that could not read, or not all, reads more.

    `unread`: why a label holder's attack could not run; empty where it could.
    """
    line = f'    record = "received"  # in the [[party]] of {verdict.party}'
    if verdict.floor and experiment.reads_briefly:
        return verdict.model_copy(update={"floor": f"{verdict.floor}; to read all, which takes longer:\n{line}"})
    if unread and verdict.learned == "columns":
        return verdict.model_copy(update={"reason": unread})
    silent = [party.name for party in experiment.party if experiment.record(party) == "off" and not experiment.apart]
    if verdict.word != "not measured" or verdict.party not in silent:
        return verdict
    return verdict.model_copy(update={"reason": f"its messages were not kept; to measure it:\n{line}"})


def _files(folder: Path, name: str, columns: list[str] | None = None) -> AuditedParty:
    """A party's transcript and the table that it trained on."""
    own = folder / name
    transcript = own / "state" / "transcripts" / "experiment"
    return AuditedParty(name=name, transcript=transcript, table=own / "train.parquet", id=ID, columns=columns)


def _trained_on(run: RunResult, drawn: Split, name: str) -> list[str]:
    """A party's columns without the constant ones that its training left out."""
    dropped = run.dropped_columns.get(name, [])
    return [column for column in drawn.columns[name] if column not in dropped]


def _victims_of_trees(experiment: ExperimentFile, run: RunResult, drawn: Split, folder: Path) -> list[Victim]:
    """The feature parties of a job of trees, if the label holder records the sums over their columns."""
    if experiment.apart or not any(map(experiment.record_sums, experiment.party)):
        return []
    cuts = {party.name: party.cuts for party in experiment.party if not party.labels}
    return [
        Victim(
            name=name,
            truth=folder / name / "train.parquet",
            id=ID,
            columns=own if run.dropped_columns.get(name) else None,
            cuts=own_cuts,
        )
        for name, own_cuts in cuts.items()
        if (own := _trained_on(run, drawn, name))
    ]


def _victims(experiment: ExperimentFile, run: RunResult, table: pa.Table, drawn: Split, folder: Path) -> list[Victim]:
    """The parties whose columns the label holder attacks, each with drawn records that it is assumed to know.

    None where it keeps no transcript, or there are too few records to know some and guess others.
    """
    party = next(party for party in experiment.party if party.labels)
    count = min(_MOST_KNOWN, max(_LEAST_KNOWN, round(_KNOWN * len(drawn.train))))
    if experiment.record(party) == "off" or count >= len(drawn.train):
        return []
    rows = np.sort(sampling.generator(run.seed, "experiment auxiliary").permutation(drawn.train)[:count])
    victims = []
    for other in (other.name for other in experiment.party if not other.labels):
        columns, own = _trained_on(run, drawn, other), folder / other
        known = folder / party.name / f"known-{other}.parquet"
        if not columns:
            continue
        keep_table(table.select([ID, *columns]).take(pa.array(rows)), known)
        truth, model = own / "train.parquet", own / "state" / "models" / "experiment"
        victims.append(Victim(name=other, auxiliary=known, truth=truth, model=model, id=ID))
    return victims


def _accuracies(experiment: ExperimentFile, metrics: Mapping[str, Measures]) -> dict[str, float]:
    """Accuracies on the held-out rows, as far as the run has them; without defences `undefended` is `together`."""
    undefended = UNDEFENDED if experiment.defended else "test"
    rows = {"together": "test", "alone": ALONE, "undefended": undefended}
    accuracies = {name: metrics.get(row, {}).get("accuracy") for name, row in rows.items()}
    return {name: value for name, value in accuracies.items() if value is not None}
