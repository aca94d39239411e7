"""Widths of a pair's numbers, and the lift: from sums modulo the lattice's moduli to shares in rings of 64·w bits.

A sum packs its numbers into slots of which the highest bit is known to be 0, and is below half the modulus P. Its two
shares modulo P wrap iff one of them is at least P/2: if both are below, they add up to less than P; if one is, to a
number between P/2 and 3P/2, which can be that of a sum below P/2 only if it is P more. In the same way a slot carries
into the next one iff one of the shares has its highest bit. So each is a ∨ b = a + b - a·b, of one bit of either party:
exact, and the lattice gives nothing but openings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from treetap.arrays import Bools, Words
from treetap.native.rings import add, mac, sub
from treetap.shares.products import bit_products, deal_bit_products, numbers, small
from treetap.shares.streams import Dealer, Rounds, Side, words_of


@dataclass(frozen=True)
class Widths:
    """What the numbers of a pair's candidates need, the same for all nodes of a job.

    Attributes:
        slots: bits of each slot of a sum, the lowest first, of which the highest bit is known.
        signed: how many of the first slots hold signed numbers.
        moduli: the lattice's, of which the product is P.
        value: Σ_k |x_k| < 2^value over all targets k.
        weight: y < 2^weight and A - y < 2^weight.
        targets: how many x_k there are.
        count: numbers of records are below 2^count; 0: a side may have any.
        numbers: the larger of the most candidates of a party and the number of feature parties: ties go by numbers.

    Raises:
        ValueError: the slots do not fit the moduli.
    """

    slots: tuple[int, ...]
    signed: int
    moduli: tuple[int, ...]
    value: int
    weight: int
    targets: int
    count: int
    numbers: int

    def __post_init__(self) -> None:
        if 1 << sum(self.slots) > self.product or max(self.slots) > 63:
            raise ValueError(f"slots of {self.slots} bits do not fit moduli of {self.product.bit_length()} bits")

    @property
    def product(self) -> int:
        """P."""
        return math.prod(self.moduli)

    @property
    def sum_words(self) -> int:
        """Words of a number below 2·P."""
        return words_of(self.product.bit_length() + 1)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Bit at which each slot begins."""
        return tuple(accumulate(self.slots[:-1], initial=0))

    @property
    def number(self) -> int:
        """Bits of a difference of two candidates' numbers."""
        return self.numbers.bit_length()

    @property
    def numerator(self) -> int:
        """Bits of Num."""
        return 2 * self.value + self.weight + 1

    @property
    def denominator(self) -> int:
        """Signed bits of Den less its least."""
        return 2 * self.weight + 1

    @property
    def cross(self) -> int:
        """Signed bits of (Num_j·Den_i - Num_i·Den_j)·2^number + number_i - number_j."""
        return self.numerator + self.denominator + self.number

    @property
    def words(self) -> int:
        """Words w of the ring."""
        return words_of(self.cross)


def added(masked: Words, plain: int, widths: Widths) -> Words:
    """The last party's shares (n, sum_words) modulo P of sums to which a plaintext is added."""
    total = add(masked, numbers([plain % widths.product], widths.sum_words))
    modulus = numbers([widths.product], widths.sum_words)
    return sub(total, np.where(_at_least(total, widths.product)[:, None], modulus, np.uint64(0)))


def lift(side: Side, masked: Words, widths: Widths) -> Rounds[Words]:
    """Shares (slots, n, w) of the numbers in packed sums; two rounds.

    Args:
        masked: shares (n, sum_words) modulo P: at the last party sums plus masks, at the first the masks' negatives.
    """
    w, words, modulus = widths.words, widths.sum_words, numbers([widths.product], widths.sum_words)
    at = list(zip(widths.slots, widths.offsets, strict=True))
    if not side.first:  # what is signed becomes positive, until the end
        masked = add(masked, numbers([sum(1 << offset + bits - 2 for bits, offset in at[: widths.signed])], words))
        masked = sub(masked, np.where(_at_least(masked, widths.product)[:, None], modulus, np.uint64(0)))
    wraps = _at_least(masked, widths.product // 2)
    both = yield from bit_products(side, wraps, words)
    total = mac(masked.copy(), sub(small(wraps, words), both), modulus, minus=True)
    high = np.stack([_segment(total, offset + bits - 1, 1) for bits, offset in at])
    both = yield from bit_products(side, high.ravel(), w)
    carries = sub(small(high, w), both.reshape(*high.shape, w))
    parts = small(np.stack([_segment(total, offset, bits) for bits, offset in at]), w)
    values = mac(parts, carries, numbers([-1 << bits for bits in widths.slots], w)[:, None])
    values[1:] = add(values[1:], carries[:-1])
    if not side.first:
        shifts = numbers([1 << bits - 2 for bits in widths.slots[: widths.signed]], w)[:, None]
        values[: widths.signed] = sub(values[: widths.signed], shifts)
    return values


def deal_lift(dealer: Dealer, n: int, widths: Widths) -> None:
    """Deal `lift`: n·(sum_words + slots·w) words to the first."""
    deal_bit_products(dealer, n, widths.sum_words)
    deal_bit_products(dealer, n * len(widths.slots), widths.words)


def _segment(rows: Words, offset: int, bits: int) -> Words:
    """Some bits of numbers (n, words), at most 63."""
    word, shift = divmod(offset, 64)
    out = rows[:, word] >> np.uint64(shift)
    if shift + bits > 64:
        out = out | rows[:, word + 1] << np.uint64(64 - shift)
    return out & np.uint64((1 << bits) - 1)


def _at_least(rows: Words, least: int) -> Bools:
    """Which numbers (n, words) are at least that."""
    reached = np.ones(len(rows), dtype=bool)
    for word, bound in zip(rows.T, numbers([least], rows.shape[1])[0], strict=True):
        reached = (word > bound) | ((word == bound) & reached)
    return reached
