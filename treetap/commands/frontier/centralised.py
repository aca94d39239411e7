"""A training of a frontier on the joined table: the trees that a federation would find, and the views that follow.

No sockets and no encryption, hence for large sweeps; figures of cost come from the federation alone.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from attacks.view.expected_leakage import expected_views
from attacks.view.own_table import one_hot
from treetap.commands.experiment import open_model
from treetap.commands.experiment.joined_table import ID, split
from treetap.commands.experiment.party_tables import read_as_party, write_tables
from treetap.commands.experiment.spread_labels import truth
from treetap.commands.frontier.attacked import attacks_of, v_measures
from treetap.commands.frontier.frontier_file import FrontierFile
from treetap.commands.frontier.noisy import noisy_labels, repaired
from treetap.commands.frontier.plan import Training
from treetap.commands.frontier.results import TrainingResult, kept
from treetap.models.own_split import OwnSplit
from treetap.protocols.registry import training as protocol_of
from treetap.tables.config import text_as
from treetap.tables.labels import read_labels
from treetap.trees import metrics
from treetap.trees.centralised import CentralTrees
from treetap.trees.ensemble import ROOT, Split


def train(experiment: FrontierFile, table: pa.Table, training: Training, folder: Path) -> TrainingResult:
    """One training. `folder`: empty; gets the tables of the parties, which are read as parties read them."""
    started = time.monotonic()
    drawn = split(experiment, table, training.seed)
    settings = write_tables(experiment, table, drawn, folder)
    params = experiment.job.model_copy(update={"seed": experiment.job.seed + training.seed}).params()
    holder, *others = experiment.in_order
    given = {name: settings[name]["tables"] for name in experiment.in_order}
    before = {name: read_as_party(tables["train"], params.missing) for name, tables in given.items()}
    after = {name: read_as_party(tables["predict"], params.missing, before[name]) for name, tables in given.items()}
    labels = read_labels(before[holder], experiment.data.label, params.objective)
    count = len(labels.classes)

    defences, learned, column = training.plan.defences, labels, experiment.data.label
    if defences.label_dp is not None:
        learned = noisy_labels(holder, before[holder], labels, column, defences.label_dp, folder / "ledger")
    train_centrally = protocol_of(experiment.job.protocol).centrally.train
    assert train_centrally is not None  # a check of the file
    model = train_centrally(list(before.items()), learned.values, count, params, defences.withholding)
    variants, meaning = {training.plan.name: model.ensemble}, _meaning(model)
    if defences.private_values:
        repairs, meaning = repaired(holder, before, model, learned, labels)
        variants |= repairs
    wanted = truth(table.take(pa.array(drawn.test)), ID, column, after[holder].ids, labels)
    asked = {name: it.features for name, it in after.items()}
    test = {
        name: metrics.evaluate(params.objective, each.outcome(open_model.scores(each, meaning, asked)), wanted)
        for name, each in variants.items()
    }

    raw = [(name, it.features) for name, it in before.items()]
    views = {
        name: [
            [leaf.records for leaf in tree.leaves() if leaf.node != ROOT]
            for tree in expected_views(model, raw, name, before[name].columns)
        ]
        for name in others
    }
    own = {}
    for name in others:
        encode = text_as("ordinal", given[name]["train"].get("encode"))
        own[name] = one_hot(read_as_party(given[name]["train"] | {"encode": encode}, params.missing))
    names = attacks_of(experiment, len(labels.values))
    features = {name: it.features for name, it in own.items()}
    return TrainingResult(
        test={name: kept(measured) for name, measured in test.items()},
        v_measure=v_measures(experiment, names, views, features, labels.values, count),
        classes=count,
        **open_model.hidden(model.ensemble),
        ciphertexts={},
        records={"train": len(drawn.train), "test": len(drawn.test)},
        seconds=time.monotonic() - started,
    )


def _meaning(model: CentralTrees) -> open_model.Meaning:
    def meaning(split: Split) -> OwnSplit:
        it, cut = model.entry(split)
        return OwnSplit.of(split.handle, split.node, it, cut)

    return meaning
