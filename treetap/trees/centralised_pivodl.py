"""The trainer of PIVODL on a joined table: the federation must equal it, split for split, bit for bit.

1. Labels are scaled by the moments of all of them.
2. Per tree: gradients of all records at their scores; the tree is grown level by level, by the rules of its
   parties and without their ciphertexts; each leaf's weight is added to the scores of its records: to those that the
   source of the split above labels with the noise with which that source gets it (Zhu et al. 2023, Algorithm 4), to
   the others exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treetap.arrays import Array, Floats, Ints
from treetap.errors import ConfigError, DataError
from treetap.trees.binning import BinnedTable
from treetap.trees.candidates import Candidate, column_goes_left
from treetap.trees.ensemble import ROOT
from treetap.trees.loss import check_targets
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import (
    Best,
    Moments,
    SharedLabelLoss,
    able_sources,
    admissible,
    best_of,
    stopped_by,
    weights_of,
)
from treetap.trees.tree_bins import GlobalBins, goes_left, left_sums

Tables = Sequence[tuple[str, BinnedTable]]
#: Tree, leaf and exact weight (K,) → the weight with noise (K,), as `NoiseLedger.released` gives it.
Release = Callable[[int, int, Floats], Floats]

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class SourceSplit:
    """A split: its source, the candidate by the source's own column, the threshold, and the gain in units of 2^-24.

    A record goes left if its value is below `threshold`; ∞ where only missing values go right.
    """

    source: str
    candidate: Candidate
    threshold: float
    gain: int


@dataclass(frozen=True)
class CentralPivodlTree:
    """A tree: its splits by node, and the exact weight (K,) of each leaf, learning rate included, by node.

    `divisible` are the nodes that the stopping rules let be split, also those for which no split was found.
    """

    splits: dict[int, SourceSplit]
    leaves: dict[int, Floats]
    divisible: frozenset[int]


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
        """Probabilities, or values in the unit of the label, of scores (n, K)."""
        return self.loss.outcome(scores)


def train(
    tables: Tables,
    labels: Array,
    params: PivodlParams,
    ownership: Mapping[str, Array] | None = None,
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
    if params.regression:
        check_targets(y, params.objective)
    elif over := int((~np.isin(y, np.arange(len(params.class_names)))).sum()):
        raise DataError(f"{over} of {len(y)} labels are not among the {len(params.class_names)} classes")
    owned = _owned(ownership if ownership is not None else {tables[0][0]: np.arange(len(y))}, tables, len(y))
    bins = [(name, GlobalBins(table, np.arange(len(table.features)))) for name, table in tables]
    loss = SharedLabelLoss(params, Moments.of(y) if params.needs_moments else None)
    scaled = loss.scaled(y)
    scores = np.tile(loss.base, (len(y), 1))
    trees = []
    for t in range(params.n_estimators):
        grower = _Grower(bins, loss.gradients(scores, scaled), loss.scale, owned, params)
        grower.grow()
        leaves = {leaf: weights_of(sums, loss.scale, params) for leaf, sums in sorted(grower.leaves.items())}
        for leaf, weight in leaves.items():
            rows = grower.rows[leaf]
            # Algorithm 4: the source of the split above gets the weight with noise; a lone root has none.
            if release is not None and params.epsilon is not None and leaf != ROOT:
                source = grower.splits[leaf >> 1].source
                noised = np.isin(rows, owned.get(source, _NONE))
                scores[rows[noised]] += release(t, leaf, weight)
                rows = rows[~noised]
            scores[rows] += weight
        trees.append(CentralPivodlTree(dict(sorted(grower.splits.items())), leaves, frozenset(grower.divisible)))
    return CentralPivodlModel(params, loss, tuple(trees))


def _owned(ownership: Mapping[str, Array], tables: Tables, records: int) -> dict[str, Ints]:
    """Records by party that labels some; DataError unless they are a partition among the parties."""
    if strangers := [name for name in ownership if name not in dict(tables)]:
        raise DataError(f"{', '.join(strangers)} label records and have no table")
    owned = {name: np.asarray(rows, dtype=np.int64) for name, rows in ownership.items() if len(rows)}
    times = np.bincount(np.concatenate([_NONE, *owned.values()]), minlength=records)
    if len(times) > records:
        raise DataError(f"a party labels record {len(times) - 1}, and there are {records}")
    if (times != 1).any():
        raise DataError(
            f"{int((times == 0).sum())} records are labelled by no party and {int((times > 1).sum())} by several; "
            "each record is to have one party that labels it"
        )
    return owned


class _Grower:
    """Grows one tree.

    Which party opens whose candidates changes no model, except that a source offers none where no party may.

    Args:
        bins: the parties' columns by name, in the order of ties.
        gradients: (N, 2K) g and h of all records.
        scale: of g, see `treetap.trees.pivodl_rules`.
        ownership: the records that each party with labels labels, a partition.
    """

    def __init__(
        self,
        bins: Sequence[tuple[str, GlobalBins]],
        gradients: Ints,
        scale: float,
        ownership: Mapping[str, Ints],
        params: PivodlParams,
    ) -> None:
        self._bins, self._scale, self._params = bins, scale, params
        self._owners = list(ownership)
        self._slots = gradients.shape[1]
        labelled = np.zeros((len(gradients), len(self._owners)), dtype=np.int64)
        for place, rows in enumerate(ownership.values()):
            labelled[rows, place] = 1
        self._values = np.concatenate([gradients, labelled], axis=1)
        self.rows: dict[int, Ints] = {ROOT: np.arange(len(gradients))}
        self.splits: dict[int, SourceSplit] = {}
        self.leaves: dict[int, Ints] = {}
        self.divisible: set[int] = set()

    def grow(self) -> None:
        """Grow the tree: `splits` by node, `leaves` → (2K,) sums of g and h, `rows` → the records of each leaf.

        `divisible` are the nodes that the stopping rules let be split, also those for which no split was found.
        """
        level = [ROOT] if self._continues(ROOT) else []
        if not level:
            self._end(ROOT)
        while level:
            self.divisible |= set(level)
            chosen = self._winners(level)
            children = [child for node in chosen for child in (2 * node, 2 * node + 1)]
            for node, (place, best) in chosen.items():
                # Enter a split, by the lowest of the tied candidates, and pass the records to the children.
                name, bins = self._bins[place]
                candidate = bins.candidates.at(min(best.places))
                self.splits[node] = SourceSplit(name, candidate, bins.cut(node, candidate), best.gain)
                rows = self.rows.pop(node)
                left = goes_left(bins, node, rows, candidate)
                self.rows[2 * node], self.rows[2 * node + 1] = rows[left], rows[~left]
            # Who may open sums at the next level depends on the leaves known by then: those of this level end first.
            for node in [node for node in level if node not in chosen]:
                self._end(node)
            level = [child for child in children if self._continues(child)]
            for child in children:
                if child not in level:
                    self._end(child)

    def _continues(self, node: int) -> bool:
        """True for a node that may be split: it is not too deep, and has enough records of each party with labels."""
        rows, params = self.rows[node], self._params
        if node.bit_length() > params.max_depth or len(rows) < params.min_samples:
            return False
        if params.as_published:
            return True
        return not stopped_by(self._labelled(self._total(node)), params.instance_threshold)

    def _winners(self, level: Sequence[int]) -> dict[int, tuple[int, Best]]:
        """node → (place of the source, its best candidates by place in canonical order), of nodes with a winner."""
        names = [name for name, _ in self._bins]
        sources = {node: split.source for node, split in self.splits.items()}
        guarded = not self._params.as_published
        able = {node: able_sources(names, node, sources, self.leaves, guarded=guarded) for node in level}
        rows = [self.rows[node] for node in level]
        winners: dict[int, tuple[int, Best]] = {}
        for place, (name, bins) in enumerate(self._bins):
            lefts = left_sums(bins.all_codes, bins.candidates, self._values, rows)
            for node, left in zip(level, lefts, strict=True):
                best = self._best(name, left, self._total(node)) if name in able[node] else None
                # Only a larger gain replaces another: ties go to the first source.
                if best is not None and (node not in winners or best.gain > winners[node][1].gain):
                    winners[node] = place, best
        return {node: winners[node] for node in level if node in winners}

    def _best(self, source: str, left: Ints, total: Ints) -> Best | None:
        """The best of those candidates of a source that all parties with labels permit."""
        params = self._params
        permitted = np.flatnonzero(
            admissible(
                {owner: left[:, self._slots + place] for place, owner in enumerate(self._owners)},
                self._labelled(total),
                source,
                params.instance_threshold,
                as_published=params.as_published,
            )
        )
        best = best_of(left[permitted, : self._slots], total[: self._slots], self._scale, params)
        return best and Best(best.gain, [int(permitted[place]) for place in best.places])

    def _labelled(self, total: Ints) -> dict[str, int]:
        """Labelled records by party, of the sums of a node."""
        return {owner: int(total[self._slots + place]) for place, owner in enumerate(self._owners)}

    def _total(self, node: int) -> Ints:
        total: Ints = self._values[self.rows[node]].sum(axis=0)
        return total

    def _end(self, node: int) -> None:
        self.leaves[node] = self._total(node)[: self._slots]
