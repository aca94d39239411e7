"""Early stopping: the best epoch, the end, and a state to continue from."""

from __future__ import annotations

import math

import pytest

from treetap.trees.job_params import EarlyStopping

LOSSES = [0.9, 0.7, 0.8, 0.7, 0.6, 0.65, 0.66, 0.1]


@pytest.mark.parametrize(
    ("rounds", "losses", "better", "stopped", "best"),
    [
        # an equal loss is no better one, and each better one begins the count anew
        (3, LOSSES, [0, 1, 4, 7], [], (0.1, 7)),
        # epochs 2 and 3 are no better than epoch 1: of two rounds no epoch 4 follows
        (2, LOSSES[:4], [0, 1], [3], (0.7, 1)),
        # without early stopping each epoch is the best, and the training never ends early
        (None, LOSSES, list(range(8)), [], (0.1, 7)),
        # a loss that is no number neither becomes the best nor hides a later one
        (3, [math.nan, 2.0], [1], [], (2.0, 1)),
    ],
)
def test_the_best_round_is_kept_and_the_training_ends(
    rounds: int | None, losses: list[float], better: list[int], stopped: list[int], best: tuple[float, int]
) -> None:
    """The epochs that are better than all before, those after which the training is at its end, and the best one."""
    watch, taken, ended = EarlyStopping(rounds), [], []
    for epoch, loss in enumerate(losses):
        taken += [epoch] if watch.take(epoch, loss) else []
        ended += [epoch] if watch.stopped else []
    assert (taken, ended, (watch.best, watch.best_round)) == (better, stopped, best)


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
