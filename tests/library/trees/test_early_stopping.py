"""Early stopping: the best epoch, the end, and a state to continue from."""

from __future__ import annotations

import math

import pytest

from treetap.trees.job_params import EarlyStopping

LOSSES = [0.9, 0.7, 0.8, 0.7, 0.6, 0.65, 0.66, 0.1]


def test_the_best_round_is_kept() -> None:
    """An equal loss is no better one, and each better one begins the count anew."""
    watch = EarlyStopping(3)
    assert [epoch for epoch, loss in enumerate(LOSSES) if watch.take(epoch, loss)] == [0, 1, 4, 7]
    assert (watch.best, watch.best_round, watch.stale) == (0.1, 7, 0)


def test_training_ends_after_epochs_without_a_better_one() -> None:
    """Epochs 2 and 3 are no better than epoch 1: of two rounds no epoch 4 follows."""
    watch, ended = EarlyStopping(2), []
    for epoch, loss in enumerate(LOSSES[:4]):
        watch.take(epoch, loss)
        ended.append(watch.stopped)
    assert ended == [False, False, False, True]
    assert (watch.best, watch.best_round) == (0.7, 1)


def test_without_early_stopping_each_epoch_is_the_best() -> None:
    """The last weights are published, and the training never ends early."""
    watch = EarlyStopping(None)
    assert [watch.take(epoch, loss) for epoch, loss in enumerate(LOSSES)] == [True] * len(LOSSES)
    assert not watch.stopped


def test_a_loss_that_is_no_number_is_not_the_best() -> None:
    """NaN neither becomes the best nor hides a later one."""
    watch = EarlyStopping(3)
    assert not watch.take(0, math.nan)
    assert watch.take(1, 2.0)
    assert (watch.best, watch.best_round) == (2.0, 1)


@pytest.mark.parametrize("taken", [0, 1, 3, 6])
def test_a_watch_continues_from_its_state(taken: int) -> None:
    """After any epoch, before the first included, a new watch goes on as the old one."""
    old = EarlyStopping(3)
    for epoch in range(taken):
        old.take(epoch, LOSSES[epoch])
    new = EarlyStopping(3)
    new.load(old.state())
    assert new == old
    for epoch in range(taken, len(LOSSES)):
        assert new.take(epoch, LOSSES[epoch]) == old.take(epoch, LOSSES[epoch])
        assert new.stopped == old.stopped
    assert new == old
