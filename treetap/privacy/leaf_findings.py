"""Figures of a leaf table by which an auditor tells crafted leaves from those of a training.

A label holder of Fed-EINI learns a sum of the weights of the leaves that it chooses. A table made to be read off that
sum has weights which no training gives: powers of two, each above all smaller ones together, or beyond the bound of the
job's parameters. Honest trainings come near: pure leaves, capped weights and sums of whole numbers have few bits, and
the weights of trees that fit ever smaller residuals dominate those of later ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Significant bits up to which a weight is short. A quotient of real sums has some 50; those that have less, as of pure
#: leaves, are fewer bits apart than this.
SHORT_BITS = 12
#: Fewest weights of which a share says something: of short ones, and of those above all smaller ones together.
LEAST, LEAST_OF_CHAIN = 8, 16
#: Weights of a tree that dominate each other by chance: of three leaves, in a model that fits ever smaller residuals.
CHANCE = 3
#: Share by which g / h in fixed point may be above a bound: of a record of little weight h is a unit or two.
ROUNDING = 0.5
#: Largest score whose exponential is a number.
LARGEST_SCORE = 700.0


@dataclass(frozen=True)
class LeafFindings:
    """Figures of a table's weights other than 0.

    Attributes:
        trees, leaves: of the model, leaves of subtrees that the label holder alone knows included.
        weights: their number; `zeros`: that of weights that are 0.
        distinct: the number of different ones.
        short: the number of different ones with at most `SHORT_BITS` significant bits.
        short_range_bits: log2 of the largest by the smallest of these; None: the objective gives short ones itself.
        chain: the most weights each of which is above all smaller ones of them together, so that a sum tells which of
            them it has; `chained_trees`: the trees that they are of.
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
    short_range_bits: float | None
    chain: int
    chained_trees: int
    range_bits: float
    largest: float
    beyond: int | None

    @property
    def crafted(self) -> list[str]:
        """Findings that no training gives, as sentences; empty: none of it was seen, which proves nothing."""
        faults = []
        if self.beyond:
            faults.append(
                f"{self.beyond} of {self.weights} weights are above what their tree can have without noise in its sums"
            )
        apart = self.short_range_bits is not None and self.short_range_bits > SHORT_BITS
        if apart and self.short >= LEAST and 2 * self.short > self.distinct:
            faults.append(f"{self.short} of {self.distinct} weights have at most {SHORT_BITS} significant bits")
        dominating = 2 * self.chain > self.distinct and self.chain > CHANCE * self.chained_trees
        if self.distinct >= LEAST_OF_CHAIN and dominating:
            faults.append(
                f"{self.chain} of {self.distinct} weights are each above all smaller ones together: one sum tells which"
            )
        return faults


def findings(table: Mapping[str, Any]) -> LeafFindings:
    """The figures of a table as `treetap.models.leaf_table` has it; KeyError, TypeError or ValueError for another."""
    of_trees = [
        [abs(float(weight)) for leaf in _leaves([tree]) for weight in leaf["weights"]] for tree in table["trees"]
    ]
    sizes = [size for of_tree in of_trees for size in of_tree if size]
    first = {size: number for number, of_tree in reversed(list(enumerate(of_trees))) for size in of_tree if size}
    distinct = sorted(first)
    chain, total = list[float](), 0.0
    for size in distinct:  # the smallest first, since the next must be above their sum
        if size > total:
            chain.append(size)
            total += size
    short = [size for size in distinct if significant_bits(size) <= SHORT_BITS]
    of_labels = bool(table["averaged"]) or table["objective"] == "reg:squarederror"  # quotients of small whole numbers
    return LeafFindings(
        trees=len(table["trees"]),
        leaves=sum(1 for _ in _leaves(table["trees"])),
        weights=len(sizes),
        zeros=sum(map(len, of_trees)) - len(sizes),
        distinct=len(distinct),
        short=len(short),
        short_range_bits=None if of_labels else _range_bits(short),
        chain=len(chain),
        chained_trees=len({first[size] for size in chain}),
        range_bits=_range_bits(distinct),
        largest=distinct[-1] if distinct else 0.0,
        beyond=_beyond(table),
    )


def bounds(table: Mapping[str, Any]) -> Iterator[float]:
    """The most that a weight of each tree can be, in order; nothing where the job's parameters give no bound.

    Shares of a forest are at most 1. Boosting of two classes: |Σg| / (Σh + λ) is at most the largest |g| / h of a
    record, 1 + exp(s) for a score of at most s before the tree; times the learning rate, at most 1 and another one in a
    base model. Rounded gradients have none.
    """
    if table["averaged"]:
        yield from (1.0 for _ in table["trees"] if table["objective"] == "gini")
    elif table["objective"] == "binary:logistic" and not table["params"].get("gradient_bits"):
        score = abs(float(table["base_margin"][0]))
        for tree in table["trees"]:
            yield 1 + math.exp(min(score, LARGEST_SCORE))
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


def _range_bits(ascending: Sequence[float]) -> float:
    """log2 of the last one by the first one; 0 of none. The quotient itself could be no number."""
    return math.log2(ascending[-1]) - math.log2(ascending[0]) if ascending else 0.0


def _leaves(trees: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for tree in trees:
        yield from tree["leaves"]
        for part in tree["local"]:
            yield from part["leaves"]
