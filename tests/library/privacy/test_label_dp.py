"""RRWithPrior by its exact matrix and by its draws; parts of LP-MST."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest

from treetap.privacy.label_dp import likeliest, other_weight, rr_with_prior, staged

Matrix = list[list[Fraction]]
#: The unit of probabilities is 2^-128.
UNIT = 1 << 128
EPSILONS = (1e-6, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 64.0)


def transition(prior: Sequence[float], epsilon: float) -> Matrix:
    """The mechanism for one prior (C,): row y has the exact probabilities (C,) of the outputs for label y."""
    order, ks = likeliest(np.array([prior], dtype=np.float64), epsilon)
    k = int(ks[0])
    top = order[0, :k].tolist()
    other = other_weight(k, epsilon)
    rows = [[Fraction(0)] * len(prior) for _ in prior]
    for label, row in enumerate(rows):
        for output in top:
            kept = UNIT - (k - 1) * other if output == label else other
            row[output] = Fraction(kept, UNIT) if label in top else Fraction(1, k)
    return rows


def ratio(matrix: Matrix) -> float:
    """The largest ratio of an output's probabilities under two labels; infinite where one label excludes it."""
    found = [Fraction(0)]
    for outputs in zip(*matrix, strict=True):
        if any(outputs) and not all(outputs):
            return math.inf
        if any(outputs):
            found.append(max(outputs) / min(outputs))
    return float(max(found))


def priors(count: int, seed: int) -> list[list[float]]:
    """Random priors of 2 to 8 classes, flat and steep ones, some with zeros."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        prior = rng.dirichlet(np.full(rng.integers(2, 9), rng.choice([0.05, 0.5, 5.0])))
        prior[rng.random(len(prior)) < 0.1] = 0.0
        made.append(prior.tolist())
    return made


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_output_is_more_than_e_to_epsilon_times_as_likely_under_another_label(epsilon: float) -> None:
    """The exact ratio over all outputs and pairs of labels is at most e^ε; it is e^ε where several classes are kept."""
    several = 0
    for prior in [[1 / 3] * 3, *priors(60, seed=3)]:
        matrix = transition(prior, epsilon)
        assert all(sum(row) == 1 for row in matrix)
        assert ratio(matrix) <= math.exp(epsilon) * (1 + 1e-12)
        if likeliest(np.array([prior]), epsilon)[1][0] >= 2:
            several += 1
            assert ratio(matrix) >= math.exp(epsilon) * (1 - 1e-9)
    assert several


def test_a_draw_from_all_classes_for_an_unlikely_label_is_not_private() -> None:
    """Two public implementations draw so; the test above would find them."""
    wrong = 0
    for prior in priors(60, seed=3):
        order, ks = likeliest(np.array([prior]), 1.0)
        matrix, unlikely = transition(prior, 1.0), order[0, ks[0] :].tolist()
        for label in unlikely:
            matrix[label] = [Fraction(1, len(prior))] * len(prior)
        if unlikely:
            wrong += 1
            assert ratio(matrix) > math.exp(1.0) * (1 + 1e-12)
    assert wrong > 20


def test_as_many_classes_are_kept_as_make_a_kept_label_likeliest() -> None:
    """k* is the least k with the greatest e^ε/(e^ε+k−1) times the sum of the k largest priors, by fractions."""
    for prior in priors(100, seed=5):
        for epsilon in (0.1, 1.0, 4.0):
            e = Fraction(math.exp(epsilon))
            sums = [sum(map(Fraction, sorted(prior, reverse=True)[:k])) for k in range(1, len(prior) + 1)]
            worth = [e / (e + k) * each for k, each in enumerate(sums)]
            k = int(likeliest(np.array([prior]), epsilon)[1][0])
            assert float(worth[k - 1]) == pytest.approx(float(max(worth)), rel=1e-12)


def test_draws_have_the_probabilities_of_the_matrix() -> None:
    """Every source of chance gives its share exactly: draws are counted over an even grid of what may be drawn."""
    prior, epsilon, cells = [0.5, 0.1, 0.3, 0.1], 1.0, 20_000
    matrix = transition(prior, epsilon)
    for label in range(4):
        grid = iter(range(cells))

        def even(below: int, grid: Iterator[int] = grid) -> int:
            return next(grid) * below // cells

        noisy = rr_with_prior(np.full(cells, label), np.tile(prior, (cells, 1)), epsilon, even)
        shares = np.bincount(noisy, minlength=4) / cells
        assert shares == pytest.approx([float(p) for p in matrix[label]], abs=2 / cells)


def test_each_record_has_its_own_prior() -> None:
    """With ε so great that likely labels are kept, a label that its prior excludes becomes the likeliest class."""
    given = np.array([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]])
    assert rr_with_prior(np.array([2, 0, 2]), given, 60.0, random.Random(1).randrange).tolist()[1:] == [1, 2]


def test_a_prior_depends_on_noisy_labels_of_earlier_parts_alone() -> None:
    """Another label of one record leaves its own prior, and those of its part and of earlier ones, as they were."""
    n, classes, stages = 60, 3, 4
    labels = np.random.default_rng(0).integers(0, classes, n)

    def asked(changed: int | None) -> list[tuple[list[int], list[int], list[float]]]:
        """The records of each further part, those before it, and the priors."""
        found = []

        def by_share(before: np.ndarray, noisy: np.ndarray, part: np.ndarray) -> np.ndarray:
            share = (np.bincount(noisy, minlength=classes) + 1) / (len(noisy) + classes)
            found.append((part.tolist(), before.tolist(), share.tolist()))
            return np.tile(share, (len(part), 1))

        own = labels.copy()
        if changed is not None:
            own[changed] = (own[changed] + 1) % classes
        staged(own, classes, 8.0, stages, by_share, random.Random(7).randrange)
        return found

    as_it_was = asked(None)
    assert [len(part) for part, _, _ in as_it_was] == [15, 15, 15]
    for stage, (part, before, _) in enumerate(as_it_was):
        assert not set(part) & set(before)
        for record in part[:3]:
            assert asked(record)[: stage + 1] == as_it_was[: stage + 1]
        assert any(asked(record)[stage] != as_it_was[stage] for record in before)


def test_parts_are_disjoint_and_cover_all_records() -> None:
    """With ε so great that nothing changes, the noisy labels of any number of stages are the labels."""
    labels = np.random.default_rng(1).integers(0, 5, 101)
    for stages in (1, 2, 5, 16):
        found = staged(labels, 5, 64.0, stages, lambda _, __, part: np.full((len(part), 5), 0.2))
        assert found.tolist() == labels.tolist()
