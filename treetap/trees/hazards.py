"""Cox's partial likelihood of times to an event, by Breslow's rule: all whose times tie are at risk at that time.

A label (N,) is the time of an event, or less than 0 where a record was censored at that time, as XGBoost has it. Of
events that tie, XGBoost counts for a record those of earlier rows only; here all count, whatever the order of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treetap.arrays import Array, Bools, Floats


class Ordered(NamedTuple):
    """Records (N,) by time: `places`, hazards, events, the sum of hazards at risk then, the last place that ties."""

    places: Array
    hazards: Floats
    events: Bools
    at_risk: Floats
    last: Array

    @classmethod
    def of(cls, hazards: Floats, labels: Array) -> Ordered:
        """`hazards`: relative ones, above 0. Equal records are interchangeable, so that sums are of one order."""
        y, times = np.asarray(labels, dtype=np.float64), np.abs(labels)
        places = np.lexsort((hazards, y > 0, times))
        ascending, own = times[places], hazards[places]
        beyond = np.cumsum(own[::-1])[::-1]
        first, last = (np.searchsorted(ascending, ascending, side) for side in ("left", "right"))
        return cls(places, own, y[places] > 0, beyond[first], last - 1)


def derivatives(scores: Floats, labels: Array) -> tuple[Floats, Floats]:
    """First and second derivative (N,) of the loss in each of the scores (N,)."""
    of = Ordered.of(np.exp(scores - scores.max(initial=0.0)), labels)
    once, twice = (np.cumsum(of.events / of.at_risk**power)[of.last] for power in (1, 2))
    g, h = np.empty(len(scores)), np.empty(len(scores))
    g[of.places] = of.hazards * once - of.events
    h[of.places] = of.hazards * once - of.hazards**2 * twice
    return g, np.maximum(h, 0.0)


def loss(hazards: Floats, labels: Array) -> float:
    """The negative logarithm of the likelihood for each event; NaN without events."""
    of = Ordered.of(hazards, labels)
    return float(-np.mean(np.log(of.hazards / of.at_risk)[of.events])) if of.events.any() else float("nan")
