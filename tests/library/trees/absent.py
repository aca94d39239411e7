"""Scores while owners of splits are away, of one walk in the clear."""

from __future__ import annotations

from collections.abc import Collection

from treetap.arrays import Floats
from treetap.trees.ensemble import Ensemble, Tree
from treetap.trees.paths import Guesses, PlacesLeft, Walk


def scores_without(ensemble: Ensemble, n: int, goes_left: PlacesLeft, away: Collection[str]) -> tuple[Floats, Floats]:
    """Scores (n, outputs) of n records without the owners that are `away`, and the guessed share of each path (n,).

    `goes_left` answers for the records at a split of any other owner.
    """
    guesses = Guesses(n)

    def values(tree: Tree) -> Floats:
        walk = Walk(tree, n, guesses, away)
        while waiting := walk.waiting():
            for split, places in waiting:
                walk.move(split.node, goes_left(split, places))
        return walk.values(goes_left)

    return ensemble.summed((values(tree) for tree in ensemble.used_trees), n), guesses.share()
