"""Order, batches and rates of a training, which every party works out from the job alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treetap.arrays import Ints
from treetap.errors import DataError
from treetap.neural.draws import Draws
from treetap.neural.params import SplitnnParams


@dataclass(frozen=True)
class Schedule:
    """The batches of a job on N aligned records.

    Attributes:
        training: places of the records that are trained on, ascending.
        validation: places of the records that are set aside, ascending.
    """

    params: SplitnnParams
    training: Ints
    validation: Ints

    @classmethod
    def of(cls, params: SplitnnParams, records: int) -> Schedule:
        """The schedule of a job; `DataError` if the records are fewer than a batch."""
        aside = np.zeros(0, dtype=np.int64)
        everything = Draws.of_job(params.seed).order(records, "validation")
        if params.sets_aside and records > 1:
            count = min(max(1, round(params.validation_share * records)), records - 1)
            aside = np.sort(everything[:count])
        training = np.sort(everything[len(aside) :])
        if len(training) < params.batch_size:
            raise DataError(
                f"batch_size = {params.batch_size}: there are {len(training)} records to train on; name a smaller one"
            )
        return cls(params, training, aside)

    @property
    def batches(self) -> int:
        """Batches of an epoch, those of validation records left out."""
        return len(self._starts(len(self.training)))

    def epoch(self, epoch: int) -> list[Ints]:
        """Places of the records of each batch, in an order of the epoch's own: call it once an epoch, it is no look-up.

        A last batch of one record is joined with the batch before it.
        """
        order = self.training[Draws.of_job(self.params.seed).order(len(self.training), "order", epoch)]
        return np.split(order, self._starts(len(order))[1:])

    def validation_batches(self) -> list[Ints]:
        """The batches of the validation records; none where none are set aside."""
        return np.split(self.validation, self._starts(len(self.validation))[1:]) if len(self.validation) else []

    def takes_part(self, epoch: int, batch: int, party: str) -> bool:
        """False with the probability that the party sits the batch out (Party-wise Dropout, Eq. 2)."""
        share = self.params.absence(party)
        return not Draws.of_job(self.params.seed).happens(share, "party", epoch, batch, party)

    def rate(self, epoch: int, batch: int) -> float:
        """The learning rate of a batch: constant, or falling to 0 along half a cosine (Loshchilov, Hutter 2017)."""
        if self.params.schedule == "constant":
            return self.params.learning_rate
        done = (epoch * self.batches + batch) / (self.params.epochs * self.batches)
        return self.params.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))

    def _starts(self, records: int) -> list[int]:
        starts = list(range(0, records, self.params.batch_size))
        return starts[:-1] if len(starts) > 1 and records - starts[-1] == 1 else starts
