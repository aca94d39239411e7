"""Information in a party's known nodes: bounds of single ones, and the information of all together (the signature)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from treetap.attacks.document import BoundRow, Document, Party, Source
from treetap.attacks.report.glossary import count, score, share
from treetap.pages.pictures import (
    BOTTOM,
    LEFT,
    LINES,
    RIGHT,
    TOP,
    Frame,
    Linear,
    Lines,
    Log,
    Table,
    Tick,
    lines,
    short,
    thinned,
)

WIDTH, HEIGHT = LINES
#: Distances in pixels within which points are drawn once: the first that leaves at most `MOST` points, or the last. A
#: point is five pixels wide, so the picture stays the same and the file small.
GRIDS, MOST = (1.0, 2.0, 3.0, 4.0), 1500
SOURCE_ORDER: tuple[Source, ...] = ("received", "own", "difference")
#: A point of each source, drawn from its centre: a dot, a square (both by line caps), a diamond.
POINTS: dict[Source, str] = {"received": "h0", "own": "h0", "difference": "m0-3.2l3.2 3.2-3.2 3.2-3.2-3.2z"}


class Cloud(NamedTuple):
    """All points of one source, as one path."""

    source: Source
    path: str


@dataclass(frozen=True)
class Strip:
    """One picture: clouds within a frame; `ticks` of the x axis, which may be categories."""

    frame: Frame
    x_ticks: list[Tick]
    clouds: list[Cloud]


@dataclass(frozen=True)
class Bounds:
    """A party's two pictures, the line of the label's entropy (y, label), and their tables."""

    by_size: Strip
    by_depth: Strip
    entropy: tuple[str, str] | None
    depths: Table
    top: Table


JOINT_HEADS = ("trees", "signatures", "of the records", "information", "of the entropy", "by chance")
DEPTH_HEADS = ("depth", "nodes", "received", "own", "derived", "median", "largest")
TOP_HEADS = ("tree", "node", "depth", "records", "known by", "bound", "node", "complement")


def ceiling(document: Document) -> float:
    """The top of all axes in nats: the same for all parties."""
    values = [row.nats for party in document.on_labels.values() for row in party.bounds]
    values += [party.signature.label_entropy or 0.0 for party in document.on_labels.values()]
    return max(values, default=0.0) * 1.06 or 1.0


def bounds(document: Document, party: Party, top: float) -> Bounds | None:
    """The bounds of one party's known nodes; None without known nodes."""
    rows = party.bounds
    if not rows:
        return None
    y = Linear(0, top, HEIGHT - BOTTOM, TOP)
    size = Log(min(row.records for row in rows), document.records, LEFT, WIDTH - RIGHT)
    depths = sorted({row.depth for row in rows})
    band = (WIDTH - LEFT - RIGHT) / len(depths)

    def by_depth(row: BoundRow) -> float:
        start = LEFT + band * (depths.index(row.depth) + 0.12 + 0.76 * SOURCE_ORDER.index(row.source) / 3)
        return start + 0.76 * band / 3 * _jitter(row)

    entropy = party.signature.label_entropy
    return Bounds(
        by_size=_strip(rows, Frame(WIDTH, HEIGHT, size, y, "records in the node", "nats"), lambda it: size(it.records)),
        by_depth=_strip(
            rows,
            Frame(WIDTH, HEIGHT, size, y, "depth of the node", "nats"),
            by_depth,
            [Tick(short(LEFT + band * (k + 0.5)), str(depth)) for k, depth in enumerate(depths)],
        ),
        entropy=None if entropy is None else (short(y(entropy)), score(entropy)),
        depths=Table(DEPTH_HEADS, [_depth_row(depth, [row for row in rows if row.depth == depth]) for depth in depths]),
        top=Table(TOP_HEADS, [_top_row(row) for row in sorted(rows, key=_by_bound)[:10]]),
    )


def joint(document: Document, party: Party) -> Lines | None:
    """The signature's information and number by number of trees, as shares; None without any tree."""
    steps = party.signature.by_tree
    if not steps:
        return None
    entropy = party.signature.label_entropy
    series = {("signatures\n÷ records", "parts"): [step.signatures / max(1, document.records) for step in steps]}
    informations = [step.mutual_information for step in steps]
    # shares of the entropy need labels of more than one class
    if entropy and all(value is not None for value in informations):
        series["by chance\n÷ entropy", "chance"] = [(step.by_chance or 0.0) / entropy for step in steps]
        series["information\n÷ entropy", "information"] = [(value or 0.0) / entropy for value in informations]
    rows = [
        [
            str(k + 1),
            count(steps[k].signatures),
            share(steps[k].signatures, document.records),
            score(steps[k].mutual_information),
            share(steps[k].mutual_information or 0.0, entropy) if entropy else "–",
            share(steps[k].by_chance or 0.0, entropy) if entropy else "–",
        ]
        for k in thinned(len(steps))
    ]
    return lines(series, Table(JOINT_HEADS, rows), ("trees used", "share"), rows=2)


def _strip(
    rows: Iterable[BoundRow], frame: Frame, place: Callable[[BoundRow], float], ticks: list[Tick] | None = None
) -> Strip:
    points = [(row.source, place(row), frame.y(row.nats)) for row in rows]
    for grid in GRIDS:
        kept = {(source, round(x / grid), round(y / grid)): (x, y) for source, x, y in reversed(points)}
        if len(kept) <= MOST:
            break
    taken: defaultdict[Source, list[tuple[float, float]]] = defaultdict(list)
    for (source, _, _), point in kept.items():
        taken[source].append(point)
    clouds = [
        Cloud(source, "".join(f"M{short(x)} {short(y)}{POINTS[source]}" for x, y in taken[source]))
        for source in reversed(SOURCE_ORDER)  # received nodes are drawn on top
        if source in taken
    ]
    return Strip(frame, frame.x.ticks() if ticks is None else ticks, clouds)


def _jitter(row: BoundRow) -> float:
    """A pseudo-random offset in [0, 1) from the node's number: the same document gives the same picture."""
    return math.fmod((row.tree * 0.618034 + row.node * 0.754878), 1.0)


def _by_bound(row: BoundRow) -> tuple[float, int, int]:
    return -row.nats, row.tree, row.node


def _depth_row(depth: int, rows: list[BoundRow]) -> list[str]:
    by_source = [count(sum(row.source == source for row in rows)) for source in SOURCE_ORDER]
    values = [row.nats for row in rows]
    return [str(depth), count(len(rows)), *by_source, score(median(values)), score(max(values))]


def _top_row(row: BoundRow) -> list[str]:
    known = "derived" if row.source == "difference" else row.source
    place = [str(row.tree), str(row.node), str(row.depth), count(row.records), known]
    return [*place, score(row.nats), score(row.node_nats), score(row.complement_nats)]
