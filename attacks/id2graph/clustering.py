"""The attacker's leaves (per tree, the known instance spaces without known children) and the attacks' last step.

That is k-means on [min–max-normalised own features, α · one-hot of the group]; or groups of records by the signature of
a party's own winning splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treetap.arrays import Array, Floats, Ints
from treetap.errors import BadInput

# The attacker's leaves: per tree, the known instance spaces without known children.
#
# Every attack takes `leaves`, trees in training order, each a sequence of int64 arrays of record positions. A record
# may
# be in no leaf of a tree: the attacker then does not know its path.


Leaves = Sequence[Sequence[Ints]]


def checked(leaves: Leaves, records: int) -> list[list[Ints]]:
    """Check the leaves; returns them in ascending order of records, without empty ones.

    Raises:
        BadInput: no record at all, or a leaf that is not a list of distinct positions 0..records−1 (names tree, leaf).
    """
    if isinstance(records, bool) or not isinstance(records, int | np.integer) or records < 1:
        raise BadInput(f"records: must be a whole number of at least 1, not {records!r}")
    return [
        [leaf for number, given in enumerate(tree) if len(leaf := _leaf(given, records, t, number))]
        for t, tree in enumerate(leaves)
    ]


def _leaf(given: npt.ArrayLike, records: int, tree: int, number: int) -> Ints:
    place = f"leaf {number} of tree {tree}"
    leaf: Array = np.asarray(given)
    if leaf.size == 0:
        return np.zeros(0, dtype=np.int64)
    if leaf.ndim != 1 or leaf.dtype.kind not in "iu":
        raise BadInput(f"{place}: must be a one-dimensional array of whole numbers, not {leaf.dtype} {leaf.shape}")
    leaf = np.sort(leaf.astype(np.int64))
    if leaf[0] < 0 or leaf[-1] >= records:
        wrong = leaf[0] if leaf[0] < 0 else leaf[-1]
        raise BadInput(
            f"{place}: position {wrong} is outside 0..{records - 1}; positions count from 0 in aligned order"
        )
    if (leaf[1:] == leaf[:-1]).any():
        twice = leaf[1:][leaf[1:] == leaf[:-1]][0]
        raise BadInput(f"{place}: names record {twice} more than once")
    return leaf


#: Squared distances are 0 up to this share of the largest squared length.
_ROUNDED = 1e-12


def normalised(features: npt.ArrayLike, records: int) -> Floats:
    """Features (N, d) scaled to 0..1 column by column.

    A missing value (NaN) counts as its column's mean; a constant or empty column becomes 0.

    Raises:
        BadInput: not a matrix of numbers with a row per record, or an infinite value; names the column.
    """
    try:
        table: Floats = np.array(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"features: not a matrix of numbers: {error}; encode categories first") from None
    if table.ndim != 2 or len(table) != records:
        raise BadInput(f"features: a matrix with {records} rows is needed, one per record, not shape {table.shape}")
    for j in range(table.shape[1]):
        column = table[:, j]
        missing = np.isnan(column)
        if np.isinf(column).any():
            raise BadInput(f"features: column {j} holds an infinite value: mark it missing (NaN) or clip it")
        present = column[~missing]
        low, high = (present.min(), present.max()) if len(present) else (0.0, 0.0)
        if low == high:
            column[:] = 0.0
            continue
        column /= max(abs(low), abs(high))  # prevents an overflow of the range
        low, high = low / max(abs(low), abs(high)), high / max(abs(low), abs(high))
        column -= low
        column /= high - low
        if missing.any():
            column[missing] = column[~missing].mean()
    return table


class Points(NamedTuple):
    """Points [X̄, α·Ω] (N, d + groups), of which Ω, one-hot by group, is not stored.

    Attributes:
        own: X̄ (N, d), each column with mean 0.
        groups: (N,) numbers from 0.
        alpha: 0 without groups.
        width: the number of groups; 0 without any.
    """

    own: Floats
    groups: Ints
    alpha: float
    width: int

    @classmethod
    def of(cls, features: Floats | None, groups: Ints | None, alpha: float) -> Points:
        """The points. Raises BadInput where there are neither features nor groups."""
        if groups is not None and (features is None or groups.any()):
            own = np.empty((len(groups), 0)) if features is None else np.asarray(features, dtype=np.float64)
            return cls(np.asfortranarray(own - own.mean(axis=0)), groups, alpha, int(groups.max(initial=-1)) + 1)
        if features is None or not features.shape[1]:
            raise BadInput("there is nothing to cluster: give features, or an attack that finds groups")
        own = np.asarray(features, dtype=np.float64)
        return cls(np.asfortranarray(own - own.mean(axis=0)), np.zeros(len(own), dtype=np.int64), 0.0, 0)

    def at(self, places: Ints) -> Floats:
        """Some of the points (n, d + groups)."""
        return np.hstack([self.own[places], self.alpha * (self.groups[places, None] == np.arange(self.width))])

    def variance(self) -> float:
        """The mean variance of all coordinates."""
        shares = np.bincount(self.groups) / len(self.own)
        total = self.own.var(axis=0).sum() + self.alpha**2 * (shares * (1 - shares)).sum()
        return float(total / (self.own.shape[1] + self.width))

    def sums(self, labels: Ints, clusters: int) -> Floats:
        """The sums of the points of each cluster (clusters, d + groups); labels: (N,)."""
        sums: Floats = (labels == np.arange(clusters)[:, None]).astype(np.float64) @ self.own
        if not self.width:
            return sums
        cells = np.bincount(labels * self.width + self.groups, minlength=clusters * self.width)
        return np.hstack([sums, self.alpha * cells.reshape(clusters, -1)])

    def distances(self, centres: Floats) -> Floats:
        """Squared distances (c, N) to centres (c, d + groups), less the squared length of each point."""
        split = self.own.shape[1]
        products: Floats = (-2 * centres[:, :split]) @ self.own.T
        products += (centres**2).sum(axis=1)[:, None]
        if self.width:
            products -= (2 * self.alpha * centres[:, split:]).take(self.groups, axis=1)
        return products

    def lengths(self) -> Floats:
        """The squared length (N,) of each point."""
        return np.asarray(np.einsum("nd,nd->n", self.own, self.own) + self.alpha**2)


def k_means(
    features: Floats | None,
    groups: Ints | None,
    clusters: int,
    alpha: float = 3.0,
    starts: int = 10,
    iterations: int = 300,
    tolerance: float = 1e-4,
    seed: int = 0,
    fitted: int | None = None,
) -> Ints:
    """Clusters (N,) of `Points` by k-means (Lloyd 1982) from the best of several starts by k-means++.

    Draws, rules and results are those of scikit-learn's KMeans; `tolerance` is relative, as there. If there are fewer
    than `clusters` distinct points, each of them is a cluster. `fitted`: the centres are those of that many points,
    drawn; None: of all.

    Raises:
        BadInput: nothing to cluster.
    """
    every = fit = Points.of(features, groups, alpha)
    if fitted is not None and fitted < len(every.own):
        drawn = np.random.default_rng(seed).choice(len(every.own), fitted, replace=False)
        fit = every._replace(own=every.own[drawn], groups=every.groups[drawn])
    draw, lengths, least = np.random.RandomState(seed), fit.lengths(), tolerance * fit.variance()
    best: tuple[float, Ints, Floats] | None = None
    passed = set[frozenset[bytes]]()
    for _ in range(starts):
        labels, centres = _settled(fit, _begun(fit, lengths, clusters, draw), lengths, iterations, least, passed)
        spread = float((lengths + fit.distances(centres).min(axis=0)).sum())
        if best is None or (spread < best[0] and not _same(labels, best[1])):
            best = spread, labels, centres
    assert best is not None  # there is a start
    return best[1] if fit is every else least_rows(every.distances(best[2]))


def _same(labels: Ints, others: Ints) -> bool:
    """True if both (N,) are the same clusters, whatever their numbers."""
    numberings = labels * (others.max() + 1) + others, labels, others
    return len({np.count_nonzero(np.bincount(numbers)) for numbers in numberings}) == 1


def least_rows(values: Floats) -> Ints:
    """The first row (N,) in which each column of few rows (c, N) is least, faster than argmin."""
    rows, least = np.zeros(values.shape[1], dtype=np.int64), values[0]
    for number, row in enumerate(values[1:], start=1):
        rows, least = np.maximum(rows, number * (row < least)), np.minimum(row, least)
    return rows


def _begun(points: Points, lengths: Floats, clusters: int, draw: np.random.RandomState) -> Floats:
    """Centres (clusters, ·): points that are drawn far from each other, each the best of some tries.

    k-means++ (Arthur, Vassilvitskii 2007).
    """
    many = len(lengths)

    def squares(places: Ints) -> Floats:
        return np.asarray(np.maximum(0.0, points.distances(points.at(places)) + lengths))

    chosen = [int(draw.random_sample() * many)]
    nearest = squares(np.array(chosen))[0]
    for _ in range(1, clusters):
        wanted = draw.uniform(size=2 + int(np.log(clusters))) * nearest.sum()
        tried = np.minimum(np.searchsorted(np.cumsum(nearest), wanted), many - 1)
        left = np.minimum(nearest, squares(tried))
        best = int(left.sum(axis=1).argmin())
        chosen.append(int(tried[best]))
        nearest = left[best]
    return points.at(np.array(chosen))


def _settled(
    points: Points, centres: Floats, lengths: Floats, iterations: int, least: float, passed: set[frozenset[bytes]]
) -> tuple[Ints, Floats]:
    """Labels (N,) and centres where no label changes any more, or centres move less than `least` in all.

    It also ends at centres from which a start before went on, to where this one would come. `passed` has these, and
    gets this start's.
    """
    before, earlier = np.full(len(lengths), -1), frozenset(passed)
    for _ in range(iterations):
        far = points.distances(centres)
        labels = least_rows(far)
        counts, sums = np.bincount(labels, minlength=len(centres)), points.sums(labels, len(centres))
        if len(empty := np.flatnonzero(counts == 0)):  # the farthest points begin new clusters
            beyond = lengths + far[labels, np.arange(len(labels))]
            for cluster, place in zip(empty, np.argsort(-beyond, kind="stable")[: len(empty)], strict=True):
                if beyond[place] > _ROUNDED * max(1.0, lengths.max()):
                    moved, counts[cluster] = points.at(np.array([place]))[0], 1
                    sums[labels[place]], sums[cluster] = sums[labels[place]] - moved, moved
                    counts[labels[place]] -= 1
        following = sums / np.maximum(counts, 1)[:, None]
        following[counts == 0] = following[counts.argmax()]
        moved = float(((following - centres) ** 2).sum())
        centres = following
        if (labels == before).all():
            return labels, centres
        if moved <= least or (state := frozenset(map(bytes, centres))) in earlier:
            break
        passed.add(state)
        before = labels
    return least_rows(points.distances(centres)), centres


# Groups of records by the signature of a party's own winning splits: no received set is needed, and no leaf.
#
# A party that is shown no instance space still learns which of its candidates won at which node, and every record lies
# on one side of each. Splits were chosen because their sides differ in the label, so records with similar sides tend to
# share it.
#
# 1. Signature: of each own split −1 (left), 1 (right), or 0 where the record cannot lie in the node: an own split above
#    sends it elsewhere, or the party was sent the node's records.
# 2. Weight: discount^(t−1) · 2^(−depth), the tree's weight in equation 1 of the ID2Graph paper times the share of the
#    records that a node of this depth has on average.
# 3. Clusters: k-means on the signatures, one cluster per class.
#
# Not from a paper.


class OwnCut(NamedTuple):
    """An own split: its node by heap number, and the records that may lie in the node on its left and right."""

    node: int
    left: Ints
    right: Ints


#: Per tree, in training order, the splits that a party made.
OwnCuts = Sequence[Sequence[OwnCut]]


def weighed(cuts: OwnCuts, records: int, discount: float) -> list[tuple[float, OwnCut]]:
    """The splits with their weights, the heaviest first; splits that divide the records alike are one, of both weights.

    Raises:
        BadInput: a record that does not exist.
    """
    weights: dict[bytes, float] = {}
    first: dict[bytes, OwnCut] = {}
    for t, tree in enumerate(cuts):
        for cut in tree:
            key = hashlib.sha256(sides(cut, records).tobytes()).digest()
            first.setdefault(key, cut)
            weights[key] = weights.get(key, 0.0) + discount**t * 0.5 ** (cut.node.bit_length() - 1)
    return [(weights[key], first[key]) for key in sorted(weights, key=lambda key: -weights[key])]


def signatures(cuts: OwnCuts, records: int, discount: float, most: int) -> Floats:
    """Signatures (N, splits) times the roots of their weights: distances are weighted Hamming distances.

    `most`: entries of the matrix; of more the splits with the largest weights are kept. Raises as `weighed` does.
    """
    kept = weighed(cuts, records, discount)[: _kept(records, most)]
    if not kept:  # no record differs from another
        return np.zeros((records, 1))
    return np.stack([sides(cut, records) * np.sqrt(weight) for weight, cut in kept], axis=1)


def left_out(cuts: OwnCuts, records: int, most: int) -> str:
    """What `signatures` leaves out, as a clause; empty if nothing."""
    kept = _kept(records, most)
    if sum(map(len, cuts)) <= kept:
        return ""
    unlike = len(weighed(cuts, records, 1.0))
    return f"uses the {kept} heaviest of {unlike} own splits: max_entries allows {most:,}" if unlike > kept else ""


def _kept(records: int, most: int) -> int:
    return max(1, most // max(1, records))


def sides(cut: OwnCut, records: int) -> npt.NDArray[np.int8]:
    """(N,) −1, 0 or 1. Raises BadInput for a record that does not exist."""
    places = np.zeros(records, dtype=np.int8)
    for rows, side in ((cut.left, -1), (cut.right, 1)):
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < records:
            raise BadInput(f"own split of node {cut.node}: names a record outside 0..{records - 1}")
        places[rows] = side
    return places
