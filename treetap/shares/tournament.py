"""The best of a node's candidates by opened outcomes of comparisons, in an order that neither party knows.

Candidates are compared in groups, each with each, and a group's winner goes on. Outcomes must be those of a strict
total order; given the winner's place, the order of all others is uniform, as their places are (docs/cryptography.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from treetap.arrays import Array, Ints, Words
from treetap.errors import Disputed
from treetap.native.rings import add, mac, minors, sub
from treetap.shares.products import small
from treetap.shares.shuffle import deal_open_masked, deal_shuffle, open_masked, shuffle, take
from treetap.shares.signs import (
    CONJUNCTION_WORDS,
    OUTCOME_WORDS,
    conjunction,
    deal_conjunction,
    deal_outcome,
    deal_sign,
    outcome,
    sign,
    sign_words,
)
from treetap.shares.streams import Dealer, Rounds, Side, packed, swap, together, unpacked, words_of
from treetap.shares.widths import Widths

_ONES = (1 << 64) - 1
#: Candidates, number 0 among them, up to which a tournament has 1, 2 and 3 levels: a level costs six rounds.
LEVELS = 6, 256, 13_000
#: The largest group but the last.
_LARGEST = 40


@dataclass(frozen=True)
class Champions:
    """A party's part of the winners of nodes.

    Attributes:
        fractions: shares (2, nodes, w) of their Num and Den.
        places: at the last party their places (nodes,) before its own permutation, at the first its permutation
            (nodes, n): only together do they name candidates.
    """

    fractions: Words
    places: Ints


def contest(
    side: Side, fractions: Words, least: Words | None, counts: Words, widths: Widths, ties: Ints
) -> Rounds[Champions]:
    """The candidates with the largest Num/Den among those with Den ≥ least and without a negative count.

    Of equal ones the lowest of the first party's `ties` (n,) wins. Number 0 has Den ≥ least and no negative count.

    Args:
        fractions: shares (2, nodes, n, w) of Num and Den.
        least: (nodes, 1, w), the last party's own, zeros at the first; None: all candidates take part.
        counts: shares (2, nodes, n, 1), or (0, nodes, n, 1) without any.

    Raises:
        Disputed: outcomes contradict each other.
    """
    _, nodes, n, w = fractions.shape
    shuffled = yield from shuffle(side, fractions, counts, small(np.broadcast_to(ties, (nodes, n)), w))
    masked, numbers, shares = shuffled.opened, shuffled.own, shuffled.opened.shares(side)
    heavy, tests, times = None, [], small(np.array([1 << widths.number]), w)
    at = np.broadcast_to(np.arange(n)[:, None], (nodes, n, 1))
    if least is not None and n > 1:
        tested = [sub(shares[1], least), *shuffled.kept]
        tests = [sign(side, one, bits) for one, bits in zip(tested, _tested(len(tested), widths), strict=True)]
    for size in plan(n):
        m, (i, j) = at.shape[1], pairs(at.shape[1], size)
        # Shares (nodes, pairs, w) of Num_j·Den_i - Num_i·Den_j, without a message.
        (num, den), (p, q) = masked
        out = minors(side.share(len(num), len(i), num.shape[2]).copy(), num, q if side.first else add(den, q), i, j)
        z = mac(sub(numbers.take(i, 1), numbers.take(j, 1)), minors(out, p, den, i, j), times)
        wins, *light = yield from together(sign(side, z, widths.cross), *tests)
        if tests:
            passed = np.stack(light) ^ np.uint64(0 if side.first else _ONES)
            heavy = unpacked((yield from conjunction(side, passed)) if len(counts) else passed[0], nodes, n, 1)
            tests = []
        if heavy is not None:
            here = take(heavy, at[..., 0])
            side.stream.words(nodes, m)  # its part of the order of those that are not heavy enough: `_order`
            wins = yield from outcome(side, packed(here.take(i, 1)), packed(here.take(j, 1)), wins)
        best = winners(unpacked(wins ^ (yield from swap(wins)), nodes, len(i)), m, size)
        at, numbers, shares = take(at, best), take(numbers, best), take(masked.shares(side), best)
        if best.shape[1] > 1:
            masked = yield from open_masked(side, shares)
    order = shuffled.order
    return Champions(shares[:, :, 0], order if side.first else take(order[..., None], at[..., 0])[:, 0, 0])


def deal_contest(dealer: Dealer, tests: int, nodes: int, n: int, widths: Widths) -> None:
    """Deal `contest` with so many tests of a candidate: 0 where all take part, 1 of weights, 3 of records too."""
    masks = deal_shuffle(dealer, 2, max(tests - 1, 0), nodes, n, widths.words)
    m = n
    for size in plan(n):
        i, j = pairs(m, size)
        z = minors(np.zeros((nodes, len(i), widths.words), np.uint64), masks[0], masks[1], i, j)
        dealer.give(sub(z, dealer.last.words(*z.shape)))
        deal_sign(dealer, nodes * len(i), widths.cross)
        if m == n:
            for bits in _tested(tests, widths):
                deal_sign(dealer, nodes * n, bits)
            if tests > 1:
                deal_conjunction(dealer, words_of(nodes * n))
        if tests:
            ranks = dealer.last.words(nodes, m) + dealer.first.words(nodes, m)
            deal_outcome(dealer, packed(ranks[:, i] > ranks[:, j]))
        m = -(-m // size)
        if m > 1:
            masks = deal_open_masked(dealer, 2, nodes, m, widths.words)


def contest_words(tests: int, nodes: int, n: int, widths: Widths) -> tuple[int, int]:
    """Words of corrections of `contest` to the last and to the first party."""
    m, words = n, sum(sign_words(bits) for bits in _tested(tests, widths)) + CONJUNCTION_WORDS * (tests > 1)
    words *= words_of(nodes * n) * (n > 1)
    for size in plan(n):
        compared = nodes * len(pairs(m, size)[0])
        words += words_of(compared) * (sign_words(widths.cross) + OUTCOME_WORDS * (tests > 0))
        words, m = words + compared * widths.words, -(-m // size)
    return (3 * widths.words + max(tests - 1, 0)) * nodes * n, words


def _tested(tests: int, widths: Widths) -> list[int]:
    """Bits of what the tests take the signs of."""
    return [widths.denominator, widths.count + 1, widths.count + 1][:tests]


# ---- groups


@cache
def plan(n: int) -> tuple[int, ...]:
    """Sizes of the groups of each level of a tournament of n, with the fewest comparisons."""

    @cache
    def best(left: int, levels: int) -> tuple[float, tuple[int, ...]]:
        if left == 1:
            return 0, ()
        if levels == 1:
            return _compared(left, left), (left,)
        tried = ((size, best(-(-left // size), levels - 1)) for size in range(2, min(left, _LARGEST) + 1))
        return min((_compared(left, size) + cost, (size, *sizes)) for size, (cost, sizes) in tried)

    return best(n, 1 + sum(n > most for most in LEVELS))[1]


def _compared(n: int, size: int) -> int:
    whole, rest = divmod(n, size)
    return whole * math.comb(size, 2) + math.comb(rest, 2)


@cache
def pairs(n: int, size: int) -> tuple[Ints, Ints]:
    """Places (pairs,) of those that are compared: within groups of a size, the last of which may be smaller."""
    firsts = np.arange(0, n - n % size, size)
    (a, b), (c, d) = np.triu_indices(size, 1), np.triu_indices(n % size, 1)
    i, j = ((firsts[:, None] + one).ravel() for one in (a, b))
    return np.concatenate([i, c + n - n % size]), np.concatenate([j, d + n - n % size])


def winners(outcomes: Array, n: int, size: int) -> Ints:
    """Places (nodes, groups) of groups' winners, by outcomes (nodes, pairs): 1 where the first of a pair wins.

    Raises:
        Disputed: those of a group are not of one order.
    """
    best, first, at = [], 0, 0
    for groups, members in ((n // size, size), *([(1, n % size)] if n % size else [])):
        (a, b), ones = pairs(members, members), np.eye(members, dtype=np.float32)
        part = outcomes[:, at : at + groups * len(a)].reshape(len(outcomes), groups, len(a))
        # by outcomes of 0 each wins against those before it, and a 1 moves a win from the second to the first
        won = part.astype(np.float32) @ (ones[a] - ones[b]) + np.arange(members)
        if (np.sort(won, axis=-1) != np.arange(members)).any():
            raise Disputed("outcomes of comparisons contradict each other: a party or the dealer sent a wrong number")
        best.append(first + size * np.arange(groups) + won.argmax(axis=-1))
        first, at = first + groups * size, at + groups * len(a)
    return np.concatenate(best, axis=1)
