"""States of a network on disk while it trains: after the last two epochs, the best one's, and the private key.

Two files take turns, so that a party whose last state the others do not have can go back by one epoch.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from party.runtime.context import StepContext
from treetap.errors import DataError
from treetap.models.durable import write_whole
from treetap.models.store import STATES, WEIGHTS
from treetap.neural.draws import Draws, new_key
from treetap.neural.params import SplitnnParams

log = logging.getLogger(__name__)
Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]
BEST, PRIVATE, EPOCHS = "best", "private", "epochs"


class StoredStates:
    """The states of one party for one job."""

    def __init__(self, context: StepContext) -> None:
        self._store, self._job, self._party = context.store, context.job, context.party
        self._best = 0  # epochs after which the best weights are, as far as the state in memory knows

    @property
    def epochs(self) -> int:
        """The epochs after which the last stored state is; 0: none is stored."""
        return max((int(arrays[EPOCHS]) for name in STATES if (arrays := self._store.load_arrays(name))), default=0)

    def load(self, epochs: int) -> dict[str, Array]:
        """The state after this number of epochs, at least one.

        Raises:
            DataError: it is not stored.
        """
        arrays = self._store.load_arrays(_name(epochs))
        if arrays is None or int(arrays.pop(EPOCHS)) != epochs:
            raise DataError(
                f"{self._store.folder}: has no state of job {self._job} after epoch {epochs}; bring a back-up of it "
                "back, or cancel the job and train again"
            )
        self._best = int(arrays.pop(BEST))
        return arrays

    def save(self, epochs: int, state: Arrays, best: Arrays | None) -> None:
        """Put the state after this number of epochs on disk; `best`: its weights, where they are to be published.

        Raises:
            DataError: these are not finite, as after the last step of a network that diverges.
        """
        if best is not None:
            if not all(np.isfinite(array).all() for array in best.values()):
                fault = f"the weights after epoch {epochs - 1} are not finite; a smaller learning_rate keeps them so"
                raise DataError(fault).at(self._party)
            self._best = epochs
            self._store.save_arrays(BEST, {**best, EPOCHS: np.array(epochs)})
        self._store.save_arrays(_name(epochs), {**state, EPOCHS: np.array(epochs), BEST: np.array(self._best)})

    def write_shard(self) -> None:
        """Write the best epoch's weights as the shard of the model.

        Raises:
            DataError: they are not there, or those of an epoch that was trained again after an interruption, and was
                not the best then.
        """
        best, last = self._store.load_arrays(BEST), self._store.load_arrays(_name(self.epochs))
        if best is None or last is None or int(best.pop(EPOCHS)) != int(last[BEST]):
            raise DataError(
                f"{self._store.folder}: has no weights of the best epoch of job {self._job}; cancel the job and train "
                "again"
            )
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **best)
        write_whole(self._store.path(WEIGHTS), content.getvalue())

    def draws(self, params: SplitnnParams, party: str) -> Draws:
        """The party's draws for the job: by a key of the operating system that stays in the job's folder.

        Where the job is reproducible they follow from its seed, which all parties know.

        Raises:
            DataError: states are there and the key is not.
        """
        if params.reproducible:
            log.warning(
                "job %s: reproducible = true: initial weights, noise and random labels follow from the job's seed, "
                "which every party knows; for tests and experiments only",
                self._job,
            )
            return Draws.reproducible(params.seed, party)
        stored = self._store.load_arrays(PRIVATE)
        if stored is None and any(self._store.has(f"{name}.npz") for name in STATES):
            raise DataError(
                f"{self._store.path(f'{PRIVATE}.npz')}: is not there, the key of the private draws of job {self._job}; "
                "bring a back-up of it back, or cancel the job and train again"
            )
        if stored is None:
            stored = {"key": np.frombuffer(new_key(), dtype=np.uint8)}
            self._store.save_arrays(PRIVATE, stored)
        return Draws(stored["key"].tobytes())


def _name(epochs: int) -> str:
    """The name of the file of a state; the states before and after it are in the other one."""
    return STATES[epochs % 2]
