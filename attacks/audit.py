"""An audit: every party's transcript under every attack whose view it gives, scored where labels or columns are given.

The auditor is not a party: it may hold labels and several parties' tables at once. Each attack still gets only one
party's transcript and columns.

The verdicts of an audit: one on each party and whatever it could learn, from what its attacks compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from treetap.attacks import sections
from treetap.attacks.advice.advise import AdvisedJob, advise, given, told
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
from treetap.attacks.document import Document
from treetap.attacks.label_holder_audit import attacked, columns_read, label_holder, read_holder
from treetap.attacks.networks.schema import GainFigures, VictimFigures
from treetap.attacks.pivodl.evidence import exact_weights, true_columns
from treetap.attacks.pivodl.schema import SourceFigures
from treetap.attacks.registry import Needs, rows
from treetap.attacks.sums.schema import ColumnFigures, placed_words
from treetap.attacks.verdict import OTHERS, Verdict, best_of, judged, unbalanced
from treetap.attacks.view.own_table import auc_by_membership
from treetap.attacks.view.view import OTHERS_RECORDS, read_view
from treetap.errors import BadInput
from treetap.protocols.registry import training
from treetap.version import package_version


def verdicts(cases: Sequence[Case], parties: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """The verdicts on labels, then those on columns.

    Args:
        cases: attackers.
        parties: name → the fields of its part of the document.
    """
    on_labels = [case for case in cases if not case.view.of_columns]
    judgements = [_of_labels(case) for case in on_labels]
    judgements += [it for case in cases for it in _of_columns(case.party.name, parties[case.party.name])]
    # a label holder may be audited of some feature parties alone, and need not be audited at all
    read = {verdict.of for verdict in judgements if verdict.learned == "columns"}
    if cases and not training(cases[0].view.protocol).one_role:
        holder = cases[0].view.label_holder
        reason = f'to measure it:\n    record = "received"  # in the [[party]] of {holder}, or [[victim]] in audit.toml'
        reason = OTHERS_RECORDS if cases[0].view.apart else reason
        judgements += [
            judged(holder, "columns", case.party.name, [], reason=reason, details="columns")
            for case in on_labels
            if case.party.name not in read
        ]
    return judgements


def _of_labels(case: Case) -> Verdict:
    """The verdict on what a party learned of labels; of PIVODL of those that others have.

    Where a class is rare the measure is AUC wherever an attack has it, so that no two runs differ in it. Of trees the
    best guess of all attacks stands beside the best one without the training.
    """
    of = case.view.label_holder if case.view.pivodl is None else OTHERS
    details = "attacks" if case.view.network is None else "network"
    rare = case.labels is not None and unbalanced(np.bincount(case.labels.values.astype(np.int64)).tolist())
    ranked = [it for it in case.compared if rare and it.measure == "AUC"]
    every = ranked or case.compared
    if case.view.network is None:  # a network's guesses are of different records
        every = [
            best_of([it for it in every if it.measure == measure])
            for measure in dict.fromkeys(it.measure for it in every)
        ]
    # why nothing was compared
    reason = "no attack that uses the training was run"
    if case.view.regression:
        reason = "the label is a number, and what sets of records tell of numbers is not measured"
    elif case.labels is None:
        reason = "no labels were given to compare with"
    return judged(case.party.name, "labels", of, every, reason=reason, details=details)


def _of_columns(party: str, fields: Mapping[str, Any]) -> Iterator[Verdict]:
    """The verdicts on what a party learned of columns: a label holder, or a party of PIVODL."""
    for key, details in (("columns_read", "columns"), ("victims", "columns")):
        for of, figures in fields.get(key, {}).items():
            yield _of_victim(party, of, figures, "; ".join(figures.reasons.values()), details)
    if (sources := fields.get("source_columns")) is not None:
        # of many parties that read many others' columns the one that was read most stands for all
        every = [
            _of_victim(party, of, figures, sources.reasons.get(of, ""), "shared")
            for of, figures in sources.sources.items()
        ]
        if every:
            yield max(every, key=lambda it: (it.rank, it.share or 0.0))


def _of_victim(
    party: str, of: str, figures: ColumnFigures | SourceFigures | VictimFigures, reason: str, details: str
) -> Verdict:
    """The worse of exact bins and of explained variance, beside the other one; of networks they are one figure."""
    explained = None if isinstance(figures, VictimFigures) else figures.explained
    known = [it for it in (figures.compared, explained) if it is not None]
    reason = reason or "no column was at hand to compare with"
    verdict = judged(party, "columns", of, known, reason=reason, details=details)
    other = next((it for it in known if it.measure != verdict.measure), None)
    steps = figures.placed_after if isinstance(figures, ColumnFigures) else None
    return verdict.model_copy(update={"other": other, "placed": steps and placed_words(steps)})


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
    cases = _cases(file)
    first = cases[0].view
    frontier = None if file.frontier is None else given(file.frontier, first.protocol, file.data_digest)
    parties = _parties(cases, by_tree=by_tree, progress=progress)
    predictions = scored_predictions(file, partial(progress, len(cases), len(cases)))
    progress(len(cases), len(cases), "")
    classes = _classes(cases)
    of_trees = training(first.protocol).grows_trees
    on_labels = [case for case in cases if not case.view.of_columns]
    advised = on_labels and not first.regression
    # The traffic of the job, each message once: between two audited parties the receiver's transcript counts.
    views = {case.party.name: case.view for case in cases}
    traffic = []
    for name, view in views.items():
        traffic += [{**row, "to": name} for row in view.received]
        traffic += [{**row, "from": name} for row in view.sent if row["to"] not in views]
    return Document.model_validate(
        {
            "job": first.job,
            "title": file.title,
            "protocol": first.protocol,
            "label_holder": first.label_holder,
            "private": first.private or None,
            "attempt": max(case.view.attempt for case in cases),
            "records": max(case.view.records for case in cases),
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
            "traffic": traffic,
            "advice": advise(_advised(on_labels), frontier) if advised else None,
            "gain": None if of_trees else GainFigures.of(**file.accuracy.model_dump()),
            "predictions": predictions or None,
        }
    )


def _parties(cases: list[Case], *, by_tree: ByTree, progress: Progress) -> dict[str, Any]:
    """The sections of each party, and the findings on what it received."""
    parties = {}
    for number, case in enumerate(cases):

        def say(part: str, number: int = number, name: str = case.party.name) -> None:
            progress(number, len(cases), f"{name}: {part}")

        with threadpool_limits(1):  # most fits are small: threads would wait for each other
            # The sections that need no attack.
            view, labels, told, own = case.view, case.labels, case.file.label, None
            if view.apart and case.table is not None and told is not None and not view.regression:
                own = auc_by_membership(told.path, told.column, case.table, told.id)
            parties[case.party.name] = {
                "transcript": str(view.path),
                "columns": [] if case.table is None else case.table.columns,
                "received": view.received,
                "sent": view.sent,
                "bounds": sections.bound_rows(view, labels),
                "signature": sections.signature(view, labels),
                "trees": sections.tree_rows(view, labels),
                "faults": list(view.faults),
                "signed": str(view.anchor),
                "room": view.room,
                "records": view.records if view.apart else None,
                "membership": own,
            } | _attacked(case, say, by_tree=by_tree)
    return parties


def _classes(cases: list[Case]) -> list[str] | None:
    """Names of the classes of the labels at hand; None without any."""
    return next((case.labels.classes for case in cases if case.labels is not None), None)


def incomplete(document: Document) -> list[str]:
    """Faults of the transcripts that make figures too small: cuts, missing trees, an end before the job's end."""
    return [fault for party in document.parties.values() for fault in party.faults]


def _cases(file: AuditFile) -> list[Case]:
    """The attackers of one job, with all files of theirs read. Raises as `audit` does."""
    holder = label_holder(file)
    # that of a label holder, which attacks columns, has the embeddings that it was sent
    views = {
        party.name: read_holder(file, party)
        if party.name == holder
        else read_view(party.transcript, file.job, party.name, file.ca, file.revoked)
        for party in file.party
    }
    # The first of the views, after a check that all are of one job.
    first, *others = views.values()
    for view in others:
        for what in ("job", "protocol", "label_holder", *(() if view.apart else ("records",))):
            ours, theirs = getattr(first, what), getattr(view, what)
            if ours != theirs:
                raise BadInput(
                    f"{view.path}: {what.replace('_', ' ')} {theirs!r}, but {ours!r} in {first.path}: "
                    "one audit is of one job; say job = … if the transcripts hold several"
                )
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


def _attacked(case: Case, say: Say, *, by_tree: ByTree) -> dict[str, Any]:
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
        fields |= columns_read(case.file, case.party, case.view, say)
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
