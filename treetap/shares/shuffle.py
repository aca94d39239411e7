"""Shuffles: rows of shares in an order that neither party knows; masked openings of shares.

1. The last party sends its shares less masks a.
2. The first adds its own shares, permutes by π₁, adds masks d, and sends.
3. The last permutes by π₂ and adds the dealer's π₂(π₁(a) - d) - p. It has π₂(π₁(x)) - p: of columns to be opened it
   sends that to the first, of the others it is its share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treetap.arrays import Array, Ints, Words
from treetap.native.rings import add, sub
from treetap.shares.streams import Dealer, Rounds, Side, swap, trade


class Masked(NamedTuple):
    """Numbers less their masks, which both parties have, and a party's shares of the masks; equal shapes."""

    opened: Words
    masks: Words

    def shares(self, side: Side) -> Words:
        """Shares of the numbers themselves."""
        return self.masks if side.first else add(self.opened, self.masks)


class Shuffled(NamedTuple):
    """Columns in the new order, as `shuffle` takes them, and a party's own permutation (nodes, n)."""

    opened: Masked
    kept: Words
    own: Words
    order: Ints


def take(rows: Array, places: Ints) -> Array:
    """Rows (..., nodes, m, w) at places (nodes, m) of rows (..., nodes, n, w)."""
    *columns, nodes, n, w = rows.shape
    taken: Array = np.take(rows.reshape(*columns, nodes * n, w), places + n * np.arange(nodes)[:, None], axis=-2)
    return taken


def shuffle(side: Side, opened: Words, kept: Words, own: Words) -> Rounds[Shuffled]:
    """Both parties' permutations of shares, three rounds of one message each.

    Args:
        opened: columns (columns, nodes, n, w) of which masked openings become.
        kept: columns (columns, nodes, n, words) that stay shares.
        own: the first party's own numbers (nodes, n, w); at the last of any content.
    """
    shapes = [opened.shape, kept.shape, own.shape]
    order = side.stream.permutations(*own.shape[:2])
    p = side.stream.words(*opened.shape)
    a = [side.stream.words(*shape) for shape in shapes]
    if side.first:
        shares = [side.stream.words(*shape) for shape in shapes[1:]]
        got = yield from trade([], shapes[:2])
        full = [*(add(*pair) for pair in zip(got, (opened, kept), strict=True)), own]
        yield from trade([add(take(x, order), mask) for x, mask in zip(full, a, strict=True)], [])
        (e,) = yield from trade([], shapes[:1])
        return Shuffled(Masked(e, p), shares[0], shares[1], order)
    dealt = [side.dealt(*shape) for shape in shapes]
    yield from trade([sub(opened, a[0]), sub(kept, a[1])], [])
    got = yield from trade([], shapes)
    e, *shares = (add(take(x, order), more) for x, more in zip(got, dealt, strict=True))
    yield from trade([e], [])
    return Shuffled(Masked(e, p), shares[0], shares[1], order)


def deal_shuffle(dealer: Dealer, columns: int, kept: int, nodes: int, n: int, w: int) -> Words:
    """Deal `shuffle`: (columns·w + kept + w)·nodes·n words to the last, kept columns of one word; the masks."""
    shapes = [(columns, nodes, n, w), (kept, nodes, n, 1), (nodes, n, w)]
    orders = [stream.permutations(nodes, n) for stream in (dealer.last, dealer.first)]
    p = add(*(stream.words(*shapes[0]) for stream in (dealer.last, dealer.first)))
    masks, d = ([stream.words(*shape) for shape in shapes] for stream in (dealer.last, dealer.first))
    masks[2] = np.zeros_like(d[2])  # nothing of the last party's is in it
    shares = [p, *(dealer.first.words(*shape) for shape in shapes[1:])]
    for mask, d_, share in zip(masks, d, shares, strict=True):
        dealer.give(sub(take(sub(take(mask, orders[1]), d_), orders[0]), share), first=False)
    return p


def open_masked(side: Side, shares: Words) -> Rounds[Masked]:
    """Masked openings of shares with fresh masks."""
    masks = side.stream.words(*shares.shape)
    mine = sub(shares, masks)
    return Masked(add(mine, (yield from swap(mine))), masks)


def deal_open_masked(dealer: Dealer, *shape: int) -> Words:
    """Deal `open_masked`; the masks."""
    return add(dealer.last.words(*shape), dealer.first.words(*shape))
