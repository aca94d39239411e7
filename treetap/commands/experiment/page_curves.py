"""Pictures of an experiment's page: ROC and calibration of classes, metrics by round; a curve for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from treetap.commands.experiment.results import Bin, RunResult, spread
from treetap.pages.pictures import Frame, Table, polyline, short

SIZE = (440, 320)
#: Most classes of which the page has curves; those with the most records come first.
MOST_CLASSES = 9
#: Prefix of a metric of a round → its records and its class in the style sheet, in the order of the legend.
RECORDS = {
    "train": ("training records", "train"),
    "validation": ("records of the validation share", "validation"),
    "eval": ("held-out rows", "eval"),
}


class Curve(NamedTuple):
    """A line of one run. `points`: marks on it as (x, y, radius); `title`: the run and its figure."""

    style: str
    path: str
    points: list[tuple[str, str, str]]
    title: str


@dataclass(frozen=True)
class Picture:
    """Curves in a frame. `diagonal`: path of the reference line, or empty; `table`: all figures."""

    title: str
    figure: str
    frame: Frame
    curves: list[Curve]
    diagonal: str
    table: Table


def roc_pictures(runs: Sequence[RunResult]) -> list[Picture]:
    """A picture for each class shown: the share of positives found by the share of false alarms."""
    frame = _unit("false positive rate", "true positive rate")
    pictures = []
    for name in _classes(runs, "roc"):
        of_class = [(run.planned.title, roc) for run in runs for roc in run.evaluation.roc if roc.name == name]
        curves = [
            Curve(
                "graph",
                polyline((frame.x(point.false), frame.y(point.true)) for point in roc.points),
                [],
                f"{title}: AUC {written(roc.auc)}",
            )
            for title, roc in of_class
        ]
        area = spread(roc.auc for _, roc in of_class).written()
        rows = [[title, written(roc.auc)] for title, roc in of_class]
        pictures.append(Picture(name, f"AUC {area}", frame, curves, _diagonal(frame), Table(["run", "AUC"], rows)))
    return pictures


def calibration_pictures(runs: Sequence[RunResult]) -> list[Picture]:
    """A picture for each class shown: the share of a class among records of nearly one predicted probability."""
    frame = _unit("mean predicted probability", "share of the class")
    pictures = []
    for name in _classes(runs, "calibration"):
        every = [own.bins for run in runs for own in run.evaluation.calibration if own.name == name]
        bins = [pooled for of_runs in zip(*every, strict=True) if (pooled := _pooled(of_runs)).records]
        most = max(it.records for it in bins)
        marks = [
            (short(frame.x(it.mean)), short(frame.y(it.observed)), short(2 + 6 * (it.records / most) ** 0.5))
            for it in bins
        ]
        line = polyline((frame.x(it.mean), frame.y(it.observed)) for it in bins)
        rows = [
            [f"{it.low:.1f} to {it.high:.1f}", f"{it.records:,}", f"{it.mean:.3f}", f"{it.observed:.3f}"] for it in bins
        ]
        curve = Curve("graph", line, marks, f"{sum(it.records for it in bins):,} records of all runs")
        heads = ["predicted", "records", "mean predicted", "share of the class"]
        pictures.append(Picture(name, "", frame, [curve], _diagonal(frame), Table(heads, rows)))
    return pictures


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
        pictures.append(Picture(measure, "", frame, curves, "", Table(["run", *given], _ends(runs, given))))
    return pictures


def legend(runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    """The records whose metrics the rounds have: name and class in the style sheet."""
    measures = _measures(runs)
    return [look for prefix, look in RECORDS.items() if any(_has(runs, f"{prefix}_{measure}") for measure in measures)]


def written(value: float | None, digits: int = 4) -> str:
    """A figure for a reader."""
    return "undefined" if value is None else f"{value:.{digits}f}"


class _Pooled(NamedTuple):
    """A bin of all runs: their records together."""

    low: float
    high: float
    records: int
    mean: float
    observed: float


def _pooled(bins: Sequence[Bin]) -> _Pooled:
    count = sum(it.records for it in bins)
    mean, observed = (
        sum(it.records * (figure or 0.0) for it, figure in figures) / max(count, 1)
        for figures in ([(it, it.mean) for it in bins], [(it, it.observed) for it in bins])
    )
    return _Pooled(bins[0].low, bins[0].high, count, mean, observed)


def _course(run: RunResult, name: str, frame: Frame) -> Curve:
    prefix = name.partition("_")[0]
    places = [
        None if (value := row.get(name)) is None else (frame.x(number), frame.y(value))
        for number, row in enumerate(run.history)
    ]
    end = next((place for place in reversed(places) if place is not None), None)
    marks = [] if end is None else [(short(end[0]), short(end[1]), "3")]
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


def _classes(runs: Sequence[RunResult], kind: Literal["roc", "calibration"]) -> list[str]:
    """The classes that have such curves in any run, those with the most held-out records first."""
    support: dict[str, int] = {}
    for evaluation in (run.evaluation for run in runs):
        sizes = {row.name: row.support for row in evaluation.per_class}
        for name in (own.name for own in getattr(evaluation, kind)):
            support[name] = support.get(name, 0) + sizes[name]
    return sorted(support, key=lambda name: -support[name])[:MOST_CLASSES]


def _unit(x_name: str, y_name: str) -> Frame:
    return Frame.linear(SIZE, (0, 1), (0, 1), (x_name, y_name))


def _diagonal(frame: Frame) -> str:
    return polyline([(frame.x(0), frame.y(0)), (frame.x(1), frame.y(1))])
