"""From few known labels, or none, and the nodes of trees to all other labels.

`known-neighbours` and `known-regression` name labels; `first-component`, `vote` and `heaviest-cut` order records
without a known label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
#: Names unlike rows by settings, known rows, all rows, and each of some labels of the known ones: the classes among
#: these, and chances (classes, u).
Way = Callable[[KnownSettings, Floats, Rows, Sequence[Ints]], Iterator[tuple[Ints, Floats]]]
#: Kind of rows → its figures with labels reassigned.
_REASSIGNED = {"nodes": "reassigned", "columns": "reassigned_columns"}


def named_by_rows(evidence: SignatureEvidence, name: str, *, controlled: bool = False) -> dict[str, Naming]:
    """The figures of an attack by each kind of rows, and of its control; the evidence gets what it named."""
    figures = {}
    for kind, rows in evidence.rows.items():
        control = [evidence.reassigned] if controlled and kind in _REASSIGNED else []
        every = _named(evidence, WAYS[name], rows, [evidence.truth, *control])
        evidence.named[name, kind] = every[0]
        for key, it in zip((kind, _REASSIGNED.get(kind, "")), every, strict=False):
            right = [float(np.nanmean(draw)) for draw in it.right]
            auc, precision, accuracy = map(Averaged.of, (it.aucs, it.firsts, right))
            figures[key] = Naming(auc=auc, precision=precision, accuracy=accuracy)
    return figures


def _result(evidence: SignatureEvidence, name: str) -> KnownLabelResult | None:
    """The attack by each kind of rows, and its control; None, with a reason, where it cannot run."""
    if evidence.obstacle:
        evidence.reasons[name] = evidence.obstacle
        return None
    start, every = time.perf_counter(), dict.fromkeys(("columns", "both", "reassigned_columns"))
    figures = every | named_by_rows(evidence, name, controlled=True)
    return KnownLabelResult.model_validate(figures | {"seconds": time.perf_counter() - start})


def _named(evidence: SignatureEvidence, way: Way, rows: Rows, truths: list[Ints]) -> list[Named]:
    """The names by an attack and these rows, for each of some classes (n,): after the first of the control's."""
    every: list[list[tuple[Ints, Floats, Ints]]] = [[] for _ in truths]
    for number, (known, named) in enumerate(evidence.drawn):
        labels = [truth[known] for truth in truths[: None if number < _CONTROLS else 1]]
        of_draw = way(evidence.settings, rows.of_records(known), rows, labels)
        for drawn, (classes, chances) in zip(every, of_draw, strict=False):
            of_classes = np.zeros((len(evidence.known.classes), chances.shape[1]))
            of_classes[classes] = chances
            drawn.append((named, of_classes.T, rows.alike[named]))
    first = evidence.settings.first
    return [named_by(drawn, truth, evidence.rarest, first) for drawn, truth in zip(every, truths, strict=True)]


def _nearest(
    settings: KnownSettings, known: Floats, rows: Rows, every: Sequence[Ints]
) -> Iterator[tuple[Ints, Floats]]:
    """The vote of the nearest known rows (k, ·) on each unlike one, by inverse distance; of equal ones alone."""
    # the last bits of a number, of 52, say whose distance it is
    lengths, count = (known**2).sum(axis=1), min(settings.neighbours, len(known))
    last = 2 ** len(known).bit_length() - 1
    numbers, shifts = (np.tile(row, (_TOGETHER, 1)) for row in (np.arange(len(known)), lengths))
    near, squares = (np.empty((count, len(rows.lengths)), dtype=kind) for kind in (np.int64, known.dtype))
    for some, products in rows.times(-2 * known.T, _TOGETHER):
        order = (products + shifts[: len(products)]).astype(np.float64, copy=False)
        bits = order.view(np.int64)
        bits[:] = bits & ~last | numbers[: len(products)]
        order.sort(axis=1)
        places = bits[:, :count] & last
        # of equally near ones any
        tied = np.flatnonzero((bits[:, count - 1 : count] | last) == (bits[:, count : count + 1] | last))
        distances = _squares(products[tied], rows.lengths[some][tied] + lengths)
        places[tied] = np.argpartition(distances, count - 1, axis=1)[:, :count]
        near[:, some], squares[:, some] = places.T, np.take_along_axis(products, places, axis=1).T
    with np.errstate(divide="ignore"):
        votes = 1 / np.sqrt(_squares(squares, rows.lengths[:, 0] + lengths[near]))
    equal = np.isinf(votes)
    votes = np.where(equal.any(axis=0), equal, votes)
    for labels in every:
        classes, of_known = np.unique(labels, return_inverse=True)
        of_near = of_known[near]
        chances = np.stack([(votes * (of_near == number)).sum(axis=0) for number in range(len(classes))])
        yield classes, chances / chances.sum(axis=0)


def _squares(products: Floats, lengths: Floats) -> Floats:
    """Squared distances, 0 of rounding alone, by -2 times the products of two rows and the sums of their lengths."""
    squares = products + lengths
    return np.asarray(squares * (squares >= _ROUNDED * np.finfo(lengths.dtype).eps * lengths))


def regressed(known: Floats, rows: Rows, every: Sequence[Ints]) -> Iterator[tuple[Ints, Floats]]:
    """The classes of each of some labels, and chances (classes, u) of unlike rows by a logistic regression.

    By Newton steps, solved by conjugate gradients, within the space that the known rows (k, ·) span. Of a class that is
    known alone certainty.
    """
    basis, corner = np.linalg.qr(known.T.astype(np.float64))
    points = np.hstack([corner.T, np.ones((len(known), 1))])
    for labels in every:
        classes, of_known = np.unique(labels, return_inverse=True)
        weights = _fitted(points, np.eye(len(classes))[of_known])
        products = np.concatenate([some.T for _, some in rows.times(basis @ weights[:-1], _TOGETHER)], axis=1)
        yield classes, _chances(products + weights[-1][:, None], axis=0)[0]


def _fitted(points: Floats, truth: Floats) -> Floats:
    """The weights (d, classes) of a regression of classes (n, classes), 0 or 1, on points (n, d), the last of 1."""
    (many, classes), weights = truth.shape, np.zeros((points.shape[1], truth.shape[1]))
    # of two classes the weights of one are those of the other with the other sign, and count twice
    penalty = np.full((len(weights), 1), (1 + (classes == 2)) / (_INVERSE_PENALTY * many))
    penalty[-1] = 0

    def loss(at: Floats) -> tuple[float, Floats]:
        chances, logarithms = _chances(points @ at, axis=1)
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
    return weights


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


def _chances(margins: Floats, axis: int) -> tuple[Floats, Floats]:
    """Chances of classes, which lie along an axis, and their logarithms."""
    lower = margins - margins.max(axis=axis, keepdims=True)
    shares = np.exp(lower)
    total = shares.sum(axis=axis, keepdims=True)
    return shares / total, lower - np.log(total)


#: Attack → how it names records.
WAYS: dict[str, Way] = {
    "known-neighbours": _nearest,
    "known-regression": lambda _, known, rows, every: regressed(known, rows, every),
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
