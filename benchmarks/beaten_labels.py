"""Labels, of `beaten.py`: easy attacks on a training of trees, written apart from the audit's, beside the audit's own.

Two parties have the first and the second half of the columns, each in turn with the labels. The centralised trainer
gives the federation's trees, and what the feature party sees of them is read off. AUC, of several classes the mean of
each against the rest: with the training, and before it by own columns alone.

Easy attacks that know no label, either side: of own splits the first, a vote of all turned to agree with the heaviest,
and the first principal component, with three discounts of trees; of leaves the first two components; before, those of
own columns. With the known labels that the audit draws, means over draws: a logistic regression on own splits, on eight
numbers (the vote, the component of splits, six of leaves), and before on own columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from beaten_tables import HOLDER, PARTY, Best, Floats, Ints, Row, Table

from treetap.attacks.id2graph.schema import KnownSettings
from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import KnownLabels
from treetap.attacks.registry import Needs, rows
from treetap.attacks.view.known_trees import TreeView, expected_views
from treetap.tables.labels import Labels
from treetap.trees import metrics
from treetap.trees.binning import bin_table
from treetap.trees.centralised import CentralTrees, train, train_forest
from treetap.trees.ensemble import ROOT
from treetap.trees.params import BoostingParams, ForestParams

WAYS = ("boosting", "withheld", "forest")


@dataclass(frozen=True)
class Trained:
    """One training: the feature party's columns (N, d), classes (N,), and its view of the trees."""

    own: Floats
    labels: Ints
    trees: tuple[TreeView, ...]


def labels_rows(_: str, table: Table, given: argparse.Namespace) -> Iterator[Row]:
    """Labels with the training and before it, in each way, at either party."""
    for way in given.ways:
        for second in (False, True):
            for question, easy, own in compared(trained(table, way, given, second=second)):
                yield Row(way, "second half" if second else "first half", question, "AUC", 0.01, easy, own)


def trained(table: Table, way: str, given: argparse.Namespace, *, second: bool) -> Trained:
    """A training; `second`: the party with the second half of the columns has the labels."""
    columns, labels = table.columns, table.labels
    first = np.arange(columns.shape[1]) < columns.shape[1] // 2
    halves = (columns[:, ~first], columns[:, first]) if second else (columns[:, first], columns[:, ~first])
    blocks = list(zip((HOLDER, PARTY), halves, strict=True))
    common: dict[str, Any] = {"n_estimators": given.trees, "max_depth": given.depth, "max_bin": 32}
    if way == "forest":
        model: CentralTrees = train_forest(blocks, labels, ForestParams(**common), table.classes)
    else:
        more = table.objective | ({"instance_spaces": "withheld"} if way == "withheld" else {})
        tables = [(name, bin_table(block, [str(j) for j in range(block.shape[1])], 32)) for name, block in blocks]
        model = train(tables, labels, BoostingParams(**common | more), table.classes)
    names = [str(j) for j in range(halves[1].shape[1])]
    return Trained(halves[1], labels, expected_views(model, blocks, PARTY, names))


def compared(it: Trained) -> Iterator[tuple[str, Best, Best]]:
    """Each question with the best easy attack and the audit's best."""
    evidence = evidence_of(it)
    for row in rows(Needs.KNOWN_LABELS).values():
        row.run(evidence)
    if evidence.obstacle:
        return
    easy_ways = {"with the training": by_training(it, evidence.draws), "before it": before(it, evidence.draws)}
    for question, easy in easy_ways.items():
        audit = {
            f"{attack} ({kind})": named.auc
            for (attack, kind), named in evidence.named.items()
            if ("columns" in kind) == (question == "before it")
        }
        yield question, Best.of(easy), Best.of(audit)


def by_training(it: Trained, draws: list[Ints]) -> dict[str, float]:
    """The AUC of each easy attack by what the party saw of the training."""
    splits, leaves = dict(by_splits(it)), dict(by_leaves(it))
    orders = splits | dict([*leaves.items()][:2])
    figures = {name: either_side(scores, it.labels) for name, scores in orders.items()}
    return figures | by_known(it, splits, leaves, draws)


def before(it: Trained, draws: list[Ints]) -> dict[str, float]:
    """The AUC of each easy attack by own columns."""
    figures = {name: either_side(scores, it.labels) for name, scores in by_columns(it)}
    return figures | {"regression on columns": regressed(standardised(it.own), it.labels, draws)}


def evidence_of(it: Trained) -> SignatureEvidence:
    """What the audit's attacks by known labels use."""
    classes = [str(number) for number in range(int(it.labels.max()) + 1)]
    known = KnownLabels.of(len(it.labels), Labels(it.labels, classes), None)
    return SignatureEvidence(it.trees, known, it.own, KnownSettings())


def either_side(scores: Floats, labels: Ints) -> float:
    """The AUC of scores (N,), of several classes the mean of each against the rest, each by its better side."""
    classes = range(1, 2) if labels.max() == 1 else range(int(labels.max()) + 1)
    aucs = [metrics.auc(scores, (labels == number).astype(np.int64)) for number in classes]
    return float(np.mean([max(value, 1 - value) for value in aucs]))


def components(points: Floats, count: int) -> Floats:
    """Records (N, ≤ count) on the first principal components of points (N, k)."""
    centred = points - points.mean(axis=0)
    directions = np.linalg.eigh(centred.T @ centred)[1]  # ascending by variance
    return np.asarray(centred @ directions[:, ::-1][:, :count])


def own_sides(it: Trained, discount: float) -> tuple[Floats, Floats]:
    """Of each own split −1 or 1 by the side of a record, 0 elsewhere (N, k); and weights (k,)."""
    cuts = [(tree, cut) for tree, view in enumerate(it.trees) for cut in view.own_cuts()]
    sides = np.zeros((len(it.labels), len(cuts)))
    for place, (_, cut) in enumerate(cuts):
        sides[cut.left, place], sides[cut.right, place] = -1, 1
    return sides, np.array([discount**tree * 0.5 ** (cut.node.bit_length() - 1) for tree, cut in cuts])


def by_splits(it: Trained) -> Iterator[tuple[str, Floats]]:
    """Scores (N,) by the sides of own splits."""
    for discount in (0.6, 0.8, 1.0):
        sides, weights = own_sides(it, discount)
        if not len(weights):
            return
        heaviest = sides[:, weights.argmax()]
        turned = np.sign((heaviest - heaviest.mean()) @ (sides - sides.mean(axis=0)))
        yield f"first split, {discount}", heaviest
        yield f"vote, {discount}", sides @ (weights * turned)
        yield f"component of splits, {discount}", components(sides * np.sqrt(weights), 1)[:, 0]


def by_leaves(it: Trained) -> Iterator[tuple[str, Floats]]:
    """Scores (N,) by the leaves that the party knows."""
    leaves = [(tree, leaf.records) for tree, view in enumerate(it.trees) for leaf in view.leaves() if leaf.node != ROOT]
    if not leaves:
        return
    inside = np.zeros((len(it.labels), len(leaves)))
    for place, (tree, records) in enumerate(leaves):
        inside[records, place] = 0.9**tree / np.sqrt(max(1, len(records)))
    for number, scores in enumerate(components(inside, 6).T, 1):
        yield f"component {number} of leaves", scores


def by_columns(it: Trained) -> Iterator[tuple[str, Floats]]:
    """Scores (N,) by own columns."""
    points = standardised(it.own)
    for number, scores in enumerate(components(points, 2).T, 1):
        yield f"component {number} of columns", scores
    correlated = points.T @ points
    yield "vote of columns", points @ np.sign(correlated[(correlated**2).sum(axis=1).argmax()])


def standardised(columns: Floats) -> Floats:
    """Columns (N, d) with mean 0 and deviation 1, a missing cell as the mean."""
    filled = np.where(np.isfinite(columns), columns, np.nanmean(columns, axis=0))
    centred = filled - filled.mean(axis=0)
    return np.asarray(centred / np.where(centred.std(axis=0) > 0, centred.std(axis=0), 1.0))


def by_known(it: Trained, splits: dict[str, Floats], leaves: dict[str, Floats], draws: list[Ints]) -> dict[str, float]:
    """The AUC of regressions by what the party saw of the training."""
    figures = dict[str, float]()
    if splits:
        sides, weights = own_sides(it, 0.6)
        figures["regression on splits"] = regressed(3 * sides * np.sqrt(weights), it.labels, draws)
    numbers = [scores for name, scores in splits.items() if name in ("vote, 0.6", "component of splits, 0.6")]
    if numbers or leaves:
        eight = np.stack([*numbers, *leaves.values()], axis=1)
        figures["regression on eight numbers"] = regressed(standardised(eight), it.labels, draws)
    return figures


def regressed(points: Floats, labels: Ints, draws: list[Ints]) -> float:
    """The AUC of a logistic regression on points (N, k) of the known records of a draw; ½ for a class that none has."""
    from sklearn.linear_model import LogisticRegression

    aucs = []
    for known in draws:
        rest, chances = np.setdiff1d(np.arange(len(labels)), known), np.zeros((len(labels), int(labels.max()) + 1))
        if len(np.unique(labels[known])) > 1:
            model = LogisticRegression(C=0.3, max_iter=500).fit(points[known], labels[known])
            chances[:, model.classes_] = model.predict_proba(points)
        classes = np.unique(labels[rest])
        aucs.append(np.mean([metrics.auc(chances[rest, k], (labels[rest] == k).astype(np.int64)) for k in classes]))
    return float(np.mean(aucs))
