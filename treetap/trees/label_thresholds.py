"""Which candidates and nodes the parties' numbers of labelled records permit (PIVODL, Algorithm 2, line 24).

With a sum over very few of its labelled records a party would show their labels. The paper compares the left side of a
candidate, at parties other than the source. Here both sides count, since a right side is the node without the left one,
and the source counts too: its split party could otherwise open sums over a single record of the source.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def permits(left: Ints, total: int, threshold: int, *, paper: bool = False) -> Bools:
    """The mask (candidates,) of those that one party's threshold permits.

    Args:
        left: (candidates,) the party's labelled records on the left side of each.
        total: its labelled records in the node; a party without any permits all.
        paper: compare left sides alone, and have a party without labelled records permit none.
    """
    if paper:
        return left >= threshold
    if total == 0:
        return np.ones(len(left), dtype=bool)
    return (left >= threshold) & (total - left >= threshold)


def admissible(
    lefts: Mapping[str, Ints], totals: Mapping[str, int], source: str, threshold: int, *, paper: bool = False
) -> Bools:
    """The mask (candidates,) of a source's candidates that all parties with labels permit.

    Args:
        lefts, totals: as `left` and `total` of `permits`, by party with labels.
    """
    asked = [party for party in lefts if not (paper and party == source)]
    found = np.ones(len(next(iter(lefts.values()))), dtype=bool)
    for party in asked:
        found &= permits(lefts[party], totals[party], threshold, paper=paper)
    return found


def stopped_by(totals: Mapping[str, int], threshold: int) -> list[str]:
    """The parties with labelled records in a node, but too few for both sides of any candidate."""
    return [party for party, total in totals.items() if 0 < total < 2 * threshold]
