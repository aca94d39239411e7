"""Names of records by one attack with known labels, as a verdict compares them: record by record, and draw by draw.

The error of an AUC over records is that of its influences: how far one record moves it (DeLong, DeLong and
Clarke-Pearson 1988). Those of two attacks are subtracted, since both name the same records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Named:
    """Names of records by one attack and one kind of rows, by draw.

    Attributes:
        aucs: by draw.
        firsts: by draw, the share of the rarest class among the first.
        right: by draw (n,): 1 named right, 0 wrong, NaN: known, and not named.
        influence: by draw (n,): of each record on the AUC, 0 of a known one.
    """

    aucs: Sequence[float]
    firsts: Sequence[float]
    right: Sequence[Floats] = field(repr=False)
    influence: Sequence[Floats] = field(repr=False)

    @property
    def auc(self) -> float:
        """The mean of the draws."""
        return float(np.mean(self.aucs))

    @property
    def accuracy(self) -> float:
        """The mean of the draws."""
        return float(np.mean([np.nanmean(draw) for draw in self.right]))


def auc_influence(chances: Floats, truth: Ints) -> Floats:
    """The influence (n,) of each record on the mean AUC of all classes (n, classes) that some records have, not all.

    Of a class: of a record of it `(V - AUC) / m`, V: the share of other records that it comes before (ties half), m:
    how many records are of the class; of others likewise.
    """
    influence, scored = np.zeros(len(truth)), 0
    for number in range(chances.shape[1]):
        of_class = truth == number
        inside, outside = int(of_class.sum()), int((~of_class).sum())
        if not inside or not outside:
            continue
        column, scored = chances[:, number], scored + 1
        every = rankdata(column)
        before = (every[of_class] - rankdata(column[of_class])) / outside
        behind = 1 - (every[~of_class] - rankdata(column[~of_class])) / inside
        influence[of_class] += (before - before.mean()) / inside
        influence[~of_class] += (behind - behind.mean()) / outside
    return influence / max(1, scored)
