"""Settings of the attacks on split networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from treetap.errors import BadInput
from treetap.trees.job_params import Range, out_of_range

_RANGES = {
    "known": Range(1, 1_000_000, integer=True),
    "draws": Range(1, 100, integer=True),
    "most_records": Range(10, 1_000_000, integer=True),
    "most_epochs": Range(1, 1000, integer=True),
    "most_weights": Range(0, 10**9, integer=True),
    "seed": Range(0, 2**31 - 1, integer=True),
}


@dataclass(frozen=True)
class NetworkSettings:
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

    known: int = 40
    draws: int = 5
    most_records: int = 10_000
    most_epochs: int = 10
    most_weights: int = 2_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        if wrong := out_of_range(self, _RANGES):
            raise BadInput("settings of attacks on networks: " + "; ".join(wrong))

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> NetworkSettings:
        """Read settings from a mapping. Raises BadInput naming every unknown or wrong field."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(given) - set(known)):
            raise BadInput(f"settings of attacks on networks: unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return cls(**given)
