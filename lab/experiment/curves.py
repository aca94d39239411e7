"""Curves of held-out rows by class (ROC, gains, precision, calibration), thresholds with their costs, and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from treetap.arrays import Floats
from treetap.lab.experiment.joint_model import written
from treetap.lab.experiment.results import Evaluation, Roc, RunResult, spread
from treetap.pages.pictures import Frame, polyline, short
from treetap.pages.section import Table

SIZE = (440, 320)
#: Most classes of which the page has curves; those with the most records come first.
MOST_CLASSES = 9
#: Records of a bin of predicted probabilities below which its mark is hollow.
FEW = 20
#: Costs of a missed record of the class, in false alarms, for which thresholds are chosen.
COSTS = (1, 2, 5, 10, 20)
#: Shares of the rows, those with the largest probability, of which the table of gains tells.
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
#: Places between two corners of a ROC curve at which the precision is drawn, which is no line between them.
_BETWEEN = 8
#: Prefix of a metric of a round → its records and its class in the style sheet, in the order of the legend.
RECORDS = {
    "train": ("training records", "train"),
    "validation": ("records of the validation share", "validation"),
    "eval": ("held-out rows", "eval"),
}


class Curve(NamedTuple):
    """A line of one run. `points`: dots, (x, y, radius, hollow: of few records). `title`: the run and its figure."""

    style: str
    path: str
    points: list[tuple[str, str, str, bool]]
    title: str


@dataclass(frozen=True)
class Picture:
    """Curves in a frame. `reference`: path of the dashed line, or empty; `table`: all figures."""

    title: str
    figure: str
    frame: Frame
    curves: list[Curve]
    reference: str
    table: Table


@dataclass(frozen=True)
class Ranked:
    """Held-out rows of a run from the largest probability of a class to the smallest.

    At K thresholds, ascending: shares of the rows above it that are of the class, `true`, and that are not, `false`.
    `positives`, `negatives`: rows in all.
    """

    title: str
    roc: Roc
    true: Floats
    false: Floats
    positives: int
    negatives: int

    @classmethod
    def of(cls, run: RunResult, roc: Roc) -> Ranked:
        """A class's curve of a run."""
        positives = next(row.support for row in run.evaluation.per_class if row.name == roc.name)
        true, false = (np.array([getattr(point, axis) for point in roc.points]) for axis in ("true", "false"))
        return cls(run.planned.title, roc, true, false, positives, run.evaluation.records - positives)

    @property
    def flagged(self) -> Floats:
        """The share of all rows above each threshold (K,)."""
        return (self.true * self.positives + self.false * self.negatives) / (self.positives + self.negatives)

    @property
    def costs(self) -> dict[int, Floats]:
        """Cost of a missed row → cost at each threshold (K,), in false alarms."""
        missed, alarms = (1 - self.true) * self.positives, self.false * self.negatives
        return {cost: cost * missed + alarms for cost in COSTS}


def class_curves(runs: Sequence[RunResult]) -> dict[str, list[Picture]]:
    """Four pictures for each class shown, the classes with the most held-out rows first."""
    support: dict[str, int] = {}
    for evaluation in (run.evaluation for run in runs):
        sizes = {row.name: row.support for row in evaluation.per_class}
        for name in (own.name for own in evaluation.roc):
            support[name] = support.get(name, 0) + sizes[name]
    names = sorted(support, key=lambda name: -support[name])[:MOST_CLASSES]
    curves = {}
    for name in names:
        ranked = ranked_rows(runs, name)
        pictures = [roc_picture(ranked), gains_picture(ranked), precision_picture(ranked)]
        curves[name] = [
            replace(picture, table=replace(picture.table, label=f"{picture.title} of class {name}", style="cards"))
            for picture in (*pictures, calibration_picture(runs, name))
        ]
    return curves


def ranked_rows(runs: Sequence[RunResult], name: str) -> list[Ranked]:
    """A class's curves, one for each run that has rows of it and of others."""
    return [Ranked.of(run, roc) for run in runs for roc in run.evaluation.roc if roc.name == name]


def roc_picture(ranked: Sequence[Ranked]) -> Picture:
    """The share of the class found by the share of false alarms; Gini is 2 AUC − 1."""
    frame = _unit("share of false alarms", "share found")
    curves = [_line(frame, it, it.false, it.true, f"AUC {written(it.roc.auc)}") for it in ranked]
    area = spread(it.roc.auc for it in ranked)
    ginis = [None if it.roc.auc is None else 2 * it.roc.auc - 1 for it in ranked]
    rows = [[it.title, written(it.roc.auc), written(gini)] for it, gini in zip(ranked, ginis, strict=True)]
    figure = f"AUC {area.written()}, Gini {spread(ginis).written()}"
    return Picture("ROC", figure, frame, curves, _diagonal(frame), Table(["run", "AUC", "Gini"], rows))


def gains_picture(ranked: Sequence[Ranked]) -> Picture:
    """The share of the class found among a share of the rows, those with the largest probability."""
    frame = _unit("share of the rows, the most probable first", "share found")
    curves = [_line(frame, it, it.flagged, it.true, "gains") for it in ranked]
    known = [it for it in ranked if len(it.true)]
    rows = []
    for share in SHARES:
        reached = [float(np.interp(share, it.flagged, it.true)) for it in known]
        base = [it.positives / (it.positives + it.negatives) for it in known]
        cells = [reached, [it / share for it in reached], [it * b / share for it, b in zip(reached, base, strict=True)]]
        reach, lift, right = (spread(it).mean for it in cells)
        rows.append([f"{share:.0%}", _percent(reach), "–" if lift is None else f"{lift:.2f}", _percent(right)])
    heads = ["of the rows", "found of the class", "lift", "right of these"]
    tenth = rows[SHARES.index(0.1)]
    return Picture(
        "Gains",
        f"{tenth[1]} found in the first tenth, lift {tenth[2]}",
        frame,
        curves,
        _diagonal(frame),
        Table(heads, rows),
    )


def precision_picture(ranked: Sequence[Ranked]) -> Picture:
    """The share of the flagged rows that is of the class by the share of it that is found; dashed: flagging all."""
    frame = _unit("share found (recall)", "right of those flagged (precision)")
    curves, shares = [], []
    for it in ranked:
        if not len(it.true):
            continue
        corners = np.arange(len(it.true))
        between = np.linspace(0, len(it.true) - 1, (len(it.true) - 1) * _BETWEEN + 1)[1:]
        true, false = (np.interp(between, corners, axis) for axis in (it.true, it.false))
        hits = true * it.positives
        curves.append(
            _line(
                frame,
                it,
                true,
                hits / (hits + false * it.negatives),
                f"average precision {written(it.roc.average_precision)}",
            )
        )
        shares.append(it.positives / (it.positives + it.negatives))
    base = spread(shares).mean
    level = "" if base is None else polyline([(frame.x(0), frame.y(base)), (frame.x(1), frame.y(base))])
    rows = [[it.title, written(it.roc.average_precision)] for it in ranked]
    mean = spread(it.roc.average_precision for it in ranked).written()
    return Picture(
        "Precision–recall", f"average precision {mean}", frame, curves, level, Table(["run", "average precision"], rows)
    )


def calibration_picture(runs: Sequence[RunResult], name: str) -> Picture:
    """The share of a class among rows of nearly one predicted probability; marks of few rows are hollow."""
    frame = _unit("mean predicted probability", "share of the class")
    every = [own.bins for run in runs for own in run.evaluation.calibration if own.name == name]
    seeds = seeds_of(runs)
    bins = []
    for of_runs in zip(*every, strict=True):
        if (count := sum(it.records for it in of_runs)) > 0:  # no record, no mean
            mean = sum(it.records * (it.mean or 0.0) for it in of_runs) / count
            share = sum(it.records * (it.observed or 0.0) for it in of_runs) / count
            bins.append((of_runs[0].low, of_runs[0].high, count / seeds, mean, share))
    most = max((records for _, _, records, _, _ in bins), default=1)
    marks, solid, rows = [], [], []
    for low, high, records, mean, share in bins:
        x, y = frame.x(mean), frame.y(share)
        marks.append((short(x), short(y), short(2 + 6 * (records / most) ** 0.5), records < FEW))
        # a bin of few rows is a mark beside the line
        solid += [(x, y)] if records >= FEW else []
        rows.append([f"{low:.1f} to {high:.1f}", counted(records), f"{mean:.3f}", f"{share:.3f}"])
    curve = Curve("graph", polyline(solid), marks, f"{counted(sum(records for _, _, records, _, _ in bins))} rows")
    heads = ["predicted", "rows", "mean predicted", "share of the class"]
    return Picture("Calibration", "", frame, [curve], _diagonal(frame), Table(heads, rows))


def thresholds(runs: Sequence[RunResult]) -> tuple[str, Table] | None:
    """The threshold of least cost for each cost of a missed record, mean over the runs; None but of two classes.

    The class that is missed, and rows: cost, threshold, shares of rows flagged, found and right, and the cost beside
    that of the threshold ½. The least cost lies at a corner of the ROC curve (Fawcett 2006, section 7).
    """
    names = {own.name for run in runs for own in run.evaluation.roc}
    if len(names) != 1 or any(len(run.evaluation.classes) != 2 for run in runs):
        return None
    (name,) = names
    known = [(it, run) for run in runs for it in ranked_rows([run], name) if len(it.true)]
    if not known:
        return None
    rows = []
    for cost in COSTS:
        best = [int(it.costs[cost].argmin()) for it, _ in known]
        cells = [_at(it, k, cost, run.evaluation) for k, (it, run) in zip(best, known, strict=True)]
        means = [spread(column).mean for column in zip(*cells, strict=True)]
        threshold = "none" if not means[1] else f"{means[0]:.2f}"
        rows.append([f"{cost} false alarm{'s' if cost > 1 else ''}", threshold, *map(_percent, means[1:])])
    heads = ["a missed row costs", "threshold", "rows flagged", "found", "right of these", "cost beside ½"]
    return name, Table(heads, rows, "The threshold of least cost", style="cards")


def _at(it: Ranked, k: int, cost: int, evaluation: Evaluation) -> tuple[float | None, ...]:
    """Threshold, shares flagged, found and right, and the cost by that of the threshold ½."""
    flagged, reach = float(it.flagged[k]), float(it.true[k])
    hits = reach * it.positives
    right = hits / (hits + float(it.false[k]) * it.negatives) if flagged else None
    (_, of_second), (of_first, _) = evaluation.confusion or ((0, 0), (0, 0))
    missed, alarms = (of_second, of_first) if it.roc.name == evaluation.classes[0] else (of_first, of_second)
    usual = cost * missed + alarms
    # above all probabilities no row is flagged
    threshold = it.roc.points[k].threshold
    return (
        1.0 if threshold is None else threshold,
        flagged,
        reach,
        right,
        float(it.costs[cost][k]) / usual if usual else None,
    )


def history_pictures(runs: Sequence[RunResult]) -> list[Picture]:
    """A picture for each measure that rounds have: its course over the rounds, by records that it is of."""
    pictures = []
    unit = "epoch" if any(run.epochs is not None for run in runs) else "round"
    for measure in _measures(runs):
        given = [name for name in (f"{prefix}_{measure}" for prefix in RECORDS) if _has(runs, name)]
        figures = [row.get(name) for run in runs for row in run.history for name in given]
        values = [figure for figure in figures if figure is not None]
        low, high = min(values), max(values)
        margin = 0.05 * (high - low) or max(0.05 * abs(high), 0.01)
        last = max(len(run.history) for run in runs) - 1
        names = (f"{unit}, from 0", "")  # the title says it, and figures of this axis may be long
        frame = Frame.linear(SIZE, (0, max(last, 1)), (low - margin, high + margin), names, whole=True)
        curves = [_course(run, name, frame) for name in given for run in runs if _has([run], name)]
        label = f"{measure} after each round, last figures of each run"
        table = Table(["run", *given], _ends(runs, given), label, style="cards")
        pictures.append(Picture(measure, "", frame, curves, "", table))
    return pictures


def legend(runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    """The records whose metrics the rounds have: name and class in the style sheet."""
    measures = _measures(runs)
    return [look for prefix, look in RECORDS.items() if any(_has(runs, f"{prefix}_{measure}") for measure in measures)]


def _course(run: RunResult, name: str, frame: Frame) -> Curve:
    prefix = name.partition("_")[0]
    places = [
        None if (value := row.get(name)) is None else (frame.x(number), frame.y(value))
        for number, row in enumerate(run.history)
    ]
    end = next((place for place in reversed(places) if place is not None), None)
    marks = [] if end is None else [(short(end[0]), short(end[1]), "3", False)]
    last = next((row[name] for row in reversed(run.history) if row.get(name) is not None), None)
    return Curve(
        RECORDS[prefix][1], polyline(places), marks, f"{run.planned.title}, {name}: {written(last)} at its end"
    )


def _ends(runs: Sequence[RunResult], names: Sequence[str]) -> list[list[str]]:
    """The last figure of each run, and over several runs the mean."""
    ends = {
        name: [next((row[name] for row in reversed(run.history) if row.get(name) is not None), None) for run in runs]
        for name in names
    }
    rows = [[run.planned.title, *(written(ends[name][k]) for name in names)] for k, run in enumerate(runs)]
    if len(runs) > 1:
        rows.append(["mean ± standard deviation", *(spread(ends[name]).written() for name in names)])
    return rows


def _measures(runs: Sequence[RunResult]) -> list[str]:
    """Measures of rounds, in the order in which they appear, without the records that they are of."""
    names = dict.fromkeys(name for run in runs for row in run.history for name in row)
    kept = dict.fromkeys(name.partition("_")[2] for name in names if name.partition("_")[0] in RECORDS)
    return [measure for measure in kept if any(_has(runs, f"{prefix}_{measure}") for prefix in RECORDS)]


def _has(runs: Sequence[RunResult], name: str) -> bool:
    return any(row.get(name) is not None for run in runs for row in run.history)


def seeds_of(runs: Sequence[RunResult]) -> int:
    """The number of seeds, of each of which a row is held out once at most."""
    return len({run.seed for run in runs})


def counted(count: float) -> str:
    """A number of rows, or the mean of several."""
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _line(frame: Frame, ranked: Ranked, x: Floats, y: Floats, figure: str) -> Curve:
    path = polyline((frame.x(a), frame.y(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return Curve("graph", path, [], f"{ranked.title}: {figure}")


def _unit(x_name: str, y_name: str) -> Frame:
    return Frame.linear(SIZE, (0, 1), (0, 1), (x_name, y_name))


def _diagonal(frame: Frame) -> str:
    return polyline([(frame.x(0), frame.y(0)), (frame.x(1), frame.y(1))])
