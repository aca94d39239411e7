"""The label holder's scores: what is measured on which records, when training stops, what a restart must find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from treetap.party.growth.stored_trees import SCORES, resumed
from treetap.party.runtime.job_store import JobStore, Store
from treetap.tables.labels import Labels
from treetap.trees import sampling
from treetap.trees.boosting_rounds import BoostingRounds
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


def _book(params: BoostingParams, store: JobStore) -> BoostingRounds:
    softmax = params.objective == "multi:softprob"
    labels = Labels(CLASSES, ["a", "b", "c"]) if softmax else Labels(BINARY, ["0", "1"])
    return resumed(BoostingRounds(params, len(labels.classes), labels.values), store)


def _grow(book: BoostingRounds, weights: np.ndarray) -> None:
    """Add a tree that moves each record by its own weight."""
    leaf = Leaf(1, (0.0,), 1.0)
    book.add(Tree(book.trees, book.outputs(book.trees), (), (leaf,)), np.asarray(weights, dtype=np.float64)[:, None])


def test_a_round_that_is_only_as_good_is_no_better(store: JobStore) -> None:
    """Trees that change nothing leave the first round the best, and the second after it is the last."""
    book = _book(STOPPING, store)
    stops = []
    for _ in range(3):
        _grow(book, np.zeros(N))
        stops.append(book.stopped)
    assert stops == [False, False, True]
    assert book.summary()["best_round"] == 0
    assert [tree.index for tree in book.used([Tree(t, (0,), (), ()) for t in range(3)])] == [0]


def test_a_better_round_starts_the_count_again(store: JobStore) -> None:
    """Only rounds without a new best one count, and what the training records say does not matter."""
    book = _book(STOPPING, store)
    good = np.where(HELD, 2.0 * BINARY - 1, 1.0 - 2 * BINARY)  # better on the records set aside, worse on the others
    for weights in (good, -good, good * 1.5, -good):
        _grow(book, weights)
        assert not book.stopped
    assert book.summary()["best_round"] == 2
    _grow(book, -good)
    assert book.stopped
    assert book.summary()["best_round"] == 2


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
