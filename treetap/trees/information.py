"""Information of sets of records about the label, in nats.

Per node, the bound of ID-LMID: Takahashi, Liu, Liu, "Eliminating Label Leakage in Tree-based Vertical Federated
Learning", Theorem 2 and Eq. 6. Over all trees, the empirical mutual information between the label and a record's
*signature*. Bounds of nodes do not add up to one of their combination: two sets, each independent of the label, can
reveal it together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treetap.arrays import Floats, Ints

#: Most numbers of records in groups that are drawn at once.
CELLS = 2**16
#: Times as many numbers as there are records that are counted one by one; those further apart are sorted.
_SPREAD = 16


class Bounds(NamedTuple):
    """Of n nodes, (n,) each: divergence of the label in the node, and outside it, from the label at large; nats."""

    node: Floats
    complement: Floats

    @property
    def larger(self) -> Floats:
        """The bound on I(Y; S_w) of each node, which ID-LMID compares with ξ."""
        return np.maximum(self.node, self.complement)


def node_bounds(counts: npt.ArrayLike, totals: npt.ArrayLike) -> Bounds:
    """Both sums of Eq. 6 for nodes with class counts n_w^c (n, C), given the counts N^c (C,) of all records.

    0·ln 0 = 0, and the sum of an empty node or complement is 0. Raises ValueError (a bug of the caller) for counts
    that are negative or larger than the totals.
    """
    within, all_records = np.asarray(counts, dtype=np.int64), np.asarray(totals, dtype=np.int64)
    if within.ndim != 2 or all_records.shape != within.shape[1:]:
        raise ValueError(f"counts (n, C) and totals (C,) are needed, not {within.shape} and {all_records.shape}")
    if (within < 0).any() or (within > all_records).any():
        raise ValueError("a node cannot hold fewer than no records of a class, nor more than there are")
    return Bounds(_divergence(within, all_records), _divergence(all_records - within, all_records))


def class_counts(labels: Ints, classes: int) -> Ints:
    """Counts of the class numbers 0..classes−1 among those given (n,): (classes,)."""
    return np.bincount(labels, minlength=classes).astype(np.int64)


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """The place of each of some integers (N,) among those that occur, N > 0, and how often each of these does (n,)."""
    if values.min() < 0 or values.max() >= _SPREAD * values.size:
        places, counts = np.unique(values, return_inverse=True, return_counts=True)[1:]
        return places.astype(np.int64), counts.astype(np.int64)
    counts = np.bincount(values)
    there = counts > 0
    return (np.cumsum(there) - 1)[values], counts[there]


def class_entropy(totals: npt.ArrayLike) -> float:
    """Entropy H(Y) in nats of a label with these class counts (C,): an upper bound of all leakage about a label."""
    counts = np.asarray(totals, dtype=np.float64)
    share = counts[counts > 0] / counts.sum()
    return max(0.0, float(-(share * np.log(share)).sum()))


def mutual_information(labels: Ints, groups: Ints) -> float:
    """Plug-in estimate of I(Y; S) in nats from N class numbers (N,) and N group numbers (N,), any integers.

    H(Y) + H(S) − H(Y, S) of the observed shares: at most H(Y), and too high where groups are small; with as many groups
    as records it is H(Y), whatever the groups are. Raises ValueError for arrays of different lengths.
    """
    if labels.shape != groups.shape or labels.ndim != 1:
        raise ValueError(f"one label and one group per record are needed, not {labels.shape} and {groups.shape}")
    if not labels.size:
        return 0.0
    label, label_counts = numbered(labels)
    group, group_counts = numbered(groups)
    joint = numbered(group * np.int64(len(label_counts)) + label)[1]
    return max(0.0, class_entropy(label_counts) + class_entropy(group_counts) - class_entropy(joint))


def permuted_information(labels: Ints, groups: Ints, rng: np.random.Generator, permutations: int = 100) -> float:
    """The mean of `mutual_information`, in nats, over random orders of the labels: what small groups alone explain.

    With as many groups as records it is H(Y), as the information itself is. Of an order only the classes in each group
    matter: they are drawn class by class, without replacement.
    """
    if not labels.size:
        return 0.0
    label_counts, group_counts = numbered(labels)[1], numbered(groups)[1]
    apart = class_entropy(label_counts) + class_entropy(group_counts)
    at_once = max(1, CELLS // group_counts.size)
    parts = [min(at_once, permutations - done) for done in range(0, permutations, at_once)]
    joint = np.concatenate([_joint_entropies(label_counts, group_counts, rng, part) for part in parts])
    return float(np.maximum(apart - joint, 0.0).mean())


def _joint_entropies(label_counts: Ints, group_counts: Ints, rng: np.random.Generator, orders: int) -> Floats:
    """Entropies H(Y, S) of label and group, in nats, in random orders of the labels: (orders,)."""
    left, cells = np.broadcast_to(group_counts, (orders, len(group_counts))), []
    for number, count in enumerate(label_counts[:-1].tolist()):
        if number == 0:  # nothing is drawn before: all orders at once
            drawn = rng.multivariate_hypergeometric(group_counts, count, orders, method="marginals")
        else:
            drawn = np.array([rng.multivariate_hypergeometric(group, count, method="marginals") for group in left])
        cells.append(drawn)
        left = left - drawn
    share = np.concatenate([*cells, left], axis=1) / group_counts.sum()
    logarithm = np.log(share, out=np.zeros_like(share), where=share > 0)
    entropies: Floats = -np.einsum("oc,oc->o", share, logarithm)
    return entropies


def _divergence(counts: Ints, totals: Ints) -> Floats:
    """Σ_c p_c ln(p_c / q_c) of each row's shares p from those of all records q."""
    size = counts.sum(axis=1, keepdims=True)
    share = counts / np.maximum(size, 1)
    prior = np.maximum(totals, 1) / max(int(totals.sum()), 1)  # a class without records has share 0 in every row
    terms = share * np.log(np.where(counts > 0, share / prior, 1.0))
    bound: Floats = np.maximum(terms.sum(axis=1), 0.0)  # no divergence is negative; a rounded one may be
    return bound
