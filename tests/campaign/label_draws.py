"""Noisy labels from a seed, and a note of all that a party has used."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from treetap.party.defences.noisy_labels import Draw, NoisyLabels
from treetap.party.defences.settings import LabelDp
from treetap.party.runtime.ledger import Occasion
from treetap.party.setup import labelled_table
from treetap.protocols.own_priors import OwnPriors
from treetap.tables.labels import Labels
from treetap.tables.reading import Table

Ints = npt.NDArray[np.int64]


class Used:
    """The noisy labels that parties took for training: state folder → digest → class numbers (N,)."""

    def __init__(self) -> None:
        self.of: defaultdict[Path, dict[str, Ints]] = defaultdict(dict)


@contextmanager
def label_draws(used: Used, seed: int = 0) -> Iterator[Used]:
    """Within the block noisy labels follow from a seed, each draw from where the one before ended."""
    chance = random.Random(f"noisy labels {seed}")

    class Noted(NoisyLabels):
        """Noisy labels whose use is noted."""

        def __init__(
            self,
            party: str,
            state: Path,
            settings: LabelDp,
            budget: float | None,
            own_priors: Callable[[Table, int], OwnPriors],
        ) -> None:
            super().__init__(party, state, settings, budget, own_priors, chance.randrange)
            self._state = state

        def of(self, table: Table, labels: Labels, column: str, occasion: Occasion) -> Draw:
            """See `NoisyLabels.of`."""
            found = super().of(table, labels, column, occasion)
            used.of[self._state][found.digest] = found.labels.values
            return found

    with patch.object(labelled_table, "NoisyLabels", Noted):
        yield used
