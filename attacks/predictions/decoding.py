"""Path decoding: the label holder infers other parties' split directions from a record's score.

Fed-EINI hides the candidate leaf that a record reached: the label holder decrypts only Σ_k w_k. It knows every leaf
weight and its own candidate sets, and the sum is exact at the resolution of the fixed point. The reached leaves are
therefore a solution of a knapsack problem, one leaf per tree; a unique solution reveals the whole path. Attributions
are sums of the same kind over the same unknowns: further equations, some of them over few trees.

1. Each tree is a block of options: the terms that a reached leaf (or a mask) adds to each equation.
2. The open equation with the fewest combinations is solved: its blocks are joined by meeting in the middle, on all
   open equations that lie within them, and become one block of surviving combinations.
3. Without open equations the surviving combinations are all solutions. If the next equation exceeds the work bound,
   random parts of the rest are searched for two solutions: two of them prove that the path is not determined.

All work is bounded; a record beyond the bound is reported as undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from attacks.predictions.path_options import Ints, Options

Words = npt.NDArray[np.uint64]
#: Most sums on one side of a join, and most combinations kept. 2^21 take half a second and 100 MB.
WORK = 2**21
#: Random parts searched for two solutions before a record beyond the work bound stays undecided.
ROUNDS = 16
#: Number of keys from which the number of matches is estimated before the full look-up.
PROBE = 2**12
#: A search for two solutions is skipped where fewer than 2^−HOPE are expected.
HOPE = 10.0


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
        touched = {e: [b for b in blocks if _varies(b, e)] for e in unsolved}
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


def decode_explained(
    scored: Sequence[Options], explained: Sequence[Options], target: Ints, *, work: int = WORK, rounds: int = ROUNDS
) -> Decoded:
    """Decode by the score, then by score and attributions over the masks that the decoded leaves allow.

    `scored` and `explained` are one record's options by `score_options` and `explained_options`; target (equations,)
    is that of the latter, whose first equations are the former's. The result is never weaker than by the score alone;
    `several`: attributions do not determine the path either.
    """
    outputs = scored[0].terms.shape[1] if scored else len(target)
    alone = decode(scored, target[:outputs], work=work, rounds=1)
    if alone.outcome in ("unique", "none"):
        return alone
    left = [_reaching(options, int(leaf)) for options, leaf in zip(explained, alone.leaves, strict=True)]
    both = decode(left, target, work=work, rounds=rounds)
    leaves = np.where(both.leaves >= 0, both.leaves, alone.leaves)
    if (leaves >= 0).all():
        return Decoded("unique", 1, True, leaves)
    return Decoded(both.outcome, both.solutions, both.complete, leaves)


def _reaching(options: Options, leaf: int) -> Options:
    """The options that end in a leaf; all if the leaf is not known (−1)."""
    if leaf < 0:
        return options
    kept = options.leaves == leaf
    return Options(options.leaves[kept], options.terms[kept])


def _among(block: _Block, blocks: Sequence[_Block]) -> bool:
    return any(block is other for other in blocks)


def _varies(block: _Block, equation: int) -> bool:
    column = block.terms[:, equation]
    return bool((column != column[0]).any())


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
            if _distinct(options):
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


def _distinct(options: Sequence[Options]) -> bool:
    """True if no two options of a tree have the same leaf, so that two solutions are two paths."""
    return all(len(np.unique(tree.leaves)) == len(tree.leaves) for tree in options)
