"""Harrell's index of concordance: how far predictions have the order of times, known exactly or by bounds alone."""

from __future__ import annotations

import numpy as np

from treetap.arrays import Array, Floats, Ints


def bounds_of(labels: Array) -> Floats:
    """Bounds (N, 2) of times: those given, or of times (N,) that are less than 0 where a record was censored."""
    times = np.asarray(labels, dtype=np.float64)
    return times if times.ndim == 2 else np.stack([np.abs(times), np.where(times > 0, times, np.inf)], axis=1)


def concordance(expected: Floats, bounds: Floats, weights: Array | None = None) -> float:
    """The share of comparable pairs of records whose expected times (N,), in any unit, have the order of their times.

    A pair is comparable if the upper bound of one is not above the lower bound of the other, and they are no two events
    of one time. Equal expectations count half; a pair has the product of two weights (N,). NaN without such pairs. In
    O(N log N).
    """
    lower, upper = bounds.T
    ended, count = np.flatnonzero(np.isfinite(upper)), len(expected)
    rows = np.r_[np.arange(count), ended]  # each record as the later one of pairs, those that ended as earlier ones too
    own, first = (np.ones(count) if weights is None else np.asarray(weights))[rows], np.arange(len(rows)) >= count
    later, earlier = np.where(first, 0.0, own), np.where(first, own, 0.0)
    times, beyond = np.where(first, upper[rows], lower[rows]), ~first & (upper > lower)[rows]
    from_the_last, places = np.lexsort((first, beyond, times))[::-1], np.empty(len(rows), dtype=np.int64)
    places[from_the_last] = np.arange(len(rows))
    pairs = float((np.cumsum(later[from_the_last]) * earlier[from_the_last]).sum())
    values = np.asarray(expected)[rows]
    wrong = (_pairs(np.lexsort((tied, values)), places, later, earlier) for tied in (first, ~first))
    return 1.0 - sum(wrong) / 2.0 / pairs if pairs else float("nan")


def _pairs(order: Ints, places: Ints, first: Floats, second: Floats) -> float:
    """Σ first_i · second_j over pairs of which i comes before j both in an order (M,) and by the places (M,), 0..M−1.

    Places are sorted bit by bit from the highest: of a block that has its higher bits in common one half comes before
    the other, and in each the order is kept.
    """
    places, both, total = places[order], np.stack([first, second])[:, order], 0.0
    position = np.arange(len(places))
    for bit in reversed(range(len(places).bit_length())):
        begin, right = places >> (bit + 1) << (bit + 1), (places >> bit & 1).astype(bool)
        reached = np.r_[0.0, np.cumsum(np.where(right, 0.0, both[0]))]
        total += float((both[1] * (reached[1:] - reached[begin]))[right].sum())
        lefts = np.cumsum(~right) - begin // 2
        sorting = np.empty_like(position)
        sorting[np.where(right, position + (1 << bit) - lefts, begin + lefts - 1)] = position
        places, both = places[sorting], both[:, sorting]
    return total
