"""Shapley values of records in the clear, all masks of whose trees are known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from treetap.arrays import Bools, Floats
from treetap.trees.ensemble import Ensemble
from treetap.trees.shapley import PlayerOf, expected_score, masked_terms


@dataclass(frozen=True)
class Attributions:
    """values (n, players, outputs) add up, with expected (outputs,), to the scores (n, outputs)."""

    players: tuple[str, ...]
    expected: Floats
    values: Floats


def attribute(
    ensemble: Ensemble, player_of: PlayerOf, masks: Iterable[Mapping[str, Bools]], players: Collection[str], n: int
) -> Attributions:
    """Shapley values of n records.

    `masks` holds for each used tree, in order, every player's candidate mask (n, leaves) under its own splits; players
    without a split in a tree may be left out. `players` fixes the order of the result. Raises DataError as
    `masked_terms` does.
    """
    order = {player: place for place, player in enumerate(players)}
    outputs = len(ensemble.base_margin)
    values = np.zeros((n, len(order), outputs))
    for tree, known in zip(ensemble.used_trees, masks, strict=True):
        terms = masked_terms(tree, player_of, known, remote=(), n=n)
        for player, part in terms.get((), {}).items():
            values[:, order[player], list(tree.outputs)] += part.sum(axis=1)
    return Attributions(tuple(order), expected_score(ensemble), values / ensemble.divisor)
