"""Label DP in a training on the joined table: the draw of a label holder, and its repairs of the finished model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from party.defences.noisy_labels import NoisyLabels
from party.defences.settings import LabelDp
from party.growth.split_table import SplitTable
from treetap.commands.experiment.open_model import REPAIRED, Meaning
from treetap.models.durable import make_folder
from treetap.models.own_split import OwnSplit
from treetap.protocols.own_priors import by_own_trees
from treetap.tables.binned import bin_columns
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.trees.centralised import CentralTrees
from treetap.trees.ensemble import Ensemble, Split, route
from treetap.trees.grafting import NoisyModel
from treetap.trees.grower import Entry
from treetap.trees.local_values import Bools, Ints
from treetap.trees.params import TreeParams
from treetap.trees.repair import repair


def noisy_labels(party: str, table: Table, labels: Labels, column: str, settings: LabelDp, folder: Path) -> Labels:
    """Noisy labels of all records, drawn as the party would, under a ledger of their own in a folder."""
    make_folder(folder)
    return NoisyLabels(party, folder, settings, None, by_own_trees).of(table, labels, column).labels


def repaired(
    party: str, tables: Mapping[str, Table], model: CentralTrees, noisy: Labels, clean: Labels
) -> tuple[dict[str, Ensemble], Meaning]:
    """The repairs of a model of noisy labels by their names in a report, and the meaning of all splits."""
    features = {name: table.features for name, table in tables.items()}
    params, own, n = model.params, tables[party], len(clean.values)
    entries = _entries(model, party)

    def meaning(split: Split) -> OwnSplit:
        it, cut = entries[split.handle] if split.owner == party else model.entry(split)
        return OwnSplit.of(split.handle, split.node, it, cut)

    def goes_left(split: Split, rows: Ints) -> Bools:
        it = meaning(split)
        return np.asarray(it.goes_left(features[split.owner][rows, it.feature]))

    columns = _columns(party, own, params)
    trees = model.ensemble.trees
    found = repair(
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
        name: replace(model.ensemble, trees=tuple(getattr(tree, key) for tree in found))
        for key, name in REPAIRED.items()
    }
    return variants, meaning


def _columns(party: str, table: Table, params: TreeParams) -> SplitTable:
    return SplitTable(party, table.columns, bin_columns(table, params.max_bin, params.one_hot_below))


def _entries(model: CentralTrees, party: str) -> list[Entry]:
    """The party's split table, by handle."""
    found = {
        split.handle: model.entry(split)
        for tree in model.ensemble.trees
        for splits in (tree.splits, *(each.splits for each in tree.local))
        for split in splits
        if split.owner == party
    }
    return [found[handle] for handle in range(len(found))]
