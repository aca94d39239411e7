"""Panels of a frontier: AUC against what is read, with the values of settings on the points and the Pareto front."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from treetap.attacks.advice.names import DEFENCES, setting, swept
from treetap.attacks.report.glossary import ATTACKS
from treetap.lab.experiment.experiment_file import CELLS, JOB, REFERENCE
from treetap.pages.pictures import Frame, short
from treetap.privacy.frontiers import NO_DEFENCE, FrontierDocument, Measured, MeasuredCells, MeasuredPoint

SIZE = (440, 320)
#: Radius in pixels of the markers for the smallest and the largest parameter of a defence.
SMALL, LARGE = 3.5, 8.0
#: The shape of a marker of radius 1 around the origin, drawn by lines and arcs.
_CIRCLE = "M{0} 0A{0} {0} 0 1 1 -{0} 0A{0} {0} 0 1 1 {0} 0Z"
_SQUARE = "M-{0} -{0}H{0}V{0}H-{0}Z"
_DIAMOND = "M0 -{0}L{0} 0L0 {0}L-{0} 0Z"
_TRIANGLE = "M0 -{0}L{0} {0}H-{0}Z"
_BOW = "M-{0} -{0}L{0} {0}V-{0}L-{0} {0}Z"
_CROSS = "M-{0} -{0}L{0} {0}M-{0} {0}L{0} -{0}"
#: Points this share of the gain further left than the label holder alone are at the edge: nothing is lost with them.
BEYOND = 0.35
#: Radius of the ring around the recommended point.
RING = 12.0
#: Width of a letter and height of a line of the values on points, in pixels of the picture, for small screens too.
LETTER, LINE = 8.6, 16.0


class Look(NamedTuple):
    """A defence's name in the legend, its class in the style sheet, its marker."""

    label: str
    style: str
    shape: str


LOOKS = {
    name: Look(DEFENCES[name][0], style, shape)
    for name, style, shape in (
        ("reduced_leakage", "reduced", _TRIANGLE),
        ("id_lmid", "lmid", _CIRCLE),
        ("label_dp", "dp", _SQUARE),
        ("label_dp + refit", "refit", _SQUARE),
        ("grafting", "grafting", _DIAMOND),
        ("grafting + refit", "grafted", _DIAMOND),
        (CELLS, "cells", _BOW),
        (JOB, "job", _CIRCLE),
        (NO_DEFENCE, "none", _CROSS),  # on top of the others
    )
}


class Value(NamedTuple):
    """The text beside a point or a line, with its anchor; `style`: of its defence, "chosen", or "of-line"."""

    x: str
    y: str
    anchor: str
    text: str
    style: str


@dataclass(frozen=True)
class Panel:
    """One direction of one attack.

    `series`: a defence's look, and its points in ascending order of its parameter: x, y, the outline of the marker
    around them, of the front the error bars as a path, and a text.
    `level`: height of what needs no training. `limit`, `alone`: places of the AUC without a defence and of the label
    holder alone. `values`: the texts of these lines, then those of points. `front`: path along the points that no other
    one beats in both.
    `chosen`: the recommended point. `beyond`: points that are worse than alone, at the left edge.
    """

    title: str
    frame: Frame
    series: list[tuple[Look, list[tuple[str, str, str, str, str]]]]
    values: list[Value]
    level: str | None
    limit: str | None
    alone: str | None
    front: str
    chosen: tuple[str, str] | None
    beyond: int


class _Placed(NamedTuple):
    """A point with its place: `x`, `y` in pixels, the radius of its marker. `ends`: of its vertical bar.

    `said`: its height for a reader.
    """

    point: MeasuredPoint
    auc: float
    height: float
    ends: tuple[float, float]
    said: str
    x: float
    y: float
    radius: float


#: The height of a point in a panel, the ends of its vertical bar, and the height for a reader; None: it has none.
_Height = Callable[[MeasuredPoint], tuple[float, tuple[float, float], str] | None]


def of_guesses(document: FrontierDocument) -> Panel:
    """The panel that decides: what others can guess of the labels, beside what they can without the training."""
    before = document.before.mean or 0.0

    def height(point: MeasuredPoint) -> tuple[float, tuple[float, float], str] | None:
        it = point.added
        if it.mean is None:
            return None
        said = f"labels guessed {written(it.model_copy(update={'mean': before + it.mean}))}"
        return before + it.mean, (before + _end(it, -1), before + _end(it, 1)), said

    name = "labels guessed, AUC by 40 known" if document.measure == "AUC" else "labels guessed, accuracy"
    return _panel(document, "What others can guess", name, height, (before, f"without the training {before:.3f}"))


def of_attacks(document: FrontierDocument) -> list[Panel]:
    """A panel for each attack on labels that uses the trees."""

    def of(attack: str) -> Panel:
        def height(point: MeasuredPoint) -> tuple[float, tuple[float, float], str]:
            it = point.v_measure[attack]
            return it.mean or 0.0, (_end(it, -1), _end(it, 1)), f"V-measure {written(it)}"

        known = [point.v_measure[REFERENCE].mean for point in document.points if point.auc.mean is not None]
        own = [value for value in known if value is not None]
        level = math.fsum(own) / len(own) if own else None
        return _panel(
            document,
            ATTACKS[attack].label,
            "V-measure",
            height,
            None if level is None else (level, f"{ATTACKS[REFERENCE].label} {level:.3f}"),
        )

    return [of(attack) for attack in document.attacks if attack != REFERENCE]


def of_columns(document: FrontierDocument) -> list[Panel]:
    """The panels of columns, by cells and by variance; none where no cells were read, or no column is of numbers."""

    def height(point: MeasuredPoint) -> tuple[float, tuple[float, float], str] | None:
        it = point.cells
        if it is None or it.read.mean is None:
            return None
        ends = [part.mean for part in (it.read, it.left_sets, it.given) if part.mean is not None]
        return it.read.mean, (min(ends), max(ends)), f"cells read {placed(it)}"

    def of_numbers(point: MeasuredPoint) -> tuple[float, tuple[float, float], str] | None:
        if point.cells is None or (it := point.cells.explained).mean is None:
            return None
        return it.mean, (_end(it, -1), _end(it, 1)), f"variance explained {explained(point.cells)}"

    panels = [("Columns, by opened sums", "share of cells read", height)]
    panels += [("Columns of numbers, by opened sums", "variance explained", of_numbers)]
    return [
        _panel(document, title, name, of, None)
        for title, name, of in panels
        if any(of(point) is not None for point in document.points)
    ]


def _panel(
    document: FrontierDocument, title: str, name: str, height: _Height, level: tuple[float, str] | None
) -> Panel:
    shown = [
        (point, point.auc.mean, it)
        for point in document.points
        if point.auc.mean is not None and (it := height(point)) is not None
    ]
    alone, aucs = document.alone.auc.mean, [auc for _, auc, _ in shown]
    placed = aucs if alone is None else [*aucs, alone]
    left, right = min(placed, default=0.0), max(placed, default=1.0)
    if alone is not None and right > alone:
        # nothing is decided among points that are worse than no federation, where others are better
        left = max(left, alone - BEYOND * max(right - alone, 0.01))
    # Axes as wide as the points, and as high as they and lines across; markers at the ends are inside.
    rows = [it[0] for *_, it in shown] + ([] if level is None else [level[0]])
    wide = max(0.08 * (right - left), 0.002)
    low, high = min(rows, default=0.0), max(rows, default=1.0)
    tall = max(0.1 * (high - low), 0.002)
    names = ("AUC of the held-out rows", name)
    frame = Frame.linear(SIZE, (left - wide, right + wide), (low - tall, high + tall), names)
    marks = _placed(shown, frame)
    front = _front(marks, beyond=left)
    take = document.recommended.point
    chosen = next((it for it in marks if take is not None and it.point is document.points[take]), None)
    limit = next((it.x for it in marks if it.point.defence == NO_DEFENCE), None)
    level = None if level is None else (frame.y(level[0]), level[1])
    at_alone = None if alone is None else (frame.x(alone), f"{document.label_holder} alone {alone:.3f}")
    by_defence = {name: [it for it in marks if it.point.defence == name] for name in LOOKS}
    return Panel(
        title=title,
        frame=frame,
        series=[
            (LOOKS[name], [_drawn(it, frame, it in front) for it in some]) for name, some in by_defence.items() if some
        ],
        values=_values(marks, front, chosen, frame, _reference(frame, level, limit, at_alone)),
        level=None if level is None else short(level[0]),
        limit=None if limit is None else short(limit),
        alone=None if at_alone is None else short(at_alone[0]),
        front="".join(
            f"M{short(it.x)} {short(it.y)}" if not place else f"H{short(it.x)}V{short(it.y)}"
            for place, it in enumerate(front)
        ),
        chosen=None if chosen is None else (short(chosen.x), short(chosen.y)),
        beyond=sum(it.auc < left for it in marks),
    )


def _placed(
    shown: Sequence[tuple[MeasuredPoint, float, tuple[float, tuple[float, float], str]]], frame: Frame
) -> list[_Placed]:
    """The points at their places; of one defence's the last has the largest marker."""
    marks, before = list[_Placed](), Counter[str]()
    counts = Counter(point.defence for point, *_ in shown)
    for point, auc, height in shown:
        name = point.defence
        # settings of the job are no sweep of one parameter
        sweep = counts[name] > 1 and name != JOB
        radius = SMALL + ((LARGE - SMALL) * before[name] / (counts[name] - 1) if sweep else 1)
        before[name] += 1
        marks.append(_Placed(point, auc, *height, frame.x(auc), frame.y(height[0]), radius))
    return marks


def _front(marks: Sequence[_Placed], *, beyond: float) -> list[_Placed]:
    """The points that no other one beats, in both or in one and equals in the other, by their AUC."""
    known = [it for it in marks if it.auc >= beyond]

    def beaten(it: _Placed) -> bool:
        return any(
            other.auc >= it.auc and other.height <= it.height and (other.auc, other.height) != (it.auc, it.height)
            for other in known
        )

    return sorted((it for it in known if not beaten(it)), key=lambda it: it.auc)


def _drawn(it: _Placed, frame: Frame, in_front: bool) -> tuple[str, str, str, str, str]:
    """A point as `Panel.series` has it."""
    look, bars = LOOKS[it.point.defence], ""
    if in_front:  # of all points they would hide the points
        bars = f"M{short(frame.x(_end(it.point.auc, -1)))} {short(it.y)}H{short(frame.x(_end(it.point.auc, 1)))}"
        bars += f"M{short(it.x)} {short(frame.y(it.ends[0]))}V{short(frame.y(it.ends[1]))}"
    text = f"{look.label} {value(it.point)}: AUC {written(it.point.auc)}, {it.said}"
    return short(it.x), short(it.y), look.shape.format(short(it.radius)), bars, " ".join(text.split())


_Box = tuple[float, float, float, float]
#: The places where a text may stand, the best first.
_Places = list[tuple[_Box, Value]]


def _reference(
    frame: Frame, level: tuple[float, str] | None, limit: float | None, alone: tuple[float, str] | None
) -> tuple[list[_Box], list[_Places]]:
    """The reference lines, by their places in pixels and texts: their places as thin boxes, and those of each text."""
    across = [*([] if limit is None else [limit]), *([] if alone is None else [alone[0]])]
    boxes: list[_Box] = [(x - 1, frame.top, x + 1, frame.y_end) for x in across]
    texts: list[_Places] = []
    if alone is not None:
        x, text = alone
        rows = (frame.top + LINE / 2, frame.y_end - LINE / 2 - 1)
        texts.append(
            [_text(at, y, anchor, text, "of-line") for y in rows for at, anchor in ((x + 5, "start"), (x - 5, "end"))]
        )
    if level is not None:
        y, text = level
        boxes.append((frame.left, y - 1, frame.x_end, y + 1))
        ends = [(frame.x_end - 2.0, "end"), (frame.left + 4.0, "start")]
        ends += [] if alone is None else [(alone[0] + 5, "start")]
        ends += [] if limit is None else [(limit - 5, "end")]
        rows = (y + LINE / 2 + 2, y - LINE / 2 - 2)
        texts.append([_text(at, row, anchor, text, "of-line") for row in rows for at, anchor in ends])
    return boxes, texts


def _text(x: float, y: float, anchor: str, text: str, style: str) -> tuple[_Box, Value]:
    """A text whose middle is at the height `y`, and its place."""
    wide = LETTER * len(text)
    left = {"start": x, "end": x - wide, "middle": x - wide / 2}[anchor]
    return (left, y - LINE / 2, left + wide, y + LINE / 2), Value(short(x), short(y), anchor, text, style)


def _values(
    marks: Sequence[_Placed],
    front: Sequence[_Placed],
    chosen: _Placed | None,
    frame: Frame,
    reference: tuple[list[_Box], list[_Places]],
) -> list[Value]:
    """Texts of lines, then those beside points, of the recommended one and of the front first.

    They meet no point and no other text, and no line if there is a place for it; what has no free place has none.
    """
    order = {id(it): place for place, it in enumerate([*([chosen] if chosen else []), *front])}
    radii = {id(it): RING + 1 if it is chosen else it.radius for it in marks}
    taken = [(it.x - r, it.y - r, it.x + r, it.y + r) for it in marks for r in [radii[id(it)]]]
    (drawn, of_lines), values = reference, list[Value]()
    for one, other in pairwise(front):
        drawn.append((one.x, one.y - 1, other.x, one.y + 1))
        drawn.append((other.x - 1, min(one.y, other.y), other.x + 1, max(one.y, other.y)))

    def add(places: _Places, *, always: bool) -> None:
        inside = [
            (box, text)
            for box, text in places
            if box[0] >= frame.left and box[2] <= frame.width and box[1] >= 0 and box[3] <= frame.y_end
        ]
        free = [place for place in inside if not any(_meet(place[0], other) for other in taken)]
        clear = [place for place in free if not any(_meet(place[0], line) for line in drawn)]
        for box, text in (clear or free or (places if always else []))[:1]:
            values.append(text)
            taken.append(box)

    for places in of_lines:
        add(places, always=True)
    for it in sorted(marks, key=lambda it: order.get(id(it), len(order))):
        text = DEFENCES[NO_DEFENCE][0] if it.point.defence == NO_DEFENCE else value(it.point)
        style, off = "chosen" if it is chosen else f"d-{LOOKS[it.point.defence].style}", radii[id(it)] + 4
        aside, above = 0.7 * off, off + LINE / 2
        around = (
            (off, 0.0, "start"),
            (-off, 0.0, "end"),
            (0.0, -above, "middle"),
            (0.0, above, "middle"),
            *((side * aside, way * above * 0.8, "start" if side > 0 else "end") for way in (-1, 1) for side in (1, -1)),
        )
        add([_text(it.x + x, it.y + y, anchor, text, style) for x, y, anchor in around], always=False)
    return values


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def value(point: MeasuredPoint) -> str:
    """The swept parameter of a point with its symbol, of the job all; empty without a defence."""
    return setting(point.settings) if point.defence == JOB else swept(point.settings)


def placed(it: MeasuredCells | None) -> str:
    """Cells read for a reader, in brackets from the floor of left sets to the bound of given links; "–" unmeasured."""
    if it is None or it.read.mean is None:
        return "–"
    floor, bound = ("–" if part.mean is None else f"{100 * part.mean:.1f}" for part in (it.left_sets, it.given))
    return f"{written(it.read, 1, 100, ' %')} ({floor}–{bound})"


def explained(it: MeasuredCells | None) -> str:
    """Variance explained for a reader; "–" unmeasured, and without a column of numbers."""
    return "–" if it is None else written(it.explained, 1, 100, " %")


def written(it: Measured, digits: int = 3, scale: float = 1.0, unit: str = "") -> str:
    """Mean and deviation for a reader."""
    if it.mean is None:
        return "–"
    deviation = "" if it.sd is None else f" ± {scale * it.sd:.{digits}f}"
    return f"{scale * it.mean:.{digits}f}{deviation}{unit}"


def _end(it: Measured, sign: int) -> float:
    """One end of the error bar."""
    return (it.mean or 0.0) + sign * (it.sd or 0.0)
