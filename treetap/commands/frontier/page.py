"""A frontier as one self-contained HTML file, as a picture as in Figure 8 of the ID2Graph paper, and as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from attacks.report import glossary
from attacks.report.glossary import ATTACKS
from treetap import terminal
from treetap.commands.frontier.frontier_file import CELLS, JOB, REFERENCE
from treetap.pages.page import render
from treetap.pages.pictures import Frame, Table, short
from treetap.privacy.frontiers import NO_DEFENCE, FrontierDocument, Measured, MeasuredCells, MeasuredPoint


def html(document: FrontierDocument) -> str:
    """The page: facts, a panel for each attack on labels and one for cells read, a table of all points."""
    return _render("frontier.html.j2", document)


def picture(document: FrontierDocument) -> str:
    """The panels side by side as an SVG file."""
    return _render("picture.svg.j2", document)


def _render(template: str, document: FrontierDocument) -> str:
    return render(
        "treetap.commands.frontier",
        template,
        document=document,
        panels=panels(document),
        looks=[LOOKS[name] for name in LOOKS if any(point.defence == name for point in document.points)],
        table=table_of(document),
        words=glossary,
    )


def table_of(document: FrontierDocument) -> Table:
    """All points: defence and setting, AUC, accuracy, V-measure by attack, and cells read."""
    return Table(
        ["defence", "AUC", "accuracy", *document.attacks, "cells read"],
        [
            [
                f"{LOOKS[point.defence].label} {setting(point)}".strip(),
                written(point.auc),
                written(point.accuracy),
                *(written(point.v_measure[attack]) for attack in document.attacks),
                placed(point.cells),
            ]
            for point in document.points
        ],
    )


def print_frontier(document: FrontierDocument) -> None:
    """The table for a person; columns of attacks are V-measures of labels, "cells read" is of columns."""
    heads, rows = table_of(document)
    table = terminal.table(*heads)
    for row in rows:
        table.add_row(*map(terminal.text, row))
    terminal.out.print(table)
    for sentence in document.says:
        terminal.out.print(terminal.text(sentence), soft_wrap=True)


SIZE = (440, 300)
#: Radius in pixels of the markers for the smallest and the largest parameter of a defence.
SMALL, LARGE = 3.5, 8.0
#: The shape of a marker of radius 1 around the origin, drawn by lines and arcs.
_CIRCLE = "M{0} 0A{0} {0} 0 1 1 -{0} 0A{0} {0} 0 1 1 {0} 0Z"
_SQUARE = "M-{0} -{0}H{0}V{0}H-{0}Z"
_DIAMOND = "M0 -{0}L{0} 0L0 {0}L-{0} 0Z"
_TRIANGLE = "M0 -{0}L{0} {0}H-{0}Z"
_BOW = "M-{0} -{0}L{0} {0}V-{0}L-{0} {0}Z"
_CROSS = "M-{0} -{0}L{0} {0}M-{0} {0}L{0} -{0}"


class Look(NamedTuple):
    """A defence's name in the legend, its class in the style sheet, its marker."""

    label: str
    style: str
    shape: str


LOOKS = {
    NO_DEFENCE: Look("no defence", "none", _CROSS),
    "reduced_leakage": Look("Reduced-Leakage", "reduced", _TRIANGLE),
    "id_lmid": Look("ID-LMID", "lmid", _CIRCLE),
    "label_dp": Look("label DP", "dp", _SQUARE),
    "label_dp + refit": Look("label DP + refit", "refit", _SQUARE),
    "grafting": Look("Grafting-LDP", "grafting", _DIAMOND),
    "grafting + refit": Look("Grafting-LDP + refit", "grafted", _DIAMOND),
    CELLS: Look(CELLS, "cells", _BOW),
    JOB: Look("settings of the job", "job", _CIRCLE),
}
#: The swept key of each table of settings, and its symbol.
SYMBOLS = {"xi": "ξ", "epsilon": "ε", "trees": "trees", CELLS: "m"}


class Mark(NamedTuple):
    """A point of a panel: its marker's outline around (x, y), its error bars as a path, and its text."""

    x: str
    y: str
    outline: str
    bars: str
    title: str


class Series(NamedTuple):
    """All points of one defence, in ascending order of its parameter, with a line through them."""

    look: Look
    marks: list[Mark]
    line: str


@dataclass(frozen=True)
class Panel:
    """One direction of one attack.

    `level`: height of the V-measure without a training, None of cells. `limit`: place of the AUC without a defence.
    """

    title: str
    frame: Frame
    series: list[Series]
    level: tuple[str, str] | None
    limit: tuple[str, str] | None


def panels(document: FrontierDocument) -> list[Panel]:
    """A panel for each attack on labels that uses the trees, and one for columns if cells were read."""
    of_labels = [_of_labels(document, attack) for attack in document.attacks if attack != REFERENCE]
    if all(point.cells is None for point in document.points):
        return of_labels
    return [*of_labels, _of_columns(document)]


def setting(point: MeasuredPoint) -> str:
    """The swept parameter of a point with its symbol, of the job all; empty without a defence."""
    if point.defence == JOB:
        return ", ".join(f"{key} {value}" for key, value in point.settings.items())
    return next((f"{symbol} {point.settings[key]:g}" for key, symbol in SYMBOLS.items() if key in point.settings), "")


@dataclass(frozen=True)
class _Height:
    """The height of a point in a panel. `ends`: of its vertical bar; `said`: for a reader."""

    mean: float
    ends: tuple[float, float]
    said: str


def _of_labels(document: FrontierDocument, attack: str) -> Panel:
    def height(point: MeasuredPoint) -> _Height:
        it = point.v_measure[attack]
        return _Height(it.mean or 0.0, (_end(it, -1), _end(it, 1)), f"V-measure {written(it)}")

    level = _mean([point.v_measure[REFERENCE] for point in document.points if point.auc.mean is not None])
    return _panel(document, ATTACKS[attack].label, "V-measure", height, level)


def _of_columns(document: FrontierDocument) -> Panel:
    def height(point: MeasuredPoint) -> _Height | None:
        it = point.cells
        if it is None or it.read.mean is None:
            return None
        ends = [part.mean for part in (it.read, it.left_sets, it.given) if part.mean is not None]
        return _Height(it.read.mean, (min(ends), max(ends)), f"cells read {placed(it)}")

    return _panel(document, "Columns, by opened sums", "share of cells read", height, None)


def _panel(
    document: FrontierDocument,
    title: str,
    name: str,
    height: Callable[[MeasuredPoint], _Height | None],
    level: float | None,
) -> Panel:
    shown = {
        number: (point, it)
        for number, point in enumerate(document.points)
        if point.auc.mean is not None and (it := height(point)) is not None
    }
    points = [point for point, _ in shown.values()]
    limit = next((point.auc.mean for point in points if point.defence == NO_DEFENCE), None)
    # error bars are inside the frame
    low = min([_end(point.auc, -1) for point in points], default=0.0)
    high = max([_end(point.auc, 1) for point in points], default=1.0)
    margin = max(0.05 * (high - low), 0.005)
    top = max([it.ends[1] for _, it in shown.values()] + ([] if level is None else [level]), default=1.0)
    names = ("AUC of the held-out rows", name)
    frame = Frame.linear(SIZE, (low - margin, high + margin), (0, min(1.0, max(0.05, 1.1 * top))), names)
    by_defence = {name: [pair for pair in shown.values() if pair[0].defence == name] for name in LOOKS}
    return Panel(
        title=title,
        frame=frame,
        series=[_series(LOOKS[name], pairs, frame) for name, pairs in by_defence.items() if pairs],
        level=None if level is None else (short(frame.y(level)), f"{level:.3f}"),
        limit=None if limit is None else (short(frame.x(limit)), f"{limit:.3f}"),
    )


def _series(look: Look, points: Sequence[tuple[MeasuredPoint, _Height]], frame: Frame) -> Series:
    marks, several = [], look.style != "job"  # settings of the job are no sweep of one parameter
    for place, (point, height) in enumerate(points):
        radius = SMALL + (LARGE - SMALL) * place / (len(points) - 1) if several and len(points) > 1 else SMALL
        assert point.auc.mean is not None  # only such points are shown
        x, y = frame.x(point.auc.mean), frame.y(height.mean)
        bars = f"M{short(frame.x(_end(point.auc, -1)))} {short(y)}H{short(frame.x(_end(point.auc, 1)))}"
        bars += f"M{short(x)} {short(frame.y(height.ends[0]))}V{short(frame.y(height.ends[1]))}"
        text = f"{look.label} {setting(point)}: AUC {written(point.auc)}, {height.said}"
        marks.append(Mark(short(x), short(y), look.shape.format(short(radius)), bars, " ".join(text.split())))
    line = "M" + "L".join(f"{mark.x} {mark.y}" for mark in marks)
    return Series(look, marks, line if several and len(marks) > 1 else "")


def placed(it: MeasuredCells | None) -> str:
    """Cells read for a reader, in brackets from the floor of left sets to the bound of given links; "–" unmeasured."""
    if it is None or it.read.mean is None:
        return "–"
    spread = "" if it.read.sd is None else f" ± {100 * it.read.sd:.1f}"
    floor, bound = ("–" if part.mean is None else f"{100 * part.mean:.1f}" for part in (it.left_sets, it.given))
    return f"{100 * it.read.mean:.1f}{spread} % ({floor}–{bound})"


def written(it: Measured) -> str:
    """Mean and deviation for a reader."""
    if it.mean is None:
        return "–"
    return f"{it.mean:.3f}" + ("" if it.sd is None else f" ± {it.sd:.3f}")


def _mean(values: Sequence[Measured]) -> float | None:
    known = [it.mean for it in values if it.mean is not None]
    return math.fsum(known) / len(known) if known else None


def _end(it: Measured, sign: int) -> float:
    """One end of the error bar."""
    return (it.mean or 0.0) + sign * (it.sd or 0.0)
