"""What every party of a centralised model decides about records, which tests of explanations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.library.trees.tables import Parties
from treetap.trees.candidates import column_goes_left
from treetap.trees.centralised import CentralModel, CentralTrees, Tables
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.paths import candidate_leaves

Bools = npt.NDArray[np.bool_]


def decisions(model: CentralModel, tables: Tables) -> Callable[[Split], Bools]:
    """Which records go left at a split."""
    binned = dict(tables)

    def goes_left(split: Split) -> Bools:
        candidate, _ = model.entry(split)
        table = binned[split.owner]
        n_bins = table.features[candidate.feature].n_bins
        return column_goes_left(table.codes[:, candidate.feature], candidate, n_bins)

    return goes_left


def raw_decisions(model: CentralTrees, parties: Parties) -> Callable[..., Bools]:
    """Which records go left at a split, all of them or some, by raw columns."""
    columns = dict(parties)

    def goes_left(split: Split, rows: Any = slice(None)) -> Bools:
        candidate, cut = model.entry(split)
        values = columns[split.owner][rows, candidate.feature]
        return np.where(np.isnan(values), candidate.missing_left, values < cut)

    return goes_left


def player_of(model: CentralModel, holder: str) -> Callable[[Split], str]:
    """The label holder's features one by one, every other party as one player."""

    def player(split: Split) -> str:
        own = f"{holder}:{model.entry(split)[0].feature}" if split.owner == holder else ""
        return own or split.owner

    return player


def masks_by_player(
    tree: Tree, n: int, goes_left: Callable[[Split], Bools], player: Callable[[Split], str]
) -> dict[str, Bools]:
    """Each player's candidate leaves (n, leaves) in one tree."""
    names = {player(split) for split in tree.splits}
    return {
        name: candidate_leaves(tree, n, lambda split, name=name: goes_left(split) if player(split) == name else None)
        for name in names
    }


def all_masks(
    ensemble: Ensemble, n: int, goes_left: Callable[[Split], Bools], player: Callable[[Split], str]
) -> list[dict[str, Bools]]:
    """The same for every used tree."""
    return [masks_by_player(tree, n, goes_left, player) for tree in ensemble.used_trees]
