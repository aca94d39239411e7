"""Early stopping on the validation records: the best epoch so far, and whether training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass
class EarlyStopping:
    """The watch over the validation loss.

    Attributes:
        rounds: epochs without a better one after which training ends; None: it does not end early.
        best: the smallest loss so far.
        best_epoch: the epoch of it; None before the first.
        stale: epochs since.
    """

    rounds: int | None
    best: float = float("inf")
    best_epoch: int | None = None
    stale: int = 0

    def take(self, epoch: int, loss: float) -> bool:
        """Note the loss after an epoch; True if it is the best so far. Without early stopping each epoch is."""
        if self.rounds is None or loss < self.best:
            self.best, self.best_epoch, self.stale = loss, epoch, 0
            return True
        self.stale += 1
        return False

    @property
    def stopped(self) -> bool:
        """True if no epoch is to follow."""
        return self.rounds is not None and self.stale >= self.rounds

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """The watch as arrays, by name."""
        epoch = -1 if self.best_epoch is None else self.best_epoch
        return {"stopping": np.array([self.best, epoch, self.stale], dtype=np.float64)}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Continue from a state that `state` has returned."""
        best, epoch, stale = (float(number) for number in np.asarray(arrays["stopping"], dtype=np.float64))
        self.best, self.best_epoch, self.stale = best, None if epoch < 0 else int(epoch), int(stale)
