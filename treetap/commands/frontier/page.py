"""A frontier as one self-contained HTML file, as a picture as in Figure 8 of the ID2Graph paper, and as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from attacks.report import glossary
from attacks.report.glossary import ATTACKS
from treetap import terminal
from treetap.commands.frontier.frontier_file import NO_DEFENCE, REFERENCE
from treetap.pages.page import render
from treetap.pages.pictures import Frame, Table, short
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredPoint


def html(document: FrontierDocument) -> str:
    """The page: facts, a panel for each attack, a table of all points."""
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
    """All points: defence and setting, AUC, accuracy, V-measure by attack."""
    return Table(
        ["defence", "AUC", "accuracy", *document.attacks],
        [
            [
                f"{LOOKS[point.defence].label} {setting(point)}".strip(),
                written(point.auc),
                written(point.accuracy),
                *(written(point.v_measure[attack]) for attack in document.attacks),
            ]
            for point in document.points
        ],
    )


def print_frontier(document: FrontierDocument) -> None:
    """The table for a person; the columns of attacks are V-measures."""
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
}
#: The swept key of each table of settings, and its symbol.
SYMBOLS = {"xi": "ξ", "epsilon": "ε", "trees": "trees"}


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
    """One attack. `level`: height of the V-measure without a training; `limit`: place of the AUC without a defence."""

    title: str
    frame: Frame
    series: list[Series]
    level: tuple[str, str] | None
    limit: tuple[str, str] | None


def panels(document: FrontierDocument) -> list[Panel]:
    """A panel for each attack that uses the trees."""
    return [_panel(document, attack) for attack in document.attacks if attack != REFERENCE]


def setting(point: MeasuredPoint) -> str:
    """The swept parameter of a point with its symbol; empty without a defence."""
    return next((f"{symbol} {point.settings[key]:g}" for key, symbol in SYMBOLS.items() if key in point.settings), "")


def _panel(document: FrontierDocument, attack: str) -> Panel:
    shown = [point for point in document.points if point.auc.mean is not None]
    level = _mean([point.v_measure[REFERENCE] for point in shown])
    limit = next((point.auc.mean for point in shown if point.defence == NO_DEFENCE), None)
    # error bars are inside the frame
    low = min([_end(point.auc, -1) for point in shown], default=0.0)
    high = max([_end(point.auc, 1) for point in shown], default=1.0)
    margin = max(0.05 * (high - low), 0.005)
    top = max([_end(point.v_measure[attack], 1) for point in shown] + ([] if level is None else [level]), default=1.0)
    names = ("AUC of the held-out rows", "V-measure")
    frame = Frame.linear(SIZE, (low - margin, high + margin), (0, min(1.0, max(0.05, 1.1 * top))), names)
    by_defence = {name: [point for point in shown if point.defence == name] for name in LOOKS}
    return Panel(
        title=ATTACKS[attack].label,
        frame=frame,
        series=[_series(LOOKS[name], points, frame, attack) for name, points in by_defence.items() if points],
        level=None if level is None else (short(frame.y(level)), f"{level:.3f}"),
        limit=None if limit is None else (short(frame.x(limit)), f"{limit:.3f}"),
    )


def _series(look: Look, points: Sequence[MeasuredPoint], frame: Frame, attack: str) -> Series:
    marks = []
    for place, point in enumerate(points):
        radius = SMALL if len(points) == 1 else SMALL + (LARGE - SMALL) * place / (len(points) - 1)
        v = point.v_measure[attack]
        assert point.auc.mean is not None  # only such points are shown
        x, y = frame.x(point.auc.mean), frame.y(v.mean or 0.0)
        bars = f"M{short(frame.x(_end(point.auc, -1)))} {short(y)}H{short(frame.x(_end(point.auc, 1)))}"
        bars += f"M{short(x)} {short(frame.y(_end(v, -1)))}V{short(frame.y(_end(v, 1)))}"
        text = f"{look.label} {setting(point)}: AUC {written(point.auc)}, V-measure {written(v)}"
        marks.append(Mark(short(x), short(y), look.shape.format(short(radius)), bars, " ".join(text.split())))
    line = "M" + "L".join(f"{mark.x} {mark.y}" for mark in marks)
    return Series(look, marks, line if len(marks) > 1 else "")


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
