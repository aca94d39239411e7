"""Candidate leaves: the leaves that a record may still reach when only some splits are decided.

Fed-EINI (Chen et al. 2021, section III) calls f_k^m(x) the candidate set of party m: every leaf of tree k that x can
reach when the splits of other parties may go either way. The leaf that x does reach is the one in the intersection of
all parties' sets (Proposition 1). In this module a leaf is a column, in the order of `Tree.leaves`.

How much a score hides. The label holder knows the weights, its own candidate sets and the score, so the score is one
equation about which leaf of each candidate set was reached. It has about 2^(candidate bits − output bits) solutions.
If that number is small, the equation can be solved, which reveals the other parties' decisions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from treetap.arrays import Bools, Floats
from treetap.trees.ensemble import ROOT, Ensemble, Split, Tree
from treetap.trees.local_values import ValueTable

#: The mask (n,) of records that go left at a split; None: not known here, they may go either way.
Decide = Callable[[Split], Bools | None]
#: A split's key: the split, or its handle at its owner.
Name = TypeVar("Name", bound=Hashable)

#: Bits that the candidates must have beyond the output: about 2^40 paths then explain every score.
MARGIN_BITS = 40.0


def paths(tree: Tree) -> dict[int, tuple[tuple[Split, bool], ...]]:
    """Leaf (heap number) → its splits from the root down, each with True if the path goes left there."""
    splits = {split.node: split for split in tree.splits}
    ways_to = {}
    for leaf in tree.leaves:
        depth = leaf.node.bit_length() - 1
        ways = ((leaf.node >> up, leaf.node >> (up - 1)) for up in range(depth, 0, -1))
        ways_to[leaf.node] = tuple((splits[parent], child % 2 == 0) for parent, child in ways)
    return ways_to


def candidate_leaves(tree: Tree, n: int, decide: Decide) -> Bools:
    """f_k(x) of n records under the splits that `decide` answers: (n, leaves)."""
    return reachable(list(paths(tree).values()), n, decide)


def reachable(ways: Sequence[Sequence[tuple[Name, bool]]], n: int, decide: Callable[[Name], Bools | None]) -> Bools:
    """The ways that n records can go to the end, (n, ways); a way is its splits, each with True if it goes left."""
    decided = {name: decide(name) for name in dict.fromkeys(name for way in ways for name, _ in way)}
    mask = np.ones((n, len(ways)), dtype=bool)
    for column, way in enumerate(ways):
        for name, left in way:
            goes_left = decided[name]
            if goes_left is not None:
                mask[:, column] &= goes_left if left else ~goes_left
    return mask


def condition(
    name: str,
    threshold: float,
    missing_left: bool,
    left: bool,
    categories: Sequence[str] | None = None,
    shown: Callable[[float], str] = "{:.6g}".format,
) -> str:
    """The condition on a feature for taking a side. An infinite threshold separates missing values from all others.

    `categories`: those that go right, where the split is one of categories. `shown`: a threshold as text.
    """
    if categories is not None:
        side = f"{name} {'not in' if left else 'in'} {{{', '.join(categories)}}}"
        return f"{side} or missing" if left == missing_left else side
    if math.isinf(threshold):
        return f"{name} is missing" if left == missing_left else f"{name} is present"
    side = f"{name} {'<' if left else '≥'} {shown(threshold)}"
    return f"{side} or missing" if left == missing_left else side


def candidate_bits(masks: Iterable[Bools]) -> Floats:
    """log2 Π_k |f_k(x)| of n records over trees with candidate masks (n, leaves): (n,)."""
    bits: Floats = np.sum([np.log2(mask.sum(axis=1)) for mask in masks], axis=0, dtype=np.float64)
    return bits


def output_bits(trees: Iterable[Tree], fraction_bits: int) -> float:
    """log2 of the number of sums that trees of the same outputs can have, in units of 2^−fraction_bits.

    Every output counts by the distance from its least to its greatest sum, so this is never too low.
    """
    low: defaultdict[int, float] = defaultdict(float)
    high: defaultdict[int, float] = defaultdict(float)
    for tree in trees:
        weights = ValueTable(tree).weights
        for column, output in enumerate(tree.outputs):
            low[output] += float(weights[:, column].min())
            high[output] += float(weights[:, column].max())
    return math.fsum(math.log2(math.ldexp(high[k] - low[k], fraction_bits) + 1.0) for k in low)


def spare_bits(ensemble: Ensemble, bits: Sequence[Floats], fraction_bits: int) -> Floats:
    """Candidate bits beyond the output's of n records, (n,); `bits` (n,) of each used tree, in order."""
    return least_spare(ensemble, bits, lambda trees: output_bits(trees, fraction_bits))


def least_spare(ensemble: Ensemble, bits: Sequence[Floats], known: Callable[[list[Tree]], float]) -> Floats:
    """Candidate bits of n records, of each used tree, beyond those that are `known` of trees of the same outputs: (n,).

    Trees that add to different outputs are different equations, each with its own unknowns: the least of them counts.
    That is about scores alone: attributions are further equations, some over few trees.
    """
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    trees = ensemble.used_trees
    for k, tree in enumerate(trees):
        groups[tree.outputs].append(k)
    spare = [np.sum([bits[k] for k in group], axis=0) - known([trees[k] for k in group]) for group in groups.values()]
    return np.min(spare, axis=0) if spare else np.zeros(len(bits[0]) if bits else 0)


def paths_hidden(spare: Floats, margin: float = MARGIN_BITS) -> Bools:
    """The mask of records whose scores have, by counting, at least 2^margin possible paths; spare bits (n,) → (n,)."""
    hidden: Bools = spare >= margin
    return hidden


def least_candidate_bits(own_nodes: Iterable[Iterable[int]]) -> float:
    """A lower bound of every record's candidate bits, from one party's splits (heap numbers) in each tree alone."""
    return math.fsum(math.log2(least_candidates(nodes)) for nodes in own_nodes)


def least_candidates(own_nodes: Iterable[int]) -> int:
    """The least number of candidate leaves of a tree for a party that decides all splits but these heap numbers.

    A feature party can compute this bound without other parties' splits: at each node that is not its own it takes the
    side with fewer of its own splits. A record whose path meets none of them has one candidate leaf.
    """
    own = frozenset(own_nodes)
    inside = {node >> up for node in own for up in range(node.bit_length())}

    def least(node: int) -> int:
        if node not in inside:
            return 1
        left, right = least(2 * node), least(2 * node + 1)
        return left + right if node in own else min(left, right)

    return least(ROOT)
