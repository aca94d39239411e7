"""Audits of the runs of an experiment, and of a published model: reports, documents, figures for a person, limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from treetap import terminal
from treetap.attacks import audit, audit_file
from treetap.attacks import limits as gate
from treetap.attacks.audit_file import Runs
from treetap.attacks.intruder import intrude
from treetap.attacks.published.model import OpenTrees, Target
from treetap.attacks.report.page import html as report
from treetap.attacks.report.page import print_summary, print_verdict
from treetap.attacks.report.verdict import intruder_page, intruder_report
from treetap.attacks.view.own_table import check_names
from treetap.commands.jobs import progress_view
from treetap.commands.options import reading
from treetap.errors import BadInput, cannot
from treetap.lab.audit.options import AuditOptions, PublishedOptions
from treetap.lab.experiment.joint_model import JointModel, shards_in
from treetap.models.durable import write_whole
from treetap.models.store import CELLS, COLUMN_PRIVACY, HIDES_CONSTANTS, MANIFEST, SIDES, VALUES, read_manifest
from treetap.pages.page import drawn
from treetap.pages.printing import print_section
from treetap.protocols.registry import training
from treetap.tables.config import TableConfig
from treetap.tables.labels import Labels, read_classes, read_targets
from treetap.tables.opening import columns_of
from treetap.tables.reading import Table, read_table
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.params import TreeParams


def audit_runs(runs: Runs, asked: AuditOptions, *, as_json: bool) -> list[str]:
    """Audit the runs, write and print what was found; returns the figures above a limit, which are printed too.

    Raises:
        BadInput: a file has a fault or cannot be written, or figures are too few to be judged by limits.
        Malformed: a transcript was changed.
    """
    limits, html, document = gate.parse(asked.fail_above or []), asked.html, asked.document
    if runs.several and html is not None:
        raise BadInput(
            f"--html: each run of an experiment has its report in its folder; name one, as {runs.audited[0]}"
        )
    if runs.silent and limits and not asked.allow_partial:
        raise BadInput(f"{_unaudited(runs.silent[0])}: --fail-above needs --allow-partial to judge by the others")
    # faults of all files and folders are named before the first audit, which may take minutes
    files = [_file(run, asked) for run in runs.audited]
    pages = [html or (run if run.is_dir() else run.parent) / "audit.html" for run in runs.audited]
    for folder in {path.parent for path in (*pages, document or pages[0])}:
        if not folder.is_dir():
            raise BadInput(f"{folder}: there is no such folder for the report")
    plain, above = {}, []
    for run, file, page in zip(runs.audited, files, pages, strict=True):
        name = run.name if runs.several else ""
        with progress_view.steps(" ".join(("audit", name)).strip()) as progress:
            content = audit.audit(file, by_tree=asked.by_tree(thorough=bool(limits)), progress=progress)
        exceeded = gate.exceeded(content, limits)
        # faults of a transcript may hide figures
        if limits and not exceeded and not asked.allow_partial and (faults := audit.incomplete(content)):
            raise BadInput(
                f"{faults[0]}; figures may be too small: --fail-above needs --allow-partial to judge by them"
            )
        above += [f"{name}: {line}" if name else line for line in exceeded]
        plain[name] = content.plain()
        if not as_json:
            if name:
                terminal.out.rule(terminal.text(name))
            print_verdict(plain[name], terminal.out)
            if asked.details:
                print_summary(plain[name], terminal.out)
        _draw(page, partial(report, plain[name]), asked, as_json=as_json)
    said = [*(f"note: {_unaudited(run)}" for run in runs.silent), *above]
    _close({"runs": plain} if runs.several else plain[""], said, asked, as_json=as_json)
    return above


def _draw(page: Path, draw: Callable[[], str], asked: AuditOptions, *, as_json: bool) -> None:
    """Write the page, where its library is there, and say where it is."""
    told = drawn(page, draw)
    if write_report(page, told, "--html", named=asked.html is not None) and not as_json:
        terminal.out.print(f"report: {page}", soft_wrap=True)


def _close(document: dict[str, Any], said: Sequence[str], asked: AuditOptions, *, as_json: bool) -> None:
    """Write and print the document where it was asked for, and print what is said of it."""
    text = json.dumps(document, indent=1)
    if asked.document is not None:
        write_report(asked.document, text, "--document", named=True)
    if as_json:
        print(text, flush=True)
    for line in said:
        terminal.err.print(terminal.text(line), soft_wrap=True)


def _unaudited(run: Path) -> str:
    return f"{run}: holds no {audit_file.FILE}, hence is not audited"


def _file(run: Path, asked: AuditOptions) -> audit_file.AuditFile:
    """The audit file of a run with what was asked for in the place of its own."""
    file = audit_file.read(run)
    given: dict[str, object] = {"job": asked.job, "ca": asked.ca, "revoked": asked.revoked, "frontier": asked.frontier}
    update = {key: value for key, value in given.items() if value is not None}
    if asked.attacks is not None:
        try:
            update["attacks"] = audit_file.known_attacks([name.strip() for name in asked.attacks.split(",")])
        except ValueError as fault:
            raise BadInput(f"--attacks: {fault}") from None
    return file.model_copy(update=update)


def write_report(path: Path, content: str | None, option: str, *, named: bool) -> bool:
    """Write a report; False of None, which could not be drawn.

    Where the person has not named the place, a link is replaced: RUN may be from elsewhere.
    """
    if content is None:
        return False
    with cannot("be written", path, more=f"; say {option} FILE"):
        if named:
            path.write_text(content, encoding="utf-8")
        else:
            write_whole(path, content.encode(), mode=0o644)
    return True


#: Entry of a manifest → what its training had and no shadow model has.
_LACKING = {
    COLUMN_PRIVACY: "the noise on sums",
    VALUES: "noisy labels, which were repaired",
    HIDES_CONSTANTS: "subtrees of the label holder alone",
    "weighted": "sample weights",
}


def audit_published(
    folder: Path, rows: Path, published: PublishedOptions, asked: AuditOptions, *, as_json: bool
) -> list[str]:
    """Audit a published model, write and print what was found; returns the figures above a limit, which are printed.

    Raises:
        BadInput: a file or an option cannot be used; a limit is on transcripts.
    """
    limits = gate.parse(asked.fail_above or [])
    if given := asked.of_transcripts():
        raise BadInput(f"{given[0]} is of an audit of transcripts: leave it out beside --model")
    with reading(folder):
        target = read_target(folder, rows, published)
    with progress_view.steps("audit") as progress:
        document = intrude(target, progress)
    above = gate.exceeded_by_published(document, limits)
    if not as_json:
        print_section(intruder_report(document, details=asked.details), terminal.out)
    _draw(asked.html or folder / "intruder.html", partial(intruder_page, document), asked, as_json=as_json)
    if asked.html is None:  # beside the page, for `treetap evidence`
        write_report(folder / "intruder.json", json.dumps(document.plain(), indent=1), "--document", named=False)
    _close(document.plain(), above, asked, as_json=as_json)
    return above


def read_target(folder: Path, path: Path, published: PublishedOptions) -> Target:
    """The model in a folder, and the records of the table.

    Raises:
        BadInput: there is no such model, its protocol has no joint scores, the table lacks a column, or no record, or
            every one, is of the training.
    """
    if not folder.is_dir():
        raise BadInput(f"--model {folder}: there is no such folder")
    own_part = (folder / MANIFEST).is_file()
    shards = {str(read_manifest(folder)["party"]): folder} if own_part else shards_in(folder)[1]
    manifests = {party: read_manifest(shard) for party, shard in shards.items()}
    first = next(iter(manifests.values()))
    described = training(first["protocol"])
    if described.one_role or not described.grows_trees:
        why = "its leaf weights lie apart at the parties" if described.one_role else "it is a network, and has no trees"
        raise BadInput(f"{folder}: a model of protocol {first['protocol']!r} has no joint scores to audit: {why}")
    joint = JointModel(shards)
    manifest = joint.manifest
    special = [published.id, published.label, published.member]
    check_names(path, columns_of(path), [*special, *(name for party in shards for name in joint.columns(party))])
    # the label holder first: trees break ties in this order
    order = [joint.label_holder, *manifest["feature_parties"]]
    tables = joint.tables({party: TableConfig(path=str(path), id=published.id) for party in order})
    own = tables[joint.label_holder]
    members = read_classes(_column(path, published.id, published.member, own), published.member)
    if len(members.classes) != 2:
        raise BadInput(
            f"{path}: column {published.member!r} has {len(members.classes)} values; it must have two, the later one, "
            "such as 1, yes or true, for records of the training"
        )
    least = {
        party: int(fewest)
        for party, of_party in joint.manifests.items()
        if of_party["role"] == "feature_party" and (fewest := of_party.get(CELLS) or of_party.get(SIDES))
    }
    # The parameters of the training.
    kind, given = training(manifest["protocol"]).params, manifest["params"]
    values = {field.name: given[field.name] for field in fields(kind) if field.name in given}
    params = kind(**{**values, "missing": nan if values.get("missing") is None else values["missing"]})
    assert isinstance(params, TreeParams)
    # what the training had and no shadow model has
    lacking = [words for entry, words in _LACKING.items() if manifest.get(entry)]
    lacking += ["the trees before"] if manifest["trees"] > params.n_estimators * manifest["trees_per_round"] else []
    trees = OpenTrees(joint.opened.published, joint.opened.meaning, manifest.get("training_metrics", {}))
    return Target(
        name=str(manifest["job"]),
        protocol=str(manifest["protocol"]),
        params=params,
        trees=trees,
        tables=tables,
        labels=_labels(joint, _column(path, published.id, published.label, own), published.label),
        members=members.values == 1,
        least=least,
        lacking=lacking,
    )


def _column(path: Path, id_column: str, column: str, own: Table) -> Table:
    """A column of the table as a label, of the records of `own`."""
    config = TableConfig(path=str(path), id=id_column, label=column)
    table = read_table(config, with_label=True, missing=None)
    return table.take(table.ids.places_of(own.ids))


def _labels(joint: JointModel, table: Table, column: str) -> Labels:
    """The labels in the classes of the training. Raises BadInput for one that it had not."""
    objective, known = joint.manifest["objective"], joint.manifest["classes"]
    if objective in REGRESSIONS:
        return read_targets(table, column, objective)
    labels = read_classes(table, column, known)
    if foreign := [name for name in labels.classes if name not in known]:
        raise BadInput(f"{table.path}: column {column!r} holds {foreign[0]!r}, which is no class of the model: {known}")
    place = np.array([known.index(name) for name in labels.classes], dtype=np.int64)
    return Labels(place[labels.values], list(known), labels.kind)
