"""The scores that other parties' records can have before each tree, as one owner of labels can tell.

h of a record depends on its score alone, and g on its label besides. A score is the base score and the weights of the
record's leaves, which owners get exactly; a split party has those that it keeps from the sums that it opened. Where a
record can be in several leaves, it has several possible scores; with too many it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from treetap.attacks.pivodl.bin_domains import BinDomains
from treetap.attacks.pivodl.left_sets import KnownCuts
from treetap.attacks.pivodl.solved_gains import closed
from treetap.attacks.view.known_trees import Ints
from treetap.attacks.view.pivodl_view import PivodlTree, PivodlView
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_rules import weights_of
from treetap.trees.shared_label_loss import SharedLabelLoss

Floats = npt.NDArray[np.float64]
#: Most scores that a record can have before they count as unknown.
MOST_SCORES = 16


@dataclass(frozen=True, eq=False)
class PossibleScores:
    """Scores before one tree: pairs of a record and a score that it can have, by record.

    Records without a pair have unknown scores.
    """

    records: Ints = field(repr=False)
    scores: Floats = field(repr=False)

    def of(self, rows: Ints, total: int) -> PossibleScores:
        """Those of some records."""
        inside = np.zeros(total, dtype=bool)
        inside[rows] = True
        kept = inside[self.records]
        return PossibleScores(self.records[kept], self.scores[kept])


def possible_scores(
    view: PivodlView, records: int, loss: SharedLabelLoss, cuts: KnownCuts, domains: Mapping[str, BinDomains]
) -> list[PossibleScores]:
    """Those before each tree of a job of one output; of trees after a missing one none."""
    known = PossibleScores(np.arange(records), np.full(records, float(loss.base[0])))
    none = PossibleScores(np.zeros(0, dtype=np.int64), np.zeros(0))
    owner, before = view.owner(records), []
    for number, tree in enumerate(view.trees):
        if tree.view.index != number:
            known = none
        before.append(known)
        known = _after(view, tree, known, owner, _weights(view, tree, loss), cuts, domains)
    return before


def _weights(view: PivodlView, tree: PivodlTree, loss: SharedLabelLoss) -> dict[int, float]:
    """Leaf → its exact weight: received without noise, or of sums that the party has, opened ones included."""
    sums = dict(tree.sums)
    for node, place in tree.taken.items():
        left = tree.opened.get((node, tree.splits[node].source))
        if left is not None and place < len(left):
            sums[2 * node] = left[place]
    sums = closed(sums, tree.splits)
    exact = {leaf: float(weight.value[0]) for leaf, weight in tree.weights.items() if weight.exact}
    computed = {
        leaf: float(weights_of(sums[leaf], loss.scale, view.params)[0])
        for leaf in tree.leaves
        if leaf in sums and leaf not in exact
    }
    return exact | computed


def _after(
    view: PivodlView,
    tree: PivodlTree,
    before: PossibleScores,
    owner: Ints,
    weights: Mapping[int, float],
    cuts: KnownCuts,
    domains: Mapping[str, BinDomains],
) -> PossibleScores:
    total = len(owner)
    rows, scores = [], []
    unknown = np.zeros(total, dtype=bool)
    for leaf, inside in _possible_leaves(tree, total, cuts, domains).items():
        source, weight = tree.source_above(leaf), weights.get(leaf)
        # the source of a leaf adds its weight with noise to the scores of the records that it labels
        noised = np.zeros(total, dtype=bool)
        if view.params.epsilon is not None and source is not None:
            noised[inside] = owner[inside] == view.parties.index(source)
        here = before.of(inside, total)
        if weight is None:
            unknown[inside] = True
        else:
            unknown |= noised
            exact = ~noised[here.records]
            rows.append(here.records[exact])
            scores.append(here.scores[exact] + weight)
        if source == view.party and leaf in tree.weights:  # it is the source itself, and has the one with noise
            own = noised & (owner == view.parties.index(view.party))
            unknown &= ~own
            kept = own[here.records]
            rows.append(here.records[kept])
            scores.append(here.scores[kept] + float(tree.weights[leaf].value[0]))
    return _distinct(rows, scores, unknown)


def _distinct(rows: list[Ints], scores: list[Floats], unknown: npt.NDArray[np.bool_]) -> PossibleScores:
    """All pairs, each once, by record; none of records that are unknown or have too many."""
    every, value = np.concatenate([np.zeros(0, np.int64), *rows]), np.concatenate([np.zeros(0), *scores])
    order = np.lexsort((value, every))
    every, value = every[order], value[order]
    new = np.ones(len(every), dtype=bool)
    new[1:] = (np.diff(every) != 0) | (np.diff(value) != 0)
    every, value = every[new], value[new]
    few = np.bincount(every, minlength=len(unknown)) <= MOST_SCORES
    kept = few[every] & ~unknown[every]
    return PossibleScores(every[kept], value[kept])


def _possible_leaves(
    tree: PivodlTree, total: int, cuts: KnownCuts, domains: Mapping[str, BinDomains]
) -> dict[int, Ints]:
    """Leaf → the records that can be in it."""
    inside = {ROOT: np.arange(total, dtype=np.int64)}
    for node, split in sorted(tree.splits.items()):
        rows = inside.pop(node)
        for child in (2 * node, 2 * node + 1):
            known = tree.records(child)
            inside[child] = rows if known is None else np.intersect1d(rows, known, assume_unique=True)
        if tree.records(2 * node) is not None and tree.records(2 * node + 1) is not None:
            continue
        own = tree.labelled.get(2 * node), tree.labelled.get(2 * node + 1)
        for child, other in ((2 * node, own[1]), (2 * node + 1, own[0])):
            if other is not None:
                inside[child] = np.setdiff1d(inside[child], other, assume_unique=True)
        source = domains.get(split.source)
        column = None if source is None else cuts.column(tree.view.index, node, source)
        if source is not None and column is not None:
            to_left, to_right = source.sides_of(cuts.cuts[tree.view.index, node])
            for child, bins in ((2 * node, to_left), (2 * node + 1, to_right)):
                inside[child] = inside[child][source.can_be(column, inside[child], bins)]
    return inside
