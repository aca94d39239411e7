"""Products in rings of 64·w bits: of bits that a party holds itself, and those of which scores are made.

Each operation has its dealing beside it. Shares add up to a number; a mask is a dealt number of which both parties have
shares, and what is opened is a number less its mask.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import numpy as np

from treetap.arrays import Array, Words
from treetap.native.rings import add, mac, mul, sub
from treetap.shares.streams import Dealer, Rounds, Side, packed, swap, trade, unpacked, words_of


def numbers(values: Iterable[int], w: int) -> Words:
    """Integers as numbers of w words, (n, w)."""
    modulus = 1 << 64 * w
    raw = b"".join((int(value) % modulus).to_bytes(8 * w, "little") for value in values)
    return np.frombuffer(raw, np.uint64).reshape(-1, w)


def small(values: Array, w: int) -> Words:
    """Signed 64-bit integers as numbers of w words."""
    values = np.asarray(values, np.int64)
    out = np.empty((*values.shape, w), np.int64)
    out[..., 0], out[..., 1:] = values, (values >> 63)[..., None]
    return out.view(np.uint64)


# ---- products of bits


def bit_products(side: Side, mine: Array, w: int) -> Rounds[Words]:
    """Shares (n, w) of the products of this party's bits (n,) and its peer's."""
    n = len(mine)
    mask, share = side.stream.words(words_of(n)), side.share(n, w)
    d = packed(mine) ^ mask
    e = yield from swap(d)
    flips, own, alpha, other = (unpacked(words, n).astype(np.int64) for words in (d ^ e, d, mask, e))
    # (d ⊕ α)(e ⊕ β) = de + e(1 - 2d)α + d(1 - 2e)β + (1 - 2d)(1 - 2e)αβ: a party has the term of its own mask
    alone = other * (1 - 2 * own) * alpha + (own & other if side.first else 0)
    return add(np.where(flips[:, None] > 0, sub(np.zeros_like(share), share), share), small(alone, w))


def deal_bit_products(dealer: Dealer, n: int, w: int) -> None:
    """Deal `bit_products`: n·w words to the first."""
    both = dealer.last.words(words_of(n)) & dealer.first.words(words_of(n))
    dealer.give(sub(small(unpacked(both, n), w), dealer.last.words(n, w)))


# ---- scores


def scores(side: Side, x: Words, y: Words, whole: Words, target: Words) -> Rounds[tuple[Words, Words]]:
    """Shares of Num = Σ_k (A·x_k² - 2·G_k·x_k·y) + Σ_k G_k²·y and Den = A·y - y², each (nodes, n, w).

    Their quotient is Σ_k x_k²/y + (G_k - x_k)²/(A - y): of boosting with x = Σg, y = Σh + λ′ and A = H + 2λ′; of Gini's
    impurity with x_k = a class's records, y = all records.

    Args:
        x: shares (targets, nodes, n, w).
        y: shares (nodes, n, w).
        whole, target: A (nodes, 1, w) and G (targets, nodes, 1, w), the last party's own, zeros at the first.
    """
    targets, nodes, n, w = x.shape
    a, b = side.stream.words(targets, nodes, n, w), side.stream.words(nodes, n, w)
    alpha, gamma = np.zeros_like(whole), np.zeros_like(target)
    if not side.first:
        alpha, gamma = side.stream.words(*whole.shape), side.stream.words(*target.shape)
    ab, alpha_a, gamma_b = side.share(3, targets, nodes, n, w)
    aa, beta, gamma_a, rest = side.share(4, nodes, n, w)
    mine = np.concatenate([sub(x, a), sub(y, b)[None]])
    own = np.concatenate([sub(target, gamma), sub(whole, alpha)[None]])
    theirs, *rows = yield from trade([mine] if side.first else [mine, own], [mine.shape, own.shape][: 1 + side.first])
    opened, own = add(mine, theirs), rows[0] if side.first else own
    ex, ey, eg, ea = opened[:-1], opened[-1], own[:-1], own[-1]
    # A·y - y², with A = ea + α and y = ey + b: β is the share of αb - b²
    den = mac(beta.copy(), ea, b)
    mac(den, add(ey, ey), b, True)
    num, twice = mac(rest.copy(), ea, aa), mac(np.zeros_like(ey), ey, gamma_a, True)  # num + 2·twice
    whole = add(ea, alpha)
    if not side.first:
        mac(den, ey, sub(whole, ey))
    for k, (x_k, g_k) in enumerate(zip(ex, eg, strict=True)):
        of_x = mac(mac(sub(alpha_a[k], gamma_b[k]), ea, a[k]), g_k, b, True)
        of_g = mac(sub(gamma_b[k], ab[k]), ey, a[k], True)
        if not side.first:
            both = add(g_k, gamma[k])  # G_k itself
            mac(num, mul(x_k, x_k), whole)
            mac(num, mul(both, ey), sub(both, add(x_k, x_k)))
        mac(num, mul(g_k, g_k), b)
        mac(twice, x_k, of_x)
        mac(twice, g_k, of_g)
    return add(num, add(twice, twice)), den


def deal_scores(dealer: Dealer, targets: int, nodes: int, n: int, w: int) -> None:
    """Deal `scores`: (3·targets + 4)·nodes·n·w words to the first."""
    masks = [(stream.words(targets, nodes, n, w), stream.words(nodes, n, w)) for stream in (dealer.last, dealer.first)]
    a, b = (add(*pair) for pair in zip(*masks, strict=True))
    alpha, gamma = dealer.last.words(nodes, 1, w), dealer.last.words(targets, nodes, 1, w)
    ab, gamma_b, aa, gamma_a = mul(a, b), mul(gamma, b), mul(a, a), mul(gamma, a)
    rest = [mac(mul(alpha, aa[k]), gamma[k], sub(gamma_b[k], add(ab[k], ab[k]))) for k in range(targets)]
    dealer.give(sub(np.stack([ab, mul(alpha, a), gamma_b]), dealer.last.words(3, targets, nodes, n, w)))
    sums = np.stack([reduce(add, aa), mac(mul(alpha, b), b, b, True), reduce(add, gamma_a), reduce(add, rest)])
    dealer.give(sub(sums, dealer.last.words(4, nodes, n, w)))
