"""Cuts that the owner of a column lists: its bins then follow from no cell.

A value equal to a cut lies above it. A column with such cuts is neither refused nor dropped as constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field

from treetap.names import did_you_mean, named_by
from treetap.strict import Strict

#: The key of a table's settings.
CUTS = "cuts"


def _ascending(cuts: list[float]) -> list[float]:
    """Refuse cuts that are not finite, or do not increase."""
    if strange := [cut for cut in cuts if not math.isfinite(cut)]:
        raise ValueError(f"has the cut {strange[0]}: write finite numbers")
    for lower, upper in pairwise(cuts):
        if not lower < upper:
            raise ValueError(f"has the cut {upper:g} behind {lower:g}: list each once, in increasing order")
    return cuts


class PublicCuts(Strict):
    """The settings of a table whose columns may have listed cuts."""

    cuts: dict[str, Annotated[list[float], Field(min_length=1), AfterValidator(_ascending)]] = {}
    """Column of numbers, or of days since 1970-01-01 → its increasing cuts, in the place of quantiles of its cells: at
    most max_bin − 1. A value equal to a cut lies above it.
    """

    def check_cuts(self, columns: Sequence[str] | None) -> None:
        """Raise ValueError for the first column with cuts that is none of these; None: they have no names yet."""
        for name in self.cuts:
            if columns is None:
                raise ValueError(f"{CUTS} names {name!r}, and columns are drawn by share: give columns = [...]")
            if not named_by(columns, name):
                meant = did_you_mean(name, columns)
                raise ValueError(f"{CUTS} names {name!r}, which is none of the feature columns{meant}")

    def check_bins(self, max_bin: int) -> None:
        """Raise ValueError for the first column whose cuts make more bins than a job has."""
        for name, cuts in self.cuts.items():
            if len(cuts) >= max_bin:
                raise ValueError(
                    f"{CUTS} of column {name!r} make {len(cuts) + 1} bins, and max_bin of the job is {max_bin}: list "
                    f"at most {max_bin - 1}, or raise max_bin"
                )
