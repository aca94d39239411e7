"""What a parameter may be, and the ranges of those that mean the same in every tree protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """An interval that a number must lie in; `integer` also asks for a whole number."""

    low: float
    high: float
    integer: bool = False
    open_low: bool = False
    open_high: bool = False

    def complaint(self, value: object) -> str | None:
        """What is wrong with `value`, or None."""
        shown = f"{'(' if self.open_low else '['}{self.low:g}, {self.high:g}{')' if self.open_high else ']'}"
        kind = "a whole number" if self.integer else "a number"
        allowed = (int,) if self.integer else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed):
            return f"must be {kind} in {shown}, not {value!r}"
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return None if above and below else f"must be {kind} in {shown}, not {value!r}"


COMMON = {
    "n_estimators": Range(1, 100_000, integer=True),
    "max_depth": Range(1, 20, integer=True),
    "max_bin": Range(2, 65_536, integer=True),
    "subsample": Range(0, 1, open_low=True),
    "colsample_bytree": Range(0, 1, open_low=True),
    "seed": Range(0, 2**63 - 1, integer=True),
}


def out_of_range(params: object, ranges: dict[str, Range]) -> list[str]:
    """What is wrong with the fields of `params` that have a range, by name."""
    found = ((name, allowed.complaint(getattr(params, name))) for name, allowed in ranges.items())
    return [f"{name} {complaint}" for name, complaint in found if complaint]


def not_a_choice(params: object, choices: dict[str, tuple[str, ...]]) -> list[str]:
    """What is wrong with the fields of `params` that are one of several words."""
    return [
        f"{name} must be one of {', '.join(allowed)}, not {getattr(params, name)!r}"
        for name, allowed in choices.items()
        if getattr(params, name) not in allowed
    ]


def bad_missing(missing: object) -> list[str]:
    """What is wrong with the value that means missing."""
    if isinstance(missing, bool) or not isinstance(missing, int | float) or math.isinf(missing):
        return [f"missing must be a finite number or nan, not {missing!r}"]
    return []


def bad_dropout(shares: Mapping[str, float]) -> list[str]:
    """What is wrong with the chances that parties sit a tree out."""
    allowed = Range(0, 1, open_high=True)
    found = ((name, allowed.complaint(share)) for name, share in shares.items())
    return [f"party_dropout of {name} {complaint}" for name, complaint in found if complaint]
