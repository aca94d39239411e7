"""Pictures of an experiment's page: ROC and calibration of classes, metrics by round; a curve for each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from attacks.report.scale import BOTTOM, LEFT, RIGHT, TOP, Frame, Linear, polyline, short
from treetap.commands.experiment.planned import planned
from treetap.commands.experiment.summary import spread

Run = Mapping[str, Any]
WIDTH, HEIGHT = 440, 320
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
    """Curves in a frame. `diagonal`: path of the reference line, or empty; `heads`, `rows`: all figures."""

    title: str
    figure: str
    frame: Frame
    curves: list[Curve]
    diagonal: str
    heads: list[str]
    rows: list[list[str]]


def roc_pictures(runs: Sequence[Run]) -> list[Picture]:
    """A picture for each class shown: the share of positives found by the share of false alarms."""
    frame = _unit("false positive rate", "true positive rate")
    pictures = []
    for name in _classes(runs, "roc"):
        found = [(run, each) for run in runs for each in run["evaluation"]["roc"] if each["class"] == name]
        curves = [
            Curve(
                "graph",
                polyline((frame.x(point["false"]), frame.y(point["true"])) for point in each["points"]),
                [],
                f"{planned(run).title}: AUC {written(each['auc'])}",
            )
            for run, each in found
        ]
        area = spread(each["auc"] for _, each in found).written()
        rows = [[planned(run).title, written(each["auc"])] for run, each in found]
        pictures.append(Picture(name, f"AUC {area}", frame, curves, _diagonal(frame), ["run", "AUC"], rows))
    return pictures


def calibration_pictures(runs: Sequence[Run]) -> list[Picture]:
    """A picture for each class shown: the share of a class among records of nearly one predicted probability."""
    frame = _unit("mean predicted probability", "share of the class")
    pictures = []
    for name in _classes(runs, "calibration"):
        every = [each["bins"] for run in runs for each in run["evaluation"]["calibration"] if each["class"] == name]
        bins = [_pooled(each) for each in zip(*every, strict=True)]
        most = max(each.records for each in bins)
        marks = [
            (short(frame.x(each.mean)), short(frame.y(each.observed)), short(2 + 6 * (each.records / most) ** 0.5))
            for each in bins
            if each.records
        ]
        line = polyline((frame.x(each.mean), frame.y(each.observed)) for each in bins if each.records)
        rows = [
            [f"{each.low:.1f} to {each.high:.1f}", f"{each.records:,}", f"{each.mean:.3f}", f"{each.observed:.3f}"]
            for each in bins
            if each.records
        ]
        curve = Curve("graph", line, marks, f"{sum(each.records for each in bins):,} records of all runs")
        heads = ["predicted", "records", "mean predicted", "share of the class"]
        pictures.append(Picture(name, "", frame, [curve], _diagonal(frame), heads, rows))
    return pictures


def history_pictures(runs: Sequence[Run]) -> list[Picture]:
    """A picture for each measure that rounds have: its course over the rounds, by records that it is of."""
    pictures = []
    unit = "epoch" if any("epochs" in run for run in runs) else "round"
    for measure in _measures(runs):
        given = [name for name in (f"{prefix}_{measure}" for prefix in RECORDS) if _has(runs, name)]
        values = [row[name] for run in runs for row in run["history"] for name in given if row.get(name) is not None]
        low, high = min(values), max(values)
        margin = 0.05 * (high - low) or max(0.05 * abs(high), 0.01)
        last = max(len(run["history"]) for run in runs) - 1
        frame = Frame(
            WIDTH,
            HEIGHT,
            Linear(0, max(last, 1), LEFT, WIDTH - RIGHT, whole=True),
            Linear(low - margin, high + margin, HEIGHT - BOTTOM, TOP),
            f"{unit}, from 0",
            "",  # the title says it, and figures of this axis may be long
        )
        curves = [_course(run, name, frame) for name in given for run in runs if _has([run], name)]
        pictures.append(Picture(measure, "", frame, curves, "", ["run", *given], _ends(runs, given)))
    return pictures


def legend(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """The records whose metrics the rounds have: name and class in the style sheet."""
    measures = _measures(runs)
    return [look for prefix, look in RECORDS.items() if any(_has(runs, f"{prefix}_{measure}") for measure in measures)]


def written(value: float | None, digits: int = 4) -> str:
    """A figure for a reader."""
    return "undefined" if value is None else f"{value:.{digits}f}"


class _Bin(NamedTuple):
    low: float
    high: float
    records: int
    mean: float
    observed: float


def _pooled(bins: Iterable[Mapping[str, Any]]) -> _Bin:
    """One bin of all runs: their records together."""
    given = list(bins)
    count = sum(each["records"] for each in given)
    means = [
        sum(each["records"] * each[key] for each in given if each["records"]) / max(count, 1)
        for key in ("mean", "observed")
    ]
    return _Bin(given[0]["low"], given[0]["high"], count, *means)


def _course(run: Run, name: str, frame: Frame) -> Curve:
    prefix = name.partition("_")[0]
    places = [
        None if (value := row.get(name)) is None else (frame.x(number), frame.y(value))
        for number, row in enumerate(run["history"])
    ]
    end = next((place for place in reversed(places) if place is not None), None)
    marks = [] if end is None else [(short(end[0]), short(end[1]), "3")]
    last = next((row[name] for row in reversed(run["history"]) if row.get(name) is not None), None)
    return Curve(
        RECORDS[prefix][1], polyline(places), marks, f"{planned(run).title}, {name}: {written(last)} at its end"
    )


def _ends(runs: Sequence[Run], names: Sequence[str]) -> list[list[str]]:
    """The last figure of each run, and over several runs the mean."""
    ends = {
        name: [next((row[name] for row in reversed(run["history"]) if row.get(name) is not None), None) for run in runs]
        for name in names
    }
    rows = [[planned(run).title, *(written(ends[name][k]) for name in names)] for k, run in enumerate(runs)]
    if len(runs) > 1:
        rows.append(["mean ± standard deviation", *(spread(ends[name]).written() for name in names)])
    return rows


def _measures(runs: Sequence[Run]) -> list[str]:
    """Measures of rounds, in the order in which they appear, without the records that they are of."""
    names = dict.fromkeys(name for run in runs for row in run["history"] for name in row)
    found = dict.fromkeys(name.partition("_")[2] for name in names if name.partition("_")[0] in RECORDS)
    return [each for each in found if any(_has(runs, f"{prefix}_{each}") for prefix in RECORDS)]


def _has(runs: Sequence[Run], name: str) -> bool:
    return any(row.get(name) is not None for run in runs for row in run["history"])


def _classes(runs: Sequence[Run], key: str) -> list[str]:
    """The classes that have such curves in any run, those with the most held-out records first."""
    support: dict[str, int] = {}
    for run in runs:
        for each in run["evaluation"].get(key, []):
            row = next(row for row in run["evaluation"]["per_class"] if row["class"] == each["class"])
            support[each["class"]] = support.get(each["class"], 0) + row["support"]
    return sorted(support, key=lambda name: -support[name])[:MOST_CLASSES]


def _unit(x_name: str, y_name: str) -> Frame:
    x, y = Linear(0, 1, LEFT, WIDTH - RIGHT), Linear(0, 1, HEIGHT - BOTTOM, TOP)
    return Frame(WIDTH, HEIGHT, x, y, x_name, y_name)


def _diagonal(frame: Frame) -> str:
    return polyline([(frame.x(0), frame.y(0)), (frame.x(1), frame.y(1))])
