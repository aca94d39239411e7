"""An audit: every party's transcript under every attack, scored where labels or columns are given.

The auditor is not a party: it may hold labels and several parties' tables at once. Each attack still gets only one
party's transcript and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attacks import sections
from attacks.advice.advise import advise
from attacks.advice.advised_job import AdvisedJob
from attacks.advice.frontiers_at_hand import given
from attacks.audit_file import AuditedParty, AuditFile, LabelTable
from attacks.document import Document
from attacks.id2graph.settings import Settings
from attacks.label_holder_audit import attacked, label_holder, read_holder
from attacks.networks.gain import gain
from attacks.networks.settings import NetworkSettings
from attacks.pivodl.findings import exact_weights, findings
from attacks.registry import ATTACKS, Outcome, attack
from attacks.scores import score
from attacks.view.known_trees import Ints
from attacks.view.own_table import load_labels, load_own_table
from attacks.view.view import View, read_view
from treetap.errors import BadInput
from treetap.protocols.libraries import require_library
from treetap.protocols.registry import training
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.version import package_version

#: Most records for which the exact graph, whose size grows with their square, is attacked too.
EXACT_UP_TO = 3000
#: Attacks that work at any size.
ALWAYS = ("cl", "uni", "uni+cl", "id2graph-quotient")
#: Callback after each part of the work: parts done, all parts, name of the next part.
Progress = Callable[[int, int, str], None]


def audit(file: AuditFile, *, by_tree: bool, progress: Progress) -> Document:
    """Audit one job; returns the document.

    `by_tree`: attack also the view after the first tree, the first two, and so on.

    Raises:
        BadInput: a file cannot be used, transcripts are of different jobs, the frontier is of another protocol, or the
            number of classes is not given.
        Malformed: a transcript was changed.
    """
    holder = label_holder(file)
    views = {
        party.name: read_holder(file, party)
        if party.name == holder
        else read_view(party.transcript, file.job, party.name, file.ca, file.revoked)
        for party in file.party
    }
    first = _one_job(views)
    frontier = None if file.frontier is None else given(file.frontier, first.protocol, file.data_digest)
    held = {
        party.name: (None, None) if party.name == holder else _held(party, views[party.name], file)
        for party in file.party
    }
    known = next((labels for _, labels in held.values() if labels is not None), None)
    clusters = len(known.classes) if known is not None else file.classes
    of_trees = training(first.protocol).grows_trees
    if clusters is None and not first.regression and of_trees:
        raise BadInput("the number of groups to look for is not given: say [label], or classes = 2 or more")
    settings = file.attack_settings(first.protocol)
    names = {name: file.attacks or _usual(view, held[name][0]) for name, view in views.items()}
    if clusters is None:  # a regression has no classes that groups could match
        names = {name: [] for name in names}
    if not of_trees:  # a network has no leaves, and columns of images are no features
        names = {name: [kind for kind in kinds if kind == "cl"] for name, kinds in names.items()}
    for name, kinds in names.items():
        if "cl" in kinds and held[name][0] is None:
            raise BadInput(f"{name}: attack cl clusters the party's own columns: say table = …, or leave cl out")
    works = [(name, kind) for name in views for kind in names[name]]
    results: dict[str, dict[str, Any]] = {name: {} for name in views}
    shared = {name: view.pivodl for name, view in views.items() if view.pivodl is not None}
    more = {}
    for name, view in shared.items():
        own, labels = held[name]
        features = None if own is None else own.features
        more[name] = findings(view, first.records, features, labels, exact_weights(shared))
    if not of_trees:
        more = _networks(file, {name: view for name, view in views.items() if name != holder}, held, progress)
    if holder is not None:
        party = next(party for party in file.party if party.name == holder)
        more[holder] = {"victims": attacked(file, party, views[holder], progress)}
    for number, (name, kind) in enumerate(works):
        progress(number, len(works), f"{name}: {kind}")
        table, labels = held[name]
        assert clusters is not None  # without a number of clusters no attack runs
        leaves = views[name].leaves(drawn_only=file.drawn_only)
        results[name][kind] = _attacked(kind, views[name], leaves, table, labels, clusters, settings, by_tree)
    progress(len(works), len(works), "")
    return Document.model_validate(
        {
            "job": first.job,
            "protocol": first.protocol,
            "label_holder": first.label_holder,
            "attempt": max(view.attempt for view in views.values()),
            "records": first.records,
            "classes": None if known is None else len(known.classes),
            "class_names": None if known is None else known.classes,
            "labelled": file.label is not None and set(views) != {holder},
            "trees": max(len(view.trees) for view in views.values()),
            "max_depth": first.max_depth,
            "discount": settings.discount,
            "created": datetime.now(UTC),
            "treetap": package_version(),
            "parties": {
                name: _party(view, *held[name], results[name]) | more.get(name, {}) for name, view in views.items()
            },
            "traffic": _traffic(views),
            "advice": advise(_advised(file, first, list(views), known, results), frontier)
            if of_trees and not first.regression
            else None,
            "gain": None if of_trees else gain(**file.accuracy.model_dump()),
        }
    )


def _advised(
    file: AuditFile, view: View, parties: list[str], labels: Labels | None, results: Mapping[str, Mapping[str, Any]]
) -> AdvisedJob:
    """The job for advice, with the scores of the party that the training tells most."""
    scored = [
        (max(reached), attacks.get("cl", {}).get("v_measure"))
        for attacks in results.values()
        if (
            reached := [it["v_measure"] for name, it in attacks.items() if name != "cl" and it["v_measure"] is not None]
        )
    ]
    top, own = max(scored, key=lambda figures: figures[0] - (figures[1] or 0.0), default=(None, None))
    return AdvisedJob(
        protocol=view.protocol,
        label_holder=view.label_holder,
        feature_parties=parties,
        classes=None if labels is None else len(labels.classes),
        v_measure=top,
        own=own,
        params=vars(view.params),
        defences=file.defences,
        data_digest=file.data_digest,
    )


def incomplete(document: Document) -> list[str]:
    """Faults of the transcripts that make figures too small: cuts, missing trees, an end before the job's end."""
    return [fault for party in document.parties.values() for fault in party.faults]


def scores(labels: Labels | None, clusters: Ints) -> dict[str, float | None]:
    """All measures of a guess by name; None each where there are no labels."""
    names = ("v_measure", "homogeneity", "completeness", "ari", "nmi", "accuracy", "named_accuracy")
    if labels is None:
        return dict.fromkeys(names)
    found = score(labels.values, clusters)
    return {name: getattr(found, name) for name in names}


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


def _held(party: AuditedParty, view: View, file: AuditFile) -> tuple[Table | None, Labels | None]:
    """The party's own columns, and the labels of its records for scoring."""
    if party.table is None:
        if file.label is not None:
            raise BadInput(f"{party.name}: labels are found by the ids of the party's table: say table = …")
        return None, None
    table = load_own_table(party.table, view, party.id, party.columns)
    if file.label is None or view.regression:
        return table, None
    return table, load_labels(file.label.path, file.label.column, table, file.label.id)


def _networks(
    file: AuditFile,
    views: Mapping[str, View],
    held: Mapping[str, tuple[Table | None, Labels | None]],
    progress: Progress,
) -> dict[str, dict[str, Any]]:
    """The attacks of each feature party of a split network. Raises BadInput where PyTorch is not installed."""
    if not views:
        return {}
    protocol = next(iter(views.values())).protocol
    require_library(protocol, training(protocol))
    from attacks.networks.party_audit import PartyFiles, audited_party

    settings, found = NetworkSettings.read(file.network), {}
    for number, party in enumerate(party for party in file.party if party.name in views):
        progress(number, len(views), f"{party.name}: gradients and model")
        files = PartyFiles(
            party.table, party.id, party.model, _source(file.known), party.evaluation, _source(file.evaluation)
        )
        table, labels = held[party.name]
        figures = audited_party(views[party.name], files, table, labels, file.classes, settings)
        found[party.name] = {"network": figures}
    return found


def _source(table: LabelTable | None) -> tuple[Path, str, str] | None:
    return None if table is None else (table.path, table.column, table.id)


def _usual(view: View, table: Table | None) -> list[str]:
    """The default attacks."""
    exact = {"id2graph"} if view.records <= EXACT_UP_TO else set()
    own = table is not None and bool(table.columns)
    return [name for name in ATTACKS if name in exact.union(ALWAYS) and (name != "cl" or own)]


def _attacked(
    kind: str,
    view: View,
    leaves: list[list[Ints]],
    table: Table | None,
    labels: Labels | None,
    clusters: int,
    settings: Settings,
    by_tree: bool,
) -> dict[str, Any]:
    """One attack's result, with labels that after the number of trees where its V-measure is largest (the first)."""
    features = None if table is None else table.features
    every = len(leaves)

    def run(trees: int) -> Outcome:
        return attack(kind, leaves[:trees], view.records, features, clusters, settings)

    if labels is None or kind == "cl":  # nothing to choose by, or no tree in use
        outcome, after = run(every), None if kind == "cl" else every
        measured = scores(labels, outcome.clusters)
        steps: list[float | None] | None = None if labels is None else [measured["v_measure"]] * every
        accuracies: list[float | None] | None = None if labels is None else [measured["accuracy"]] * every
    else:
        found: tuple[float, int, Outcome, dict[str, float | None]] | None = None
        steps, accuracies = [None] * every, [None] * every
        for trees in range(1 if by_tree and every else every, every + 1):
            outcome = run(trees)
            measured = scores(labels, outcome.clusters)
            reached = measured["v_measure"] or 0.0
            if trees:
                steps[trees - 1], accuracies[trees - 1] = measured["v_measure"], measured["accuracy"]
            if found is None or reached > found[0]:
                found = reached, trees, outcome, measured
        assert found is not None
        _, after, outcome, measured = found
    return {
        "after_trees": after,
        **measured,
        "seconds": sum(outcome.seconds.values()),
        "groups": outcome.found,
        "clusters": len(set(outcome.clusters.tolist())),
        "parameters": outcome.parameters,
        "by_tree": steps,
        "accuracy_by_tree": accuracies,
    }


def _party(view: View, table: Table | None, labels: Labels | None, results: dict[str, Any]) -> dict[str, Any]:
    return {
        "transcript": str(view.path),
        "columns": [] if table is None else table.columns,
        "received": sections.received_rows(view),
        "sent": sections.sent_rows(view),
        "attacks": results,
        "bounds": sections.bound_rows(view, labels),
        "signature": sections.signature(view, labels),
        "trees": sections.tree_rows(view, labels),
        "faults": list(view.faults),
        "signed": str(view.anchor),
    }


def _traffic(views: Mapping[str, View]) -> list[dict[str, Any]]:
    """The traffic of the job, each message once: between two audited parties the receiver's transcript counts."""
    rows = []
    for name, view in views.items():
        rows += [{**row, "to": name} for row in sections.received_rows(view)]
        rows += [{**row, "from": name} for row in sections.sent_rows(view) if row["to"] not in views]
    return rows
