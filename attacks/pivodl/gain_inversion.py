"""Figures of gain inversion: how many splits' gains give sums away, and how much noise the exact weights undo."""

from __future__ import annotations

from treetap.attacks.pivodl.evidence import SharedLabelEvidence
from treetap.attacks.pivodl.schema import GainInversionFigures, InvertedTreeFigures
from treetap.attacks.pivodl.solved_gains import InvertedTree, closed
from treetap.attacks.view.known_trees import Ints
from treetap.attacks.view.pivodl_view import PivodlTree


def gain_inversion(evidence: SharedLabelEvidence) -> GainInversionFigures:
    """Count what `SolvedGains` solved, and of it by the labels what is right."""
    view, solved, truth = evidence.view, evidence.solved, evidence.truth
    by_tree = [_of_tree(tree, truth) for tree in solved.trees]
    return GainInversionFigures(
        possible=solved.possible and view.params.gain_comparison == "announce",
        splits=sum(tree.splits for tree in by_tree),
        announced=sum(tree.announced for tree in by_tree),
        tried=sum(tree.tried for tree in by_tree),
        solved=sum(tree.solved for tree in by_tree),
        exact=None if truth is None else sum(tree.exact or 0 for tree in by_tree),
        noised_weights=sum(not weight.exact for tree in view.trees for weight in tree.weights.values()),
        noise_removed=sum(_noise_removed(*pair) for pair in zip(view.trees, solved.trees, strict=True)),
        by_tree=by_tree,
    )


def _of_tree(tree: InvertedTree, truth: Ints | None) -> InvertedTreeFigures:
    right = None
    if truth is not None:
        right = sum(int((truth[records] == 1).sum()) == positives for records, positives in tree.solved)
    return InvertedTreeFigures(
        tree=tree.index,
        splits=tree.splits,
        announced=tree.announced,
        tried=tree.tried,
        solved=len(tree.solved),
        exact=right,
    )


def _noise_removed(seen: PivodlTree, solved: InvertedTree) -> int:
    """Leaves that came with noise and whose exact weight follows from gains, not from received sums alone."""
    told = closed(seen.sums, seen.splits)  # these weights follow without a gain: `exact_weight_known`
    return sum(leaf in seen.weights and not seen.weights[leaf].exact for leaf in solved.weights if leaf not in told)
