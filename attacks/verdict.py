"""The verdict: what a party could guess before a training and can guess after it, and a word for the difference.

Before: without the training, by its own columns or by always naming the most frequent class (of columns: bin). After:
with all that it was sent, and never less than before, which it can do anyway. The word is of the gain as a share of
what was left to guess, `(after - before) / (1 - before)`, and of the gain's interval of 95 %:

- nothing found: the interval reaches down to no gain at all;
- little: at most 5 % of what was left; notable: at most 20 %; severe: more.

The interval is `gain ± z · error`. The error is of the difference between the two guesses, record by record, since both
are of the same records. The best of several attacks, each after several numbers of trees, is good by luck too: z is
that of 5 % divided by all of these tries (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import NormalDist
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.schema import Count, Findings

Word = Literal["nothing found", "little", "notable", "severe", "not measured"]
#: The words from the best verdict to the worst.
WORDS: tuple[Word, ...] = get_args(Word)[:-1]
#: Most of what was left for the words "little" and "notable".
LITTLE, NOTABLE = 0.05, 0.2
#: Probability that the interval misses the gain.
MISSED = 0.05
#: A table is unbalanced if its rarest class has less than this part of an equal share.
RARE = 0.5
#: Words for the guess that needs no column.
MOST_FREQUENT = "the most frequent class"
#: Of PIVODL the parties whose labels one of them could learn.
OTHERS = "other parties"
#: Rounding that no border depends on.
_TINY = 1e-9

Measure = Literal["accuracy", "AUC", "explained"]
#: A direction; of a published model also who the members of its training were.
Learned = Literal["labels", "columns", "members"]


class FirstNamed(Findings):
    """The records that an attack would name `first` for class `rarest`: those that are right before and after the
    training, and by chance; means over draws of known labels.
    """

    first: Count
    rarest: str
    before: float
    after: float
    chance: float


class Compared(Findings):
    """A guess without the training beside one with it.

    `measure`: `accuracy`, the share of labels or cells that are right; `AUC`; `explained`, of columns: the mean over
    them of R², of networks' columns of classes of accuracy. `reached`: the best attack's figure, maybe below `before`.
    `error`: the standard error of `reached - before`. `tries`: the guesses of which the best one is here. `known`:
    labels that the attacker is assumed to know; null: none. `drawn`: the part of the error by their draws. `details`:
    the section of the report. `floor`: a sentence where a larger attack reads more; may be empty.
    """

    measure: Measure
    before: float = Field(ge=0, le=1)
    before_how: str
    reached: float
    reached_how: str
    error: float = Field(ge=0)
    tries: int = Field(ge=1)
    known: Count | None = None
    drawn: float | None = None
    first: FirstNamed | None = None
    details: str
    floor: str = ""

    @property
    def after(self) -> float:
        """The party's guess with the training: at least what it could before."""
        return max(self.before, self.reached)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the gain."""
        half = half_width(self.error, self.tries)
        return self.reached - self.before - half, self.reached - self.before + half

    @property
    def share(self) -> float:
        """The gain as a share of what was left to guess; 0 where nothing was left."""
        return (self.after - self.before) / (1 - self.before) if self.before < 1 else 0.0

    @property
    def word(self) -> Word:
        """The word of this comparison."""
        return word_of(self.share, self.interval[0])


def word_of(share: float, low: float) -> Word:
    """The word of a gain as a share of what was left; `low`: the lower end of the gain's interval."""
    if low <= 0 or share <= 0:
        return "nothing found"
    if share <= LITTLE + _TINY:
        return "little"
    return "notable" if share <= NOTABLE + _TINY else "severe"


class Verdict(Findings):
    """The verdict on what one party learned of the labels or of another party's columns.

    `of`: the party that has them. Figures are null, and `reason` says why, where nothing was measured. `gain`: `after`
    less `before`; `low`, `high`: its interval; `share`: of what was left to guess. `floor` is empty where `after` is no
    floor. `other`: of columns the comparison by the other measure, whose word is no worse. `placed`: of columns in an
    additive model what left sets alone place, tree by tree, as a sentence. The others as in `Compared`.
    """

    OMITTED: ClassVar = ("first", "known", "drawn", "other", "placed")

    party: str
    learned: Learned
    of: str
    word: Word
    measure: Measure | None = None
    before: float | None = None
    before_how: str = ""
    after: float | None = None
    after_how: str = ""
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    share: float | None = None
    known: Count | None = None
    drawn: float | None = None
    first: FirstNamed | None = None
    details: str
    other: Compared | None = None
    placed: str | None = None
    reason: str = ""
    floor: str = ""

    @property
    def rank(self) -> int:
        """Its place among the words from the best to the worst; -1 where nothing was measured."""
        return WORDS.index(self.word) if self.word in WORDS else -1


def judged(
    party: str,
    learned: Learned,
    of: str,
    compared: Sequence[Compared],
    *,
    reason: str,
    details: str,
) -> Verdict:
    """The verdict by the comparison whose word is worst, of several the one that gained the largest share.

    `reason`, `details`: why nothing was measured, and the section that says more, where there is no comparison.
    """
    if not compared:
        return Verdict(party=party, learned=learned, of=of, word="not measured", reason=reason, details=details)
    worst = max(compared, key=lambda it: (WORDS.index(it.word), it.share))
    low, high = worst.interval
    how = worst.reached_how
    if worst.reached < worst.before:
        how = f"the training adds nothing: {how} reaches {worst.reached:.3f}"
    return Verdict(
        party=party,
        learned=learned,
        of=of,
        word=worst.word,
        measure=worst.measure,
        before=worst.before,
        before_how=worst.before_how,
        after=worst.after,
        after_how=how,
        gain=worst.after - worst.before,
        low=low,
        high=high,
        share=worst.share,
        known=worst.known,
        drawn=worst.drawn,
        first=worst.first,
        details=worst.details,
        floor=worst.floor,
    )


def best_of(compared: Sequence[Compared]) -> Compared:
    """The best guess with the training of several comparisons of one measure, beside the best one without it.

    Where these are of two comparisons the error is the larger one of the two. A gain that is found is thus found in the
    first one too, whose guess without the training is no better: chance alone is taken for a leak no more often.
    """
    best, own = max(compared, key=lambda it: it.reached), max(compared, key=lambda it: it.before)
    labels = {} if best.known is not None else {"known": own.known, "drawn": own.drawn}
    return best.model_copy(
        update={
            **labels,
            "before": own.before,
            "before_how": own.before_how,
            "error": max(best.error, own.error),
            "tries": sum(it.tries for it in compared),
            "floor": "; ".join(dict.fromkeys(it.floor for it in compared if it.floor)),
        }
    )


def unbalanced(counts: Iterable[int]) -> bool:
    """True if the rarest class has less than half of an equal share, of two classes less than a quarter.

    Accuracy then says little: always naming the most frequent class is right for most records.
    """
    sizes = [size for size in counts if size]
    return bool(sizes) and min(sizes) < RARE * sum(sizes) / len(sizes)


def paired_error(differences: npt.ArrayLike) -> float:
    """The standard error of a mean difference over records (N,), each between -1 and 1.

    Half a record is added to each of the four cases right or wrong, before or after (Agresti, Min 2005, "Simple
    improved confidence intervals for comparing matched proportions"): else the error of few differences is too small.
    """
    values = np.asarray(differences, dtype=np.float64)
    many = len(values) + 2
    return sqrt(max(0.0, ((values**2).sum() + 1) / many - (values.sum() / many) ** 2) / many)


def half_width(error: float, tries: int) -> float:
    """Half of the interval of a gain with this standard error, the best of this number of tries."""
    return -NormalDist().inv_cdf(MISSED / 2 / tries) * error


def drawn_error(by_draw: Sequence[float]) -> float:
    """The standard error of the mean of few draws' figures, widened as Student's t is beside the normal; 0 of one."""
    if len(by_draw) < 2:
        return 0.0
    from scipy.special import stdtrit

    wider = stdtrit(len(by_draw) - 1, 1 - MISSED / 2) / NormalDist().inv_cdf(1 - MISSED / 2)
    return float(wider * np.std(by_draw, ddof=1)) / sqrt(len(by_draw))


def compared_right(truth: Ints, right: Mapping[str, Bools], own: Bools | None, *, tries: int, details: str) -> Compared:
    """The guess that names most records right beside that of own columns or the most frequent class.

    `right`: how → (n,) the records that a guess names right; `own`: those of a guess by own columns.
    """
    before, how = truth == np.bincount(truth).argmax(), MOST_FREQUENT
    if own is not None and own.mean() > before.mean():
        before, how = own, "own columns"
    best = max(right, key=lambda way: right[way].mean())
    return Compared(
        measure="accuracy",
        before=float(before.mean()),
        before_how=how,
        reached=float(right[best].mean()),
        reached_how=best,
        error=paired_error(right[best].astype(np.int64) - before),
        tries=tries,
        details=details,
    )


def cells_right(guesses: Mapping[str, Ints], codes: Ints, possible: Sequence[Bools] | None = None) -> dict[str, Floats]:
    """How → (N,) the share of each record's cells that a guess of all cells names rightly.

    Args:
        guesses: how → the bins (N, d) that an attacker claims; -1: no claim.
        codes: (N, d) the true bins.
        possible: of each column (N, bins) those that left sets do not exclude; None: all. Where nothing is claimed, or
            an excluded bin, the most frequent one of these is named.
    """
    counts = [np.bincount(column) for column in codes.T]
    named, whole = np.empty_like(codes), {how: claimed.copy() for how, claimed in guesses.items()}
    for column, sizes in enumerate(counts):
        if possible is None:
            named[:, column] = sizes.argmax()
            continue
        left = possible[column]
        by_size = np.argsort(-np.pad(sizes, (0, left.shape[1] - len(sizes))), kind="stable")
        named[:, column] = by_size[left[:, by_size].argmax(axis=1)]
        for claimed in whole.values():
            bins = claimed[:, column]
            bins[~np.take_along_axis(left, np.maximum(bins, 0)[:, None], axis=1)[:, 0]] = -1
    return {how: (np.where(bins < 0, named, bins) == codes).mean(axis=1) for how, bins in whole.items()}


def compared_cells(
    guesses: Mapping[str, Ints], codes: Ints, details: str, possible: Sequence[Bools] | None = None
) -> Compared | None:
    """The best guess of a party's cells beside naming each column's most frequent bin; None without a cell.

    Of the arguments see `cells_right`.
    """
    if not codes.size or not guesses:
        return None
    before = cells_right({"": np.full_like(codes, -1)}, codes)[""]
    right = cells_right(guesses, codes, possible)
    best = max(right, key=lambda how: float(right[how].mean()))
    return Compared(
        measure="accuracy",
        before=float(before.mean()),
        before_how="the most frequent bin",
        reached=float(right[best].mean()),
        reached_how=best,
        error=paired_error(right[best] - before),
        tries=len(guesses),
        details=details,
    )


def compared_places(
    expected: Mapping[str, Floats], codes: Ints, numbers: Sequence[int], details: str
) -> Compared | None:
    """The variance of the places of a party's cells that the best estimate explains; None without a column of numbers.

    The mean over columns of R² of a line through the expected places, at least 0: an estimate that falls where places
    rise explains nothing. Before the training each column's mean place is known, which explains nothing either.

    Args:
        expected: how → (N, d) the expected places, each column in a unit of its own.
        codes: (N, d) the true bins, in the order of their values.
        numbers: the columns of numbers; of these all that are not constant count.
    """
    from_mean = {j: codes[:, j] - codes[:, j].mean() for j in numbers if np.ptp(codes[:, j]) > 0}
    if not from_mean or not expected:
        return None
    explained: dict[str, Floats] = {}
    for how, places in expected.items():
        explained[how] = np.zeros(len(codes))
        for column, true in from_mean.items():
            place = places[:, column] - places[:, column].mean()
            if (slope := float(place @ true) / max(float(place @ place), _TINY)) > 0:
                explained[how] += (true**2 - (true - slope * place) ** 2) / (true**2).mean() / len(from_mean)
    best = max(explained, key=lambda how: float(explained[how].mean()))
    return Compared(
        measure="explained",
        before=0.0,
        before_how="the mean bin",
        reached=min(1.0, float(explained[best].mean())),
        reached_how=best,
        error=paired_error(explained[best]),
        tries=len(expected),
        details=details,
    )
