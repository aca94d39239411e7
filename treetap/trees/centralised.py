"""The trainers on a joined table: the federation must equal them, node for node; demo and experiments compare with it.

Parties are named, because columns are sampled per party and ties go to the lowest one: the label holder first, then the
feature parties in the job's order.

A round of boosting: (1) derivatives of all outputs at the scores of the round's start; (2) each tree of the round is
grown on its own sample of records; (3) scores of all records, unsampled and validation ones too, are updated; (4) with
early stopping the validation loss decides whether another round follows. See `treetap.trees.boosting_rounds`.

Each tree of a forest is grown on its own draw of records, from the labels as they are; the forest's prediction is the
mean of its trees'. By other records' labels and one party's columns it gives class frequencies (Breiman 2001).

The growth of trees, and of parts of trees, all of whose columns are at hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.errors import ConfigError, DataError
from treetap.trees.binning import BinnedTable, FeatureBins, bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import TRAIN, VALIDATION, BoostingRounds, ForestRounds, Start
from treetap.trees.candidates import Candidate, column_goes_left
from treetap.trees.cell_merging import bins_of
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree, route
from treetap.trees.forest_criterion import ForestCriterion, check_labels, targets
from treetap.trees.growing_tree import GrowingTree, with_zeros
from treetap.trees.loss import check_sums, loss_for
from treetap.trees.noised_sums import Criterion, NoisedParty
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.paths import RowsLeft, reached_values
from treetap.trees.tree_bins import Bins, NodeBins, goes_left, left_sums_of
from treetap.trees.withholding import NOTHING, InformationLimit, Withholding

#: A split in its owner's table: the candidate by the owner's own column, and its threshold.
Entry = tuple[Candidate, float]
#: Enters a split into its owner's table: (place of the party, node, the entry) → handle.
Enter = Callable[[int, int, Entry], int]


def entering(tables: Sequence[list[Entry]]) -> Enter:
    """Enter splits into these tables, one for each party."""

    def enter(party: int, node: int, entry: Entry) -> int:  # noqa: ARG001 - a table has no nodes
        tables[party].append(entry)
        return len(tables[party]) - 1

    return enter


def grow(tree: GrowingTree, bins: Sequence[Bins], enter: Enter) -> None:
    """Grow a tree by all parties' columns, in tie order; of tied candidates the first one splits a node."""
    groups = [own.candidates.groups for own in bins]
    while tree.build:
        nodes, rows = tree.build, tree.summed()
        tree.take_candidates([left_sums_of(own, tree.values, nodes, rows) for own in bins], groups)
        for choice in tree.choose():
            own, node = bins[choice.party], choice.node
            candidate = own.at_border(node, own.candidate(choice.tied[0]))
            entry = replace(candidate, feature=int(own.kept[candidate.feature])), own.cut(node, candidate)
            mask = goes_left(own, node, tree.rows[node], candidate)
            tree.divide(node, enter(choice.party, node, entry), mask)
        tree.next_stage()


def grown(
    tree: GrowingTree,
    bins: Sequence[tuple[str, Bins]],
    splits: Mapping[str, list[Entry]],
    index: int,
    outputs: tuple[int, ...],
) -> tuple[Tree, Floats]:
    """Grow a tree to its end, by the columns of named parties, whose split tables get its splits: see `finish`."""
    names, columns = [name for name, _ in bins], [own for _, own in bins]
    enter = entering([splits[name] for name in names])
    tree.constrain([own.marks for own in columns])
    grow(tree, columns, enter)
    return finish(tree, index, outputs, names, columns[0], enter)


def finish(
    tree: GrowingTree, index: int, outputs: tuple[int, ...], names: Sequence[str], own: Bins, enter: Enter
) -> tuple[Tree, Floats]:
    """The finished tree, and the value (N, outputs) that it gives to every record.

    Nodes that are withdrawn are first grown further by the first party's `own` columns alone.
    """
    values = np.empty((len(tree.values), len(outputs)))
    parts = [tree.below(node) for node in sorted(tree.withdrawn)]
    for part in parts:
        grow(part, [own], enter)
    finished = tree.finished(index, outputs, names, [part.subtree(names) for part in parts])
    give(values, tree.rows, finished.leaves)
    for part, subtree in zip(parts, finished.local, strict=True):
        give(values, part.rows, subtree.leaves)
    return finished, values


def give(values: Floats, rows: Mapping[int, Ints], leaves: Iterable[Leaf]) -> None:
    """Set the values (N, outputs) of the records of each leaf, `rows` by node."""
    for leaf in leaves:
        values[rows[leaf.node]] = leaf.weights


@dataclass(frozen=True)
class CentralTrees:
    """A model trained on the joined table, with all parties' split tables.

    `splits[owner][handle]` is the candidate, by the owner's own column, and its threshold, below which a record goes
    left. `divisible` names, per tree, the nodes that the stopping rules would let split.
    """

    ensemble: Ensemble
    params: TreeParams
    splits: dict[str, list[Entry]]
    divisible: tuple[frozenset[int], ...]

    def entry(self, split: Split) -> Entry:
        """Candidate and threshold of a split."""
        return self.splits[split.owner][split.handle]

    def scores(self, n: int, goes_left: RowsLeft) -> Floats:
        """Scores (n, outputs) of n records."""
        trees = self.ensemble.used_trees
        values = (reached_values(tree, route(tree.splits, n, goes_left), goes_left) for tree in trees)
        return self.ensemble.summed(values, n)


Tables = Sequence[tuple[str, BinnedTable]]
Labels = Array


@dataclass(frozen=True)
class CentralModel(CentralTrees):
    """A boosted model, and the losses after each round, by part of the records."""

    params: BoostingParams
    history: tuple[dict[str, float], ...]

    def predict(self, tables: Tables) -> Floats:
        """Scores (N, outputs) of records encoded in the training bins, tables by party name."""
        return self.scores(*self.router(tables))

    def router(self, tables: Tables) -> tuple[int, Callable[[Split, Array], Bools]]:
        """N, and the records that go left at a split."""
        codes = {name: table.codes for name, table in tables}
        n_bins = {name: [feature.n_bins for feature in table.features] for name, table in tables}
        n = len(next(iter(codes.values())))

        def goes_left(split: Split, rows: Array) -> Bools:
            candidate, _ = self.entry(split)
            column = codes[split.owner][rows, candidate.feature]
            return column_goes_left(column, candidate, n_bins[split.owner][candidate.feature])

        return n, goes_left


def train(
    tables: Tables,
    labels: Labels,
    params: BoostingParams,
    classes: int | None = None,
    withholding: Withholding = NOTHING,
    weights: Floats | None = None,
    base: CentralModel | None = None,
    min_cell_records: Mapping[str, int] | None = None,
    rounds: BoostingRounds | None = None,
    noised: Mapping[str, NoisedParty] | None = None,
) -> CentralModel:
    """Train on the parties' tables, given in tie order, and labels (N,).

    `classes` defaults to the largest label plus one (softmax). `withholding`: by the first party. `weights`: of the
    records (N,). `base`: a model of the same parties and bins from which training continues, with all of its trees.
    `min_cell_records`: of feature parties, by name, or `min_side_records` where instance spaces are withheld; the first
    party's own columns need none. `rounds`: those of the training, of these labels and weights, before its first tree;
    if they measure further records, these are behind those of the labels in all tables. `noised`: feature parties whose
    sums have noise, which is drawn elsewhere.
    Raises ConfigError, or DataError if tables, labels, weights and base do not fit together.
    """
    params.validate()
    withholding.check_leaves(params.max_leaves)
    y = np.asarray(labels)
    n = len(y)
    total = n if rounds is None else rounds.records
    for name, table in tables:
        if len(table.codes) != total:
            raise DataError(f"party {name!r} has {len(table.codes)} records, the labels {total}")
    if classes is None:
        classes = int(y.max()) + 1 if params.objective == "multi:softprob" else 2
    loss_for(params.objective, classes).check(y)
    check_sums(params.objective, n, params.largest_factor)
    least = min_cell_records or {}
    splits: dict[str, list[Entry]] = {name: [] for name, _ in tables} if base is None else _continued(base, tables)
    if rounds is None:
        rounds = BoostingRounds(params, classes, y, weights, start=None if base is None else _start(base, tables))
    trees: list[Tree] = [] if base is None else list(base.ensemble.trees)
    divisible: list[frozenset[int]] = [] if base is None else list(base.divisible)
    history: list[dict[str, float]] = [] if base is None else list(base.history)
    while rounds.trees < rounds.planned and not rounds.stopped:
        index, outputs = rounds.trees, rounds.outputs(rounds.trees)
        values, scale, sampled = rounds.derivatives(index)
        values, limit = withholding.counted(values, y, classes, sampled)
        bins = [
            (
                name,
                bins_of(
                    table,
                    params.columns(index, name, len(table.features)),
                    0 if params.withheld else least.get(name, 0),
                ),
            )
            for name, table in tables
            if params.takes_part(index, name)
        ]
        alone, values = withholding.grows_alone(index), with_zeros(values, total)
        tree = _begun(
            values,
            BoostingCriterion.of(scale, rounds.unit, params, rounds.of_records),
            params,
            bins,
            index,
            limit,
            noised or {},
            least,
            alone=alone,
        )
        finished, added = grown(tree, bins[:1] if alone else bins, splits, index, outputs)
        rounds.add(finished, added)
        trees.append(finished)
        divisible.append(tree.divisible)
        # All trees of a round are grown at the scores of its start, so losses are of whole rounds.
        if rounds.ends_a_round:
            set_aside = params.sets_aside and total == n  # else further records are watched
            losses = {"training": TRAIN, "validation": VALIDATION} if set_aside else {"training": TRAIN}
            history.append({name: rounds.watched(part) for name, part in losses.items()})
    ensemble = Ensemble(
        objective=params.objective,
        classes=classes,
        base_margin=tuple(rounds.base_margin.tolist()),
        trees=tuple(trees),
        trees_per_round=params.trees_per_round(classes),
        best_round=rounds.best_round,
    )
    return CentralModel(ensemble, params, splits, tuple(divisible), tuple(history))


def _begun(
    values: Ints,
    criterion: Criterion,
    params: TreeParams,
    bins: Sequence[tuple[str, Bins]],
    index: int,
    limit: InformationLimit | None,
    noised: Mapping[str, NoisedParty],
    least: Mapping[str, int],
    *,
    alone: bool,
) -> GrowingTree:
    """A tree before its first split. `alone`: parties are in tie order, and the first one, the label holder, grows it.

    With bins per node those of siblings differ, so that neither's sums follow from the parent's.
    """
    subtract = all(own.additive for _, own in bins)
    tree = GrowingTree(values, criterion, params.expansion, subtract=subtract, limit=limit, alone=alone)
    for place, (name, _) in enumerate([] if alone else bins):
        if name in noised:
            noise, drawn = noised[name]
            tree.expect_noise(place, noise, partial(drawn, index))
        tree.least_sides[place] = least.get(name, 0) if params.withheld else 0
    return tree


def _start(model: CentralModel, tables: Tables) -> Start:
    """The beginning of a training that continues from a model, with all trees in use, as in XGBoost."""
    whole = replace(model, ensemble=replace(model.ensemble, best_round=None))
    return Start(len(whole.ensemble.trees), np.array(whole.ensemble.base_margin), whole.predict(tables))


def _continued(base: CentralModel, tables: Tables) -> dict[str, list[Entry]]:
    """The splits of the base model; `ConfigError` unless they are cuts of these bins."""
    binned = dict(tables)
    for name, entries in base.splits.items():
        features = binned[name].features if name in binned else ()
        if not all(
            candidate.feature < len(features) and _is_cut(candidate, at, features[candidate.feature])
            for candidate, at in entries
        ):
            raise ConfigError("the model to continue from was trained on other bins")
    return {**{name: [] for name in binned}, **{name: list(entries) for name, entries in base.splits.items()}}


def _is_cut(candidate: Candidate, threshold: float, feature: FeatureBins) -> bool:
    """True if a split at this threshold, or of these categories, is one of a column's bins."""
    if candidate.right is not None:
        return max(candidate.right) < feature.categories
    if candidate.bin < 0:  # missing values alone on the left, as monotone constraints allow
        return feature.has_missing and not feature.categories and threshold == -math.inf
    cuts = (*feature.cuts, math.inf)
    return not feature.categories and candidate.bin < len(cuts) and bool(cuts[candidate.bin] == threshold)


#: Party name and its raw columns (N, d), NaN where missing.
Blocks = Sequence[tuple[str, Array]]


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
    if they are not given; `withholding`: by the first party; `min_cell_records`: as for `train`;
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
        for (name, block), (_, table) in zip(blocks, tables, strict=True):
            if not params.takes_part(index, name):
                continue
            kept = params.columns(index, name, block.shape[1])
            if params.bins_per_node:
                bins.append((name, NodeBins(block, kept, with_zeros(drawn, total), params.max_bin, len(y))))
            else:
                bins.append((name, bins_of(table, kept, 0 if params.withheld else least.get(name, 0))))
        # Gini's own slots are the class counts that ID-LMID needs; a variance has to carry them beside its own.
        outputs, counts = tuple(range(params.outputs(classes))), params.criterion == "gini"
        values, limit = withholding.counted(values, y, classes, drawn > 0, has_counts=counts)
        alone, values = withholding.grows_alone(index), with_zeros(values, total)
        tree = _begun(values, criterion, params, bins, index, limit, noised or {}, least, alone=alone)
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
