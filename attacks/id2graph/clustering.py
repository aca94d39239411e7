"""The attacker's leaves (per tree, the known instance spaces without known children) and the attacks' last step.

That is k-means on [min–max-normalised own features, α · one-hot of the group]; or groups of records by the signature of
a party's own winning splits.
"""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treetap.arrays import Array, Floats, Ints
from treetap.errors import BadInput
from treetap.version import install


def library(module: str, name: str) -> Any:
    """A module of a library that the attacks need. Raises BadInput where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BadInput(f"the attacks need {name}: {install('audit')}") from None


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


def tree_weights(trees: int, discount: float) -> Floats:
    """discount^(t−1) for trees t = 1..trees, equation 1: (trees,)."""
    return np.asarray(discount ** np.arange(trees, dtype=np.float64))


def incidence(leaves: Sequence[Sequence[Ints]], records: int) -> sparse.csr_array:
    """The incidence matrix (records, leaves of all trees) of 0 and 1, leaves in order of trees."""
    every = [leaf for tree in leaves for leaf in tree]
    starts = np.concatenate([[0], np.cumsum([len(leaf) for leaf in every], dtype=np.int64)])
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *every])
    held = sparse.csc_array((np.ones(len(rows)), rows, starts), shape=(records, len(every)))
    return sparse.csr_array(held)


#: Least number of columns from which the one-hot part is stored sparsely: each isolated record adds a column.
WIDE = 256


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


def design(features: Floats | None, groups: Ints | None, alpha: float) -> Any:
    """[X̄, α·Ω] (N, d + groups), dense, or sparse from `WIDE` groups on.

    Raises:
        BadInput: neither features nor groups.
    """
    parts: list[Any] = [] if features is None else [features]
    if groups is not None:
        width = int(groups.max(initial=-1)) + 1
        n = len(groups)
        hot = sparse.csr_array((np.full(n, alpha), groups, np.arange(n + 1)), shape=(n, width))
        if width >= WIDE:
            wide = sparse.hstack([*(sparse.csr_array(part) for part in parts), hot], format="csr")
            # scikit-learn takes 32-bit indices only; a table that needs more does not fit into memory anyway.
            wide.indices, wide.indptr = wide.indices.astype(np.int32), wide.indptr.astype(np.int32)
            return wide
        parts.append(hot.toarray())
    if not parts or not sum(part.shape[1] for part in parts):
        raise BadInput("there is nothing to cluster: give features, or an attack that finds groups")
    return np.hstack(parts) if len(parts) > 1 else parts[0]


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
    """Clusters (N,) of scikit-learn's KMeans on `design`; `tolerance` is relative, as there.

    If there are fewer than `clusters` distinct points, each of them is a cluster. `fitted`: the centres are those of
    that many points, drawn; None: of all.

    Raises:
        BadInput: nothing to cluster, or scikit-learn is not installed.
    """
    library("sklearn.cluster", "scikit-learn")
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    points = design(features, groups, alpha)
    method = KMeans(
        clusters, n_init=starts, max_iter=iterations, tol=tolerance, random_state=seed, copy_x=False, algorithm="lloyd"
    )
    # One thread: several threads sum the centres in an order that differs between runs.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if fitted is None or fitted >= len(points):
            labels: Ints = method.fit_predict(points).astype(np.int64)
        else:
            drawn = np.random.default_rng(seed).choice(len(points), fitted, replace=False)
            labels = method.fit(points[drawn]).predict(points).astype(np.int64)
    return labels


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
