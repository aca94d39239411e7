"""Path decoding: the label holder infers other parties' split directions from a record's score.

Inversion of masked predictions: the recipient of scores finds exact leaf weights, and the paths of records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from treetap.arrays import Bools, Ints, Words
from treetap.trees.ensemble import ROOT

#: Most sums on one side of a join, and most combinations kept. 2^21 take half a second and 100 MB.
WORK = 2**21
#: Random parts searched for two solutions before a record beyond the work bound stays undecided.
ROUNDS = 16
#: Number of keys from which the number of matches is estimated before the full look-up.
PROBE = 2**12
#: A search for two solutions is skipped where fewer than 2^−HOPE are expected.
HOPE = 10.0


@dataclass(frozen=True)
class Options:
    """One tree's options: heap numbers of the possible leaves (k,), their terms in each equation (k, equations)."""

    leaves: Ints
    terms: Ints


@dataclass(frozen=True)
class Decoded:
    """The result of decoding one record.

    `solutions` counts paths: exactly if `complete`, else a lower bound. `leaves` (trees,) holds the heap number of
    the leaf where all solutions agree on it, else −1; without `complete`, by the solved equations alone.
    """

    outcome: Literal["unique", "several", "undecided", "none"]
    solutions: int
    complete: bool
    leaves: Ints


@dataclass(frozen=True)
class _Block:
    """Combinations of some trees that are still possible: option numbers (k, trees), contributions (k, equations)."""

    trees: tuple[int, ...]
    choices: Ints
    terms: Ints

    def __len__(self) -> int:
        return len(self.terms)


def decode(
    options: Sequence[Options], target: Ints, *, work: int = WORK, rounds: int = ROUNDS, seed: int = 0
) -> Decoded:
    """Find all choices of one option per tree whose terms add up to target (equations,), of one record.

    `work` bounds the sums on a side of a join and the combinations kept; `rounds` the random parts; `seed` draws them.
    The outcome is none only if the inputs contradict each other.
    """
    blocks = [_Block((k,), np.arange(len(o.leaves))[:, None], o.terms) for k, o in enumerate(options)]
    blocks, unsolved = _solved(blocks, target, work)
    if any(not len(block) for block in blocks):
        return Decoded("none", 0, True, np.full(len(options), -1))
    leaves = _agreed(blocks, options)
    if not unsolved:
        solutions = math.prod(len(_paths(block, options)) for block in blocks)
        return Decoded("unique" if solutions == 1 else "several", solutions, True, leaves)
    if (leaves >= 0).all():  # the open equations can separate masks, not paths
        return Decoded("unique", 1, True, leaves)
    distinct = _sample(blocks, sorted(unsolved), target, options, work, rounds, np.random.default_rng(seed))
    return Decoded("several" if distinct >= 2 else "undecided", distinct, False, leaves)


def _solved(blocks: list[_Block], target: Ints, work: int) -> tuple[list[_Block], set[int]]:
    """The blocks after all equations that the work bound permits, and the others; one without options contradicts."""
    unsolved, tried = set(range(len(target))), set[int]()
    while candidates := unsolved - tried:
        # of each equation the blocks whose terms vary in it
        touched = {e: [b for b in blocks if (b.terms[:, e] != b.terms[0, e]).any()] for e in unsolved}
        chosen = min(candidates, key=lambda e: (_combinations(touched[e]), e))
        # every equation whose blocks are among those of the chosen one is solved with it
        inside = [e for e in sorted(unsolved) if all(_among(b, touched[chosen]) for b in touched[e])]
        joined = _join(blocks, touched[chosen], inside, target, work)
        if joined is None:
            tried.add(chosen)
            continue
        if not len(joined):
            return [joined], set()
        rest = [b for b in blocks if not _among(b, touched[chosen])]
        blocks = rest + ([joined] if joined.trees else [])
        unsolved -= set(inside)
        tried.clear()
    return blocks, unsolved


def _among(block: _Block, blocks: Sequence[_Block]) -> bool:
    return any(block is other for other in blocks)


def _combinations(blocks: Sequence[_Block]) -> float:
    return math.fsum(math.log2(len(block)) for block in blocks)


def _join(
    blocks: Sequence[_Block], touched: Sequence[_Block], equations: Sequence[int], target: Ints, work: int
) -> _Block | None:
    """The combinations of the touched blocks that solve the equations; None if that exceeds `work`."""
    halves = _halves(touched)
    if max(math.prod(len(block) for block in half) for half in halves) > work:
        return None
    rest = [block for block in blocks if not _among(block, touched)]
    fixed = np.sum([block.terms[0] for block in rest], axis=0, dtype=np.int64)  # constant in these equations
    return _meet(halves, equations, target - fixed, work, len(target))


def _halves(blocks: Sequence[_Block]) -> tuple[list[_Block], list[_Block]]:
    """Two groups whose numbers of combinations are about equal."""
    groups: tuple[list[_Block], list[_Block]] = ([], [])
    for block in sorted(blocks, key=len, reverse=True):
        min(groups, key=_combinations).append(block)
    return groups


def _meet(
    halves: tuple[list[_Block], list[_Block]], equations: Sequence[int], target: Ints, most: int, width: int
) -> _Block | None:
    """Join two halves by meeting in the middle; None if more than `most` combinations match.

    A combination of several equations with odd random factors, modulo 2^64, is linear: keys of both sides add up to the
    target's key wherever all equations hold. Combinations that match by key are then checked in each equation.
    """
    drawn = np.random.default_rng(len(equations)).integers(0, 2**63, size=len(equations), dtype=np.uint64)
    factors = drawn * np.uint64(2) + np.uint64(1)
    left, right = (_keys(half, equations, factors) for half in halves)
    wanted = np.sum(target[list(equations)].astype(np.uint64) * factors, dtype=np.uint64) - right
    order, order_right = np.argsort(left), np.argsort(wanted)
    left, wanted = left[order], wanted[order_right]  # searchsorted finds sorted keys several times as fast
    probe = wanted[:: -(-len(wanted) // PROBE)]
    hits = np.searchsorted(left, probe, side="right") - np.searchsorted(left, probe, side="left")
    if hits.sum() * (len(wanted) / max(1, len(probe))) > 4 * most:
        return None
    first = np.searchsorted(left, wanted, side="left")
    counts = np.searchsorted(left, wanted, side="right") - first
    matches = int(counts.sum())
    if matches > most:
        return None
    of_right = np.repeat(order_right, counts)
    offset = np.arange(matches) - np.repeat(np.cumsum(counts) - counts, counts)
    of_left = order[np.repeat(first, counts) + offset]
    parts = [_pick(half, chosen, width) for half, chosen in zip(halves, (of_left, of_right), strict=True)]
    terms = parts[0].terms + parts[1].terms
    holds = (terms[:, list(equations)] == target[list(equations)]).all(axis=1)
    choices = np.concatenate([part.choices for part in parts], axis=1)
    return _Block(parts[0].trees + parts[1].trees, choices[holds], terms[holds])


def _keys(blocks: Sequence[_Block], equations: Sequence[int], factors: Words) -> Words:
    """The key of every combination, the last block running fastest."""
    keys = np.zeros(1, dtype=np.uint64)
    for block in blocks:
        of_block = (block.terms[:, list(equations)].astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
        keys = (keys[:, None] + of_block).ravel()
    return keys


def _pick(blocks: Sequence[_Block], chosen: Ints, width: int) -> _Block:
    """The combinations with these numbers in the order of `_keys`, as one block."""
    terms = np.zeros((len(chosen), width), dtype=np.int64)
    choices = []
    places = np.unravel_index(chosen, [len(block) for block in blocks]) if blocks else ()
    for block, place in zip(blocks, places, strict=True):
        terms += block.terms[place]
        choices.append(block.choices[place])
    trees = tuple(tree for block in blocks for tree in block.trees)
    return _Block(trees, np.concatenate(choices, axis=1) if choices else np.zeros((len(chosen), 0), np.int64), terms)


def _paths(block: _Block, options: Sequence[Options]) -> Ints:
    """The different leaves (paths, trees of the block) of its combinations."""
    columns = [options[tree].leaves[block.choices[:, place]] for place, tree in enumerate(block.trees)]
    return np.unique(np.stack(columns, axis=1), axis=0)


def _agreed(blocks: Sequence[_Block], options: Sequence[Options]) -> Ints:
    leaves = np.full(len(options), -1)
    for block in blocks:
        paths = _paths(block, options)
        for place, tree in enumerate(block.trees):
            if (paths[:, place] == paths[0, place]).all():
                leaves[tree] = paths[0, place]
    return leaves


def _sample(
    blocks: Sequence[_Block],
    equations: Sequence[int],
    target: Ints,
    options: Sequence[Options],
    work: int,
    rounds: int,
    generator: np.random.Generator,
) -> int:
    """The number of distinct paths that solve all equations; the search stops at two.

    Each round meets in the middle on random parts of the blocks, as large as the bound allows. They hold up to work²
    combinations, hence about work² / 2^bits solutions for sums of that many bits.
    """
    spread = np.sum([np.ptp(block.terms[:, list(equations)].astype(np.float64), axis=0) for block in blocks], axis=0)
    if np.log2(spread + 1).sum() - 2 * math.log2(work) > HOPE:
        return 0
    distinct: set[tuple[int, ...]] = set()
    for _ in range(rounds):
        halves = _halves(blocks)
        for half in halves:
            _thin(half, work, generator)
        solved = _meet(halves, equations, target, work, len(target))
        if solved is None:  # more solutions than can be kept
            # where no two options of a tree have the same leaf two solutions are two paths
            if all(len(np.unique(tree.leaves)) == len(tree.leaves) for tree in options):
                return 2
            continue
        if len(solved):
            order = np.argsort(solved.trees)
            distinct |= {tuple(path) for path in _paths(solved, options)[:, order].tolist()}
        if len(distinct) >= 2:
            break
    return len(distinct)


def _thin(half: list[_Block], work: int, generator: np.random.Generator) -> None:
    """Drop random options of random blocks until there are at most `work` combinations."""
    while math.prod(len(block) for block in half) > work:
        place = int(generator.choice([k for k, block in enumerate(half) if len(block) > 1]))
        block = half[place]
        kept = generator.permutation(len(block))[: -(-len(block) // 2)]
        half[place] = _Block(block.trees, block.choices[kept], block.terms[kept])


# Inversion of masked predictions: the recipient of scores finds exact leaf weights, and the paths of records.
#
# A recipient of masked sums has the score of every record, to the resolution of its fixed point. It knows the exact
# weights of all leaves but those below its own splits, which it received with noise; and of each record where it
# arrived
# at nodes of its own: leaves below its own splits are the ones that it knows best.
#
# 1. A record that is at one leaf of unknown weight, and otherwise at leaves of known weights: the score less any sum
# that
#    its other trees can have is a possible weight. The sets of possible weights of several records of the leaf have few
#    common members; a single one is the weight.
# 2. Such weights make further records usable, until none is left.
# 3. With all weights of a record's possible leaves known, path decoding finds the leaves.


#: Most sums of a record's other trees that are listed.
WORK_OF_RECORD = 2**16
#: Most records that are used for one leaf.
RECORDS = 64


@dataclass(frozen=True, eq=False)
class MaskedTree:
    """One tree as the recipient knows it, with n records to be scored.

    Attributes:
        leaves: (k,) heap numbers.
        possible: (n, k) leaves at which each record can be, by the recipient's own nodes.
        weights: (k, outputs) in fixed point, of leaves where `known`.
        known: (k,) leaves whose exact weight the recipient has.
    """

    leaves: Ints
    possible: Bools
    weights: Ints
    known: Bools


def possible_leaves(leaves: Ints, arrived: Mapping[int, Bools], went_left: Mapping[int, Bools], records: int) -> Bools:
    """(n, k) leaves that agree with what a party saw.

    Args:
        arrived: node or leaf that the party holds → (n,) records that arrived there.
        went_left: node that the party split → (n,) the way on.
    """
    possible = np.ones((records, len(leaves)), dtype=bool)
    for node, here in arrived.items():
        below = np.array([_is_below(leaf, node) for leaf in leaves.tolist()])
        possible &= np.where(here[:, np.newaxis], below, ~below)
        if node in went_left:
            left = np.array([_is_below(leaf, 2 * node) for leaf in leaves.tolist()])
            way = np.where(went_left[node][:, np.newaxis], left, below & ~left)
            possible &= np.where(here[:, np.newaxis], way, True)
    return possible


def _is_below(leaf: int, node: int) -> bool:
    while leaf > node:
        leaf >>= 1
    return leaf == node >= ROOT


def invert(trees: Sequence[MaskedTree], scores: Ints, *, work: int = WORK_OF_RECORD) -> list[MaskedTree]:
    """The trees with all weights that follow from scores (n, outputs), in fixed point and without the base margin."""
    solved = list(trees)
    while True:
        before = sum(int(tree.known.sum()) for tree in solved)
        for t, tree in enumerate(solved):
            for place in np.flatnonzero(~tree.known):
                weight = _weight(solved, t, int(place), scores, work)
                if weight is not None:
                    weights, known = solved[t].weights.copy(), solved[t].known.copy()
                    weights[place], known[place] = weight, True
                    solved[t] = replace(solved[t], weights=weights, known=known)
        if sum(int(tree.known.sum()) for tree in solved) == before:
            return solved


def _weight(trees: Sequence[MaskedTree], t: int, place: int, scores: Ints, work: int) -> Ints | None:
    """The one weight of a leaf that the scores of its records allow; None if there are several."""
    others = [tree for k, tree in enumerate(trees) if k != t]
    inside = trees[t].possible[:, place] & (trees[t].possible.sum(axis=1) == 1)
    for tree in others:
        inside &= ~(tree.possible & ~tree.known).any(axis=1)
    rows = np.flatnonzero(inside)
    # records with few sums of their other trees are cheap and say most: they come first
    sizes = np.array([math.prod(int(tree.possible[row].sum()) for tree in others) for row in rows])
    allowed: set[tuple[int, ...]] | None = None
    for row in rows[np.argsort(sizes, kind="stable")][:RECORDS]:
        sums = _sums([tree.weights[tree.possible[row]] for tree in others], scores.shape[1], work)
        if sums is None:
            break
        values = {tuple(value) for value in (scores[row] - sums).tolist()}
        allowed = values if allowed is None else allowed & values
        if len(allowed) <= 1:
            break
    one = allowed is not None and len(allowed) == 1
    return np.array(next(iter(allowed or ())), dtype=np.int64) if one else None


def _sums(weights: Sequence[Ints], outputs: int, work: int) -> Ints | None:
    """All sums of one weight of each tree, (combinations, outputs), each once; None above the work bound."""
    sums: Ints = np.zeros((1, outputs), dtype=np.int64)
    for of_tree in weights:
        if len(sums) * len(of_tree) > work:
            return None
        sums = np.unique((sums[:, np.newaxis] + of_tree[np.newaxis]).reshape(-1, outputs), axis=0)
    return sums


def decode_paths(
    trees: Sequence[MaskedTree], scores: Ints, record: int, *, work: int = WORK_OF_RECORD, rounds: int = ROUNDS
) -> Decoded | None:
    """The leaves of one record; None where the weight of a possible leaf is not known."""
    options = []
    for tree in trees:
        mask = tree.possible[record]
        if not tree.known[mask].all():
            return None
        options.append(Options(tree.leaves[mask], tree.weights[mask]))
    return decode(options, scores[record], work=work, rounds=rounds)
