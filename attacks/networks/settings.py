"""Settings of the attacks on split networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attacks.ranged_settings import RangedSettings
from treetap.trees.job_params import Range

_RANGES = {
    "known": Range(1, 1_000_000, integer=True),
    "draws": Range(1, 100, integer=True),
    "most_records": Range(10, 1_000_000, integer=True),
    "most_epochs": Range(1, 1000, integer=True),
    "most_weights": Range(0, 10**9, integer=True),
    "seed": Range(0, 2**31 - 1, integer=True),
}


@dataclass(frozen=True)
class NetworkSettings(RangedSettings):
    """Settings of all attacks on a feature party's log and model.

    Attributes:
        known: labels that the party is assumed to know, by default of `gradient-labels` and `completion` 40.
        draws: draws of these records, over which figures are averaged.
        most_records: records that an attack uses at most; which ones is drawn.
        most_epochs: epochs whose gradients are attacked at most, evenly spread, with the first and the last.
        most_weights: weights of a bottom that is fitted again at most; of a larger one only heads are fitted.
        seed: of the draws, of k-means and of the weights of heads.

    Raises:
        BadInput: on construction; names every wrong field and its range.
    """

    ATTACKS: ClassVar = "attacks on networks"
    RANGES: ClassVar = _RANGES

    known: int = 40
    draws: int = 5
    most_records: int = 10_000
    most_epochs: int = 10
    most_weights: int = 2_000_000
    seed: int = 0
