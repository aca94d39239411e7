"""The random forest on a joined table, which the federated one must equal, node for node.

Parties are named, because columns are drawn per party and ties go to the lowest one: the label holder first, then the
feature parties in the job's order. Each tree is grown on its own draw of records, from the labels as they are; the
forest's prediction is the mean of its trees'.

Class frequencies of records by other records' labels and one party's columns: a random forest (Breiman 2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.errors import DataError
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.cell_merging import bins_of
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.forest_criterion import ForestCriterion, check_labels, targets
from treetap.trees.forest_rounds import ForestRounds
from treetap.trees.grower import CentralTrees, Entry, grown
from treetap.trees.growing_tree import GrowingTree, with_zeros
from treetap.trees.noised_sums import NoisedParty
from treetap.trees.params import ForestParams
from treetap.trees.tree_bins import Bins, NodeBins
from treetap.trees.withholding import NOTHING, Withholding

#: Party name and its raw columns (N, d), NaN where missing.
Blocks = Sequence[tuple[str, Array]]
Tables = Sequence[tuple[str, BinnedTable]]


@dataclass(frozen=True)
class CentralForest(CentralTrees):
    """A forest with all parties' split tables."""

    params: ForestParams

    def predict(self, blocks: Blocks) -> Floats:
        """Class frequencies (N, C) or means (N, 1) of raw records."""
        raw = {name: np.asarray(block, dtype=np.float64) for name, block in blocks}
        n = len(next(iter(raw.values())))

        def goes_left(split: Split, rows: Ints) -> Bools:
            candidate, cut = self.entry(split)
            values = raw[split.owner][rows, candidate.feature]
            return np.where(np.isnan(values), candidate.missing_left, values < cut)

        return self.scores(n, goes_left)


def train_forest(
    blocks: Blocks,
    labels: Array,
    params: ForestParams,
    classes: int | None = None,
    tables: Tables | None = None,
    withholding: Withholding = NOTHING,
    min_cell_records: Mapping[str, int] | None = None,
    rounds: ForestRounds | None = None,
    noised: Mapping[str, NoisedParty] | None = None,
) -> CentralForest:
    """Train on the parties' raw columns, given in tie order, and labels (N,).

    `classes` defaults to the largest label plus one (gini); `tables` are the columns in the bins of the job, made here
    if they are not given; `withholding`: by the first party; `min_cell_records`: of feature parties, by name;
    `rounds`: those of the training, which get every tree; if they measure further records, these are behind those of
    the labels in columns and `tables`; `noised`: feature parties whose sums have noise, drawn elsewhere.

    Raises:
        ConfigError: a parameter is wrong.
        DataError: columns and labels do not fit together, or a column cannot be binned.
    """
    params.validate()
    y = np.asarray(labels)
    total = len(y) if rounds is None else rounds.records
    for name, block in blocks:
        if len(block) != total:
            raise DataError(f"party {name!r} has {len(block)} records, the labels {total}")
    if classes is None:
        classes = int(y.max()) + 1 if params.criterion == "gini" else 0
    check_labels(y, params.criterion, classes)
    summed = targets(y, params.criterion, classes)
    criterion = ForestCriterion(summed, params)
    if tables is None:
        tables = [
            (name, bin_table(block, [f"{name}, column {j}" for j in range(block.shape[1])], params.max_bin))
            for name, block in blocks
        ]
    least = min_cell_records or {}
    splits: dict[str, list[Entry]] = {name: [] for name, _ in blocks}
    trees: list[Tree] = []
    divisible: list[frozenset[int]] = []
    for index in range(params.n_estimators):
        drawn = params.drawn(index, len(y))
        values = np.concatenate([summed.values, np.ones((len(y), 1), dtype=np.int64)], axis=1) * drawn[:, None]
        bins: list[tuple[str, Bins]] = []
        per_node = params.bins_per_node
        for (name, block), (_, table) in zip(blocks, tables, strict=True):
            if not params.takes_part(index, name):
                continue
            kept = params.columns(index, name, block.shape[1])
            fresh = NodeBins(block, kept, with_zeros(drawn, total), params.max_bin, len(y)) if per_node else None
            bins.append((name, fresh or bins_of(table, kept, least.get(name, 0))))
        # Gini's own slots are the class counts that ID-LMID needs; a variance has to carry them beside its own.
        outputs, counts = tuple(range(params.outputs(classes))), params.criterion == "gini"
        values, limit = withholding.counted(values, y, classes, drawn > 0, has_counts=counts)
        alone = withholding.grows_alone(index)
        # With bins per node those of siblings differ, so that neither's sums follow from the parent's.
        subtract = not per_node and all(own.additive for _, own in bins)
        values = with_zeros(values, total)
        tree = GrowingTree(values, criterion, params.expansion, subtract=subtract, limit=limit, alone=alone)
        for place, (name, _) in enumerate([] if alone else bins):
            if noised is not None and name in noised:
                tree.expect_noise(place, noised[name].noise, partial(noised[name].drawn, index))
        finished, added = grown(tree, bins[:1] if alone else bins, splits, index, outputs)
        if rounds is not None:
            rounds.add(finished, added)
        trees.append(finished)
        divisible.append(tree.divisible)
    ensemble = Ensemble(
        objective=params.objective,
        classes=classes,
        base_margin=(0.0,) * params.outputs(classes),
        trees=tuple(trees),
        trees_per_round=1,
        averaged=True,
    )
    return CentralForest(ensemble, params, splits, tuple(divisible))


#: The model and its settings; raised with any change of the frequencies.
MODEL = "forest/1"
#: Each leaf has at least this many of the records drawn, unless that is more than a quarter of all.
_LEAF = 10
#: The party's name in a model without other parties.
_OWN = "own"


class ClassFrequencies:
    """Frequencies (n, C) of the classes by columns (N, d), NaN where missing; a column may be constant.

    Raises `DataError` if a column holds an infinite value.
    """

    def __init__(self, features: Array, classes: int) -> None:
        names = [str(place) for place in range(features.shape[1])]
        self._features, self._classes = features, classes
        self._bins = bin_table(features, names, ForestParams.max_bin, may_be_constant=names)

    def of(self, records: Ints, known: Ints, labels: Ints) -> Floats:
        """Those of the `records` (n,), learned from `labels` (m,) of the records `known` (m,); the same every time."""
        if len(np.unique(labels)) < 2:  # nothing to learn: one class, and the others less likely
            counts = np.bincount(labels, minlength=self._classes) + 1.0
            return np.tile(counts / counts.sum(), (len(records), 1))
        params = ForestParams(n_estimators=30, min_samples_leaf=max(1, min(_LEAF, len(known) // 4)))
        bins = BinnedTable(self._bins.codes[known], self._bins.features)
        forest = train_forest([(_OWN, self._features[known])], labels, params, self._classes, [(_OWN, bins)])
        return forest.predict([(_OWN, self._features[records])])
