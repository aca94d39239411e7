from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans

from treetap.attacks.id2graph import clustering
from treetap.attacks.id2graph.clustering import design, k_means, normalised
from treetap.errors import BadInput


def test_columns_are_scaled_to_0_1_and_gaps_get_the_mean() -> None:
    """A constant column and one without a value count 0."""
    nan = np.nan
    table = [[1.0, 5, nan, -2], [3.0, 5, nan, nan], [nan, nan, nan, 2], [2.0, 5, nan, 1]]
    expected = [[0, 0, 0, 0], [1, 0, 0, 7 / 12], [0.5, 0, 0, 1], [0.5, 0, 0, 0.75]]
    np.testing.assert_allclose(normalised(table, 4), expected)


def test_a_range_beyond_float_does_not_overflow() -> None:
    """The largest floats of both signs."""
    assert normalised([[-1.7e308], [1.7e308], [0.0]], 3).tolist() == [[0.0], [1.0], [0.5]]


@pytest.mark.parametrize(
    ("features", "complaint"),
    [
        ([[1.0], [2.0]], "a matrix with 3 rows is needed"),
        ([1.0, 2.0, 3.0], "one per record, not shape"),
        ([["a"], ["b"], ["c"]], "encode categories first"),
        ([[1.0], [np.inf], [2.0]], "column 0 holds an infinite value"),
    ],
)
def test_wrong_features_are_refused(features: list[object], complaint: str) -> None:
    """By shape, type and value."""
    with pytest.raises(BadInput, match=complaint):
        normalised(features, 3)


def test_the_design_is_features_beside_weighted_one_hot() -> None:
    """[X̄, α·Ω]."""
    found = design(np.array([[0.1], [0.2], [0.3]]), np.array([1, 0, 1]), 3.0)
    assert found.tolist() == [[0.1, 0, 3], [0.2, 3, 0], [0.3, 0, 3]]


def test_many_groups_are_stored_sparsely_and_cluster_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same clusters from the sparse and the dense form."""
    draw = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 20)
    features = normalised(draw.normal(size=(240, 3)) + 4 * (groups % 3)[:, None], 240)
    thick = k_means(features, groups, 3, 0.5)
    monkeypatch.setattr(clustering, "WIDE", 2)
    assert sparse.issparse(design(features, groups, 0.5))
    thin = k_means(features, groups, 3, 0.5)
    assert len(set(zip(thick.tolist(), thin.tolist(), strict=True))) == 3


def test_it_is_scikit_learns_k_means() -> None:
    """The same inertia as KMeans with the stated parameters, on the matrix built by hand."""
    draw = np.random.default_rng(1)
    features, groups = draw.random((150, 4)), draw.integers(0, 5, 150)
    matrix = np.hstack([features, 3.0 * np.eye(5)[groups]])
    found = k_means(features, groups, 4, 3.0, seed=2)
    inertia = sum(((matrix[found == k] - matrix[found == k].mean(axis=0)) ** 2).sum() for k in range(4))
    assert inertia == pytest.approx(KMeans(4, n_init=10, random_state=2).fit(matrix).inertia_)


def test_fewer_different_points_than_clusters() -> None:
    """Two points, three clusters wanted: two come back, without a warning."""
    assert len(set(k_means(np.array([[0.0], [0.0], [1.0], [1.0]]), None, 3).tolist())) == 2


def test_nothing_to_cluster_is_refused() -> None:
    """Neither features nor groups."""
    with pytest.raises(BadInput, match="nothing to cluster"):
        k_means(None, None, 2)
    with pytest.raises(BadInput, match="nothing to cluster"):
        k_means(np.zeros((4, 0)), None, 2)


def test_without_scikit_learn_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip install 'treetap[audit]'."""
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(BadInput, match="audit"):
        k_means(np.zeros((4, 1)), None, 2)
