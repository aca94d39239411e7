"""A training of a row `[[defence]]`, by a federation or on the joined table, and the attacks on what others saw.

The labels that a feature party can guess before a training and after it, by the measure of an audit's verdict.

Where a class is rare, so that always naming the most frequent one is right for most records, the AUC by few known
labels: the verdict's own figures, by the same draws. Else the accuracy of groups that are matched to classes. Before:
by own columns, or the most frequent class.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from treetap.arrays import Floats, Ints
from treetap.attacks.advice.names import Measure
from treetap.attacks.id2graph.schema import KnownSettings, Settings, usual_discount
from treetap.attacks.known_labels.evidence import SignatureEvidence, compared_names
from treetap.attacks.known_labels.names import KnownLabels
from treetap.attacks.known_labels.naming import WAYS, first_component, heaviest_cut, named_by_rows, vote
from treetap.attacks.registry import EXACT_UP_TO, OWN_CUTS, attack
from treetap.attacks.scores import Scores, majority, score
from treetap.attacks.sums.schema import NOTHING_OFFERED
from treetap.attacks.verdict import Compared, Verdict, unbalanced
from treetap.attacks.view.known_trees import TreeView, expected_views
from treetap.attacks.view.own_table import one_hot
from treetap.errors import TreetapError
from treetap.lab.experiment import baselines, joint_model, party_tables
from treetap.lab.experiment.experiment_file import (
    REFERENCE,
    Cells,
    ExperimentFile,
    Guess,
    Plan,
    Trainer,
    TrainingResult,
)
from treetap.lab.experiment.file_tables import AuditTable
from treetap.lab.experiment.joined_table import labels_of, split
from treetap.lab.experiment.joint_model import REPAIRED, Meaning
from treetap.lab.experiment.results import OF_COLUMNS
from treetap.lab.experiment.run import run_seed
from treetap.models.durable import make_folder
from treetap.models.own_split import OwnSplit
from treetap.party.defences.noisy_labels import NoisyLabels
from treetap.party.defences.settings import LabelDp
from treetap.party.growth.split_table import SplitTable
from treetap.party.runtime.ledger import Occasion
from treetap.privacy.frontiers import NO_DEFENCE
from treetap.protocols.own_priors import by_own_trees
from treetap.protocols.registry import training as protocol_of
from treetap.tables.binned import bin_columns
from treetap.tables.config import text_as
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.trees import metrics
from treetap.trees.centralised import CentralTrees
from treetap.trees.ensemble import ROOT, Ensemble, Split, route
from treetap.trees.job_params import BINARY, JobParams
from treetap.trees.params import TreeParams
from treetap.trees.repair import NoisyModel, repair

#: The AUC of guessing.
CHANCE = 0.5
#: The measures of the held-out rows that a frontier has.
MEASURES = ("auc", "accuracy")
#: The label holder's own columns without a federation: measured with every training that has no defence.
ALONE = "alone"


def measured(outcome: Mapping[str, float | None]) -> dict[str, float | None]:
    """Those of all measures that a frontier has; an undefined AUC is None."""
    return {name: value if (value := outcome.get(name)) == value else None for name in MEASURES}


def measure_of(labels: Ints) -> Measure:
    """The measure for a table with these classes (N,)."""
    return "AUC" if unbalanced(np.bincount(labels).tolist()) else "accuracy"


def by_groups(accuracies: Mapping[str, float], own: str, labels: Ints) -> Guess:
    """The best of attacks that group records. `own`: the one that needs no training."""
    before = max(accuracies[own], majority(labels))
    return Guess(before=before, after=max(before, *accuracies.values()))


def by_names(told: Compared | Verdict | None) -> Guess:
    """The attacks by known labels, as an audit compares them; other verdicts and None: nothing could be named."""
    if told is None or told.measure != "AUC" or told.before is None or told.after is None:
        return Guess(before=CHANCE, after=CHANCE)
    return Guess(before=told.before, after=told.after, drawn=told.drawn or 0.0)


def named_centrally(trees: Sequence[TreeView], features: Floats, labels: Labels, settings: Mapping[str, Any]) -> Guess:
    """The same attacks on a view of a training on the joined table, without the audit's control.

    `features`: own columns (N, d), categories one-hot.
    """
    known = KnownLabels.of(len(labels.values), labels, None)
    evidence = SignatureEvidence(trees, known, features, KnownSettings.read(settings))
    with threadpool_limits(1):  # tens of small fits: threads would wait for each other
        for name in () if evidence.obstacle else WAYS:
            named_by_rows(evidence, name)
        for attack in (first_component, vote, heaviest_cut):
            attack(evidence)
    return by_names(next(compared_names(evidence), None))


def trained(
    experiment: ExperimentFile, table: pa.Table, plan: Plan, seed: int, folder: Path, trainer: Trainer
) -> TrainingResult:
    """One training of a plan. `folder`: empty; gets what is written."""
    started, drawn = time.monotonic(), split(experiment, table, seed)
    labels = labels_of(experiment, table)
    train = trained_centrally if trainer == "centralised" else trained_by_federation
    result = train(experiment, table, plan, seed, folder, drawn, labels)
    if plan.name == NO_DEFENCE and ALONE not in result.test:  # it has no columns, and guesses the class shares
        shares = by_shares(labels.values[drawn.train], labels.values[drawn.test], experiment.job.params())
        result.test[ALONE] = measured(shares)
    return result.model_copy(update={"seconds": time.monotonic() - started})


def by_shares(train: Ints, test: Ints, params: JobParams) -> dict[str, float]:
    """The measures of held-out labels where each row is given the shares of the classes among those of the training."""
    shares = np.bincount(train) / len(train)
    outcome = np.full(len(test), shares[1]) if params.objective in BINARY else np.tile(shares, (len(test), 1))
    return metrics.evaluate(params.objective, outcome, test)


def trained_by_federation(
    experiment: ExperimentFile,
    table: pa.Table,
    plan: Plan,
    seed: int,
    folder: Path,
    drawn: party_tables.Split,
    labels: Labels,
) -> TrainingResult:
    """One training with its prediction and audit. `folder`: empty; gets all files of the federation."""
    names, of_file = attacks_of(experiment, len(drawn.train)), audit_of(experiment)
    audit = of_file.model_copy(update={"run": True, "attacks": names, "by_tree": False})
    asked = experiment.planned(plan).model_copy(update={"audit": audit})
    title = f"{plan.word}, seed {seed}"
    run = run_seed(asked, table, seed, folder, title=title)
    if run.audit_fault is not None:
        raise TreetapError(f"{title}: the audit failed: {run.audit_fault}")
    defended = run.defences
    # one training with noisy labels has the points of its repairs too
    figures = {
        name: it for attacks in (run.audit or {}).values() for name, it in attacks.get("columns_read", {}).items()
    }
    tested = {plan.name: run.metrics["test"]} | ({} if defended is None else defended.variants)
    test = {name: measured(tested[name]) for name in plan.points}
    if baselines.ALONE in run.metrics:
        test[ALONE] = measured(run.metrics[baselines.ALONE])
    trained_on = labels.values[drawn.train]
    on_labels = {party: it for party, it in (run.audit or {}).items() if not it.keys() & set(OF_COLUMNS)}
    measure = measure_of(trained_on)
    verdicts = {it.party: it for it in run.verdicts if it.learned == "labels"}
    return TrainingResult(
        test=test,
        v_measure={party: {name: it[name]["v_measure"] for name in names} for party, it in on_labels.items()},
        measure=measure,
        guesses={
            party: by_groups({name: it[name]["accuracy"] for name in names}, REFERENCE, trained_on)
            if measure == "accuracy"
            else by_names(verdicts.get(party))
            for party, it in on_labels.items()
        },
        cells={name: cells for name, it in figures.items() if (cells := cells_of(it)) is not None},
        unread={name: "; ".join(it["reasons"].values()) for name, it in figures.items() if cells_of(it) is None},
        classes=len(labels.classes),
        local_subtrees=(defended and defended.local_subtrees) or 0,
        hidden_nodes=(defended and defended.hidden_nodes) or 0,
        ciphertexts=run.ciphertexts,
        records={name: run.records[name] for name in ("train", "test")},
    )


def cells_of(figures: Mapping[str, Any]) -> Cells | None:
    """The shares of a party's cells in an audit's figures of the attack on its columns; None if it was not attacked.

    The audit gives left sets their columns, and the attacker links sums by itself: where links fail, as of merged bins,
    left sets alone place more, and are what was read. So is the variance explained, of which left sets are a guess too.
    """
    explained = None if figures["explained"] is None else figures["explained"]["reached"]
    if figures["together"] is not None:
        floor, read, bound = (figures[way]["placed"] for way in ("left_sets", "together", "given"))
        return Cells(read=max(read, floor), left_sets=floor, given=max(bound, read, floor), explained=explained)
    if figures.get("noise") is not None and figures["given"] is not None:
        floor, read = figures["left_sets"]["placed"], figures["given"]["placed"]
        return Cells(read=max(read, floor), left_sets=floor, given=max(read, floor), explained=explained)
    if figures["reasons"].get("sums") != NOTHING_OFFERED:
        return None
    # where nothing was offered, or opened, left sets alone are read
    floor = figures["left_sets"]["placed"]
    return Cells(read=floor, left_sets=floor, given=floor, explained=explained or 0.0)


#: The attacks beside ID2Graph: those of the paper's Figures 8 and 9, and the one that needs no instance space.
_OTHERS = ("uni", "uni+cl", OWN_CUTS)


def audit_of(experiment: ExperimentFile) -> AuditTable:
    """The settings of the attacks."""
    return experiment.audit or AuditTable()


def attacks_of(experiment: ExperimentFile, records: int) -> list[str]:
    """The attacks on trainings of `records` records; the reference is the last."""
    usual = ("id2graph" if records <= EXACT_UP_TO else "id2graph-quotient", *_OTHERS)
    chosen = audit_of(experiment).attacks or usual
    return [*(name for name in chosen if name != REFERENCE), REFERENCE]


def attacked(
    experiment: ExperimentFile,
    names: Sequence[str],
    views: Mapping[str, Sequence[TreeView]],
    features: Mapping[str, Floats],
    labels: Ints,
    classes: int,
) -> dict[str, dict[str, Scores]]:
    """Feature party → attack → its scores, as an audit finds them from the whole training.

    `views`: per party every tree as it knows it. `features`: per party its columns (N, d), categories one-hot.
    `labels`: class numbers (N,), which only score.
    """
    given: dict[str, Any] = {"discount": usual_discount(experiment.job.protocol)} | audit_of(experiment).settings
    settings = Settings.read(given)
    by_party: dict[str, dict[str, Scores]] = {}
    for party, trees in views.items():
        leaves = [[leaf.records for leaf in tree.leaves() if leaf.node != ROOT] for tree in trees]
        cuts_of = {name: [tree.own_cuts() for tree in trees] if name == OWN_CUTS else () for name in names}
        outcomes = {
            name: attack(name, leaves, len(labels), features[party], classes, settings, cuts)
            for name, cuts in cuts_of.items()
        }
        by_party[party] = {name: score(labels, outcome.clusters) for name, outcome in outcomes.items()}
    return by_party


def trained_centrally(
    experiment: ExperimentFile,
    table: pa.Table,
    plan: Plan,
    seed: int,
    folder: Path,
    drawn: party_tables.Split,
    labels: Labels,
) -> TrainingResult:
    """One training. `folder`: empty; gets the tables of the parties, which are read as parties read them."""
    experiment = experiment.planned(plan)
    holder, *others = experiment.in_order
    settings = party_tables.write_tables(experiment, table, drawn, folder)
    tables = baselines.Comparison(experiment, settings, seed, table.take(pa.array(drawn.test)))
    before, labels, params = tables.trained, tables.learned, tables.params
    assert isinstance(params, TreeParams)  # a check of the file
    count = len(labels.classes)

    defences, learned = plan.defences, labels
    if defences.label_dp is not None:
        column = experiment.data.label
        learned = noisy_labels(holder, before[holder], labels, column, defences.label_dp, folder / "ledger")
    train_centrally = protocol_of(experiment.job.protocol).centrally.train
    assert train_centrally is not None  # a check of the file
    model = train_centrally(
        list(before.items()),
        learned.values,
        count,
        params,
        defences.withholding,
        min_cell_records=experiment.min_cell_records,
    )
    variants, meaning = {plan.name: model.ensemble}, _meaning(model)
    if defences.private_values:
        repairs, meaning = repaired(holder, before, model, learned, labels)
        variants |= repairs
    features = {name: it.features for name, it in tables.asked.items()}
    outcomes = {
        name: variant.outcome(joint_model.scores(variant, meaning, features)) for name, variant in variants.items()
    }
    if plan.name == NO_DEFENCE:
        outcomes.update((ALONE, outcome) for outcome in tables.alone.values())

    raw = [(name, it.features) for name, it in before.items()]
    views = {name: expected_views(model, raw, name, before[name].columns) for name in others}
    own = {}
    for name in others:
        given = settings[name]["tables"]["train"]
        encode = text_as("ordinal", given.get("encode"))
        own[name] = one_hot(party_tables.read_as_party(given | {"encode": encode}, params.missing)).features
    names = attacks_of(experiment, len(labels.values))
    scores, measure = attacked(experiment, names, views, own, labels.values, count), measure_of(labels.values)
    return TrainingResult(
        test={
            name: measured(metrics.evaluate(params.objective, outcome, tables.truth))
            for name, outcome in outcomes.items()
        },
        v_measure={party: {name: it.v_measure for name, it in reached.items()} for party, reached in scores.items()},
        measure=measure,
        guesses={
            party: by_groups({name: it.accuracy for name, it in reached.items()}, REFERENCE, labels.values)
            if measure == "accuracy"
            else named_centrally(views[party], own[party], labels, audit_of(experiment).known_labels)
            for party, reached in scores.items()
        },
        cells={},
        unread={},
        classes=count,
        **joint_model.hidden(model.ensemble),
        ciphertexts={},
        records={"train": len(drawn.train), "test": len(drawn.test)},
    )


def _meaning(model: CentralTrees) -> joint_model.Meaning:
    def meaning(split: Split) -> OwnSplit:
        it, cut = model.entry(split)
        return OwnSplit.of(split.handle, split.node, it, cut)

    return meaning


def noisy_labels(party: str, table: Table, labels: Labels, column: str, settings: LabelDp, folder: Path) -> Labels:
    """Noisy labels of all records, drawn as the party would, under a ledger of their own in a folder."""
    make_folder(folder)
    alone = Occasion(table=str(table.path), parties=(), coordinator="", job="frontier", attempt=1)
    return NoisyLabels(party, folder, settings, None, by_own_trees).of(table, labels, column, alone).labels


def repaired(
    party: str, tables: Mapping[str, Table], model: CentralTrees, noisy: Labels, clean: Labels
) -> tuple[dict[str, Ensemble], Meaning]:
    """The repairs of a model of noisy labels by their names in a report, and the meaning of all splits."""
    features = {name: table.features for name, table in tables.items()}
    params, own = model.params, tables[party]
    # the repair adds splits to the party's table
    entries = list(model.splits[party])
    meaning = _meaning(replace(model, splits={**model.splits, party: entries}))
    n, goes_left = joint_model.router(meaning, features)
    columns = SplitTable(party, own.columns, bin_columns(own, params.max_bin, params.one_hot_below))
    trees = model.ensemble.trees
    mended = repair(
        NoisyModel(
            trees=trees,
            reached=lambda tree: route(trees[tree].splits, n, goes_left),
            noisy=noisy.values,
            clean=clean.values,
            classes=len(clean.classes),
            party=party,
            bins=lambda tree: columns.own_columns_of_tree(tree, params, lambda: own.features).bins,
            entries=entries,
            goes_left=goes_left,
        ),
        params,
    )
    variants = {
        name: replace(model.ensemble, trees=tuple(getattr(tree, key) for tree in mended))
        for key, name in REPAIRED.items()
    }
    return variants, meaning
