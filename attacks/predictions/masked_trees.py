"""Inversion of masked predictions: the recipient of scores finds exact leaf weights, and the paths of records.

A recipient of masked sums has the score of every record, to the resolution of its fixed point. It knows the exact
weights of all leaves but those below its own splits, which it received with noise; and of each record where it arrived
at nodes of its own: leaves below its own splits are the ones that it knows best.

1. A record that is at one leaf of unknown weight, and otherwise at leaves of known weights: the score less any sum that
   its other trees can have is a possible weight. The sets of possible weights of several records of the leaf have few
   common members; a single one is the weight.
2. Such weights make further records usable, until none is left.
3. With all weights of a record's possible leaves known, path decoding finds the leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treetap.attacks.predictions.decoding import ROUNDS, Decoded, Options, decode
from treetap.trees.ensemble import ROOT

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: Most sums of a record's other trees that are listed.
WORK = 2**16
#: Most records that are used for one leaf.
RECORDS = 64


@dataclass(frozen=True, eq=False)
class MaskedTree:
    """One tree as the recipient knows it, with n records to be scored.

    Attributes:
        leaves: (k,) heap numbers.
        possible: (n, k) leaves at which each record can be, by the recipient's own nodes.
        weights: (k, outputs) in fixed point, of leaves where `known`.
        known: (k,) leaves whose exact weight the recipient has.
    """

    leaves: Ints
    possible: Bools
    weights: Ints
    known: Bools


def possible_leaves(leaves: Ints, arrived: Mapping[int, Bools], went_left: Mapping[int, Bools], records: int) -> Bools:
    """(n, k) leaves that agree with what a party saw.

    Args:
        arrived: node or leaf that the party holds → (n,) records that arrived there.
        went_left: node that the party split → (n,) the way on.
    """
    possible = np.ones((records, len(leaves)), dtype=bool)
    for node, here in arrived.items():
        below = np.array([_is_below(leaf, node) for leaf in leaves.tolist()])
        possible &= np.where(here[:, np.newaxis], below, ~below)
        if node in went_left:
            left = np.array([_is_below(leaf, 2 * node) for leaf in leaves.tolist()])
            way = np.where(went_left[node][:, np.newaxis], left, below & ~left)
            possible &= np.where(here[:, np.newaxis], way, True)
    return possible


def _is_below(leaf: int, node: int) -> bool:
    while leaf > node:
        leaf >>= 1
    return leaf == node >= ROOT


def invert(trees: Sequence[MaskedTree], scores: Ints, *, work: int = WORK) -> list[MaskedTree]:
    """The trees with all weights that follow from scores (n, outputs), in fixed point and without the base margin."""
    solved = list(trees)
    while True:
        before = sum(int(tree.known.sum()) for tree in solved)
        for t, tree in enumerate(solved):
            for place in np.flatnonzero(~tree.known):
                weight = _weight(solved, t, int(place), scores, work)
                if weight is not None:
                    weights, known = solved[t].weights.copy(), solved[t].known.copy()
                    weights[place], known[place] = weight, True
                    solved[t] = replace(solved[t], weights=weights, known=known)
        if sum(int(tree.known.sum()) for tree in solved) == before:
            return solved


def _weight(trees: Sequence[MaskedTree], t: int, place: int, scores: Ints, work: int) -> Ints | None:
    """The one weight of a leaf that the scores of its records allow; None if there are several."""
    others = [tree for k, tree in enumerate(trees) if k != t]
    inside = trees[t].possible[:, place] & (trees[t].possible.sum(axis=1) == 1)
    for tree in others:
        inside &= ~(tree.possible & ~tree.known).any(axis=1)
    rows = np.flatnonzero(inside)
    # records with few sums of their other trees are cheap and say most: they come first
    sizes = np.array([math.prod(int(tree.possible[row].sum()) for tree in others) for row in rows])
    allowed: set[tuple[int, ...]] | None = None
    for row in rows[np.argsort(sizes, kind="stable")][:RECORDS]:
        sums = _sums([tree.weights[tree.possible[row]] for tree in others], scores.shape[1], work)
        if sums is None:
            break
        values = {tuple(value) for value in (scores[row] - sums).tolist()}
        allowed = values if allowed is None else allowed & values
        if len(allowed) <= 1:
            break
    one = allowed is not None and len(allowed) == 1
    return np.array(next(iter(allowed or ())), dtype=np.int64) if one else None


def _sums(weights: Sequence[Ints], outputs: int, work: int) -> Ints | None:
    """All sums of one weight of each tree, (combinations, outputs), each once; None above the work bound."""
    sums: Ints = np.zeros((1, outputs), dtype=np.int64)
    for of_tree in weights:
        if len(sums) * len(of_tree) > work:
            return None
        sums = np.unique((sums[:, np.newaxis] + of_tree[np.newaxis]).reshape(-1, outputs), axis=0)
    return sums


def decode_paths(
    trees: Sequence[MaskedTree], scores: Ints, record: int, *, work: int = WORK, rounds: int = ROUNDS
) -> Decoded | None:
    """The leaves of one record; None where the weight of a possible leaf is not known."""
    options = []
    for tree in trees:
        mask = tree.possible[record]
        if not tree.known[mask].all():
            return None
        options.append(Options(tree.leaves[mask], tree.weights[mask]))
    return decode(options, scores[record], work=work, rounds=rounds)
