"""Early stopping on records that are set aside: its parameters, the best round so far, and whether training goes on.

A round is one of boosting, or an epoch of a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treetap.trees.job_params import Range, out_of_range


@dataclass(frozen=True)
class EarlyStoppingParams:
    """The parameters of a training that may stop early, beside its own."""

    early_stopping_rounds: int | None = None
    """Rounds (epochs) without a better validation loss after which training ends; the best one is published."""
    validation_share: float = 0.1
    """Share of the records that is set aside for it, only with `early_stopping_rounds`."""

    @property
    def sets_aside(self) -> bool:
        """True if some records are set aside, whose loss decides on the best round."""
        return self.early_stopping_rounds is not None

    def watch(self) -> EarlyStopping:
        """A new watch over that loss."""
        return EarlyStopping(self.early_stopping_rounds)

    def bad_stopping(self) -> list[str]:
        """The faults of these parameters."""
        ranges = {"validation_share": Range(0, 1, open_low=True, open_high=True)}
        if self.sets_aside:
            ranges = {"early_stopping_rounds": Range(1, 100_000, integer=True), **ranges}
        return out_of_range(self, ranges)


@dataclass
class EarlyStopping:
    """The watch over the validation loss.

    Attributes:
        rounds: those without a better one after which training ends; None: it does not end early.
        best: the smallest loss so far.
        best_round: the round of it; None before the first.
        stale: rounds since.
    """

    rounds: int | None
    best: float = float("inf")
    best_round: int | None = None
    stale: int = 0

    def take(self, number: int, loss: float) -> bool:
        """Note the loss after a round; True if it is the best so far. Without early stopping each round is."""
        if self.rounds is None or loss < self.best:
            self.best, self.best_round, self.stale = loss, number, 0
            return True
        self.stale += 1
        return False

    @property
    def stopped(self) -> bool:
        """True if no round is to follow."""
        return self.rounds is not None and self.stale >= self.rounds

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """The watch as arrays, by name."""
        number = -1 if self.best_round is None else self.best_round
        return {"stopping": np.array([self.best, number, self.stale], dtype=np.float64)}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Continue from a state that `state` has returned."""
        best, number, stale = np.asarray(arrays["stopping"], dtype=np.float64).tolist()
        self.best, self.best_round, self.stale = best, None if number < 0 else int(number), int(stale)
