"""Signs of shared numbers, and other functions of shared bits; bits lie side by side in words, their shares by XOR.

The sign of a sum of two shares is the XOR of their highest bits and of the carry from below. Three bits of both shares
make a digit, which generates a carry (g) or propagates one (p): each is a sum of products of one party's bits with the
other's, of which the dealer gives the sum alone. Then some digits make a digit, until one is left:

    g = g_{k-1} ⊕ p_{k-1}·g_{k-2} ⊕ ... ⊕ p_{k-1}···p_1·g_0,    p = p_{k-1}···p_0.

A product of shared bits comes of what they open to, less masks, and of shares of all products of their masks (`_fold`).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from treetap.arrays import Ints, Words
from treetap.native.rings import bits_of, joined
from treetap.shares.streams import Dealer, Rounds, Side, swap, words_of

#: Bits of a digit of the first row, the most digits that make one of a further row, and the most further rows: enough
#: for numbers of 649 bits.
DIGIT, MOST, FURTHER = 3, 6, 3
_ONES = np.uint64((1 << 64) - 1)
_SUBSETS = np.arange(1, 1 << DIGIT)
#: Place among `_SUBSETS` of the bits of the other party with which those of a subset S are multiplied. For g: the
#: lowest of S, which both have, and those above it that S lacks; for p: all that S lacks.
_LOWEST = _SUBSETS & -_SUBSETS
_GENERATES = (_LOWEST | (_SUBSETS[-1] & -_LOWEST & ~_SUBSETS)) - 1
_PROPAGATES = _SUBSETS[-1] - _SUBSETS[:-1] - 1


# ---- signs


def sign(side: Side, numbers: Words, bits: int) -> Rounds[Words]:
    """Shares of bit `bits - 1` of shared numbers (..., w), in words of bits side by side; four rounds, or fewer."""
    columns, digits = words_of(math.prod(numbers.shape[:-1])), _digits(bits)
    masks, shares = side.stream.words(len(_SUBSETS), digits, columns), side.share(2, digits, columns)
    rows = _rows(digits, FURTHER)
    tables = [_table(side, *_singles(k, last), nodes, columns) for k, nodes, last in rows]
    low = bits_of(numbers, bits, 1 + DIGIT * digits)
    held = _subsets(low[:-1].reshape(digits, DIGIT, columns).swapaxes(0, 1))[1:]
    mine = held ^ masks
    theirs = yield from swap(mine)
    known = masks if side.first else held  # a·b = a·e ⊕ d·β ⊕ αβ, where d = a ⊕ α and e = b ⊕ β are open
    made = shares.copy()  # g and p of each digit
    made[0] ^= np.bitwise_xor.reduce(theirs.take(_GENERATES, 0) & known)
    made[1] ^= np.bitwise_xor.reduce(theirs.take(_PROPAGATES, 0) & known[:-1]) ^ held[-1]
    for (k, nodes, last), (table, masks) in zip(rows, tables, strict=True):
        row = np.zeros((2, k * nodes, columns), np.uint64)
        row[:, k * nodes - made.shape[1] :] = made
        parts = row.reshape(2, nodes, k, columns)
        mine = parts[_wires(k, last)] ^ masks
        made = joined(table, mine ^ (yield from swap(mine)), parts[0, :, -1], 2 - last)
    carries: Words = low[-1] ^ made[0, 0]
    return carries


def deal_sign(dealer: Dealer, count: int, bits: int) -> None:
    """Deal `sign` of so many numbers: ⌈count/64⌉·`sign_words` words to the first."""
    columns, digits = words_of(count), _digits(bits)
    alpha, share = dealer.last.words(len(_SUBSETS), digits, columns), dealer.last.words(2, digits, columns)
    beta, rows = dealer.first.words(len(_SUBSETS), digits, columns), _rows(digits, FURTHER)
    pairs = (alpha, beta[_GENERATES]), (alpha[:-1], beta[_PROPAGATES])
    dealer.give(np.stack([np.bitwise_xor.reduce(a & b) for a, b in pairs]) ^ share)
    for k, nodes, last in rows:
        size, singles = _singles(k, last)
        share, masks = _dealt_masks(dealer, size, singles, nodes, columns)
        powers = _subsets(masks[: k - 1])
        starts = powers[:, None] & masks[None, k - 1 : k + 1 - last]
        later = [powers[:: 2 << i] & mask for i, mask in enumerate(masks[k + 1 - last :])]
        _give_products(dealer, np.concatenate([powers, starts.reshape(-1, nodes, columns), *later]), share, singles)


def sign_words(bits: int) -> int:
    """Words of corrections for 64 signs."""
    sizes = ((*_singles(k, last), nodes) for k, nodes, last in _rows(_digits(bits), FURTHER))
    return 2 * _digits(bits) + sum((size - 1 - len(singles)) * nodes for size, singles, nodes in sizes)


def _digits(bits: int) -> int:
    return -(-(bits - 1) // DIGIT)


@cache
def _rows(digits: int, most: int) -> tuple[tuple[int, int, bool], ...]:
    """How many digits make one in each row, how many are made, and if it is the last: those of the fewest bits."""

    def bits(rows: tuple[tuple[int, int, bool], ...]) -> int:
        return sum(nodes * (_singles(k, last)[0] + len(_singles(k, last)[1])) for k, nodes, last in rows)

    if digits <= 1:
        return ()
    made = {k: -(-digits // k) for k in range(2, MOST + 1)}
    fits = {k: nodes for k, nodes in made.items() if nodes <= MOST ** (most - 1)}
    return min((((k, nodes, nodes == 1), *_rows(nodes, most - 1)) for k, nodes in fits.items()), key=bits)


@cache
def _singles(k: int, last: bool) -> tuple[int, tuple[int, ...]]:
    """Rows in the table of k digits, and those of the masks of p_1 … p_{k-1}, g_0, p_0, g_1 … g_{k-2}, its wires.

    The table has the products of subsets of p_1 … p_{k-1}, then those with g_0 and p_0 in turn, then of subsets of
    p_2 … p_{k-1} with g_1, and so on. The last digits need no p_0.
    """
    half = 1 << k - 1
    begin, singles = half * (3 - last), [1 << i for i in range(k - 1)] + [half, half + 1][: 2 - last]
    for i in range(1, k - 1):
        singles.append(begin)
        begin += half >> i
    return begin, tuple(singles)


@cache
def _wires(k: int, last: bool) -> tuple[list[int], slice, list[int]]:
    """Which of g and p the wires are, 0 or 1, in all nodes, and of which of k digits."""
    p_0 = 1 - last
    return (
        [1] * (k - 1) + [0] + [1] * p_0 + [0] * (k - 2),
        slice(None),
        [*range(1, k), 0] + [0] * p_0 + [*range(1, k - 1)],
    )


# ---- outcomes

#: Rows of the masks of three wires in a table of all products of them.
_THREE = (1, 2, 4)
#: Words of corrections for 64 conjunctions.
CONJUNCTION_WORDS = 4


def conjunction(side: Side, bits: Words) -> Rounds[Words]:
    """Shares of x·y·z for rows of shared bits (3, columns)."""
    table, masks = _table(side, 8, _THREE, bits.shape[1])
    mine = bits ^ masks
    return _fold(table, mine ^ (yield from swap(mine)))


def deal_conjunction(dealer: Dealer, columns: int) -> None:
    """Deal `conjunction`: `CONJUNCTION_WORDS`·columns words to the first."""
    share, masks = _dealt_masks(dealer, 8, _THREE, columns)
    _give_products(dealer, _subsets(masks), share, _THREE)


#: Words of corrections for 64 outcomes. Rows of the table: products of masks of x, y, w, then of ρ with those of x, y.
OUTCOME_WORDS, _OUTCOME = 8, 12


def outcome(side: Side, x: Words, y: Words, wins: Words) -> Rounds[Words]:
    """Shares of w·x·y ⊕ x·(1 ⊕ y) ⊕ ρ·(1 ⊕ x)·(1 ⊕ y), columns of bits: who of two wins.

    Of two that are heavy enough (x, y) the comparison w says it; of two that are not, a bit of a dealt order.
    """
    table, masks = _table(side, _OUTCOME, _THREE, len(x))
    mine = np.stack([x, y, wins]) ^ masks
    ex, ey, ew = mine ^ (yield from swap(mine))
    # w·x·y ⊕ x·(1 ⊕ y) = x ⊕ x·y·(w ⊕ 1)
    return x ^ _fold(table[:8], np.stack([ex, ey, ~ew])) ^ _fold(table[8:], np.stack([~ex, ~ey]))


def deal_outcome(dealer: Dealer, order: Words) -> None:
    """Deal `outcome` with words of bits ρ of an order: `OUTCOME_WORDS` words to the first for each."""
    share, masks = _dealt_masks(dealer, _OUTCOME, _THREE, len(order))
    full = np.concatenate([_subsets(masks), _subsets(masks[:2]) & order])
    _give_products(dealer, full, share, _THREE)


# ---- products of masks


def _table(side: Side, size: int, singles: tuple[int, ...], *shape: int) -> tuple[Words, Words]:
    """Shares of `size` products of masks, the first of none, and of the masks, which are rows of them."""
    if not side.first:
        table = side.stream.words(size, *shape).copy()
        table[0] = _ONES
        return table, table.take(singles, 0)
    masks = side.stream.words(len(singles), *shape)
    rows = [np.zeros((1, *shape), np.uint64), masks, side.dealt(size - 1 - len(singles), *shape)]
    return np.concatenate(rows).take(_places(size, singles), 0), masks


def _dealt_masks(dealer: Dealer, size: int, singles: tuple[int, ...], *shape: int) -> tuple[Words, Words]:
    """The last party's table, and the masks."""
    table = dealer.last.words(size, *shape)
    return table, table.take(singles, 0) ^ dealer.first.words(len(singles), *shape)


def _give_products(dealer: Dealer, full: Words, share: Words, singles: tuple[int, ...]) -> None:
    dealer.give((full ^ share).take(_others(len(full), singles), 0))


@cache
def _places(size: int, singles: tuple[int, ...]) -> Ints:
    return np.argsort([0, *singles, *_others(size, singles)])


@cache
def _others(size: int, singles: tuple[int, ...]) -> Ints:
    return np.array(sorted({*range(1, size)} - {*singles}), np.int64)


def _subsets(wires: Words) -> Words:
    """Products of all subsets of bits (wires, ...): bit i of a product's number says that wire i is in it."""
    out = np.full((1 << len(wires), *wires.shape[1:]), _ONES)
    for i, wire in enumerate(wires):
        np.bitwise_and(out[: 1 << i], wire, out=out[1 << i : 2 << i])
    return out


def _fold(table: Words, opened: Words) -> Words:
    """Shares of the product of bits with these openings and shares of the products of their masks."""
    for wire in opened:
        table = (table[0::2] & wire) ^ table[1::2]
    product: Words = table[0]
    return product
