"""An audit: every party's transcript under every attack whose view it gives, scored where labels or columns are given.

The auditor is not a party: it may hold labels and several parties' tables at once. Each attack still gets only one
party's transcript and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from treetap.attacks import sections
from treetap.attacks.advice.advise import AdvisedJob, advise, told
from treetap.attacks.advice.frontiers_at_hand import given
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.case import (
    ByTree,
    Case,
    Say,
    by_known_labels,
    grouped,
    held,
    on_network,
    scored_predictions,
    shared_labels,
)
from treetap.attacks.columns_apart import figures_of, reading
from treetap.attacks.document import Document
from treetap.attacks.judging import verdicts
from treetap.attacks.label_holder_audit import attacked, columns_read, label_holder, read_holder
from treetap.attacks.networks.schema import GainFigures
from treetap.attacks.pivodl.evidence import exact_weights
from treetap.attacks.pivodl.source_columns import true_columns
from treetap.attacks.registry import Needs, rows
from treetap.attacks.view.view import View, read_view
from treetap.errors import BadInput
from treetap.process.fork_server import Child
from treetap.protocols.registry import training
from treetap.version import package_version

#: Callback before each part of the work: parties done, all parties, name of the next part.
Progress = Callable[[int, int, str], None]


def audit(file: AuditFile, *, by_tree: ByTree, progress: Progress) -> Document:
    """Audit one job; returns the document.

    `by_tree`: the numbers of trees after which records are grouped; an attacker may stop after any.

    Raises:
        BadInput: a file cannot be used, transcripts are of different jobs, the frontier is of another protocol, or the
            number of classes is not given.
        Malformed: a transcript was changed.
    """
    holder = label_holder(file)
    with reading(file, holder) as child:
        cases = _cases(file, holder)
        first = cases[0].view
        frontier = None if file.frontier is None else given(file.frontier, first.protocol, file.data_digest)
        parties = _parties(cases, child, by_tree=by_tree, progress=progress)
    predictions = scored_predictions(file, partial(progress, len(cases), len(cases)))
    progress(len(cases), len(cases), "")
    classes = _classes(cases)
    of_trees = training(first.protocol).grows_trees
    on_labels = [case for case in cases if not case.view.of_columns]
    advised = on_labels and not first.regression
    return Document.model_validate(
        {
            "job": first.job,
            "title": file.title,
            "protocol": first.protocol,
            "label_holder": first.label_holder,
            "attempt": max(case.view.attempt for case in cases),
            "records": first.records,
            "classes": None if classes is None else len(classes),
            "class_names": classes,
            # without classes: a regression, whose labels no attack on classes can be scored by, or no labels at all
            "labelled": file.label is not None and bool(on_labels),
            "trees": max(len(case.view.trees) for case in cases),
            "max_depth": first.max_depth,
            "discount": cases[0].settings.discount,
            "created": datetime.now(UTC),
            "treetap": package_version(),
            "verdicts": verdicts(cases, parties),
            "parties": parties,
            "traffic": _traffic({case.party.name: case.view for case in cases}),
            "advice": advise(_advised(on_labels), frontier) if advised else None,
            "gain": None if of_trees else GainFigures.of(**file.accuracy.model_dump()),
            "predictions": predictions or None,
        }
    )


def _parties(cases: list[Case], child: Child | None, *, by_tree: ByTree, progress: Progress) -> dict[str, Any]:
    """The sections of each party, and the findings on what it received; `child` reads columns."""
    parties = {}
    for number, case in enumerate(cases):
        say = partial(_say, progress, number, len(cases), case.party.name)
        with threadpool_limits(1):  # most fits are small: threads would wait for each other
            parties[case.party.name] = _of_view(case) | _attacked(case, say, child, by_tree=by_tree)
    return parties


def _classes(cases: list[Case]) -> list[str] | None:
    """Names of the classes of the labels at hand; None without any."""
    return next((case.labels.classes for case in cases if case.labels is not None), None)


def incomplete(document: Document) -> list[str]:
    """Faults of the transcripts that make figures too small: cuts, missing trees, an end before the job's end."""
    return [fault for party in document.parties.values() for fault in party.faults]


def _say(progress: Progress, number: int, parties: int, name: str, part: str) -> None:
    progress(number, parties, f"{name}: {part}")


def _cases(file: AuditFile, holder: str | None) -> list[Case]:
    """The attackers of one job, with all files of theirs read. Raises as `audit` does."""
    views = _views(file, holder)
    first = _one_job(views)
    of_parties = [held(party, views[party.name], file) for party in file.party]
    known = next((labels for _, labels in of_parties if labels is not None), None)
    classes = file.classes if known is None else len(known.classes)
    groups = training(first.protocol).grows_trees and not all(view.of_columns for view in views.values())
    if classes is None and groups and not first.regression:
        raise BadInput("the number of groups to look for is not given: say [label], or classes = 2 or more")
    # what one party of a PIVODL job got exactly tells what noise hides from the others: for scoring alone
    shared = {name: view.pivodl for name, view in views.items() if view.pivodl is not None}
    tables = {party.name: table for party, (table, _) in zip(file.party, of_parties, strict=True) if table is not None}
    exact, columns = exact_weights(shared), true_columns(shared, tables)
    cases = [
        Case(file, party, views[party.name], *held_by, classes, exact, columns)
        for party, held_by in zip(file.party, of_parties, strict=True)
    ]
    for case in cases:
        if "cl" in case.grouping() and case.table is None:
            raise BadInput(
                f"{case.party.name}: attack cl clusters the party's own columns: say table = …, or leave cl out"
            )
    return cases


def _views(file: AuditFile, holder: str | None) -> dict[str, View]:
    """The parties' views; that of a label holder, which attacks columns, has the embeddings that it was sent."""
    return {
        party.name: read_holder(file, party)
        if party.name == holder
        else read_view(party.transcript, file.job, party.name, file.ca, file.revoked)
        for party in file.party
    }


def _attacked(case: Case, say: Say, child: Child | None, *, by_tree: ByTree) -> dict[str, Any]:
    """The findings of all attacks whose view this one is, under the fields of the document that hold them."""
    fields: dict[str, Any] = {"attacks": grouped(case, case.grouping(), say, by_tree=by_tree)}
    fields["reasons"] = case.reasons or None
    if Needs.KNOWN_LABELS.given_by(case.view):
        say("known labels")
        fields["known_labels"] = by_known_labels(case, rows(Needs.KNOWN_LABELS))
    if Needs.SHARED_LABELS.given_by(case.view):
        say("leaf weights and gains")
        fields |= shared_labels(case, rows(Needs.SHARED_LABELS))
    if Needs.GRADIENTS.given_by(case.view):
        say("gradients and model")
        fields["network"] = on_network(case, rows(Needs.GRADIENTS))
    if Needs.EMBEDDINGS.given_by(case.view):
        fields["victims"] = attacked(case.file, case.party, case.view, say)
    if Needs.SUMS.given_by(case.view):
        say("columns")
        apart = None if child is None else figures_of(child)
        fields |= apart or columns_read(case.file, case.party, case.view, say)
    return fields


def _advised(cases: list[Case]) -> AdvisedJob:
    """The job for advice; cases: attackers on labels, with what they compared."""
    guessed, word = told([it for case in cases for it in case.compared])
    view, file = cases[0].view, cases[0].file
    classes = _classes(cases)
    return AdvisedJob(
        protocol=view.protocol,
        label_holder=view.label_holder,
        feature_parties=[case.party.name for case in cases],
        classes=None if classes is None else len(classes),
        guessed=guessed,
        word=word,
        params=vars(view.params),
        defences=file.defences,
        data_digest=file.data_digest,
    )


def _one_job(views: Mapping[str, View]) -> View:
    """The first of the views, after a check that all are of one job."""
    first, *others = views.values()
    for view in others:
        for what in ("job", "protocol", "label_holder", "records"):
            ours, theirs = getattr(first, what), getattr(view, what)
            if ours != theirs:
                raise BadInput(
                    f"{view.path}: {what.replace('_', ' ')} {theirs!r}, but {ours!r} in {first.path}: "
                    "one audit is of one job; say job = … if the transcripts hold several"
                )
    return first


def _of_view(case: Case) -> dict[str, Any]:
    """The sections that need no attack."""
    view, labels = case.view, case.labels
    return {
        "transcript": str(view.path),
        "columns": [] if case.table is None else case.table.columns,
        "received": sections.received_rows(view),
        "sent": sections.sent_rows(view),
        "bounds": sections.bound_rows(view, labels),
        "signature": sections.signature(view, labels),
        "trees": sections.tree_rows(view, labels),
        "faults": list(view.faults),
        "signed": str(view.anchor),
        "room": view.room,
    }


def _traffic(views: Mapping[str, View]) -> list[dict[str, Any]]:
    """The traffic of the job, each message once: between two audited parties the receiver's transcript counts."""
    traffic = []
    for name, view in views.items():
        traffic += [{**row, "to": name} for row in sections.received_rows(view)]
        traffic += [{**row, "from": name} for row in sections.sent_rows(view) if row["to"] not in views]
    return traffic
