"""g and h of boosting in few bits (Shi et al., "Quantized Training of Gradient Boosting Decision Trees", NeurIPS 2022).

With b = `gradient_bits`:

1. An output of a tree has two steps: the largest |g| of its records, by 2^(b−1) − 1, and their largest h, by 2^b − 1.
   They stay at the label holder. Owners of labels in PIVODL share the sums, so their steps follow from the largest g
   and h that the loss permits, which all parties know.
2. A number x becomes ⌊x / step + u⌋ (stochastic rounding), u uniform in [0, 1): its mean is x / step. u follows from
   the seed of the job, the tree, the output, g or h, and the record's place in the aligned order. h of a record that
   counts is at least 1, so that H = 0 still means that no record counts; below one step its mean is too large.
3. Splits are found by the rounded sums times their step, and stopping rules hold for these. A leaf has the weight of
   its exact sums (the paper refits leaves so), or 0 where the rounded H is too small for one. No party of PIVODL opens
   exact sums, so its leaf weights are those of the rounded ones.

Every party knows the seed, hence every u: rounding is a known function of g and h. It is no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError
from treetap.trees import sampling
from treetap.trees.job_params import Range
from treetap.trees.loss import UNIT, loss_for

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Bits of g and h, where they are few.
BITS = Range(2, 32, integer=True)


@dataclass(frozen=True)
class Exact:
    """Fixed-point (N, 2K+1) summands of a tree before they were rounded, and the scale of their g."""

    values: Ints
    scale: float

    def sums(self, rows: Ints) -> Ints:
        """Their sums (2K+1,) over some records; those of an eval table, which are behind the N, count nothing."""
        total: Ints = self.values[rows[rows < len(self.values)]].sum(axis=0)
        return total


@dataclass(frozen=True)
class Steps:
    """The numbers that one unit of rounded g and of rounded h stands for, (K,) each.

    `exact`: the summands by which leaves are weighed; None: the rounded ones.
    """

    g: Floats
    h: Floats
    exact: Exact | None = None


#: The meaning of summands: the number by which exact g were divided (`treetap.trees.loss`), or steps of rounded ones.
Scale = float | Steps


def most_units(bits: int) -> tuple[int, int]:
    """The largest |g| and h of a record in units of their steps."""
    return (1 << (bits - 1)) - 1, (1 << bits) - 1


def record_bounds(objective: str, bits: int | None, factor: float = 1.0) -> tuple[int, int]:
    """The largest |g| and h of a record as integers, from which slot widths follow; `factor`: of any record."""
    if bits is not None:
        return most_units(bits)
    return loss_for(objective, 2).bounds(factor)  # the same for any number of classes


def lost_bits(bits: int | None, largest: float, cause: str) -> list[str]:
    """The fault of `gradient_bits`, within their range, if they are too few for a job.

    `largest`: |g| that the job permits, in multiples of the largest that an ordinary record has, and the `cause` of it.
    Where an ordinary record has less than one unit even then, its g are rounded to nothing.
    """
    if bits is None:
        return []
    most, _ = most_units(bits)
    if largest <= most:
        return []
    enough = next((more for more in range(bits, int(BITS.high) + 1) if largest <= most_units(more)[0]), None)
    remedy = "leave gradient_bits out" if enough is None else f"use gradient_bits = {enough}, or leave it out"
    return [
        f"gradient_bits = {bits} has {most} units for the largest |g|, which is up to {largest:g} times that of an "
        f"ordinary record ({cause}): records would be rounded to nothing; {remedy}"
    ]


def check_factors(factors: Floats | None, training: npt.NDArray[np.bool_], bits: int | None) -> None:
    """`DataError` if by the factors (N,) of g and h most of the records in the mask `training` lose all their bits.

    This is so where the largest is more than 2^(bits−1) − 1 times the median of those above 0.
    """
    if factors is None or bits is None:
        return
    counting = factors[training & (factors > 0)]
    if counting.max() > most_units(bits)[0] * np.median(counting):
        raise DataError(
            f"sample weights are so unlike that gradient_bits = {bits} rounds g of most records to nothing: use a "
            "smaller largest weight, more bits, or leave gradient_bits out"
        )


def round_tree(
    values: Ints, scale: float, bits: int | None, seed: int, tree: int, outputs: Sequence[int]
) -> tuple[Ints, Scale]:
    """Round a tree's summands (N, 2K+1), whose last slot counts; without bits these are the exact ones and their scale.

    `outputs`: the K columns of the score that the tree adds to.
    """
    if bits is None:
        return values, scale
    width = len(outputs)
    fixed = values[:, : 2 * width]
    steps = _steps(np.abs(fixed).max(axis=0, initial=0), bits)
    rounded = np.concatenate([_rounded(fixed, steps, bits, seed, tree, outputs), values[:, 2 * width :]], axis=1)
    return rounded, _opened(steps, scale, Exact(values, scale))


def public_steps(objective: str, bits: int | None, scale: float, outputs: int) -> Scale:
    """The steps that follow from the bounds of a loss; without bits the scale."""
    return scale if bits is None else _opened(_bounded_steps(objective, bits, outputs), scale, None)


def round_by_public_steps(fixed: Ints, objective: str, bits: int | None, seed: int, tree: int, rows: Ints) -> Ints:
    """Round g and h (n, 2K) in fixed point of the records at the places `rows` (n,), by steps that all parties know."""
    if bits is None:
        return fixed
    outputs = fixed.shape[1] // 2
    return _rounded(fixed, _bounded_steps(objective, bits, outputs), bits, seed, tree, range(outputs), rows)


def _bounded_steps(objective: str, bits: int, outputs: int) -> Floats:
    """Steps (2K,) in fixed point, of the largest g and h of a loss."""
    return _steps(np.repeat(record_bounds(objective, None), outputs), bits)


def _steps(largest: Ints, bits: int) -> Floats:
    """Steps (2K,) of the largest |g| and h (2K,), both in fixed point; 1 where all are 0."""
    steps: Floats = np.maximum(largest, 1) / np.repeat(most_units(bits), len(largest) // 2)
    return steps


def _opened(steps: Floats, scale: float, exact: Exact | None) -> Steps:
    """Steps (2K,) of fixed-point numbers in the loss's own units."""
    width = len(steps) // 2
    return Steps(steps[:width] * (scale / UNIT), steps[width:] * (1.0 / UNIT), exact)


def _rounded(
    fixed: Ints, steps: Floats, bits: int, seed: int, tree: int, outputs: Sequence[int], rows: Ints | None = None
) -> Ints:
    """Step 2 for g and h (n, 2K) in fixed point; `rows`: the records' places, by default 0 to n − 1."""
    records = len(fixed) if rows is None else int(rows.max(initial=-1)) + 1
    rounded = np.empty_like(fixed)
    most = np.repeat(most_units(bits), len(outputs))
    for slot, (kind, output) in enumerate([(kind, output) for kind in ("g", "h") for output in outputs]):
        draws = sampling.generator(seed, "rounding", tree, kind, output).random(records)
        draws = draws if rows is None else draws[rows]
        whole = np.floor(fixed[:, slot] / steps[slot] + draws).astype(np.int64)
        # the largest number may be rounded beyond the last unit by the division alone
        least = -most[slot] if kind == "g" else np.minimum(fixed[:, slot], 1)
        rounded[:, slot] = np.clip(whole, least, most[slot])
    return rounded
