"""The trainer of PIVODL on a joined table: the federation must equal it, split for split, bit for bit.

1. Labels are scaled by the moments of all of them.
2. Per tree: gradients of all records at their scores; the tree is grown by `pivodl_grower`; each leaf's weight is added
   to the scores of its records: to those that the source of the split above labels with the noise with which that
   source gets it (Zhu et al. 2023, Algorithm 4), to the others exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.errors import ConfigError, DataError
from treetap.trees.binning import BinnedTable
from treetap.trees.candidates import Candidate, column_goes_left
from treetap.trees.ensemble import ROOT
from treetap.trees.fixed_gains import weights_of
from treetap.trees.loss import check_targets
from treetap.trees.pivodl_grower import PivodlGrower, SourceSplit
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.shared_label_loss import Moments, SharedLabelLoss
from treetap.trees.tree_bins import GlobalBins

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Tables = Sequence[tuple[str, BinnedTable]]
#: Tree, leaf and exact weight (K,) → the weight with noise (K,), as `NoiseLedger.released` gives it.
Release = Callable[[int, int, Floats], Floats]

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class CentralPivodlTree:
    """A tree: its splits by node, and the exact weight (K,) of each leaf, learning rate included, by node.

    `divisible` are the nodes that the stopping rules let be split, also those for which no split was found.
    """

    splits: dict[int, SourceSplit]
    leaves: dict[int, Floats]
    divisible: frozenset[int]

    @property
    def nodes(self) -> dict[int, tuple[str, Candidate, float]]:
        """Node → source, candidate by its own column, threshold."""
        return {node: (split.source, split.candidate, split.threshold) for node, split in self.splits.items()}


@dataclass(frozen=True)
class CentralPivodlModel:
    """All trees, with the loss that gives their scores a meaning."""

    params: PivodlParams
    loss: SharedLabelLoss
    trees: tuple[CentralPivodlTree, ...]

    def predict(self, tables: Tables) -> Floats:
        """Scores (n, K), of a regression in scaled units, of records encoded in the training bins."""
        by_name = dict(tables)
        n = len(tables[0][1].codes)
        scores = np.tile(self.loss.base, (n, 1))
        for tree in self.trees:
            rows: dict[int, Ints] = {ROOT: np.arange(n)}
            for node, split in sorted(tree.splits.items()):
                here, table = rows.pop(node), by_name[split.source]
                feature = split.candidate.feature
                column = table.codes[here, feature]
                left = column_goes_left(column, split.candidate, table.features[feature].n_bins)
                rows[2 * node], rows[2 * node + 1] = here[left], here[~left]
            for leaf, weight in tree.leaves.items():
                scores[rows[leaf]] += weight
        return scores

    def outcome(self, scores: Floats) -> Floats:
        """See `SharedLabelLoss.outcome`."""
        return self.loss.outcome(scores)


def train(
    tables: Tables,
    labels: npt.NDArray[Any],
    params: PivodlParams,
    ownership: Mapping[str, npt.NDArray[Any]] | None = None,
    release: Release | None = None,
) -> CentralPivodlModel:
    """Train on the parties' tables, given in the order of ties, and labels (N,): class numbers or values.

    Args:
        ownership: the records that each party labels, together a partition; None: the first party labels all.
        release: gives a leaf weight its noise; needed where the parameters have epsilon, and only there.

    Raises:
        ConfigError: a parameter is out of range, or asks for noise that is not given.
        DataError: tables, labels and ownership do not fit together, or a label is out of range.
    """
    params.validate()
    if params.epsilon is not None and release is None:
        raise ConfigError("the centralised reference of PIVODL draws no noise: give the noise, or leave epsilon out")
    y = np.asarray(labels)
    for name, table in tables:
        if len(table.codes) != len(y):
            raise DataError(f"party {name!r} has {len(table.codes)} records, the labels {len(y)}")
    _check(y, params)
    owned = _owned(ownership if ownership is not None else {tables[0][0]: np.arange(len(y))}, tables, len(y))
    bins = [(name, GlobalBins(table, np.arange(len(table.features)))) for name, table in tables]
    loss = SharedLabelLoss(params, Moments.of(y) if params.needs_moments else None)
    scaled = loss.scaled(y)
    scores = np.tile(loss.base, (len(y), 1))
    trees = []
    for t in range(params.n_estimators):
        grower = PivodlGrower(bins, loss.gradients(scores, scaled), loss.scale, owned, params)
        grower.grow()
        leaves = {leaf: weights_of(sums, loss.scale, params) for leaf, sums in sorted(grower.leaves.items())}
        for leaf, weight in leaves.items():
            rows = grower.rows[leaf]
            if release is not None and params.epsilon is not None and leaf != ROOT:
                source = grower.splits[leaf >> 1].source
                noised = np.isin(rows, owned.get(source, _NONE))
                scores[rows[noised]] += release(t, leaf, weight)
                rows = rows[~noised]
            scores[rows] += weight
        trees.append(CentralPivodlTree(dict(sorted(grower.splits.items())), leaves, frozenset(grower.divisible)))
    return CentralPivodlModel(params, loss, tuple(trees))


def _check(labels: npt.NDArray[Any], params: PivodlParams) -> None:
    """DataError unless labels are finite numbers, or numbers of the classes."""
    if params.regression:
        check_targets(labels, params.objective)
    elif over := int((~np.isin(labels, np.arange(len(params.class_names)))).sum()):
        raise DataError(f"{over} of {len(labels)} labels are not among the {len(params.class_names)} classes")


def _owned(ownership: Mapping[str, npt.NDArray[Any]], tables: Tables, records: int) -> dict[str, Ints]:
    """Records by party that labels some; DataError unless they are a partition among the parties."""
    if strangers := [name for name in ownership if name not in dict(tables)]:
        raise DataError(f"{', '.join(strangers)} label records and have no table")
    found = {name: np.asarray(rows, dtype=np.int64) for name, rows in ownership.items() if len(rows)}
    times = np.bincount(np.concatenate([_NONE, *found.values()]), minlength=records)
    if len(times) > records:
        raise DataError(f"a party labels record {len(times) - 1}, and there are {records}")
    if (times != 1).any():
        raise DataError(
            f"{int((times == 0).sum())} records are labelled by no party and {int((times > 1).sum())} by several; "
            "each record is to have one party that labels it"
        )
    return found
