"""The label holder's scores: what is measured on which records, when training stops, what a restart must find."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from treetap.party.growth.stored_trees import SCORES, resumed
from treetap.party.runtime.job_store import JobStore, Store
from treetap.tables.labels import Labels
from treetap.trees import sampling
from treetap.trees.boosting_rounds import MeasuredRounds
from treetap.trees.ensemble import Leaf, Tree
from treetap.trees.params import BoostingParams

N = 30
RNG = np.random.default_rng(4)
CLASSES = RNG.integers(0, 3, N)
BINARY = (CLASSES > 0).astype(np.int64)
STOPPING = BoostingParams(n_estimators=20, early_stopping_rounds=2, validation_share=0.3, seed=1)
SOFTMAX = replace(STOPPING, objective="multi:softprob", subsample=0.7)
HELD = sampling.validation_rows(STOPPING.seed, N, STOPPING.validation_share)


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    """A job's files."""
    return Store(tmp_path / "state").job("job")


def _book(params: BoostingParams, store: JobStore) -> MeasuredRounds:
    softmax = params.objective == "multi:softprob"
    labels = Labels(CLASSES, ["a", "b", "c"]) if softmax else Labels(BINARY, ["0", "1"])
    return resumed(MeasuredRounds(params, len(labels.classes), labels.values), store)


def _grow(book: MeasuredRounds, weights: np.ndarray) -> None:
    """Add a tree that moves each record by its own weight."""
    leaf = Leaf(1, (0.0,), 1.0)
    book.add(Tree(book.trees, book.outputs(book.trees), (), (leaf,)), np.asarray(weights, dtype=np.float64)[:, None])


def _logloss(scores: np.ndarray, rows: np.ndarray) -> float:
    """Of a logistic model, by a loop."""
    chances = [1 / (1 + math.exp(-score)) for score in scores[rows]]
    return -sum(math.log(p if y else 1 - p) for p, y in zip(chances, BINARY[rows], strict=True)) / len(chances)


#: Weights that are better on the records set aside, and worse on the others.
GOOD = np.where(HELD, 2.0 * BINARY - 1, 1.0 - 2 * BINARY)


@pytest.mark.parametrize(
    ("trees", "best"),
    [([0 * GOOD] * 3, 0), ([GOOD, -GOOD, GOOD * 1.5, -GOOD, -GOOD], 2)],
    ids=["a round that is only as good is no better", "a better round starts the count again"],
)
def test_two_rounds_without_a_better_one_are_the_last(trees: list[np.ndarray], best: int, store: JobStore) -> None:
    """What the training records say does not matter."""
    book = _book(STOPPING, store)
    stops = []
    for weights in trees:
        _grow(book, weights)
        stops.append(book.stopped)
    assert stops == [False] * (len(trees) - 1) + [True]
    assert book.summary()["best_round"] == best
    assert len(book.used([Tree(t, (0,), (), ()) for t in range(len(trees))])) == best + 1


def test_train_and_validation_are_measured_apart(store: JobStore) -> None:
    """Each name's measures are those of its own records and of no others."""
    book = _book(STOPPING, store)
    scores = RNG.normal(size=N)
    _grow(book, scores)
    assert 0 < HELD.sum() < N
    assert book.metrics["train_logloss"] == pytest.approx(_logloss(scores, ~HELD), abs=1e-12)
    assert book.metrics["validation_logloss"] == pytest.approx(_logloss(scores, HELD), abs=1e-12)
    assert book.metrics["train_accuracy"] == pytest.approx(np.mean((scores > 0) == BINARY, where=~HELD))


def test_gradients_are_those_of_training_records_only(store: JobStore) -> None:
    """No tree sums over a record that was set aside, nor over one that it did not sample."""
    book = _book(replace(STOPPING, subsample=0.7), store)
    for tree in range(4):
        values, _, sampled = book.derivatives(tree)
        assert not (sampled & HELD).any()
        assert (values[~sampled] == 0).all()
        assert (values[sampled, -1] == 1).all()


def test_the_summary_measures_the_model_that_is_published(store: JobStore) -> None:
    """With early stopping that is the best round's, also after a restart, and not the last one's."""
    book = _book(STOPPING, store)
    good = 2.0 * BINARY - 1
    _grow(book, good)
    best = book.metrics
    _grow(book, -3 * good)
    assert book.metrics != best
    assert book.summary()["training_metrics"] == best
    store.save_arrays(SCORES, book.state())
    assert _book(STOPPING, store).summary()["training_metrics"] == best


@pytest.mark.parametrize("done", range(1, 7))
def test_a_restart_after_any_tree_of_a_round_gives_the_same_gradients(done: int, store: JobStore) -> None:
    """The trees of a softmax round all see the scores of its start, whether or not the party was killed within it."""
    book = _book(SOFTMAX, store)
    steps = np.random.default_rng(8).normal(size=(9, N))
    for weights in steps[:done]:
        _grow(book, weights)
    store.save_arrays(SCORES, book.state())
    again = _book(SOFTMAX, store)
    assert again.trees == done
    for tree in range(done, 9):
        expected, found = book.derivatives(tree), again.derivatives(tree)
        assert np.array_equal(found[0], expected[0])
        assert found[1] == expected[1]
        assert np.array_equal(found[2], expected[2])
        for each in (book, again):
            _grow(each, steps[tree])
        assert again.metrics == book.metrics
    assert again.summary() == book.summary()


def test_a_restart_remembers_the_best_round_and_that_training_has_stopped(store: JobStore) -> None:
    """Killed after each tree, the job stops where the job that nobody killed stops."""
    good = 2.0 * BINARY - 1
    for number, weights in enumerate((good, good, -good, -good)):
        book = _book(STOPPING, store)
        assert book.trees == number
        assert not book.stopped
        _grow(book, weights)
        store.save_arrays(SCORES, book.state())
    assert book.stopped
    found = _book(STOPPING, store)
    assert found.stopped
    assert found.summary()["best_round"] == 1
    assert len(found.used([Tree(t, (0,), (), ()) for t in range(4)])) == 2
