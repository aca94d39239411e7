"""From few known labels, or none, and the nodes of trees to all other labels.

`known-neighbours` and `known-regression` name labels; `first-component`, `vote` and `heaviest-cut` order records
without a known label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints, Singles
from treetap.attacks.id2graph.clustering import k_means, sides, weighed
from treetap.attacks.id2graph.schema import (
    INDEPENDENT_DISCOUNT,
    SEQUENTIAL_DISCOUNT,
    Averaged,
    KnownLabelResult,
    KnownSettings,
    Naming,
    Ranked,
    RankedBy,
    RankedResult,
)
from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import Named, macro_auc, named_by, precision_first
from treetap.attacks.known_labels.rows import Members, Rows
from treetap.attacks.scores import auc, v_measure

#: Inverse strength of the penalty on weights, of rows of length 1.
_INVERSE_PENALTY = 10.0
#: Newton steps at most, and the largest part of a gradient at which they end.
_STEPS, _FLAT = 50, 1e-8
#: Squared distances are 0 up to this many units in the last place of what they are the difference of.
_ROUNDED = 16
#: Records whose distances are computed together: few enough for them to stay in a processor's cache.
_TOGETHER = 2000
#: Draws of the control, which a verdict does not need.
_CONTROLS = 5
#: Names chances (u, classes) of unlike rows, by settings, known rows, all rows, and classes of the known ones.
Way = Callable[[KnownSettings, Floats, Rows, Ints], tuple[Ints, Floats]]


def named_by_rows(evidence: SignatureEvidence, name: str) -> dict[str, Naming]:
    """The figures of an attack by each kind of rows; the evidence gets what it named."""
    figures = {}
    for kind, rows in evidence.rows.items():
        figures[kind], evidence.named[name, kind] = _named(evidence, WAYS[name], rows, evidence.truth)
    return figures


def _result(evidence: SignatureEvidence, name: str) -> KnownLabelResult | None:
    """The attack by each kind of rows, and its control; None, with a reason, where it cannot run."""
    if evidence.obstacle:
        evidence.reasons[name] = evidence.obstacle
        return None
    start, figures = time.perf_counter(), dict.fromkeys(("columns", "both")) | named_by_rows(evidence, name)
    control = {
        kind: _named(evidence, WAYS[name], evidence.rows[kind], evidence.reassigned, _CONTROLS)[0]
        for kind in ("nodes", "columns")
        if kind in evidence.rows
    }
    return KnownLabelResult.model_validate(
        {
            **figures,
            "reassigned": control["nodes"],
            "reassigned_columns": control.get("columns"),
            "seconds": time.perf_counter() - start,
        }
    )


def _named(
    evidence: SignatureEvidence, way: Way, rows: Rows, truth: Ints, draws: int | None = None
) -> tuple[Naming, Named]:
    """The figures of an attack by these rows, over all or the first draws, and record by record.

    `truth`: classes (n,).
    """
    drawn = []
    for known, named in evidence.drawn[:draws]:
        classes, chances = way(evidence.settings, rows.of_records(known), rows, truth[known])
        every = np.zeros((len(chances), len(evidence.known.classes)))
        every[:, classes] = chances
        drawn.append((named, every, rows.alike[named]))
    result = named_by(drawn, truth, evidence.rarest, evidence.settings.first)
    figures = (result.aucs, result.firsts, [float(np.nanmean(draw)) for draw in result.right])
    auc, precision, accuracy = (Averaged.of(values) for values in figures)
    return Naming(auc=auc, precision=precision, accuracy=accuracy), result


def _nearest(settings: KnownSettings, known: Floats, rows: Rows, labels: Ints) -> tuple[Ints, Floats]:
    """The vote of the nearest known rows (k, ·) on each unlike one, by inverse distance; of equal ones alone."""
    classes, of_known = np.unique(labels, return_inverse=True)
    lengths, chances = (known**2).sum(axis=1), np.empty((len(classes), len(rows.lengths)), dtype=known.dtype)
    for some, products in rows.times(-2 * known.T, _TOGETHER):
        squares, both = products, rows.lengths[some] + lengths
        squares += both
        both *= _ROUNDED * np.finfo(both.dtype).eps
        squares *= squares >= both
        near = _smallest(squares, min(settings.neighbours, len(labels)))
        with np.errstate(divide="ignore"):
            votes = 1 / np.sqrt(squares.ravel()[near])
        equal = np.isinf(votes)
        votes = np.where(equal.any(axis=0), equal, votes)
        of_near = of_known[near % len(labels)]
        for number in range(len(classes)):
            chances[number, some] = (votes * (of_near == number)).sum(axis=0)
    return classes, (chances / chances.sum(axis=0)).T


def _smallest(values: Floats, count: int) -> Ints:
    """Places (count, n) among all values of the smallest ones of each row (n, ·), in any order; of equal ones any."""
    within = values <= np.partition(values, count - 1, axis=1)[:, count - 1, None]
    places = np.flatnonzero(within)
    if len(places) > count * len(values):  # some are equal
        some = np.argpartition(values, count - 1, axis=1)[:, :count]
        places = some + np.arange(0, values.size, values.shape[1])[:, None]
    return np.ascontiguousarray(places.reshape(-1, count).T)


def regressed(known: Floats, rows: Rows, labels: Ints) -> tuple[Ints, Floats]:
    """The chances (u, classes) of unlike rows by a logistic regression; certainty of the only class that is known.

    By Newton steps, solved by conjugate gradients, within the space that the known rows (k, ·) span.
    """
    classes, of_known = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        return classes, np.ones((len(rows.which), 1))
    basis, corner = np.linalg.qr(known.T.astype(np.float64))
    points, many = np.hstack([corner.T, np.ones((len(labels), 1))]), len(labels)
    truth, weights = np.eye(len(classes))[of_known], np.zeros((points.shape[1], len(classes)))
    # of two classes the weights of one are those of the other with the other sign, and count twice
    penalty = np.full((len(weights), 1), (1 + (len(classes) == 2)) / (_INVERSE_PENALTY * many))
    penalty[-1] = 0

    def loss(at: Floats) -> tuple[float, Floats]:
        chances, logarithms = _chances(points @ at)
        return float((penalty * at**2).sum() / 2 - logarithms[truth > 0].mean()), chances

    value, chances = loss(weights)
    for _ in range(_STEPS):
        gradient = points.T @ (chances - truth) / many + penalty * weights
        if np.abs(gradient).max() < _FLAT:
            break
        step = _newton(points, chances, penalty, gradient)
        reached, chances = loss(weights + step)
        while reached > value and np.abs(step).max() > _FLAT:
            step /= 2
            reached, chances = loss(weights + step)
        value, weights = reached, weights + step
    products = np.concatenate([some for _, some in rows.times(basis @ weights[:-1], _TOGETHER)])
    return classes, _chances(products + weights[-1])[0]


def _newton(points: Floats, chances: Floats, penalty: Floats, gradient: Floats) -> Floats:
    """The step (d, classes) to where a quadratic of the loss is least, by conjugate gradients."""
    step, left = np.zeros_like(gradient), -gradient
    direction, length = left, float((left**2).sum())
    enough = length * min(0.01, length)
    for _ in range(gradient.size):
        moved = chances * (points @ direction)
        moved -= chances * moved.sum(axis=1, keepdims=True)
        bent = points.T @ moved / len(points) + penalty * direction
        along = length / float((direction * bent).sum())
        step, left = step + along * direction, left - along * bent
        before, length = length, float((left**2).sum())
        if length <= enough:
            break
        direction = left + length / before * direction
    return step


def _chances(margins: Floats) -> tuple[Floats, Floats]:
    """Chances (n, classes), and their logarithms."""
    lower = margins - margins.max(axis=1, keepdims=True)
    shares = np.exp(lower)
    total = shares.sum(axis=1, keepdims=True)
    return shares / total, lower - np.log(total)


#: Attack → how it names records.
WAYS: dict[str, Way] = {
    "known-neighbours": _nearest,
    "known-regression": lambda _, known, rows, labels: regressed(known, rows, labels),
}


# `first-component`, `vote` and `heaviest-cut`: the order of records without a known label.
#
# Splits are chosen because their sides differ in the label: what they have in common is the label, up to its side.
#
# 1. Points: of each own winning split −1, 0 or 1 by record, as `treetap.attacks.id2graph.clustering` has them, the
#    trees discounted or alike; of each leaf, and of each node, whether a record is in it; of own columns, for what a
#    party could do before the training, the ranks of the values.
# 2. Order: `heaviest-cut` has the one split of the largest weight, `vote` the weighted sum of all, each turned to agree
#    with the heaviest, `first-component` the direction of the largest variance (principal component).
# 3. Side: of two classes the rarer one is at the end of which as many records as it has differ more from all others.
#    Where this is wrong, known labels may tell it; a verdict counts both sides as tries. Of several classes each is
#    ordered against all others, and a verdict counts all choices of their sides: few known labels tell no rare class's.
# 4. Groups: by k-means, one for each class, on the order, the first `_GROUPED` components or all columns; or as many
#    records at one end as the rarest class has, and the others. The best counts, and a verdict makes no use of it.
#
# Not from a paper. One pass over N records and k points takes N·k operations, and there are some tens of passes; points
# are at most `_MOST_NUMBERS` numbers or `SignatureEvidence`'s memberships. 30,000 records × 50 own splits: 3 CPU s, of
# which 2 are for groups.


#: Numbers of a matrix of splits at most: 120 MB.
_MOST_NUMBERS = 15_000_000
#: Records, drawn, whose means are the centres of groups.
_FITTED = 4000
#: Principal components that records are grouped by.
_GROUPED = 6
#: Factor of the weight of each further tree's leaves.
_LEAVES_DISCOUNT = 0.9
#: Sets of points (n, k), of which the first has the order alone.
Points = list[Floats]
#: Rounds of the subspace iteration, and directions beside those that are wanted.
_ROUNDS, _SPARE = 12, 4
#: Classes whose sides are counted as tries, 2 each, at most: a whole number of 64 bits; z is 9 then.
_MOST_SIDES = 62
#: Discounts of trees by kind.
_DISCOUNTS: dict[RankedBy, float] = {"splits": SEQUENTIAL_DISCOUNT, "splits-alike": INDEPENDENT_DISCOUNT}


def _own_splits(evidence: SignatureEvidence, discount: float) -> tuple[Singles, Floats] | None:
    """Own splits of the records that take part: points (n, k), heaviest first, and weights (k,); None without any.

    What does not fit is left out, which the evidence counts.
    """
    records = len(evidence.places)
    cuts = weighed(evidence.own_cuts, records, discount)
    kept = cuts[: max(1, _MOST_NUMBERS // records)]
    evidence.left_out["splits"] = len(cuts) - len(kept)
    if not kept:
        return None
    points = np.stack([sides(cut, records) for _, cut in kept], axis=1).astype(np.float32)
    return points, np.array([weight for weight, _ in kept])


def turned(points: Array, to: int) -> Floats:
    """1 or −1 for each point (n, k) by its correlation with the one of this number; 0 without any."""
    centred = points - points.mean(axis=0)
    return np.asarray(np.sign(centred[:, to] @ centred).astype(np.float64))


def principal(points: Array | Members, count: int) -> Floats:
    """Records (n, ≤ count) on the first principal components of points (n, k), dense or by sets.

    By subspace iteration (Halko, Martinsson, Tropp 2011, "Finding structure with randomness", algorithm 4.4).
    """
    if isinstance(points, Members):
        alike, width, blocks = points.alike, points.width, points.blocks
    else:
        alike, width, blocks = np.arange(len(points)), points.shape[1], partial(iter, [(slice(None), points)])
    counts = np.bincount(alike)[:, None].astype(np.float32)
    mean = np.sum([counts[some, 0] @ block for some, block in blocks()], axis=0) / len(alike)
    basis = np.random.default_rng(0).normal(size=(width, min(width, count + _SPARE))).astype(mean.dtype)
    for _ in range(_ROUNDS):
        moved = sum(block.T @ (counts[some] * (block @ basis)) for some, block in blocks())
        basis = np.linalg.qr(moved - len(alike) * np.outer(mean, mean @ basis))[0]
    scores = np.concatenate([block @ basis for _, block in blocks()]).astype(np.float64) - mean @ basis
    directions = np.linalg.eigh(scores.T @ (counts * scores))[1]  # ascending by variance
    return np.asarray((scores @ directions[:, ::-1][:, :count])[alike])


def _components(evidence: SignatureEvidence) -> Iterator[tuple[RankedBy, Points]]:
    if (own := _own_splits(evidence, SEQUENTIAL_DISCOUNT)) is not None:
        points, of_splits = own
        yield "splits", _first(principal(points * np.sqrt(of_splits).astype(np.float32), _GROUPED))
    if leaves := evidence.leaves:
        weights = [_LEAVES_DISCOUNT**tree / np.sqrt(len(rows)) for tree, rows in leaves]
        yield "leaves", _first(principal(evidence.inside([rows for _, rows in leaves], weights), _GROUPED))
    # every set with variance 1
    parts = np.array([len(rows) for rows in evidence.nodes]) / len(evidence.known.truth)
    yield "nodes", _first(principal(evidence.inside(evidence.nodes, 1 / np.sqrt(parts * (1 - parts))), _GROUPED))
    if (columns := evidence.ranks) is not None and (values := evidence.standardised) is not None:
        first, *others = principal(columns, 2).T
        # values group records in another way than their ranks do
        yield "columns", [first[:, None], columns, principal(values, 1), values]
        for second in others:
            yield "columns-second", [second[:, None]]


def _votes(evidence: SignatureEvidence) -> Iterator[tuple[RankedBy, Points]]:
    for kind, discount in _DISCOUNTS.items():
        if (own := _own_splits(evidence, discount)) is not None:
            points, weights = own
            yield kind, [(points @ (weights * turned(points, 0)))[:, None]]
    if (columns := evidence.ranks) is not None:
        # the column that explains most of all others stands for the heaviest split
        heaviest = int(((columns.T @ columns) ** 2).sum(axis=1).argmax())
        yield "columns", [(columns @ turned(columns, heaviest))[:, None]]


def _heaviest(evidence: SignatureEvidence) -> Iterator[tuple[RankedBy, Points]]:
    if (own := _own_splits(evidence, SEQUENTIAL_DISCOUNT)) is not None:
        yield "splits", [own[0][:, :1].astype(np.float64)]


def _first(directions: Floats) -> Points:
    """The first of directions (n, k), and all."""
    return [directions[:, :1], directions]


def _ranked_result(evidence: SignatureEvidence, name: str, orders: Any) -> RankedResult | None:
    """The attack by each kind of points; None, with a reason, where it has none of the training."""
    if evidence.obstacle:
        evidence.reasons[name] = evidence.obstacle
        return None
    start, by = time.perf_counter(), dict[RankedBy, Ranked]()
    for kind, points in orders(evidence):
        figures, evidence.named[name, kind] = ranked(evidence, points[0][:, 0])
        by[kind] = figures.model_copy(update={"v_measure": grouped(evidence, points)})
    if all(kind.startswith("columns") for kind in by):
        evidence.reasons[name] = "the party won no split"
        return None
    return RankedResult(by=by, left_out=evidence.left_out["splits"], seconds=time.perf_counter() - start)


def grouped(evidence: SignatureEvidence, points: Points) -> float:
    """The V-measure (Rosenberg and Hirschberg 2007) of the best groups by any of these points, as step 4 has them."""
    rows, truth = evidence.named_rows, evidence.truth
    classes, rare = len(np.unique(truth)), int((truth == evidence.rarest).sum())
    groups: list[Array] = [k_means(some.copy(), None, classes, fitted=_FITTED) for some in points]
    for order in (some[:, 0] for some in points if some.shape[1] == 1):
        ascending = np.sort(order)
        groups += [order <= ascending[rare - 1], order >= ascending[-rare]]
    return max(v_measure(truth[rows], some[rows].astype(np.int64)) for some in groups)


def ranked(evidence: SignatureEvidence, scores: Floats) -> tuple[Ranked, Named]:
    """An order of the records that take part, by scores (n,), as a guess of their classes."""
    value, counts = np.unique(scores, return_inverse=True, return_counts=True)[1:]
    ascending = (np.cumsum(counts) - counts / 2) / len(scores)
    present = np.flatnonzero(np.bincount(evidence.truth))
    if len(present) == 2:
        return _of_two(evidence, scores, (ascending, value), int(present[present != evidence.rarest][0]))
    return _of_several(evidence, ascending[value], present)


def _of_two(
    evidence: SignatureEvidence, scores: Floats, by_value: tuple[Floats, Ints], other: int
) -> tuple[Ranked, Named]:
    """Of two classes: the better side counts, and who tells it.

    `by_value`: places (u,) in (0, 1) of the values of scores, ascending, and the number (n,) of each record's value.
    """
    ascending, of_record = by_value
    order = ascending[of_record]
    rows, rare = evidence.named_rows, evidence.truth == evidence.rarest
    value = auc(order[rows], rare[rows].astype(np.int64)) or 0.5
    upper = value >= 0.5
    by_sizes = extreme_end(scores, int(rare.sum())) == upper
    by_known = np.mean([_upper(order[known], rare[known]) == upper for known, _ in evidence.drawn])
    directed = ascending if upper else 1 - ascending
    chances = np.zeros((len(directed), len(evidence.known.classes)))
    # as many records are named for the rarer class as it has
    chances[:, evidence.rarest] = (directed + rare.mean()) / 2
    chances[:, other] = 1 - chances[:, evidence.rarest]
    named = named_by([(rows, chances, of_record[rows])], evidence.truth, evidence.rarest, evidence.settings.first)
    told = "no label known" if by_sizes else f"its side by known labels in {100 * by_known:.0f} % of draws"
    figures = Ranked(
        auc=named.auc, precision=named.first, accuracy=named.accuracy, by_sizes=by_sizes, by_known=float(by_known)
    )
    return figures, replace(named, tries=2, known=not by_sizes, told=told)


def _of_several(evidence: SignatureEvidence, order: Floats, present: Ints) -> tuple[Ranked, Named]:
    """Each class against the rest, as `_of_two`: the better sides count, and who tells them; means over classes."""
    rows, first, truth = evidence.named_rows, evidence.settings.first, evidence.truth
    scored = [number for number in present if 0 < (truth[rows] == number).sum() < len(rows)]
    aucs, influence, told = list[float](), np.zeros(len(order)), list[bool]()
    precision = float((truth[rows] == evidence.rarest).mean())
    for number in scored:
        of_class = truth == number
        value = auc(order[rows], of_class[rows].astype(np.int64)) or 0.5
        directed = order if value >= 0.5 else 1 - order
        aucs.append(max(value, 1 - value))
        chances = np.stack([1 - directed, directed], axis=1)[rows]
        influence[rows] += macro_auc(chances, of_class[rows].astype(np.int64))[1] / len(scored)
        for known, _ in evidence.drawn:
            seen = 0 < of_class[known].sum() < len(known)
            told.append(bool(seen) and _upper(order[known], of_class[known]) == (value >= 0.5))
        if number == evidence.rarest:
            precision = precision_first(directed[rows], of_class[rows], first)
    by_known = float(np.mean(told)) if told else None
    named = Named(
        [float(np.mean(aucs)) if aucs else 0.5],
        [precision],
        [],
        [influence],
        tries=2 ** min(len(scored), _MOST_SIDES),
        told=f"its sides by known labels in {100 * (by_known or 0.0):.0f} % of classes and draws",
    )
    return Ranked(auc=named.auc, precision=named.first, by_known=by_known), named


def _upper(order: Floats, of_class: Bools) -> bool:
    """True if records of the class have larger numbers than the others on average."""
    known = bool(of_class.any()) and not of_class.all()
    return known and bool(order[of_class].mean() > order[~of_class].mean())


def extreme_end(scores: Floats, many: int) -> bool:
    """True if this many of the largest scores (n,) differ more from all others than as many of the smallest."""
    ascending = np.sort(scores)
    upper = ascending[-many:].mean() - ascending[:-many].mean()
    return bool(upper >= ascending[many:].mean() - ascending[:many].mean())


#: The label of each record by a vote of the nearest known ones, by inverse distance (Cover, Hart 1967).
known_neighbours = partial(_result, name="known-neighbours")
#: The label of each record by a logistic regression on the known ones.
known_regression = partial(_result, name="known-regression")
#: The first principal component of own splits, leaves and nodes; of own columns the second one too.
first_component = partial(_ranked_result, name="first-component", orders=_components)
#: The vote of own splits; of own columns one that each has a like part in.
vote = partial(_ranked_result, name="vote", orders=_votes)
#: The own split of the largest weight.
heaviest_cut = partial(_ranked_result, name="heaviest-cut", orders=_heaviest)
