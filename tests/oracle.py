"""An independent, naive trainer: what every tree protocol must equal, node for node.

Plain Python loops over raw columns; no histogram, no sibling subtraction, no array arithmetic. From the library it
takes the parameters and the number of fraction bits, nothing else. Loss changes are compared as fractions; where the
library compares floats, these follow the order of operations that it documents, so that gains that tie there tie here.

It also reports what makes a comparison with another program unfair: how often the best loss change was shared by splits
that divide the records differently (`ties`), and the smallest relative lead of a winning split over the next best
different division (`lead`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

from tests import draws
from treetap.trees.loss import FRACTION_BITS
from treetap.trees.params import BoostingParams

ONE = 2**FRACTION_BITS
#: Objectives whose score is the logarithm of what is predicted.
LOGARITHMIC = ("count:poisson", "reg:gamma", "reg:tweedie")
QUANTILE, COX, AFT = "reg:quantileerror", "survival:cox", "survival:aft"
#: No probability is nearer to 0 or 1 than this when its logarithm is taken.
SURE = 2.0**-52
Parties = Sequence[tuple[str, npt.NDArray[Any]]]
#: Party, feature, cut or the categories that go right, missing left.
OracleCandidate = tuple[int, int, float | tuple[int, ...], bool]


@dataclass(frozen=True)
class OracleSplit:
    """A record goes left if its value < `cut`, or if it is missing and `missing_left`.

    Where `cut` has categories these go right, and all others left.
    """

    owner: str
    feature: int
    cut: float | tuple[int, ...]
    missing_left: bool
    gain: float
    cover: float


@dataclass(frozen=True)
class OracleLeaf:
    """Weights per output of the tree, learning rate included."""

    weights: tuple[float, ...]
    cover: float


@dataclass
class OracleTree:
    """Nodes by heap number: the root is 1, the children of u are 2u and 2u + 1.

    `withdrawn`: nodes below which the first party grew alone, so that they are leaves to the others.
    """

    outputs: tuple[int, ...]
    nodes: dict[int, OracleSplit | OracleLeaf]
    withdrawn: set[int] = field(default_factory=set)


class OracleModel(list[OracleTree]):
    """The trees in order, with the base margin, the best round (None without early stopping) and tie statistics."""

    def __init__(self, base_margin: list[float], trees_per_round: int) -> None:
        super().__init__()
        self.base_margin = base_margin
        self.trees_per_round = trees_per_round
        self.best_round: int | None = None
        self.averaged = False
        self.validation: list[float] = []
        self.ties = 0
        self.lead = math.inf


def oracle_train(
    parties: Parties,
    labels: Sequence[Any],
    params: BoostingParams,
    classes: int = 2,
    xi: float | None = None,
    own_trees: int = 0,
    weights: Sequence[float] | None = None,
    base: OracleModel | None = None,
    categories: Mapping[tuple[str, int], int] | None = None,
    monotone: Mapping[str, Sequence[int]] | None = None,
    cuts_of: Callable[[str, int], Sequence[float]] | None = None,
    counts_drawn: bool = False,
    fewest: Mapping[str, int] = MappingProxyType({}),
    exposure: Sequence[float] | None = None,
    margins: Sequence[float] | None = None,
) -> OracleModel:
    """Train on raw columns (N, d) of each party, NaN for missing, parties in tie order.

    `categories`: (party, column) → the number of categories, which are the column's values from 0.

    `xi`: ξ of ID-LMID (Takahashi, Liu and Liu 2023, Algorithm 5), over all records of a node, or with `counts_drawn`
    over those that the tree draws.
    `own_trees`: the number of first trees that the first party grows alone (SecureBoost's Reduced-Leakage).
    `exposure`: of the records, whose logarithms are added to their scores. `margins`: in the place of the base score.
    `weights`: of the records. `base`: a model whose trees, all of them, are the first of this one.
    `monotone`: by party the directions of its columns, 1, -1 or 0.
    `fewest`: by party, the drawn records on a side of its splits.
    `cuts_of`: party and column → the cuts that are given, instead of those of `bin_cuts`.
    """
    w = [1.0] * len(labels) if weights is None else [float(weight) for weight in weights]
    y: list[Any] = [[float(v) for v in value] if params.objective == AFT else float(value) for value in labels]
    n = len(y)
    columns = [(name, [[float(v) for v in X[:, j]] for j in range(X.shape[1])]) for name, X in parties]
    if cuts_of is None:
        cuts = [[bin_cuts(column, params.max_bin) for column in part] for _, part in columns]
    else:
        cuts = [[list(cuts_of(name, j)) for j in range(len(part))] for name, part in columns]
    training = [True] * n
    if params.early_stopping_rounds is not None:
        training = [not flag for flag in draws.set_aside(params.seed, n, params.validation_share)]
    outputs = classes if params.objective == "multi:softprob" else 1
    width = outputs if params.multi_strategy == "multi_output_tree" else 1
    learned, weighing = ([each[i] for i in range(n) if training[i]] for each in (y, w))
    exposed = [1.0] * n if exposure is None else [float(value) for value in exposure]
    of_part = [exposed[i] for i in range(n) if training[i]]
    margin = base.base_margin if base is not None else _base(params, learned, weighing, outputs, of_part, weights)
    margin = margin if margins is None else [0.0]
    factors = factors_of(params, y, w)
    model = OracleModel(margin, outputs // width)
    begins = [0.0] * n if margins is None else [float(value) for value in margins]
    if exposure is not None:
        begins = [begin + math.log(value) for begin, value in zip(begins, exposed, strict=True)]
    scores = [[value + begin for value in margin] for begin in begins]
    before = 0
    if base is not None:
        model.extend(base)
        before = len(base) // base.trees_per_round
        _add(scores, base, columns)
    for round_number in range(before, before + params.n_estimators):
        g, h, scale, unit = _derivatives(params, scores, y, factors, training)
        grown = []
        for first in range(0, outputs, width):
            index = len(model) + len(grown)
            drawn = draws.rows(params.seed, index, params.subsample, training)
            grower = _Tree(columns, cuts, params, index, drawn)
            own_g, own_h = ([[each[i][k] for k in range(first, first + width)] for i in range(n)] for each in (g, h))
            grower.g, grower.h, grower.scale, grower.unit = own_g, own_h, scale, unit
            grower.residuals = [] if params.objective == AFT else [y[i] - scores[i][0] for i in range(n)]
            grower.weights = None if weights is None else w
            grower.labels, grower.xi, grower.categories = y, xi, categories or {}
            grower.counted, grower.fewest = grower.sampled if counts_drawn else [True] * n, fewest
            alone = index < own_trees
            there = [name for name, _ in columns[: 1 if alone else None] if grower.takes_part(name)]
            grower.directions = {name: monotone[name] for name in there if name in monotone} if monotone else {}
            tree = OracleTree(tuple(range(first, first + width)), {})
            if index < own_trees:
                tree.withdrawn.add(1)
            grower.grow(1, list(range(n)), 0, tree, model, alone=alone)
            grown.append(tree)
        model.extend(grown)
        _add(scores, grown, columns)
        if params.early_stopping_rounds is not None:
            held = [i for i in range(n) if not training[i]]
            seen = ([each[i] for i in held] for each in (scores, y, w))
            model.validation.append(_watched(params, *seen))
            best = before + min(range(len(model.validation)), key=lambda r: (model.validation[r], r))
            model.best_round = best
            if round_number - best >= params.early_stopping_rounds:
                break
    return model


def _add(scores: list[list[float]], trees: Sequence[OracleTree], columns: Any) -> None:
    """Add the trees' values to the scores of the records that trained them."""
    for tree in trees:
        for i, score in enumerate(scores):
            for k, weight in zip(tree.outputs, _leaf_of(tree, columns, i).weights, strict=True):
                score[k] += weight


def oracle_predict(model: OracleModel, parties: Parties) -> list[list[float]]:
    """Scores (N, outputs) of raw records, by the rounds up to the best one."""
    return oracle_without(model, parties, ())[0]


def bin_cuts(column: Sequence[float], max_bin: int) -> list[float]:
    """Cuts of a column: between all distinct values if few, else beside heavy ones, and between quantiles of others."""
    counts = Counter(v for v in column if not math.isnan(v))
    distinct = sorted(counts)
    cuts = []
    for value in bin_ends(distinct, counts, max_bin)[:-1]:
        above = distinct[bisect_right(distinct, value)]
        middle = value * 0.5 + above * 0.5
        cuts.append(middle if value < middle <= above else above)
    return cuts


def bin_ends(values: Sequence[float], counts: Mapping[float, int], bins: int) -> list[float]:
    """The largest value of each bin of these distinct ones, ascending, with so many records each."""
    if len(values) <= bins:
        return list(values)
    total = sum(counts[v] for v in values)
    heavy = sorted((v for v in values if counts[v] * bins >= total), key=lambda v: (-counts[v], v))
    while len(parts := _divided(values, heavy)) > bins:
        heavy.pop()
    if not heavy:
        ends, below, k = [], 0, 1
        for value in values[:-1]:
            below += counts[value]
            if below * bins >= k * total:
                ends.append(value)
                k += 1
        return [*ends, values[-1]]
    given = [1] * len(parts)
    while sum(given) < bins:
        records = [sum(counts[v] for v in part) if n < len(part) else 0 for part, n in zip(parts, given, strict=True)]
        given[max(range(len(parts)), key=lambda j: (Fraction(records[j], given[j]), -j))] += 1
    return [end for part, n in zip(parts, given, strict=True) for end in bin_ends(part, counts, n)]


def _divided(values: Sequence[float], heavy: Sequence[float]) -> list[list[float]]:
    """Each heavy value alone, and the others between them together."""
    parts: list[list[float]] = []
    for j, value in enumerate(values):
        if j == 0 or values[j - 1] in heavy or value in heavy:
            parts.append([])
        parts[-1].append(value)
    return parts


def _base(
    params: BoostingParams,
    labels: list[Any],
    weights: list[float],
    outputs: int,
    exposed: Sequence[float],
    weighted: object,
) -> list[float]:
    if params.objective == COX:
        return [math.log(params.base_score or 1.0)]
    if params.objective == AFT:
        return [math.log(0.5 if params.base_score is None else params.base_score)]
    if params.objective in LOGARITHMIC:
        events = math.fsum(w * y for w, y in zip(weights, labels, strict=True))
        units = math.fsum(w * e for w, e in zip(weights, exposed, strict=True))
        return [math.log(events / units if params.base_score is None else params.base_score)]
    if params.objective == "reg:squarederror":
        mean = math.fsum(w * y for w, y in zip(weights, labels, strict=True)) / math.fsum(weights)
        return [mean if params.base_score is None else float(params.base_score)]
    if params.objective == QUANTILE and params.base_score is None:
        return [quantile(labels, params.quantile_alpha, None if weighted is None else weights)]
    score = 0.5 if params.base_score is None else params.base_score
    if params.objective == "binary:logistic":
        return [math.log(score / (1.0 - score))]
    return [float(score)] * outputs


def _probabilities(objective: str, score: list[float]) -> list[float]:
    if objective == "binary:logistic":
        s = score[0]
        return [1.0 / (1.0 + math.exp(-s)) if s >= 0 else math.exp(s) / (1.0 + math.exp(s))]
    top = max(score)
    e = [math.exp(s - top) for s in score]
    return [v / sum(e) for v in e]


def factors_of(params: BoostingParams, labels: list[float], weights: list[float]) -> list[float]:
    """The number by which each record's g and h are multiplied."""
    assert params.objective == "binary:logistic" or params.scale_pos_weight == 1
    return [w * params.scale_pos_weight if y == 1 else w for y, w in zip(labels, weights, strict=True)]


def quantile(values: Sequence[float], share: float, weights: Sequence[float] | None) -> float:
    """Between the values of the ranks next to share · (n + 1), or the first at which weights reach the share."""
    if not values:
        return 0.0
    order = sorted(range(len(values)), key=lambda i: values[i])
    if weights is not None:
        total, most = 0.0, 0.0
        for i in order:
            most += weights[i]
        for i in order:
            total += weights[i]
            if total >= most * share:
                return values[i]
    rank = min(max(share * (len(values) + 1), 1.0), float(len(values)))
    below = values[order[int(rank) - 1]]
    above = values[order[min(int(rank), len(values) - 1)]]
    return below + (rank - int(rank)) * (above - below)


def _derivatives(
    params: BoostingParams,
    scores: list[list[float]],
    labels: list[Any],
    factors: list[float],
    training: Sequence[bool] | None = None,
) -> tuple[list[list[int]], list[list[int]], float, float]:
    """Fixed-point g and h, each times the record's factor, and the scales of both."""
    raw_g, raw_h, objective = [], [], params.objective
    for i, (score, label) in enumerate(zip(scores, labels, strict=True)):
        if objective == COX:
            at_risk = [True] * len(labels) if training is None else training
            g, h = _of_hazards([s for (s,) in scores], labels, at_risk, i)
            raw_g.append([g])
            raw_h.append([h])
        elif objective == AFT:
            g, h = of_bounds(params, score[0], label)[:2]
            raw_g.append([g])
            raw_h.append([h])
        elif objective in LOGARITHMIC:
            g, h = _of_logarithm(params, score[0], label)
            raw_g.append([g])
            raw_h.append([h])
        elif objective == "reg:squarederror":
            raw_g.append([score[0] - label])
            raw_h.append([1.0])
        elif objective == QUANTILE:
            raw_g.append([(1.0 if score[0] >= label else 0.0) - params.quantile_alpha])
            raw_h.append([1.0])
        elif objective == "binary:logistic":
            p = _probabilities(objective, score)[0]
            raw_g.append([p - label])
            raw_h.append([p * (1.0 - p)])
        else:
            p_all = _probabilities(objective, score)
            raw_g.append([p - (1.0 if c == label else 0.0) for c, p in enumerate(p_all)])
            raw_h.append([2.0 * p * (1.0 - p) for p in p_all])
    raw_g = [[v * f for v in row] for row, f in zip(raw_g, factors, strict=True)]
    raw_h = [[v * f for v in row] for row, f in zip(raw_h, factors, strict=True)]
    scale = unit = 1.0
    if objective == "reg:squarederror" or objective in (*LOGARITHMIC, COX, AFT):
        scale = _power_of_two(max(abs(g[0]) for g in raw_g))
    if objective in (*LOGARITHMIC, COX, AFT):
        unit = _power_of_two(max([params.reg_lambda / len(labels), *(h[0] for h in raw_h)]))
    fixed = [[round(v / scale * ONE) for v in row] for row in raw_g]
    weighed = [
        [max(round(v / unit * ONE), 1 if f > 0 else 0) for v in row] for row, f in zip(raw_h, factors, strict=True)
    ]
    return fixed, weighed, scale, unit


def _of_logarithm(params: BoostingParams, score: float, label: float) -> tuple[float, float]:
    """g and h of a record of an objective whose score is a logarithm."""
    if params.objective == "count:poisson":
        step = 0.7 if params.max_delta_step is None else params.max_delta_step
        return math.exp(score) - label, math.exp(score + step)
    power = 2.0 if params.objective == "reg:gamma" else params.tweedie_variance_power
    mean, events = math.exp((2.0 - power) * score), label * math.exp((1.0 - power) * score)
    return mean - events, (2.0 - power) * mean - (1.0 - power) * events


def _of_hazards(scores: list[float], labels: list[float], training: Sequence[bool], record: int) -> tuple[float, float]:
    """g and h of a record by Cox's partial likelihood of the training's records, whose ties are all at risk."""
    if not training[record]:
        return 0.0, 0.0
    known = [i for i, flag in enumerate(training) if flag]
    own, g, h = math.exp(scores[record]), -1.0 if labels[record] > 0 else 0.0, 0.0
    for event in known:
        if labels[event] > 0 and labels[event] <= abs(labels[record]):
            share = own / math.fsum(math.exp(scores[i]) for i in known if abs(labels[i]) >= labels[event])
            g, h = g + share, h + share * (1.0 - share)
    return g, h


def of_bounds(params: BoostingParams, score: float, bounds: Sequence[float]) -> tuple[float, float, float]:
    """g, h and the loss of a record whose time lies within bounds, by the noise's distribution function F.

    Of intervals −ln(F(u) − F(l)) and its derivatives, of events those of −ln f, by the closed form of each.
    """
    scale, name = params.aft_loss_distribution_scale, params.aft_loss_distribution
    at = [(math.log(bound) - score) / scale if bound < math.inf else math.inf for bound in bounds]

    def of(z: float) -> tuple[float, float, float]:
        """F, f and f'."""
        if z == math.inf:
            return 1.0, 0.0, 0.0
        if name == "normal":
            f = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
            return 0.5 * (1 + math.erf(z / math.sqrt(2))), f, -z * f
        if name == "logistic":
            p = 1 / (1 + math.exp(-z))
            return p, p * (1 - p), p * (1 - p) * (1 - 2 * p)
        w = math.exp(z)
        return 1 - math.exp(-w), w * math.exp(-w), w * math.exp(-w) * (1 - w)

    low, high = of(at[0]), of(at[1])
    if bounds[0] == bounds[1]:  # of ln f the first and second derivative in z
        z, w = at[0], math.exp(at[0])
        once, twice = {
            "normal": (-z, -1.0),
            "logistic": (1 - 2 * low[0], -2 * low[0] * (1 - low[0])),
            "extreme": (1 - w, -w),
        }[name]
        loss = -math.log(max(low[1] / (scale * bounds[0]), 1e-12))
    else:
        total, density, slope = (b - a for a, b in zip(low, high, strict=True))
        once, twice = density / total, slope / total - (density / total) ** 2
        loss = -math.log(max(total, 1e-12))
    return min(max(once / scale, -15.0), 15.0), min(max(-twice / scale**2, 1e-16), 15.0), loss


def _power_of_two(largest: float) -> float:
    """The smallest power of two that is not below a number; 1 for 0."""
    scale = 1.0
    while scale < largest:
        scale *= 2.0
    while largest > 0 and scale / 2.0 >= largest:
        scale /= 2.0
    return scale


def _watched(params: BoostingParams, scores: list[list[float]], labels: list[Any], weights: list[float]) -> float:
    records, objective = list(zip(scores, labels, weights, strict=True)), params.objective
    if objective == COX:
        events = [(s[0], y) for s, y, _ in records if y > 0]
        risks = [math.fsum(math.exp(s[0]) for s, other, _ in records if abs(other) >= y) for _, y in events]
        return sum(math.log(risk) - s for (s, _), risk in zip(events, risks, strict=True)) / len(events)
    if objective == AFT:
        return sum(w * of_bounds(params, s[0], y)[2] for s, y, w in records) / sum(weights)
    if objective in LOGARITHMIC:
        return sum(w * _loss_of_logarithm(params, s[0], y) for s, y, w in records) / sum(weights)
    if objective == QUANTILE:
        share, short = params.quantile_alpha, [y - s[0] for s, y, _ in records]
        return sum(w * max(share * d, (share - 1.0) * d) for d, w in zip(short, weights, strict=True)) / sum(weights)
    if objective == "reg:squarederror":
        return math.sqrt(sum(w * (s[0] - y) ** 2 for s, y, w in records) / sum(weights))
    total = 0.0
    for score, label, w in records:
        p = [min(max(v, SURE), 1.0 - SURE) for v in _probabilities(objective, score)]
        total -= w * math.log(p[int(label)] if len(p) > 1 else (p[0] if label == 1 else 1.0 - p[0]))
    return total / sum(weights)


def _loss_of_logarithm(params: BoostingParams, score: float, label: float) -> float:
    """XGBoost's default metric of a record."""
    mean = math.exp(score)
    if params.objective == "count:poisson":
        return math.lgamma(label + 1.0) + mean - label * score
    if params.objective == "reg:gamma":
        return 2.0 * (math.log((mean + 1e-6) / (label + 1e-6)) + (label + 1e-6) / (mean + 1e-6) - 1.0)
    power = params.tweedie_variance_power
    return mean ** (2.0 - power) / (2.0 - power) - label * mean ** (1.0 - power) / (1.0 - power)


def _left(value: float, cut: float | tuple[int, ...], missing_left: bool) -> bool:
    if math.isnan(value):
        return missing_left
    return value not in cut if isinstance(cut, tuple) else value < cut


def parted(
    rows: Sequence[int], column: list[float], cut: float | tuple[int, ...], missing_left: bool
) -> tuple[list[int], list[int]]:
    """The records that a split sends left, and those that it sends right."""
    if isinstance(cut, tuple):
        left = [i for i in rows if _left(column[i], cut, missing_left)]
    elif missing_left:  # NaN is not less than a number, and not as large or larger
        left = [i for i in rows if not column[i] >= cut]
    else:
        left = [i for i in rows if column[i] < cut]
    there = set(left)
    return left, [i for i in rows if i not in there]


def _leaf_of(tree: OracleTree, columns: Any, i: int) -> OracleLeaf:
    by_name = dict(columns)
    node = 1
    while True:
        here = tree.nodes[node]
        if isinstance(here, OracleLeaf):
            return here
        goes_left = _left(by_name[here.owner][here.feature][i], here.cut, here.missing_left)
        node = 2 * node if goes_left else 2 * node + 1


def within(rows: list[int], labels: Sequence[Any], xi: float) -> bool:
    """Eq. 6, which the authors print with a logarithm of class shares, inside these rows and outside."""
    n = len(labels)
    inside = set(rows)
    outside = [i for i in range(n) if i not in inside]
    for part in (rows, outside):
        total = 0.0
        for c in set(labels):
            here, everywhere = sum(labels[i] == c for i in part), list(labels).count(c)
            if here:
                total += here / len(part) * math.log(here * n / (len(part) * everywhere))
        if total > xi:
            return False
    return True


class _Tree:
    """Grows one tree by trying every candidate on every record."""

    g: list[list[int]]  # of each record and output, as integers
    h: list[list[int]]
    scale: float  # of g
    unit: float = 1.0  # the scale of h
    residuals: list[float]
    weights: list[float] | None
    labels: list[float]
    counted: list[bool]
    fewest: Mapping[str, int] = MappingProxyType({})
    xi: float | None = None
    categories: Mapping[tuple[str, int], int] = MappingProxyType({})
    directions: Mapping[str, Sequence[int]] = MappingProxyType({})
    low, high = -math.inf, math.inf  # of the weights at and below the present node

    def __init__(self, columns: Any, cuts: Any, params: BoostingParams, index: int, sampled: list[bool]) -> None:
        self.columns, self.params, self.sampled, self.cuts, self.index = columns, params, sampled, cuts, index
        self.kept: list[tuple[int, int]] = []  # party and feature
        for party, (name, part) in enumerate(columns):
            if not self.takes_part(name):
                continue
            drawn = draws.columns(params.seed, index, name, len(part), params.colsample_bytree)
            for f in self.in_turn(name, len(part)) if params.cycle else drawn:
                self.kept.append((party, f))

    def candidates(self, rows: list[int]) -> Iterator[OracleCandidate]:
        """The candidates of a node in tie order; a party's missing values alone on the left come last."""
        for party, (name, part) in enumerate(self.columns):
            own = [f for each, f in self.kept if each == party]
            has_missing = {f: any(math.isnan(v) for v in part[f]) for f in own}
            for f in own:
                if (name, f) in self.categories:
                    yield from self.sets(party, f, self.categories[name, f], rows, has_missing[f])
                    continue
                for cut in self.cuts[party][f]:
                    yield party, f, cut, False
                    if has_missing[f]:
                        yield party, f, cut, True
                if has_missing[f]:
                    yield party, f, math.inf, False
            for f in own:
                alone = (party, f, -math.inf, True)
                if has_missing[f] and self.direction(alone):  # else as good as alone on the right
                    yield alone

    def sets(
        self, party: int, f: int, categories: int, rows: list[int], has_missing: bool
    ) -> Iterator[OracleCandidate]:
        """Each category against the rest if there are few, else the categories in the order of their weights."""
        if categories < self.params.max_cat_to_onehot:
            for c in range(categories):
                yield party, f, (c,), True
                if has_missing:
                    yield party, f, (c,), False
            return
        weights = []
        for c in range(categories):
            (g,), (h,) = self.sums([i for i in rows if self.columns[party][1][f][i] == c])
            weights.append(self.free_weight(g, h) if h > 0 and h >= self.params.min_child_weight else 0.0)
        order = sorted(range(categories), key=lambda c: weights[c])
        most = min(self.params.max_cat_threshold, categories)
        for size in range(1, most):
            yield party, f, tuple(sorted(order[:size])), True
        for size in range(1, most):
            yield party, f, tuple(sorted(order[: categories - size])), False

    def takes_part(self, name: str) -> bool:
        """Whether a party offers candidates to the tree."""
        if self.params.cycle:
            return self.turns()[-1] == name
        return draws.takes_part(self.params.seed, self.index, name, self.params.party_dropout.get(name, 0.0))

    def turns(self) -> list[str]:
        """Whose turn it was tree by tree, this one's the last."""
        turns: list[str] = []
        while len(turns) <= self.index:
            turns.extend(self.params.cycle)
        return turns[: self.index + 1]

    def in_turn(self, name: str, columns: int) -> list[int]:
        """The column that follows the party's last one, after the last the first."""
        had = self.turns()[:-1].count(name)
        return [(list(range(columns)) * (had + 1))[had]] if columns else []

    def direction(self, candidate: OracleCandidate) -> int:
        """1 where the left weight may not be the larger one, -1 where it may not be the smaller one, else 0."""
        name = self.columns[candidate[0]][0]
        return self.directions[name][candidate[1]] if name in self.directions else 0

    def sums(self, rows: list[int]) -> tuple[list[float], list[float]]:
        """G and H of the sampled ones of `rows`: summed as integers, then turned into floats."""
        rows, outputs = [i for i in rows if self.sampled[i]], range(len(self.g[0]))
        G = [float(sum(self.g[i][k] for i in rows)) * (self.scale / ONE) for k in outputs]
        H = [float(sum(self.h[i][k] for i in rows)) * (self.unit / ONE) for k in outputs]
        return G, H

    @property
    def by_integers(self) -> bool:
        """Whether loss changes are compared as the fractions that they are."""
        return not (self.directions or len(self.g[0]) > 1 or self.params.reg_alpha or self.step)

    @property
    def step(self) -> float:
        """The largest size of a weight; 0: any."""
        stated = self.params.max_delta_step
        return stated if stated is not None else 0.7 if self.params.objective == "count:poisson" else 0.0

    def score(self, *sides: list[int]) -> Fraction:
        """Σ g²/(h + λ) over sides of sampled records, g divided by its scale; λ has the fractions of h."""
        num, den, penalty = 0, 1, max(1, round(self.params.reg_lambda / self.unit * ONE))
        for rows in sides:
            g, h = sum(self.g[i][0] for i in rows), sum(self.h[i][0] for i in rows) + penalty
            num, den = num * h + g * g * den, den * h
        return Fraction(num, den * ONE) / Fraction(self.unit)

    def gain(self, G: list[float], H: list[float]) -> float:
        total = 0.0
        for g, h in zip(G, H, strict=True):
            if h > 0 and h >= self.params.min_child_weight:
                t, w = self.threshold(g), self.weight(g, h)
                if self.step == 0 and not self.directions:
                    total += t * t / (h + self.params.reg_lambda)
                elif len(G) == 1:
                    total += -(2.0 * g * w + (h + self.params.reg_lambda) * (w * w))
                else:
                    total += -(t * w)
        return total

    def threshold(self, g: float) -> float:
        """G, nearer to zero by reg_alpha."""
        alpha = self.params.reg_alpha
        if g > alpha:
            return g - alpha
        return g + alpha if g < -alpha else 0.0

    def weight(self, g: float, h: float) -> float:
        """The weight before the learning rate, of an output that counts, within the bounds of the node."""
        return min(max(self.free_weight(g, h), self.low), self.high)

    def free_weight(self, g: float, h: float) -> float:
        """The same without those bounds."""
        w, most = -self.threshold(g) / (h + self.params.reg_lambda), self.step
        return math.copysign(most, w) if most and abs(w) > most else w

    def shown(self, rows: list[int]) -> bool:
        """Eq. 6 for these rows."""
        return self.xi is None or within([i for i in rows if self.counted[i]], self.labels, self.xi)

    def grow(
        self,
        root: int,
        records: list[int],
        depth: int,
        tree: OracleTree,
        model: OracleModel,
        *,
        alone: bool = False,
        most: int | None = None,
    ) -> None:
        """XGBoost's driver: nodes wait with their best splits, and one after the other is carried out.

        Depthwise it is the next of the level, by lossguide the one with the largest loss change, the older one of two.
        `most`: leaves below the root; None: as many as the parameters say.
        """
        most = self.params.max_leaves if most is None else most
        rows, lonely, bounds = {root: records}, {root: alone}, {root: (-math.inf, math.inf)}
        waiting: dict[int, tuple[float, OracleCandidate]] = {}

        def reach(node: int) -> None:
            self.low, self.high = bounds[node]
            G, H = self.sums(rows[node])
            weights = [
                self.weight(g, h) * self.params.learning_rate if h > 0 and h >= self.params.min_child_weight else 0.0
                for g, h in zip(G, H, strict=True)
            ]
            if self.params.objective == QUANTILE:
                own = [i for i in rows[node] if self.sampled[i]]
                weighed = None if self.weights is None else [self.weights[i] for i in own]
                found = quantile([self.residuals[i] for i in own], self.params.quantile_alpha, weighed)
                weights = [found * self.params.learning_rate]
            tree.nodes[node] = OracleLeaf(tuple(weights), sum(H))
            below = node.bit_length() - root.bit_length()
            if (
                depth + below < self.params.max_depth
                and (found := self.best(rows[node], model, alone=lonely[node])) is not None
            ):
                waiting[node] = found

        reach(root)
        leaves = 1
        while waiting and leaves != most:
            node = min(waiting)
            if self.params.grow_policy == "lossguide":
                top, *others = sorted((change for change, _ in waiting.values()), reverse=True)
                node = next(each for each, (change, _) in waiting.items() if change == top)
                model.lead = min([model.lead, *((top - change) / top for change in others[:1])])
            change, (party, feature, cut, missing_left) = waiting.pop(node)
            leaves += 1
            name, part = self.columns[party]
            tree.nodes[node] = OracleSplit(name, feature, cut, missing_left, change, tree.nodes[node].cover)
            left, right = parted(rows[node], part[feature], cut, missing_left)
            if not lonely[node] and not (self.shown(left) and self.shown(right)):
                tree.withdrawn.add(node)
                lonely[node] = True
            bounds |= {2 * node: bounds[node], 2 * node + 1: bounds[node]}
            if direction := self.direction((party, feature, cut, missing_left)):
                self.low, self.high = bounds[node]
                (g_l,), (h_l,) = self.sums(left)
                (g_r,), (h_r,) = self.sums(right)
                middle = (self.weight(g_l, h_l) + self.weight(g_r, h_r)) / 2.0
                upper, lower = (2 * node + 1, 2 * node) if direction == 1 else (2 * node, 2 * node + 1)
                bounds |= {lower: (self.low, middle), upper: (middle, self.high)}
            for child, those in ((2 * node, left), (2 * node + 1, right)):
                rows[child], lonely[child] = those, lonely[node]
                reach(child)

    def best(self, rows: list[int], model: OracleModel, *, alone: bool = False) -> tuple[float, OracleCandidate] | None:
        """The first candidate with the largest loss change, if that is large enough."""
        least = self.params.min_child_weight
        parent = self.gain(*self.sums(rows))
        seen: list[tuple[float | Fraction, frozenset[int]]] = []
        best: tuple[float | Fraction, float, OracleCandidate] | None = None
        kept = [i for i in rows if self.sampled[i]]
        exact = self.by_integers
        for candidate in self.candidates(kept):
            party, feature, cut, missing_left = candidate
            column = self.columns[party][1][feature]
            left, right = parted(kept, column, cut, missing_left)
            if min(len(left), len(right)) < max(1, self.fewest.get(self.columns[party][0], 0)):
                continue
            if party and (alone or not self.both_shown(rows, column, cut, missing_left)):
                continue
            G_L, H_L = self.sums(left)
            G_R, H_R = self.sums(right)
            if len(H_L) == 1 and not min(H_L[0], H_R[0]) >= max(
                least, 0.5 * self.unit / ONE
            ):  # without weight nothing is gained
                continue
            direction = self.direction(candidate)
            if direction and direction * (self.weight(G_R[0], H_R[0]) - self.weight(G_L[0], H_L[0])) < 0:
                continue
            change = (self.gain(G_L, H_L) + self.gain(G_R, H_R)) - parent
            of_candidate = self.score(left, right) if exact else change
            seen.append((of_candidate, frozenset(left if kept[0] in left else right)))
            if (
                best is None
                or of_candidate > best[0]
                or (of_candidate == best[0] and self.comes_before(candidate, best[2]))
            ):
                best = (of_candidate, change, candidate)
        if best is None:
            return None
        top = best[0]
        unit = Fraction(self.scale) ** 2 if exact else 1
        gained = (top - self.score(kept)) * unit if exact else top
        if not gained > 1e-6 or gained < self.params.gamma:
            return None
        winner = next(part for change, part in seen if change == top)
        others = [change for change, part in seen if part != winner]
        model.ties += any(change == top for change in others)
        model.lead = min([model.lead, *(float((top - change) * unit) / best[1] for change in others)])
        return best[1:]

    def comes_before(self, one: OracleCandidate, other: OracleCandidate) -> bool:
        """Of two tied candidates, the later one first: only within a party, an increasing column before all others."""
        ranks = [1, -1, 0]
        return one[0] == other[0] and ranks.index(self.direction(one)) < ranks.index(self.direction(other))

    def both_shown(
        self, rows: list[int], column: list[float], cut: float | tuple[int, ...], missing_left: bool
    ) -> bool:
        """Both children of a candidate, with the records that the tree does not draw."""
        return self.xi is None or all(map(self.shown, parted(rows, column, cut, missing_left)))


def oracle_without(
    model: OracleModel, parties: Parties, away: Collection[str]
) -> tuple[list[list[float]], list[float]]:
    """Scores (N, outputs) where the splits of `away` send a record both ways by the covers; the shares guessed (N,).

    Of the splits on a record's way, each counted by the part of the record that comes there, the share that is theirs.
    """
    columns = {name: [[float(v) for v in X[:, j]] for j in range(X.shape[1])] for name, X in parties}
    used = len(model) if model.best_round is None else (model.best_round + 1) * model.trees_per_round
    scores, shares = [], []
    for i in range(parties[0][1].shape[0]):
        score, passed, guessed = list(model.base_margin), 0.0, 0.0
        for tree in model[:used]:
            parts = [(1, 1.0)]
            while parts:
                node, part = parts.pop()
                here = tree.nodes[node]
                if isinstance(here, OracleLeaf):
                    for k, weight in zip(tree.outputs, here.weights, strict=True):
                        score[k] += part * weight
                    continue
                passed += part
                if here.owner in away:
                    guessed += part
                    left, right = tree.nodes[2 * node].cover, tree.nodes[2 * node + 1].cover
                    parts += [(2 * node, part * left / (left + right)), (2 * node + 1, part * right / (left + right))]
                elif _left(columns[here.owner][here.feature][i], here.cut, here.missing_left):
                    parts.append((2 * node, part))
                else:
                    parts.append((2 * node + 1, part))
        scores.append([value / used for value in score] if model.averaged else score)
        shares.append(guessed / passed if passed else 0.0)
    return scores, shares
