"""The noised weights that this party has released, written before the first send.

Two draws of noise for one weight would average out, and each would count against ε. A weight is drawn once: its noised
value is on disk before any party can have it, and a retry, a resume or a tree that is grown again sends the same bytes.
The ledger lies beside the job's progress and goes with it when the model is published. The line of a finished tree has
its keeper's released values beside the exact ones, for predictions with noised weights; no other party's shard has any.
"""

from __future__ import annotations

import math
import secrets
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from party.runtime.job_store import JobStore
from treetap.privacy.discrete_gaussian import RandBelow, discrete_gaussian
from treetap.privacy.zcdp import LeafWeightPrivacy

Floats = npt.NDArray[np.float64]
#: The file, a line each: tree, leaf, weight (K numbers).
NOISED_WEIGHTS = "noised_weights.jsonl"
#: A weight is a whole number of units of ηC · 2^-40, rounded up to a power of two.
UNIT_BITS = 40


class NoiseLedger:
    """Releases each leaf weight of one party once.

    Args:
        store: of the job.
        privacy: of the job; its clip, rate and σ.
        randbelow: uniform whole numbers, of the operating system outside tests.
    """

    def __init__(self, store: JobStore, privacy: LeafWeightPrivacy, randbelow: RandBelow = secrets.randbelow) -> None:
        self._lines = store.lines(NOISED_WEIGHTS)
        self._randbelow = randbelow
        self._unit = math.ldexp(1.0, math.frexp(privacy.sent_clip)[1] - UNIT_BITS)
        self._clip = math.floor(Fraction(privacy.sent_clip) / Fraction(self._unit))
        self._variance = (Fraction(privacy.deviation) / Fraction(self._unit)) ** 2
        self._held: dict[tuple[int, int], list[float]] | None = None

    @property
    def draws(self) -> int:
        """The weights of this job that this party has drawn noise for, in all attempts."""
        return len(self._known())

    def released(self, tree: int, leaf: int, weight: Floats) -> Floats:
        """clip(w, ηC) + N(0, (2ηCσ)²) of a leaf's weight w = ηW (K,), drawn at the first call, the same (K,) after it.

        On disk when this returns. Raises `DataError` if the file is damaged, `OSError` if it cannot be written.
        """
        known = self._known()
        if (tree, leaf) not in known:
            noised = [self._noised(units) for units in clipped(weight, self._unit, self._clip)]
            try:
                self._lines.put({"tree": tree, "leaf": leaf, "weight": noised}, len(known))
            except BaseException:
                self._held = None  # the line may be on disk: it is read before another one is drawn
                raise
            known[tree, leaf] = noised
        return np.array(known[tree, leaf], dtype=np.float64)

    def _noised(self, units: int) -> float:
        return float((units + discrete_gaussian(self._variance, self._randbelow)) * Fraction(self._unit))

    def _known(self) -> dict[tuple[int, int], list[float]]:
        if self._held is None:
            lines = self._lines.read()
            self._held = {(line["tree"], line["leaf"]): [float(number) for number in line["weight"]] for line in lines}
        return self._held


def clipped(weight: Floats, unit: float, clip: int) -> list[int]:
    """A weight (K,) in whole units towards zero, its ℓ2 norm at most `clip` units: exact, no rounding can exceed it."""
    units = [int(Fraction(float(number)) / Fraction(unit)) for number in weight]
    squares = sum(count * count for count in units)
    if squares <= clip * clip:
        return units
    norm = math.isqrt(squares) + 1
    return [int(math.copysign(1, count)) * (abs(count) * clip // norm) for count in units]
