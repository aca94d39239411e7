"""What a feature party's columns would add to the label holder's own score: figures of one round of sums at the root.

Of each bin of a column there are five exact sums over its records: g and h at the label holder's own score, their
number, and how many are of each class. Of these follow, column by column,

- the *weight of evidence* of a bin, WOE = ln(share of the good in it / share of the bad in it), with half a record more
  of either where one is missing, and the *information value*, IV = Σ (share of the good − share of the bad) WOE, less
  the (bins − 1)(1/good + 1/bad) that a column of pure noise has on average (Siddiqi 2006). Bad is the second class;
- its *gain*, in nats of log loss a record: half of Σ G²/H over bins, as a tree's root finds it, less what noise has:
  beyond the own score by g and h, alone by the numbers of both classes, at one score for all;
- its *redundancy*, 1 less the gain beyond the own score by the gain alone.

Bins join neighbours until each has Σh ≥ 5, so that G²/H has nearly the χ² distribution of independent labels; where own
scores err more than they say, G² is divided by Σg²/Σh. A party's columns depend on each other as they like, hence its
p-values come together by Cauchy's law, which bears that (Liu and Xie 2020).

Where sums are shared only those of one side of a party's best cut are opened, with Σh ≥ 5 on either side. Of it a gain
beyond the own score follows, of a χ² with one degree of freedom that is the largest of m. Whatever these have to do
with each other, it exceeds a value with at most m times the chance of one, and noise has on average at most
1 + 2 m b φ(b), where one exceeds b² with a chance of 1/m. There is no interval: `added_auc` is of all columns.

The own score is out of fold: of each fifth of the records a model of the others', scaled by a logistic curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.binning import BinnedTable
from treetap.trees.candidates import CandidateList, Kind, Shape
from treetap.trees.centralised import train
from treetap.trees.loss import UNIT
from treetap.trees.metrics import auc
from treetap.trees.params import LEAST_H, OWN_MODEL

#: Parts of the records, each scored by a model of the others.
FOLDS = 5
#: Fewest records of a class: each fold has to learn both.
FEWEST_OF_CLASS = 2 * FOLDS
#: How often a party of pure noise may seem to add something.
LEVEL = 0.04
#: Columns of a sum: g and h in fixed point, the records, and those of the good and of the bad class.
G, H, RECORDS, GOOD, BAD = range(5)
#: Factors of the ends of `added_auc`: `benchmarks/screening.py` fits them to tables whose joint models are known, and
#: tries each table by the others' (docs/screen.md). The estimate has none; the median of its own is 0.99.
LOW, HIGH = 0.298, 11.24
_NORMAL = NormalDist()
NINE_IN_TEN = _NORMAL.inv_cdf(0.95)
_WORDS = dict(enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"), start=1))


@dataclass(frozen=True)
class Own:
    """The label holder's own score: records of both classes, its AUC, and sums over all records.

    Attributes:
        g, h: Σg and Σh.
        spread: Σg² / Σh, 1 where the score is as uncertain as it says.
    """

    good: int
    bad: int
    auc: float
    g: float
    h: float
    spread: float


@dataclass(frozen=True)
class Bin:
    """A bin with records: their number, how many are of the bad class, the weight of evidence."""

    records: int
    bad: int
    woe: float


@dataclass(frozen=True)
class Column:
    """The figures of one column of a feature party; see the module.

    Attributes:
        number: its handle, from 1 in the order of the party's sums; `name`: where its party tells it, else empty.
        missing_share: of the records.
        gain_alone, gain_beyond: nats a record; `error`: the standard error of the latter.
        redundancy: from 0 to 1; None where the column gains nothing alone.
        p_value: of so large a gain beyond the own score where there is none.
        bins: that of missing values last, if there are some.
    """

    number: int
    name: str
    missing_share: float
    iv: float
    gain_alone: float
    gain_beyond: float
    error: float
    redundancy: float | None
    p_value: float
    bins: list[Bin]


@dataclass(frozen=True)
class Screened:
    """The figures of one feature party.

    Attributes:
        p_value: of all its columns together.
        added_auc: beyond the own score: the estimate, and the ends of its interval; None: nothing was found.
        carried_by: the fewest columns that have more than half of the gain.
        said: the sentence.
    """

    party: str
    columns: list[Column]
    p_value: float
    added_auc: tuple[float, float, float] | None
    carried_by: int
    said: str


@dataclass(frozen=True)
class BestCut:
    """The figures of a feature party's best cut, where sums are shared; nobody knows of which column it is.

    Attributes:
        cuts: how many were compared.
        gain_beyond: nats a record, less what noise has on average at most.
        p_value: at most, of so large a gain of any of the cuts where there is none.
        said: the sentence.
    """

    party: str
    cuts: int
    gain_beyond: float
    p_value: float
    said: str


def own_scores(table: BinnedTable, labels: Ints, seed: int = 0) -> Floats:
    """Probabilities (N,) of class 1 by the label holder's own columns, each of a model that has not seen the record.

    `labels` (N,): 0 or 1, of each class at least `FEWEST_OF_CLASS`. Without columns it is the share of class 1.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    fold = np.empty(len(labels), dtype=np.int64)
    for value in (0, 1):  # equal shares of either class in every fold
        of_class = order[labels[order] == value]
        fold[of_class] = np.arange(len(of_class)) % FOLDS
    margins = np.zeros(len(labels))
    for number in range(FOLDS) if table.features else ():
        rest, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        model = train([("own", BinnedTable(table.codes[rest], table.features))], labels[rest], OWN_MODEL)
        margins[held] = model.predict([("own", BinnedTable(table.codes[held], table.features))])[:, 0]
    return _scaled(margins, labels)


def _scaled(margins: Floats, labels: Ints) -> Floats:
    """Probabilities by a logistic curve of the margins (Platt), with Laplace's targets, by Newton's steps."""
    bad = int(labels.sum())
    good = len(labels) - bad
    target = np.where(labels == 1, (bad + 1) / (bad + 2), 1 / (good + 2))
    columns = np.column_stack([np.ones(len(margins)), margins - margins.mean()])
    columns = columns if margins.std() > 0 else columns[:, :1]
    weights = np.zeros(columns.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-columns @ weights))
        h = np.maximum(p * (1 - p), 1e-12)
        curvature = columns.T @ (columns * h[:, None]) + 1e-9 * np.eye(len(weights))
        step = np.linalg.solve(curvature, columns.T @ (p - target))
        weights -= np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-10:
            break
    scaled: Floats = 1 / (1 + np.exp(-columns @ weights))
    return scaled


def values_of(scores: Floats, labels: Ints) -> Ints:
    """What is summed of each record, (N, 5) int64: see `G`, `H` and those after them; g and h in units of 2^-32."""
    one = np.ones(len(labels), dtype=np.int64)
    g = np.rint((scores - labels) * UNIT).astype(np.int64)
    h = np.maximum(np.rint(scores * (1 - scores) * UNIT).astype(np.int64), 1)
    return np.column_stack([g, h, one, labels == 0, labels == 1]).astype(np.int64)


def own_of(scores: Floats, values: Ints) -> Own:
    """The label holder's own score (N,) in figures, by what is summed of its records, (N, 5)."""
    g, h, _, good, bad = (values.sum(axis=0) / np.array([UNIT, UNIT, 1, 1, 1])).tolist()
    spread = float(((values[:, G] / UNIT) ** 2).sum()) / h
    return Own(round(good), round(bad), auc(scores, values[:, BAD]), g, h, spread)


def cells_of(shapes: Sequence[Shape], sums: Ints, total: Ints) -> Iterator[Ints]:
    """Sums (n_bins + 1, S) of each bin of each column, missing values last, by its candidates' left sums.

    `sums` (candidates, S): in the canonical order, see `treetap.trees.candidates`; `total` (S,): over all records.
    Columns are of numbers, or of categories that are split one against the rest.
    """
    first = CandidateList(shapes).first
    for shape, start, end in zip(shapes, first[:-1], first[1:], strict=True):
        lefts = sums[start:end][:: 2 if shape.has_missing else 1]
        if shape.kind is Kind.NUMBERS:
            upto = lefts if shape.has_missing else np.vstack([lefts, total])
            cells = np.diff(upto, axis=0, prepend=np.zeros((1, len(total)), dtype=np.int64))
        else:
            cells = total - lefts
        yield np.vstack([cells, total - cells.sum(axis=0)])


def possible(cells: Ints) -> bool:
    """True if records can have these sums (bins, 5): of no bin a negative number, and of each those of both classes."""
    counts = cells[:, RECORDS:]
    return bool((counts >= 0).all() and (counts[:, 0] == counts[:, 1:].sum(axis=1)).all())


def column_of(number: int, name: str, cells: Ints, own: Own) -> Column:
    """The figures of a column, by the sums (n_bins + 1, 5) of its bins, missing values last."""
    there = cells[cells[:, RECORDS] > 0]
    good, bad = there[:, GOOD], there[:, BAD]
    more = np.where((good == 0) | (bad == 0), 0.5, 0.0)
    of_good, of_bad = (good + more) / own.good, (bad + more) / own.bad
    woe: Floats = np.log(of_good / of_bad)
    records, noise = own.good + own.bad, (len(there) - 1) * (1 / own.good + 1 / own.bad)
    share = own.bad / records
    expected: Floats = there[:, RECORDS].astype(np.float64) * share
    alone, free = _statistic(expected - bad, expected * (1 - share))
    gain_alone = (alone - free) / records / 2
    h: Floats = there[:, H] / UNIT
    g: Floats = there[:, G] / UNIT - h * (own.g / own.h)
    beyond, free = _statistic(g, h)
    gain_beyond = (beyond / own.spread - free) / records / 2
    return Column(
        number,
        name,
        missing_share=float(cells[-1, RECORDS] / records),
        iv=float(((of_good - of_bad) * woe).sum() - noise),
        gain_alone=gain_alone,
        gain_beyond=gain_beyond,
        error=math.sqrt(2 * free + 8 * records * max(gain_beyond, 0.0)) / records / 2,
        redundancy=min(1.0, max(0.0, 1 - gain_beyond / gain_alone)) if gain_alone > 0 else None,
        p_value=_above(beyond / own.spread, free),
        bins=[Bin(*of) for of in zip(there[:, RECORDS].tolist(), bad.tolist(), woe.tolist(), strict=True)],
    )


def screened(party: str, columns: Sequence[Column], own: Own) -> Screened:
    """The figures of a feature party by those of its columns."""
    # of a column whose labels are spread more evenly than chance would have it, no more is taken off than p = .98 takes
    tangents = [math.tan((0.5 - min(max(it.p_value, 1e-15), 0.98)) * math.pi) for it in columns if it.p_value < 1]
    p_value = 0.5 - math.atan(math.fsum(tangents) / len(tangents)) / math.pi if tangents else 1.0
    gains = sorted((max(it.gain_beyond, 0.0) for it in columns), reverse=True)
    if p_value > LEVEL or not sum(gains):
        said = f"{party}: nothing found beyond your own model"
        return Screened(party, list(columns), p_value, None, 0, said)
    carried = int(np.searchsorted(np.cumsum(gains), sum(gains) / 2, side="right")) + 1
    added = added_auc(own, math.fsum(it.gain_beyond for it in columns), math.hypot(*(it.error for it in columns)))
    most = f"most of it from {_WORDS.get(carried, carried)} column{'s' * (carried > 1)}"
    estimate, low, high = map(_short, added)
    said = f"{party} would add some +{estimate} AUC ({low} to {high}) beyond your own model, {most}"
    return Screened(party, list(columns), p_value, added, carried, said)


def best_cut(party: str, cuts: int, g: int, h: int, own: Own) -> BestCut:
    """The figures of the best of so many cuts, by sums of g and h over either of its sides; 0 and 0: there is none."""
    of_sides = np.array([h / UNIT, own.h - h / UNIT])
    statistic, _ = _statistic(np.array([g / UNIT, own.g - g / UNIT]) - of_sides * (own.g / own.h), of_sides)
    statistic /= own.spread
    b = -_NORMAL.inv_cdf(0.5 / cuts)
    gain = (statistic - 1 - 2 * cuts * b * _NORMAL.pdf(b)) / (own.good + own.bad) / 2
    p_value = min(1.0, 2 * cuts * _NORMAL.cdf(-math.sqrt(statistic)))
    said = f"{party}: nothing found beyond your own model by one cut"
    if p_value <= LEVEL and gain > 0:
        said = f"{party} adds to your own model: its best cut alone gains {1000 * gain:.2f} nats in 1,000 records"
    return BestCut(party, cuts, gain, p_value, said)


def added_auc(own: Own, gain: float, error: float) -> tuple[float, float, float]:
    """The AUC that columns add to the own score's, and the ends of its interval, by their gain (nats a record).

    Scores of two classes that are normal with equal spread, a distance d apart, have AUC = Φ(d/√2); odds that columns
    multiply beyond them add `distance` to d². Columns of a party share some of it, or are worth more together.
    """
    before = squared(own.auc)
    ends = (gain, 1.0), (gain - NINE_IN_TEN * error, LOW), (gain + NINE_IN_TEN * error, HIGH)
    added = [_NORMAL.cdf(math.sqrt((before + factor * distance(own, it)) / 2)) - own.auc for it, factor in ends]
    return max(added[0], 0.0), max(added[1], 0.0), max(added[2], 0.0)


def squared(area: float) -> float:
    """d² of an AUC, see `added_auc`; 0 where it is no better than chance."""
    return 2 * _NORMAL.inv_cdf(min(max(area, 0.5), 1 - 1e-9)) ** 2


def distance(own: Own, gain: float) -> float:
    """What a gain (nats a record) beyond the own score adds to d², of one column alone: 2 gain N / Σh."""
    return 2 * max(gain, 0.0) * (own.good + own.bad) / own.h


def _statistic(g: Floats, h: Floats) -> tuple[float, int]:
    """Σ G²/H over bins of g and h (bins,), neighbours joined until each has Σh ≥ `LEAST_H`; and bins less one."""
    ends, upto = [], 0.0
    for place, of_bin in enumerate(h.tolist()):
        upto += of_bin
        if upto >= LEAST_H:
            ends.append(place + 1)
            upto = 0.0
    starts = [0, *ends[:-1]]  # a rest joins the bins before it
    if len(starts) < 2:
        return 0.0, 0
    return float((np.add.reduceat(g, starts) ** 2 / np.add.reduceat(h, starts)).sum()), len(starts) - 1


def _above(statistic: float, freedom: int) -> float:
    """The chance that χ² with so many degrees of freedom is larger, by Wilson's and Hilferty's cube root."""
    if not freedom:
        return 1.0
    variance = 2 / (9 * freedom)
    return _NORMAL.cdf(-((max(statistic, 0.0) / freedom) ** (1 / 3) - 1 + variance) / math.sqrt(variance))


def _short(auc: float) -> str:
    """An AUC between 0 and 1 to two places, three where it is small, without the zero before the point."""
    return f"{auc:.{2 if auc >= 0.0095 or not auc else 3}f}".removeprefix("0")
