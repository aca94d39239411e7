"""Settings of a label holder's attacks on other parties' columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attacks.ranged_settings import RangedSettings
from treetap.trees.job_params import Range

_RANGES = {
    "most_auxiliary": Range(2, 1_000_000, integer=True),
    "most_victims": Range(1, 1_000_000, integer=True),
    "matched": Range(1, 10_000, integer=True),
    "match_steps": Range(1, 100_000, integer=True),
    "total_variation": Range(0, 1000),
    "most_classes": Range(2, 1000, integer=True),
    "pictures": Range(0, 100, integer=True),
    "seed": Range(0, 2**31 - 1, integer=True),
}


@dataclass(frozen=True)
class FeatureSettings(RangedSettings):
    """Settings of all attacks on columns.

    Attributes:
        most_auxiliary: auxiliary records that an attack uses at most; which ones is drawn.
        most_victims: victims that `attributes` and `decode` guess at most; which ones is drawn.
        matched: victims of `match` and `match-exact`, the first of these.
        match_steps: steps of the optimisation of a match.
        total_variation: weight of the total variation of images beside the distance of embeddings.
        most_classes: a column of whole numbers with at most as many different ones is a class, as a column of text is.
        pictures: victims that the document has pictures of.
        seed: of the draws and of all initial weights.

    Raises:
        BadInput: on construction; names every wrong field and its range.
    """

    ATTACKS: ClassVar = "attacks on columns"
    RANGES: ClassVar = _RANGES

    most_auxiliary: int = 10_000
    most_victims: int = 2_000
    matched: int = 64
    match_steps: int = 300
    total_variation: float = 0.1
    most_classes: int = 20
    pictures: int = 8
    seed: int = 0
