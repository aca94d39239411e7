"""Labels that an attacker is assumed to know, and the names that one attack gives others, for a verdict.

Names by few known labels and the training stand beside those by own columns alone, record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, sqrt
from typing import Any

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.files import LabelTable
from treetap.attacks.id2graph.clustering import least_rows
from treetap.attacks.schema import DrawingSettings
from treetap.attacks.scores import UNKNOWN
from treetap.attacks.verdict import MOST_FREQUENT, Compared, FirstNamed, drawn_error, paired_error, unbalanced
from treetap.attacks.view.own_table import load_known_labels
from treetap.attacks.view.received_rows import attack_draws, some_of
from treetap.attacks.view.view import View
from treetap.errors import BadInput
from treetap.tables.labels import Labels
from treetap.tables.reading import Table


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
    # of two classes whose chances add up to 1 each says the same as the other
    same = chances.shape[1] == 2 and bool(np.abs(chances.sum(axis=1) - 1).max(initial=0) < 1e-8)
    for number in range(1 if same else chances.shape[1]):
        of_class = truth == number
        inside, outside = int(of_class.sum()), int((~of_class).sum())
        if not inside or not outside:
            continue
        value = np.unique(chances[:, number], return_inverse=True)[1]
        cell = 2 * (value if row is None else value[row]) + of_class
        others, own = np.bincount(cell, minlength=2 * int(value.max()) + 2).reshape(-1, 2).T.astype(np.float64)
        before, behind = _below(others), inside - _below(own)
        aucs.append(float(own @ before) / (inside * outside))
        moved = np.stack([behind / inside - aucs[-1], before / outside - aucs[-1]], axis=1) / [outside, inside]
        influence += moved.ravel().take(cell)
    return float(np.mean(aucs)) if aucs else 0.5, influence / max(1, len(aucs))


def _below(counts: Floats) -> Floats:
    """Of each value how many of `counts` records of all values, ascending, are below it, ties half."""
    return np.asarray(np.cumsum(counts) - counts / 2)


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
        guess, rare = least_rows(-chances.T), chances[:, rarest]
        if row is not None:
            guess, rare = guess[row], rare[row]
        by_record[0, named] = guess == right
        aucs.append(auc)
        firsts.append(precision_first(rare, right == rarest, first))
        rights.append(by_record[0])
        influences.append(by_record[1])
    return Named(aucs, firsts, rights, influences)


def precision_first(chances: Floats, right: Bools, first: int) -> float:
    """The share that is right among the `first` records with the largest chances (n,); the mean over orders of ties."""
    first = min(first, len(chances))
    least = np.partition(chances, len(chances) - first)[len(chances) - first]
    above, tied = chances > least, chances == least
    places = first - int(above.sum())
    return float((right[above].sum() + places * right[tied].mean()) / first)


# Labels that an attacker is assumed to know, and those by which the audit scores it.
#
# The auditor's labels score what the attacks find; of these a party is assumed to know some.


#: The share of the records that is set aside for evaluation where there is no other table for it.
SET_ASIDE = 0.2


@dataclass(frozen=True)
class KnownLabels:
    """Labels at hand.

    Attributes:
        truth: (N,) numbers of classes by which results are scored; `UNKNOWN` where there is none.
        pool: places of the records whose labels the party may know.
        classes: names of the classes; none without labels.
        ids: of the N records; None: they are in the order of their ids.
    """

    truth: Ints = field(repr=False)
    pool: Ints = field(repr=False)
    classes: list[str]
    ids: Sequence[str] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        records: int,
        labels: Labels | None,
        known: tuple[Ints, Labels] | None,
        ids: Sequence[str] | None = None,
    ) -> KnownLabels:
        """By the auditor's labels of all records, or those of some records, which the party knows, or both.

        `known`: places and labels. A class of theirs that the auditor's labels do not have is a further one.
        """
        truth = np.full(records, UNKNOWN, dtype=np.int64)
        classes = [] if labels is None else list(labels.classes)
        if labels is not None:
            truth[:] = labels.values
        if known is None:
            return cls(truth, np.flatnonzero(truth != UNKNOWN), classes, ids)
        places, own = known
        classes += [name for name in own.classes if name not in classes]
        truth[places] = numbered(own, classes)
        return cls(truth, np.sort(places), classes, ids)

    @property
    def scored(self) -> Ints:
        """Places of the records with a label at hand."""
        return np.flatnonzero(self.truth != UNKNOWN)

    @property
    def all(self) -> bool:
        """True if every record has a label at hand."""
        return bool(len(self.truth)) and len(self.scored) == len(self.truth)

    def by_id(self, places: Ints) -> Ints:
        """Places in the order of their ids: what is drawn of them does not depend on how records were aligned."""
        if self.ids is None:
            return places
        return np.array(sorted(places, key=self.ids.__getitem__), dtype=np.int64)

    def evaluated(self, settings: DrawingSettings) -> Ints:
        """Places of the records on which classifiers are measured where there is no other table.

        All with a label that the party does not know, if its labels are given and there are others; else a fifth, whose
        labels it is then assumed not to know.
        """
        draws, others = attack_draws(settings.seed), np.setdiff1d(self.scored, self.pool)
        if len(others):
            return some_of(self.by_id(others), settings.most_records, draws, "evaluation")
        most = min(settings.most_records, int(SET_ASIDE * len(self.scored)))
        return some_of(self.by_id(self.scored), most, draws, "evaluation")

    def draws(self, settings: DrawingSettings, without: Ints) -> list[Ints]:
        """Places of known labels, for each draw; `without`: places that are not among them."""
        pool = self.by_id(np.setdiff1d(self.pool, without))
        if len(pool) <= settings.known:
            return [np.sort(pool)] if len(pool) else []
        draws = attack_draws(settings.seed)
        return [some_of(pool, settings.known, draws, "known", number) for number in range(settings.draws)]


def numbered(labels: Labels, classes: list[str]) -> Ints:
    """Labels (n,) as places among these classes; `UNKNOWN` for a class that is not among them."""
    numbers = np.array([classes.index(name) if name in classes else UNKNOWN for name in labels.classes], dtype=np.int64)
    return np.asarray(numbers[labels.values], dtype=np.int64)


def labels_at_hand(view: View, table: Table | None, labels: Labels | None, known: LabelTable | None) -> KnownLabels:
    """The auditor's labels of all records, and a table of those that the party is assumed to know.

    Args:
        table: the party's table in the common order, by whose ids known labels are found.

    Raises:
        BadInput: the table of known labels cannot be used, or there is no table by whose ids to find them.
    """
    places = None
    if known is not None and not view.regression:
        if table is None:
            raise BadInput(f"{view.party}: known labels are found by the ids of the party's table: give it")
        places = load_known_labels(known.path, known.column, table, known.id)
    return KnownLabels.of(view.records, labels, places, None if table is None else list(table.ids))


def compared(
    trained: Mapping[str, Named],
    alone: list[Named],
    truth: Ints,
    *,
    known: int,
    first: FirstNamed | None,
    details: str,
) -> Compared:
    """The best of several ways beside the best one without the training: on an unbalanced table by AUC, else accuracy.

    Args:
        trained: words for a way → what it named.
        alone: the same by own columns; what always names the most frequent class, or guesses, is beside it.
        truth: (n,) classes of the records that take part.
        known: labels that the attacker knows, in each draw.
        first: of an unbalanced table the records that are named first.
    """
    if unbalanced(np.bincount(truth).tolist()):
        how = max(trained, key=lambda way: trained[way].auc)
        best, own = trained[how], max(alone, key=lambda it: it.auc, default=None)
        before = own if own is not None and own.auc > 0.5 else None
        # a figure that no draw changes stands beside those of all draws
        influence = np.mean(best.influence, axis=0) - (0.0 if before is None else np.mean(before.influence, axis=0))
        differences = np.asarray(best.aucs) - (0.5 if before is None else np.asarray(before.aucs))
        drawn = drawn_error(differences.tolist())
        return Compared(
            measure="AUC",
            before=0.5 if before is None else before.auc,
            before_how="guessing" if before is None else "own columns",
            reached=best.auc,
            reached_how=how,
            error=hypot(sqrt(float((influence**2).sum())), drawn),
            tries=sum(it.tries for it in trained.values()),
            first=first,
            details=details,
            **_labels_known(best, before, known, drawn),
        )
    return _by_accuracy(trained, alone, truth, known=known, details=details)


def _by_accuracy(
    trained: Mapping[str, Named], alone: list[Named], truth: Ints, *, known: int, details: str
) -> Compared:
    naming = {way: it for way, it in trained.items() if it.right}
    way = max(naming, key=lambda way: naming[way].accuracy)
    best = naming[way]
    frequent = (truth == np.bincount(truth).argmax()).astype(np.float64)
    before, how = np.array([np.where(np.isnan(draw), np.nan, frequent) for draw in best.right]), MOST_FREQUENT
    value = float(np.mean([np.nanmean(draw) for draw in before]))
    own = max((it for it in alone if it.right), key=lambda it: it.accuracy, default=None)
    if own is not None and own.accuracy > value:
        before, how, value = np.array(own.right), "own columns", own.accuracy
    else:
        own = None
    by_record = np.array(best.right) - before
    named = by_record[:, ~np.isnan(by_record).all(axis=0)]
    drawn = drawn_error(np.nanmean(by_record, axis=1).tolist())
    return Compared(
        measure="accuracy",
        before=value,
        before_how=how,
        reached=best.accuracy,
        reached_how=way,
        error=hypot(paired_error(np.nanmean(named, axis=0)), drawn),
        tries=sum(it.tries for it in naming.values()),
        details=details,
        **_labels_known(best, own, known, drawn),
    )


def _labels_known(best: Named, before: Named | None, known: int, drawn: float) -> dict[str, Any]:
    """The labels that the attacker knows, and the error by their draws; nothing where neither guess needs one."""
    if not best.known and (before is None or not before.known):
        return {}
    return {"known": known, "drawn": drawn or None}
