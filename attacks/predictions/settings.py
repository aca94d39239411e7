"""Settings of attacks on the scores of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attacks.ranged_settings import RangedSettings
from treetap.trees.job_params import Range

_RANGES = {
    "records": Range(1, 1_000_000, integer=True),
    "work": Range(2, 2**26, integer=True),
    "rounds": Range(1, 10_000, integer=True),
    "seed": Range(0, 2**31 - 1, integer=True),
}


@dataclass(frozen=True)
class DecodingSettings(RangedSettings):
    """Settings of path decoding and prediction inversion.

    Attributes:
        records: whose leaves are decoded at most; which ones is drawn.
        work: most sums on one side of a join, and most combinations kept. 2^21 take half a second and 100 MB a record.
        rounds: random parts searched for two solutions before a record beyond the work bound stays undecided.
        seed: of the draws.
    """

    ATTACKS: ClassVar = "attacks on predictions"
    RANGES: ClassVar = _RANGES

    records: int = 200
    work: int = 2**18
    rounds: int = 4
    seed: int = 0
