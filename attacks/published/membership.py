"""Membership inference by likelihood ratios under shadow models: LiRA (Carlini et al. 2022, algorithm 1).

Statistics of a model, on a record of its training and on others, are taken as Gaussians. With few shadow models one
covariance serves all records, as in the paper, and the difference that training on a record makes is shrunk towards its
mean over records, as far as its spread is that of few models (empirical Bayes): here the paper is left.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from treetap.attacks.known_labels.names import macro_auc
from treetap.attacks.published.columns import class_shares
from treetap.attacks.published.model import Bools, Floats
from treetap.attacks.published.schema import Artefact, Membership
from treetap.attacks.published.shadows import SEED, Intruder
from treetap.attacks.verdict import Compared, half_width
from treetap.trees.metrics import auc

#: The share of records outside the training that may be named wrongly.
FALSE = 0.01
#: Parts of the records by which membership is guessed without an artefact, and redraws of the records for intervals.
_FOLDS, _REDRAWN = 5, 400
_RATIO, _LEAVES, _CONFIDENT = "likelihood ratios", "likelihood ratios, leaves too", "confidence in the label"


def membership(intruder: Intruder) -> list[Membership]:
    """The best way by each artefact, beside a guess from the records alone."""
    target, shadows = intruder.target, intruder.shadows
    alone, observed = _alone(intruder), target.statistics(target.trees)
    ratios = {
        artefact: likelihood_ratios(observed[artefact], of_shadows, shadows.inside)
        for artefact, of_shadows in shadows.statistics.items()
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
    ratios: Floats = (centred * (mean + spread / (spread + chance) * (differences - mean))).sum(axis=1)
    return ratios


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
