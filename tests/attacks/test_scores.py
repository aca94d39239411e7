from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import numpy.typing as npt
import pytest
from scipy import optimize, stats
from sklearn import metrics

from treetap.attacks.scores import assigned, midranks, score, v_measure
from treetap.attacks.sections import chance_information
from treetap.attacks.verdict import MISSED, drawn_error
from treetap.errors import BadInput


def test_renamed_labels_score_one_throughout() -> None:
    """Cluster names do not matter, and labels may be strings."""
    found = score(["a", "b", "c", "a", "a", "b"], [7, 0, 3, 7, 7, 0])
    assert found.__dict__ == dict.fromkeys(
        ("v_measure", "homogeneity", "completeness", "ari", "nmi", "accuracy", "named_accuracy"), pytest.approx(1.0)
    )


@pytest.mark.parametrize(("classes", "clusters"), [(2, 2), (3, 5), (1, 2), (2, 1), (1, 1)])
def test_v_measure_by_counts(classes: int, clusters: int) -> None:
    """It is that of all measures."""
    drawn = np.random.default_rng(0)
    labels, groups = drawn.integers(0, classes, 50), drawn.integers(0, clusters, 50)
    assert v_measure(labels, groups) == pytest.approx(score(labels, groups).v_measure, abs=1e-12)


def test_v_measure_is_the_harmonic_mean_that_its_authors_define() -> None:
    """From entropies by hand: labels 0011, clusters 0 0 1 2."""
    found = score([0, 0, 1, 1], [0, 0, 1, 2])
    entropy = -(0.5 * np.log(0.5) + 2 * 0.25 * np.log(0.25))
    assert found.homogeneity == pytest.approx(1.0)
    assert found.completeness == pytest.approx(1 - 0.5 * np.log(2) / entropy)
    assert found.v_measure == pytest.approx(2 * found.completeness / (1 + found.completeness))
    assert found.accuracy == 0.75


@pytest.mark.parametrize("groups", [2, 3, 6, 40])
def test_accuracy_is_that_of_the_best_matching(groups: int) -> None:
    """Against every assignment of clusters to three classes, also with many more clusters than classes."""
    draw = np.random.default_rng(groups)
    truth, clusters = draw.integers(0, 3, 60), draw.integers(0, groups, 60)
    table = metrics.cluster.contingency_matrix(truth, clusters)
    table = np.pad(table, ((0, 0), (0, max(0, 3 - table.shape[1]))))
    best = max(sum(table[k, p[k]] for k in range(3)) for p in permutations(range(table.shape[1]), 3))
    assert score(truth, clusters).accuracy == best / 60


def test_names_by_sizes_alone() -> None:
    """The largest cluster has the largest class's name, right or wrong; the audit's matching would know better."""
    found = score([0] * 6 + [1] * 4, [5] * 4 + [3] * 2 + [3] * 4)
    assert (found.accuracy, found.named_accuracy) == (0.8, 0.2)
    assert score([0] * 6 + [1] * 4, [5] * 7 + [3] * 3).named_accuracy == 0.9
    assert score([0] * 6 + [1] * 4, [0] * 5 + [2] + [1] * 4).named_accuracy == 0.9


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_equal_sizes_are_named_by_lot(groups: int) -> None:
    """Where sizes are equal the figure is the mean over all orders, of the classes and of the clusters."""
    draw = np.random.default_rng(groups)
    truth, clusters = np.repeat([0, 1, 2], [8, 8, 4]), draw.integers(0, groups, 20)
    table = np.pad(metrics.cluster.contingency_matrix(truth, clusters), ((0, 0), (0, max(0, 3 - groups))))

    def orders(sizes: npt.NDArray[np.int64]) -> list[tuple[int, ...]]:
        return [p for p in permutations(range(len(sizes))) if all(sizes[a] >= sizes[b] for a, b in pairwise(p))]

    right = [
        sum(table[k, g] for k, g in zip(kinds, found, strict=False)) / 20
        for kinds in orders(table.sum(axis=1))
        for found in orders(table.sum(axis=0))
    ]
    assert score(truth, clusters).named_accuracy == pytest.approx(np.mean(right))


@pytest.mark.parametrize(
    ("labels", "clusters", "complaint"),
    [
        ([0, 1], [0], "2 labels but 1 clusters"),
        ([], [], "labels: a one-dimensional array of at least one record"),
        ([[0]], [0], "labels: a one-dimensional array"),
    ],
)
def test_what_cannot_be_scored_is_refused(labels: list[int], clusters: list[int], complaint: str) -> None:
    """Lengths that differ, nothing at all, tables."""
    with pytest.raises(BadInput, match=complaint):
        score(labels, clusters)


@pytest.mark.parametrize("seed", range(6))
def test_statistics_are_those_of_scipy_and_scikit_learn(seed: int) -> None:
    """Assignments, of equal costs too; ranks with ties; information by chance; the quantile of Student's t."""
    draw = np.random.default_rng(seed)
    for cost in (draw.normal(size=(12, 9 + seed)), draw.integers(0, 4, (12, 9 + seed)).astype(float)):
        rows, columns = optimize.linear_sum_assignment(cost)
        found = assigned(cost)
        assert np.flatnonzero(found >= 0).tolist() == rows.tolist()
        assert found[rows].tolist() == columns.tolist()
    values = np.append(draw.integers(0, 9, 60).astype(float), np.nan)
    assert midranks(values) + 0.5 == pytest.approx(stats.rankdata(values, nan_policy="omit"), nan_ok=True)
    labels, groups = draw.integers(0, 3, 500), draw.integers(0, 1 + 90 * seed, 500)
    table = metrics.cluster.contingency_matrix(labels, groups, sparse=True)
    assert chance_information(labels, groups) == pytest.approx(metrics.cluster.expected_mutual_information(table, 500))
    by_draw = draw.normal(size=2 + 3 * seed).tolist()
    wider = stats.t.ppf(1 - MISSED / 2, len(by_draw) - 1) / stats.norm.ppf(1 - MISSED / 2)
    assert drawn_error(by_draw) == pytest.approx(wider * stats.sem(by_draw))
