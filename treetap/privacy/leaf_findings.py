"""Figures of a leaf table by which an auditor tells crafted leaves from those of a training.

A label holder of Fed-EINI learns a sum of the weights of the leaves that it chooses. A table made to be read off that
sum has weights which no training gives: powers of two, each above all smaller ones together, or beyond the bound of the
job's parameters. Figures of honest tables are beside them in docs/threats.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Significant bits up to which a weight is short. A quotient of real sums has some 50.
SHORT_BITS = 12
#: Fewest weights of which a share says something: of short ones, and of those above all smaller ones together.
LEAST, LEAST_OF_CHAIN = 8, 16
#: Share by which sums in fixed point may be above a bound; largest score whose exponential is a number.
ROUNDING, LARGEST_SCORE = 1e-6, 700.0


@dataclass(frozen=True)
class LeafFindings:
    """Figures of a table's weights other than 0.

    Attributes:
        trees, leaves: of the model, leaves of subtrees that the label holder alone knows included.
        weights: their number; `zeros`: that of weights that are 0.
        distinct: the number of different ones.
        short: those with at most `SHORT_BITS` significant bits.
        chain: the most weights each of which is above all smaller ones of them together, so that a sum tells which of
            them it has.
        range_bits: log2 of the largest by the smallest one.
        largest: the largest absolute value.
        beyond: weights above the most that their tree can have (see `bounds`); None: the job's parameters give none.
    """

    trees: int
    leaves: int
    weights: int
    zeros: int
    distinct: int
    short: int
    chain: int
    range_bits: float
    largest: float
    beyond: int | None
    averaged: bool

    @property
    def crafted(self) -> list[str]:
        """What no training gives, as sentences; empty: none of it was seen, which proves nothing."""
        faults = []
        if self.beyond:
            faults.append(
                f"{self.beyond} of {self.weights} weights are above what their tree can have without noise in its sums"
            )
        if not self.averaged and self.weights >= LEAST and 2 * self.short > self.weights:
            faults.append(f"{self.short} of {self.weights} weights have at most {SHORT_BITS} significant bits")
        if self.distinct >= LEAST_OF_CHAIN and 2 * self.chain > self.distinct:
            faults.append(
                f"{self.chain} of {self.distinct} weights are each above all smaller ones together: one sum tells which"
            )
        return faults


def findings(table: Mapping[str, Any]) -> LeafFindings:
    """The figures of a table as `treetap.models.leaf_table` has it; KeyError, TypeError or ValueError for another."""
    leaves = list(_leaves(table["trees"]))
    weights = [float(weight) for leaf in leaves for weight in leaf["weights"]]
    sizes = [abs(weight) for weight in weights if weight]
    distinct = sorted(set(sizes))
    chain, total = 0, 0.0
    for size in distinct:  # the smallest first, since the next must be above their sum
        if size > total:
            chain, total = chain + 1, total + size
    return LeafFindings(
        trees=len(table["trees"]),
        leaves=len(leaves),
        weights=len(sizes),
        zeros=len(weights) - len(sizes),
        distinct=len(distinct),
        short=sum(times for size, times in Counter(sizes).items() if significant_bits(size) <= SHORT_BITS),
        chain=chain,
        range_bits=math.log2(distinct[-1] / distinct[0]) if distinct else 0.0,
        largest=distinct[-1] if distinct else 0.0,
        beyond=_beyond(table),
        averaged=bool(table["averaged"]),
    )


def bounds(table: Mapping[str, Any]) -> Iterator[float]:
    """The most that a weight of each tree can be, in order; nothing where the job's parameters give no bound.

    Shares of a forest are at most 1. Boosting of two classes: |Σg| / (Σh + λ) is at most the largest |g| / h of a
    record, 1 + exp(s) for a score of at most s before the tree; times the learning rate. Rounded gradients have none.
    """
    if table["averaged"]:
        yield from (1.0 for _ in table["trees"] if table["objective"] == "gini")
    elif table["objective"] == "binary:logistic" and not table["params"].get("gradient_bits"):
        score = abs(float(table["base_margin"][0]))
        for tree in table["trees"]:
            yield float(table["params"]["learning_rate"]) * (1 + math.exp(min(score, LARGEST_SCORE)))
            score += max((abs(float(leaf["weights"][0])) for leaf in _leaves([tree])), default=0.0)


def _beyond(table: Mapping[str, Any]) -> int | None:
    """The number of weights above the bounds of their trees; None where there are none."""
    most = list(bounds(table))
    if not most:
        return None
    return sum(
        abs(float(weight)) > bound * (1 + ROUNDING)
        for tree, bound in zip(table["trees"], most, strict=True)
        for leaf in _leaves([tree])
        for weight in leaf["weights"]
    )


def significant_bits(number: float) -> int:
    """Bits of a positive number from its first one to its last one."""
    numerator = number.as_integer_ratio()[0]
    return (numerator // (numerator & -numerator)).bit_length()


def _leaves(trees: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for tree in trees:
        yield from tree["leaves"]
        for part in tree["local"]:
            yield from part["leaves"]
