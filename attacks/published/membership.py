"""Membership inference by likelihood ratios under shadow models: LiRA (Carlini et al. 2022, algorithm 1).

Statistics of a model, on a record of its training and on others, are taken as Gaussians. With few shadow models one
covariance serves all records, as in the paper, and the difference that training on a record makes is shrunk towards its
mean over records, as far as its spread is that of few models (empirical Bayes): here the paper is left.

Attribute inference: one column of records of the training from all others, by what was published of the model.

1. Without an artefact: a classifier from the other columns and the label to the bins of the column, fitted to records
   outside the training, or the most frequent bin; of a number the mean.
2. Served answers: the same classifier with the record's score beside the columns.
3. The export: each value is put into the record, and weighed by the probability of the record's label (Fredrikson et
   al. 2014); with served answers, by whether the record's own score comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.known_labels.names import macro_auc
from treetap.attacks.published.model import SEED, Intruder, Target
from treetap.attacks.published.schema import HELD, Artefact, ColumnGuess, Membership
from treetap.attacks.verdict import Compared, Measure, half_width, paired_error
from treetap.trees.metrics import auc

#: Most records that are guessed, and most from outside the training to learn from.
GUESSED, LEARNED = 400, 2000
#: Bins of a number that no tree splits at, and ends beyond which a number counts as these.
_BINS, _ENDS = 16, (0.01, 0.99)
#: Trees of a classifier, the fewest records of their leaves, and the part of a guess that the most frequent bins have.
_TREES, _LEAF, _BASE = 50, 3, 0.02
#: Part of the time after which no further column begins.
_LAST = 0.9
#: Most records with a value put in, by column, and the fewest records that are guessed.
_TRIED, _FEWEST = 25_600, 20
_TINY = 1e-12
_OTHERS, LABEL = "the other columns", "the label"


@dataclass(frozen=True)
class _Column:
    """A column of a party, or the label, in bins; `place`: in `Intruder.cells`, `number`: in the party's table.

    `cuts`: between the bins of a number. `categories`: 0 of a number. `split`: trees split at it.
    """

    party: str
    name: str
    place: int
    number: int
    cuts: tuple[float, ...]
    categories: int
    split: bool

    @property
    def kind(self) -> Literal["number", "category"]:
        return "category" if self.categories else "number"

    @property
    def bins(self) -> int:
        return self.categories or len(self.cuts) + 1

    def codes(self, values: Floats) -> Ints:
        """The bin (n,) of each value; -1 where it is missing or no category of the training."""
        given = np.nan_to_num(values, nan=-1.0)
        if self.categories:
            return np.where((given >= 0) & (given < self.categories), given, -1).astype(np.int64)
        return np.where(np.isnan(values), -1, np.searchsorted(self.cuts, given, side="right")).astype(np.int64)

    @property
    def values(self) -> Floats:
        """A value in each bin (bins,): a category itself; of a number the cut below it, which lies in the bin."""
        if self.categories:
            return np.arange(self.categories, dtype=np.float64)
        return np.array([*(np.nextafter(cut, -np.inf) for cut in self.cuts[:1]), *self.cuts])


def member_columns(intruder: Intruder) -> list[ColumnGuess]:
    """All columns by all artefacts that say something of single records; those for which time is short are left out."""
    target, draw = intruder.target, np.random.default_rng(SEED)
    guessed = np.sort(draw.permutation(np.flatnonzero(target.members))[:GUESSED])
    learned = np.sort(draw.permutation(np.flatnonzero(~target.members))[:LEARNED])
    rows: list[ColumnGuess] = []
    left_out = []
    for column in _columns(target, intruder.cells):
        if intruder.spent > _LAST * intruder.bounds.seconds:
            left_out.append(column.name)
        else:
            rows += _guesses(intruder, column, guessed, learned)
    if left_out:
        intruder.reasons[f"columns {', '.join(left_out)}"] = (
            f"the {intruder.bounds.seconds:g} seconds of this audit had passed"
        )
    if made := [name for table in intruder.target.tables.values() for name in table.columns if name in table.made]:
        intruder.reasons[f"columns {', '.join(made)}"] = "each is one category of a column that was encoded"
    many = {artefact: sum(row.artefact == artefact for row in rows) for artefact in {row.artefact for row in rows}}
    # the verdict is by the worst of them
    return [
        row.model_copy(update={"compared": row.compared.model_copy(update={"tries": many[row.artefact]})})
        for row in rows
    ]


def class_shares(known: Floats, codes: Ints, asked: Floats, bins: int) -> Floats:
    """The chances (m, bins) of each bin for m records, by a classifier fitted to other records.

    `known` (n, d), `asked` (m, d): other columns, NaN where missing. `codes` (n,): bins of the known ones.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    base = (np.bincount(codes, minlength=bins) + 1) / (len(codes) + bins)
    lowest = np.float64(-1e9)  # a missing value is one of its own
    fitted = ExtraTreesClassifier(_TREES, min_samples_leaf=_LEAF, max_features=0.5, random_state=SEED)
    fitted.fit(np.nan_to_num(known, nan=lowest), codes)
    chances = np.zeros((len(asked), bins))
    chances[:, fitted.classes_] = fitted.predict_proba(np.nan_to_num(asked, nan=lowest))
    return np.asarray((1 - _BASE) * chances + _BASE * base)


def _columns(target: Target, cells: Floats) -> Iterator[_Column]:
    """The label, then the columns that trees split at, then all others but for those of one category each."""
    classes, last = len(target.labels.classes), cells.shape[1] - 1
    yield _Column("", LABEL, last, -1, () if classes else _quantiles(cells[:, last]), classes, split=False)
    cuts, place, columns = target.trees.cuts(), 0, list[_Column]()
    for party, table in target.tables.items():
        for number, name in enumerate(table.columns):
            encoded, at = table.categories.get(name), cuts.get((party, number))
            many = 0 if encoded is None or encoded.of_dates else len(encoded.values)
            inner = () if many else tuple(at or _quantiles(cells[:, place]))
            if name not in table.made:
                columns.append(_Column(party, name, place, number, inner, many, split=at is not None))
            place += 1
    yield from sorted(columns, key=lambda column: not column.split)


def _quantiles(values: Floats) -> tuple[float, ...]:
    present = values[~np.isnan(values)]
    return tuple(np.unique(np.quantile(present, np.arange(1, _BINS) / _BINS)).tolist()) if len(present) else ()


def _guesses(intruder: Intruder, column: _Column, guessed: Ints, learned: Ints) -> Iterator[ColumnGuess]:
    """The guesses of one column, where some records have values that differ."""
    cells = intruder.cells
    codes, values = column.codes(cells[:, column.place]), cells[:, column.place]
    guessed, learned = guessed[codes[guessed] >= 0][: _TRIED // column.bins], learned[codes[learned] >= 0]
    if len(guessed) < _FEWEST or min(len(np.unique(codes[rows])) for rows in (guessed, learned)) < 2:
        intruder.reasons[f"column {column.name}"] = f"fewer than {_FEWEST} records, or one value, or too many values"
        return
    others, known = np.delete(cells, column.place, axis=1), codes[learned]
    scored = np.hstack([others, intruder.scores])
    before = class_shares(others[learned], known, others[guessed], column.bins)
    by_answers = class_shares(scored[learned], known, scored[guessed], column.bins)
    ways: dict[Artefact, tuple[str, Floats]] = {"answers": ("the score beside the other columns", by_answers)}
    if column.split:
        unlabelled = class_shares(others[learned, :-1], known, others[guessed, :-1], column.bins)
        by_label, by_score = _fitting(intruder, column, guessed, learned)
        ways["export"] = "the value that fits the label", _normed(unlabelled * by_label)
        ways["export and answers"] = "the value that gives the score", _normed(by_answers * by_score)
    else:
        ways |= {artefact: ways["answers"] for artefact in HELD if column.name == LABEL and artefact != "card"}
    for artefact, (how, after) in ways.items():
        for compared in _compared(
            column, (codes[guessed], values[guessed]), (known, values[learned]), before, after, how
        ):
            yield ColumnGuess(
                artefact=artefact,
                party=column.party,
                column=column.name,
                kind=column.kind,
                bins=column.bins,
                records=len(guessed),
                compared=compared,
            )


def _fitting(intruder: Intruder, column: _Column, guessed: Ints, learned: Ints) -> tuple[Floats, Floats]:
    """How each value (m, bins) fits a record: the likelihood of its label; and 1 where its score comes out, else 0.

    The bins of a number are those that the trees tell apart, so that one value of a bin stands for all.
    """
    target, tried, shape = intruder.target, column.values, (len(guessed), column.bins)
    features = {party: np.repeat(own[guessed], len(tried), axis=0) for party, own in target.features.items()}
    features[column.party][:, column.number] = np.tile(tried, len(guessed))
    scores, labels = target.trees.scores(features), target.labels.values
    outcome, asked = target.trees.ensemble.outcome(scores), np.repeat(labels[guessed], len(tried))
    if target.regression:
        missed = target.trees.ensemble.outcome(intruder.scores[learned]).reshape(-1) - labels[learned]
        likely = np.exp(-((outcome.reshape(-1) - asked) ** 2) / (2 * missed.var() + _TINY)) + _TINY
    else:
        likely = target.chances(outcome, asked) + _TINY
    apart = np.abs(scores.reshape(*shape, -1) - intruder.scores[guessed][:, None]).max(axis=2)
    fits = apart <= apart.min(axis=1, keepdims=True) + 1e-9 * (1 + np.abs(intruder.scores).max())
    return likely.reshape(shape), fits.astype(np.float64)


def _normed(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _compared(
    column: _Column,
    guessed: tuple[Ints, Floats],
    learned: tuple[Ints, Floats],
    before: Floats,
    after: Floats,
    how: str,
) -> Iterator[Compared]:
    """The share of bins that are right and, of a number, the variance that the mean of the guess explains.

    `guessed`, `learned`: codes and values (m,) of the records that are guessed, and of those to learn from. `before`,
    `after`: (m, bins) chances without and with an artefact.
    """
    (codes, values), (known_codes, known_values) = guessed, learned
    frequent = np.bincount(known_codes).argmax()
    right, base = before.argmax(axis=1) == codes, frequent == codes
    own = right.mean() > base.mean()
    best = (right if own else base).astype(np.float64)
    reached = (after.argmax(axis=1) == codes).astype(np.float64)
    yield _beside(column.name, "accuracy", best, reached, how, _OTHERS if own else "the most frequent value")
    if column.categories:
        return
    low, high = np.quantile(known_values, _ENDS)
    truth, known = np.clip(values, low, high), np.clip(known_values, low, high)
    counts = np.bincount(known_codes, minlength=column.bins)
    sums = np.bincount(known_codes, weights=known, minlength=column.bins)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.clip(column.values, low, high))
    missed = [(guess - truth) ** 2 for guess in (np.full(len(truth), known.mean()), before @ means, after @ means)]
    spread = missed[0].mean()
    if spread > 0:
        mean, others, with_artefact = (1 - of / spread for of in missed)
        own = others.mean() > 0
        words = _OTHERS if own else "the mean"
        yield _beside(column.name, "explained", others if own else mean, with_artefact, how, words)


def _beside(name: str, measure: Measure, before: Floats, after: Floats, how: str, before_how: str) -> Compared:
    """A guess beside another one, from what each record (m,) adds to their figures."""
    return Compared(
        measure=measure,
        before=max(0.0, float(before.mean())),
        before_how=f"{name}, by {before_how}",
        reached=float(after.mean()),
        reached_how=how,
        error=paired_error(after - before),
        tries=1,
        details="member-columns",
    )


#: The share of records outside the training that may be named wrongly.
FALSE = 0.01
#: Parts of the records by which membership is guessed without an artefact, and redraws of the records for intervals.
_FOLDS, _REDRAWN = 5, 400
_RATIO, _LEAVES, _CONFIDENT = "likelihood ratios", "likelihood ratios, leaves too", "confidence in the label"


def membership(intruder: Intruder) -> list[Membership]:
    """The best way by each artefact, beside a guess from the records alone."""
    target = intruder.target
    alone, observed = _alone(intruder), target.statistics(target.trees)
    ratios = {
        artefact: likelihood_ratios(observed[artefact], of_shadows, intruder.inside)
        for artefact, of_shadows in intruder.statistics.items()
    }
    by_score = {_RATIO: ratios["answers"], _CONFIDENT: observed["answers"][:, 0]}
    held: dict[Artefact, dict[str, Floats]] = {
        "card": {_RATIO: ratios["card"]},
        "answers": by_score,
        "export": {**by_score, _LEAVES: ratios["export"]},
    }
    return [_row(artefact, ways, alone, target.members) for artefact, ways in held.items()]


def likelihood_ratios(observed: Floats, shadows: Floats, inside: Bools) -> Floats:
    """The logarithm (n,) of how much likelier each record's statistics are if it was in the training.

    Args:
        observed: (n, d) of the published model.
        shadows: (S, n, d) of shadow models.
        inside: (S, n) the records that each of these was trained on, half of them each.
    """
    known = inside[:, :, None]
    within, without = ((shadows * side).sum(axis=0) / side.sum(axis=0) for side in (known, ~known))
    residuals = (shadows - np.where(known, within, without)).reshape(-1, observed.shape[1])
    models, varied = len(shadows), residuals.std(axis=0) > 1e-12 * (1 + np.abs(observed).max(axis=0))
    if not varied.any():
        return np.zeros(len(observed))
    covariance = np.atleast_2d(np.cov(residuals[:, varied], rowvar=False)) * models / (models - 2)
    # of many statistics and few models the correlations are those of chance
    mixed = varied.sum() / (varied.sum() + models)
    covariance = (1 - mixed) * covariance + mixed * np.diag(np.diag(covariance))
    whitening = np.linalg.inv(np.linalg.cholesky(covariance)).T
    differences = (within - without)[:, varied] @ whitening
    centred = (observed - (within + without) / 2)[:, varied] @ whitening
    chance = 4 / models  # the variance of a difference of two means of half of the models each
    spread = np.maximum(0.0, differences.var(axis=0) - chance)
    mean = differences.mean(axis=0)
    return np.asarray((centred * (mean + spread / (spread + chance) * (differences - mean))).sum(axis=1))


def _alone(intruder: Intruder) -> Floats:
    """The chance (n,) that each record is of the training, by its columns and label and the other records' sides."""
    target = intruder.target
    known, sides = intruder.cells, target.members.astype(np.int64)
    folds = np.random.default_rng(SEED).permutation(len(sides)) % _FOLDS
    chances = np.zeros(len(sides))
    for fold in range(_FOLDS):
        held, rest = folds == fold, folds != fold
        chances[held] = class_shares(known[rest], sides[rest], known[held], 2)[:, 1]
    return chances


def _row(artefact: Artefact, ways: dict[str, Floats], alone: Floats, members: Bools) -> Membership:
    how = max(ways, key=lambda way: auc(ways[way], members))
    reached, before, tries = auc(ways[how], members), auc(alone, members), len(ways)
    influence, earlier = _influence(ways[how], members), _influence(alone, members)
    own = before > 0.5
    width = half_width(sqrt(float((influence**2).sum())), tries)
    draw = np.random.default_rng(SEED)
    sides = [np.flatnonzero(members), np.flatnonzero(~members)]
    redrawn = []
    for _ in range(_REDRAWN):
        rows = np.concatenate([draw.choice(side, len(side)) for side in sides])
        redrawn.append(found_at(ways[how][rows], members[rows]))
    low, high = np.quantile(redrawn, [0.025, 0.975])
    return Membership(
        artefact=artefact,
        how=how,
        auc=reached,
        low=max(0.0, reached - width),
        high=min(1.0, reached + width),
        found=found_at(ways[how], members),
        found_low=float(low),
        found_high=float(high),
        compared=Compared(
            measure="AUC",
            before=before if own else 0.5,
            before_how="the records' own columns and labels" if own else "guessing",
            reached=reached,
            reached_how=how,
            error=sqrt(float(((influence - earlier * own) ** 2).sum())),
            tries=tries,
            details="membership",
        ),
    )


def _influence(values: Floats, members: Bools) -> Floats:
    """What each record (n,) adds to the error of an AUC: squares add up to its variance."""
    return macro_auc(values[:, None], (~members).astype(np.int64))[1]


def found_at(values: Floats, members: Bools) -> float:
    """The share of members above the least threshold that at most `FALSE` of the others pass."""
    others = np.sort(values[~members])
    return float((values[members] > others[len(others) - 1 - int(FALSE * len(others))]).mean())
