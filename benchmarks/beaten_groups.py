"""Groups, of `beaten.py`: easy ways to sort records into classes without a label, beside the audit's that group them.

The trainings are those of `beaten_labels.py` with instance spaces withheld: a party knows the sides of its own splits,
and leaves only below roots that it owns. V-measure (Rosenberg and Hirschberg 2007), with the training and before it.

Easy ways: the sides of the first own split as they are; k-means, a group for each class, on the vote of own splits, on
the first principal components of these and of leaves, and before on own columns, their components and their vote; of
each such order also as many records at either end as the rarest class has, apart from the others. The audit's
attacks that group records count after few numbers of trees, as in an audit, but for the two whose graph grows with the
square of the records; the groups of its orders without a label after all.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from beaten_labels import Trained, by_columns, by_leaves, by_splits, evidence_of, standardised, trained
from beaten_tables import Best, Floats, Ints, Row, Table

from treetap.attacks import registry
from treetap.attacks.case import numbers_of_trees
from treetap.attacks.id2graph.schema import SEQUENTIAL_DISCOUNT, RankedResult, Settings
from treetap.attacks.registry import GROUPING, Needs, rows
from treetap.attacks.scores import score

#: The audit's attacks that group records, without the two whose graph grows with the square of the records.
AUDITED = [name for name, row in GROUPING.items() if row.usual_up_to is None]


def groups_rows(_: str, table: Table, given: argparse.Namespace) -> Iterator[Row]:
    """V-measures with the training and before it, at either party, with instance spaces withheld."""
    for second in (False, True):
        it = trained(table, "withheld", given, second=second)
        holder = "second half" if second else "first half"
        grouped, orders = {name: audited(it, name) for name in AUDITED}, ordered(it)
        before = {name: value for name, value in (grouped | orders).items() if name == "cl" or "columns" in name}
        after = {name: value for name, value in (grouped | orders).items() if name not in before}
        for question, groups, audit in (("with the training", seen(it), after), ("before it", own(it), before)):
            easy = {name: score(it.labels, clusters).v_measure for name, clusters in groups}
            if easy:
                yield Row("withheld", holder, question, "V-measure", 0.01, Best.of(easy), Best.of(audit))


def audited(it: Trained, name: str) -> float:
    """The V-measure of an attack of the audit after the number of trees where it is largest."""
    leaves = [[leaf.records for leaf in view.leaves()] for view in it.trees]
    cuts, settings = [view.own_cuts() for view in it.trees], Settings(discount=SEQUENTIAL_DISCOUNT)
    uses_trees = GROUPING[name].needs is Needs.SETS
    reached = list[float]()
    for trees in numbers_of_trees(len(leaves), "few" if uses_trees else False, settings.discount):
        of = (leaves[:trees], len(it.labels), it.own, int(it.labels.max()) + 1, settings, cuts[:trees])
        reached.append(score(it.labels, registry.attack(name, *of).clusters).v_measure)
    return max(reached)


def ordered(it: Trained) -> dict[str, float]:
    """The V-measures of the audit's orders without a label."""
    evidence = evidence_of(it)
    orders = {name: row for name, row in rows(Needs.KNOWN_LABELS).items() if row.findings is RankedResult}
    return {
        f"{name} ({kind})": ranked.v_measure
        for name, row in orders.items()
        if (result := row.run(evidence)) is not None
        for kind, ranked in result.by.items()
    }


def seen(it: Trained) -> Iterator[tuple[str, Ints]]:
    """Groups (N,) by what the party saw of the training."""
    for name, scores in by_splits(it):
        if name.startswith("first"):
            yield name, np.unique(scores, return_inverse=True)[1]
        else:
            yield from grouped(it, name, scores)
    leaves = [scores for _, scores in by_leaves(it)]
    if leaves:
        yield from grouped(it, "component 1 of leaves", leaves[0])
        yield "k-means on components of leaves", clustered(it, np.stack(leaves, axis=1))


def own(it: Trained) -> Iterator[tuple[str, Ints]]:
    """Groups (N,) by own columns."""
    yield "k-means on columns", clustered(it, standardised(it.own))
    for name, scores in by_columns(it):
        yield from grouped(it, name, scores)


def grouped(it: Trained, name: str, scores: Floats) -> Iterator[tuple[str, Ints]]:
    """Groups (N,) by scores (N,)."""
    rarest = int(np.bincount(it.labels).min())
    yield f"k-means on {name}", clustered(it, scores)
    yield f"lower end of {name}", (scores <= np.sort(scores)[rarest - 1]).astype(np.int64)
    yield f"upper end of {name}", (scores >= np.sort(scores)[-rarest]).astype(np.int64)


def clustered(it: Trained, points: Floats) -> Ints:
    """k-means, a group for each class, on points (N,) or (N, k)."""
    from sklearn.cluster import KMeans

    method = KMeans(int(it.labels.max()) + 1, n_init=10, random_state=0)
    return np.asarray(method.fit_predict(points.reshape(len(points), -1)), dtype=np.int64)
