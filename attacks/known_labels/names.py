"""Names of records by one attack with known labels, as a verdict compares them: record by record, and draw by draw.

The error of an AUC over records is that of its influences: how far one record moves it (DeLong, DeLong and
Clarke-Pearson 1988). Those of two attacks are subtracted, since both name the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

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
        tries: the guesses of which it is the best: where the opposite one counts as well 2, of each class.
        known: some label had to be known.
        told: words for what told the sides of an order of records; may be empty.

    A figure that is the same in all draws stands there once; `right` is empty where records are ordered and not named.
    """

    aucs: Sequence[float]
    firsts: Sequence[float]
    right: Sequence[Floats] = field(repr=False)
    influence: Sequence[Floats] = field(repr=False)
    tries: int = 1
    known: bool = True
    told: str = ""

    @property
    def first(self) -> float:
        """The mean of the draws."""
        return float(np.mean(self.firsts))

    @property
    def auc(self) -> float:
        """The mean of the draws."""
        return float(np.mean(self.aucs))

    @property
    def accuracy(self) -> float:
        """The mean of the draws."""
        return float(np.mean([np.nanmean(draw) for draw in self.right]))


def macro_auc(chances: Floats, truth: Ints, row: Ints | None = None) -> tuple[float, Floats]:
    """The mean AUC of all classes that some but not all records have, each against the others; each one's influence.

    Of two classes both have the same, unless their chances are tied otherwise. ½ where all records are of one class.
    The influence (n,) on the AUC of a class: of a record of it `(V - AUC) / m`, V: the share of other records that it
    comes before (ties half), m: how many records are of the class; of others likewise.

    Args:
        chances: (rows, classes), whose order by each class is found once for all records that share a row.
        truth: (n,) classes.
        row: (n,) of each record its row; None: each has its own.
    """
    aucs, influence = list[float](), np.zeros(len(truth))
    for number in _unlike(chances):
        of_class = truth == number
        inside, outside = int(of_class.sum()), int((~of_class).sum())
        if not inside or not outside:
            continue
        value = np.unique(chances[:, number], return_inverse=True)[1]
        value = value if row is None else value[row]
        counts = np.bincount(value)
        own = np.bincount(value[of_class], minlength=len(counts))
        before, behind = _below(counts - own), inside - _below(own)
        aucs.append(float(own @ before) / (inside * outside))
        moved = np.stack([behind / inside - aucs[-1], before / outside - aucs[-1]]) / [[outside], [inside]]
        influence += moved[of_class.astype(np.int8), value]
    return float(np.mean(aucs)) if aucs else 0.5, influence / max(1, len(aucs))


def _unlike(chances: Floats) -> range:
    """The classes to score: of two whose chances add up to 1 each says the same as the other."""
    same = chances.shape[1] == 2 and bool(np.abs(chances.sum(axis=1) - 1).max(initial=0) < 1e-8)
    return range(1 if same else chances.shape[1])


def _below(counts: Ints) -> Floats:
    """Of each value how many of `counts` records of all values, ascending, are below it, ties half."""
    below: Floats = np.cumsum(counts) - counts / 2
    return below


def named_by(drawn: Iterable[tuple[Ints, Floats, Ints | None]], truth: Ints, rarest: int, first: int) -> Named:
    """The records that an attack names.

    Args:
        drawn: by draw, places of the named records among n, chances (rows, classes), and of each named record its row;
            None: each has its own.
        truth: (n,) classes.
        rarest: the class of which `first` records are named first.
    """
    aucs, firsts, rights, influences = [], [], [], []
    for named, chances, row in drawn:
        right, by_record = truth[named], np.full((2, len(truth)), [[np.nan], [0.0]])
        auc, by_record[1, named] = macro_auc(chances, right, row)
        guess, rare = chances.argmax(axis=1), chances[:, rarest]
        if row is not None:
            guess, rare = guess[row], rare[row]
        by_record[0, named] = guess == right
        aucs.append(auc)
        firsts.append(precision_first(rare, right == rarest, first))
        rights.append(by_record[0])
        influences.append(by_record[1])
    return Named(aucs, firsts, rights, influences)


def precision_first(chances: Floats, right: npt.NDArray[np.bool_], first: int) -> float:
    """The share that is right among the `first` records with the largest chances (n,); the mean over orders of ties."""
    first = min(first, len(chances))
    least = np.partition(chances, len(chances) - first)[len(chances) - first]
    above, tied = chances > least, chances == least
    places = first - int(above.sum())
    return float((right[above].sum() + places * right[tied].mean()) / first)
