"""The point of a frontier to take, by a rule: most is taken away for at most half of what the federation gains."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from treetap.attacks.advice.advise import EQUAL, LEAST
from treetap.attacks.advice.names import CELLS, JOB, lines_of, named, plainly, settings_of, strictness
from treetap.attacks.report.glossary import share
from treetap.attacks.verdict import LITTLE
from treetap.privacy.frontiers import NO_DEFENCE, MeasuredAlone, MeasuredCells, MeasuredPoint, Recommended

#: The least share of the gain over the label holder alone that a recommended point keeps.
KEPT = 0.5
#: Shares taken away within so much of each other are equal: then the AUC decides.
RULE = (
    f"Rule: of the points that keep at least {100 * KEPT:.0f} % of the gain over the label holder alone and take away "
    f"at least {100 * LEAST:.0f} % of what the training tells of labels, the one that takes most; of those within "
    f"{100 * EQUAL:.0f} points of it the one with the largest AUC; of settings of one defence whose AUCs are not told "
    "apart the strictest."
)
#: The standard error of a difference of two AUCs by that of one, on the same rows: they go together by some three
#: quarters (Hanley and McNeil 1983); and the errors of an interval of 95 %.
_PAIRED, _WIDE = 0.5**0.5, 1.96


class _Choice(NamedTuple):
    """A point by its place, its shares of the gain and of what is taken away, and its AUC."""

    place: int
    kept: float
    taken: float
    auc: float


def told_apart(points: Sequence[MeasuredPoint], rarest: int, test: int) -> float:
    """The difference of two points' AUCs from which they are told apart.

    Over several seeds a standard deviation of what a point gains. Of one the half width of an interval of 95 % by the
    held-out rows (Hanley and McNeil 1982): `test` ones, of which `rarest` are of the class with the fewest; 0: unknown.
    """
    if deviations := [it.gain.sd for it in points if it.gain.sd is not None]:
        return math.sqrt(statistics.fmean(sd**2 for sd in deviations))
    auc = max((it.auc.mean for it in points if it.auc.mean is not None), default=None)
    if auc is None or not 0 < rarest < test:
        return 0.0
    others, square = test - rarest, auc**2
    within = (rarest - 1) * (auc / (2 - auc) - square), (others - 1) * (2 * square / (1 + auc) - square)
    variance = auc - square + sum(within)
    return float(_WIDE * _PAIRED * max(0.0, variance / (rarest * others)) ** 0.5)


def recommend(
    points: Sequence[MeasuredPoint], alone: MeasuredAlone, before: float | None, label_holder: str, apart: float = 0.0
) -> Recommended:
    """The point to take by `RULE`, its sentence and its lines; or the reason why there is none.

    `before`: what can be guessed of the labels without the training. `apart`: see `told_apart`; smaller differences of
    AUC rank nothing.
    """
    without = next(point for point in points if point.defence == NO_DEFENCE)
    gain, added, auc = without.gain.mean, without.added.mean, without.auc.mean
    if gain is None or added is None or auc is None or alone.auc.mean is None or before is None:
        return Recommended(point=None, says="Nothing is recommended: the AUC of the held-out rows is undefined.")
    if gain <= 0:
        why = f"Together the parties are no better than {label_holder} alone: train alone."
        return Recommended(point=None, says=why)
    if added <= LITTLE * (1 - before):
        why = "There is little to lower: of what was left to guess of the labels others learned next to nothing.\n"
        why += "Train without a defence." + _least_of_columns(without, points)
        return Recommended(point=None, says=why)
    choices = [
        _Choice(place, it.gain.mean / gain, 1 - it.added.mean / added, it.auc.mean)
        for place, it in enumerate(points)
        if it is not without and it.gain.mean is not None and it.added.mean is not None and it.auc.mean is not None
    ]
    if not (enough := [it for it in choices if it.kept >= KEPT and it.taken >= LEAST]):
        return Recommended(
            point=None,
            says="No measured setting keeps half of the gain and takes away a quarter of what the training tells of "
            "labels: measure others, leave columns out, or train alone." + _least_of_columns(without, points),
        )
    # shares of what is taken differ by seeds, or by the draws of known labels, too
    errors = [it.added.sd for it in points if it.added.sd is not None]
    equal = max(EQUAL, statistics.fmean(errors) / added if errors else 0.0)
    most = max(it.taken for it in enough)
    top = max(it.auc for it in enough if it.taken >= most - equal)
    level = [it for it in choices if it.taken >= most - equal and top - it.auc <= apart]
    lead = max((it for it in level if it in enough), key=lambda it: (it.taken, it.auc))
    same = [it for it in level if it in enough and points[it.place].defence == points[lead.place].defence]
    best = max(same, key=lambda it: (strictness(points[it.place].defence, points[it.place].settings), it.auc))
    point = points[best.place]
    says = [
        f"Take this: {plainly(point.defence)}.",
        f"It takes away {100 * best.taken:.0f} % of what the training tells of labels.",
        f"It keeps {100 * best.kept:.0f} % of the gain.",
        f"AUC {best.auc:.3f} with it.",
    ]
    near = [_name(points[it.place]) for it in level if it is not best]
    near += [f"{label_holder} alone"] if best.auc - alone.auc.mean < apart else []
    says += [f"Not told apart from it: {it}." for it in near]
    one_seed = len(without.seeds) == 1
    if apart and (near or one_seed):
        says.append(f"Points closer than {apart:.{2 if apart >= 0.01 else 3}f} in AUC are not told apart.")
        says += ["Several seeds tell more:\n    seed = [0, 1, 2]  # in [data]"] if one_seed else []
    # where it was measured what the label holder reads of columns
    if (read := _read(without.cells)) and (left := _read(point.cells)):
        says += ["Of columns the label holder then reads:", *left, "Without it:", *read]
    lines = lines_of(point.defence, settings_of(point.settings), label_holder, list(point.parties))
    return Recommended(
        point=best.place,
        says="\n".join(says),
        kept=best.kept,
        taken=best.taken,
        lines={it.file: it.lines for it in lines},
    )


def _name(it: MeasuredPoint) -> str:
    """A point by its defence and settings; in words where these are keys of a file."""
    return plainly(it.defence) if it.defence in (CELLS, JOB) else named(it.defence, it.settings)


def _read(it: MeasuredCells | None) -> list[str]:
    """What is read of columns, by both measures; empty where this was not measured."""
    if it is None or it.read.mean is None:
        return []
    variance = it.explained.mean
    more = [] if variance is None else [f"  {share(variance, 1)} of the variation of numbers."]
    return [f"  {share(it.read.mean, 1)} of the cells.", *more]


def _least_of_columns(without: MeasuredPoint, points: Sequence[MeasuredPoint]) -> str:
    """Lines on the point at which the label holder reads fewest cells; empty where none lowers this."""
    read = {place: it.cells.read.mean for place, it in enumerate(points) if it.cells is not None}
    known = {place: mean for place, mean in read.items() if mean is not None}
    before = None if without.cells is None else without.cells.read.mean
    if before is None or (least := min(known.values())) >= before:
        return ""
    point = next(points[place] for place, mean in known.items() if mean == least)
    said = [
        f"Of columns the label holder reads least with this, {_name(point)}:",
        *_read(point.cells),
    ]
    said += [] if point.auc.mean is None else [f"  AUC {point.auc.mean:.3f}."]
    return "\n".join(["", *said, "Without it:", *_read(without.cells)])
