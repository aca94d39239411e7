"""A protocol drawn as SVG: a lane for each actor, its steps in order, an arrow for each message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from textwrap import shorten
from typing import NamedTuple

from treetap.wire.disclosure import DisclosureClass

#: Pixels: of the margin with the bands' names, a lane, a step's box, an arrow's line, and the head with actors' names.
_MARGIN, _LANE, _BOX, _LINE, _HEAD = 110, 260, 34, 22, 44
_BOX_WIDTH = 150
#: Colours of classes by kind, in the order of the legend; the last is of all further ones.
_COLOURS = {
    "open": ("#b42318", "#bf6a02", "#a40e6f", "#7a4b00", "#d1242f", "#953800"),
    "sealed": ("#1f6feb", "#8250df", "#0a7ea4", "#5a32a3"),
    "plain": ("#8c959f", "#57606a", "#4d7358", "#6b6347", "#41616b"),
}
_TEXT = 'font-family="Helvetica, Arial, sans-serif" font-size="12"'


class Arrow(NamedTuple):
    """A message from one lane to another, or to others of the same; `tells`: the class that gives it its colour.

    `both`: it goes both ways.
    """

    message: str
    only: str
    tells: str
    pair: tuple[str, str]
    both: bool


class Row(NamedTuple):
    """A step at its actors, how often it comes, and what it sends."""

    step: str
    actors: tuple[str, ...]
    often: str
    arrows: tuple[Arrow, ...]


def picture(title: str, lanes: Sequence[str], rows: Sequence[Row], told: Sequence[DisclosureClass]) -> str:
    """The SVG document."""
    # of more classes of a kind than its palette has colours the last share one
    colours: dict[str, str] = {}
    for kind, palette in _COLOURS.items():
        names = [one.name for one in told if one.kind == kind]
        colours |= {name: palette[min(k, len(palette) - 1)] for k, name in enumerate(names)}
    centres = {lane: _MARGIN + _LANE * k + _LANE // 2 for k, lane in enumerate(lanes)}
    heights = [_BOX + _LINE * len(row.arrows) + (8 if row.arrows else 0) for row in rows]
    bottom = 2 * _HEAD + sum(heights)
    width, height = _MARGIN + _LANE * len(lanes) + 60, bottom + 20 + 18 * len(told)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" {_TEXT} font-weight="bold">{escape(title)}</text>',
        *_bands(rows, heights, width),
    ]
    for lane, x in centres.items():
        parts += [
            f'<text x="{x}" y="{_HEAD + 12}" text-anchor="middle" {_TEXT} font-weight="bold">{escape(lane)}</text>',
            f'<line x1="{x}" y1="{_HEAD + 22}" x2="{x}" y2="{bottom}" stroke="#d0d7de"/>',
        ]
    y = 2 * _HEAD
    for row, tall in zip(rows, heights, strict=True):
        parts += [_box(row.step, centres[actor], y) for actor in row.actors]
        for k, arrow in enumerate(row.arrows):
            ends = centres[arrow.pair[0]], centres[arrow.pair[1]]
            parts += _arrow(arrow, ends, y + _BOX + _LINE * k + 12, colours[arrow.tells])
        y += tall
    parts += _legend(told, colours, bottom + 20)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bands(rows: Sequence[Row], heights: Sequence[int], width: int) -> Iterator[str]:
    """A band behind the steps that come once, in each round or in each stage, with these words at its left."""
    y = 2 * _HEAD
    for often, group in groupby(zip(rows, heights, strict=True), key=lambda pair: pair[0].often):
        tall = sum(height for _, height in group)
        fill = {"each round": "#f6f8fa", "each stage": "#eaeef2"}.get(often, "#ffffff")
        yield f'<rect x="0" y="{y - 4}" width="{width}" height="{tall}" fill="{fill}"/>'
        yield f'<text x="12" y="{y + 16}" {_TEXT} fill="#57606a">{often}</text>'
        y += tall


def _box(step: str, x: int, y: int) -> str:
    return (
        f'<rect x="{x - _BOX_WIDTH // 2}" y="{y}" width="{_BOX_WIDTH}" height="24" rx="4" fill="#ffffff" '
        f'stroke="#57606a"/><text x="{x}" y="{y + 16}" text-anchor="middle" {_TEXT}>{escape(step)}</text>'
    )


def _arrow(arrow: Arrow, ends: tuple[int, int], y: int, colour: str) -> Iterator[str]:
    """A line with a head, its message above it; from a lane to the same one, a loop beside it."""
    start, end = ends
    said = escape(f"{arrow.message} ({arrow.only})" if arrow.only else arrow.message)
    if start == end:
        yield f'<path d="M {start} {y - 5} h 26 v 8 h -20" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        yield _point(start, y + 3, -1, colour)
        yield f'<text x="{start + 32}" y="{y + 3}" {_TEXT} fill="{colour}">{escape(arrow.message)}</text>'
        return
    to = 1 if end > start else -1
    if arrow.both:
        yield _point(start, y + 2, -to, colour)
    begins, ends_at = start + 6 * to * arrow.both, end - 6 * to
    yield f'<line x1="{begins}" y1="{y + 2}" x2="{ends_at}" y2="{y + 2}" stroke="{colour}" stroke-width="1.5"/>'
    yield _point(end, y + 2, to, colour)
    middle = start + to * _LANE // 2
    yield f'<text x="{middle}" y="{y - 2}" text-anchor="middle" {_TEXT} fill="{colour}">{said}</text>'


def _point(x: int, y: int, to: int, colour: str) -> str:
    return f'<polygon points="{x},{y} {x - 8 * to},{y - 4} {x - 8 * to},{y + 4}" fill="{colour}"/>'


def _legend(told: Sequence[DisclosureClass], colours: dict[str, str], y: int) -> Iterator[str]:
    for k, one in enumerate(told):
        colour = colours[one.name]
        yield f'<rect x="12" y="{y + 18 * k - 9}" width="10" height="10" fill="{colour}"/>'
        said = shorten(f"{one.name} ({one.kind}): {one.tells}", 130, placeholder=" …")
        yield f'<text x="30" y="{y + 18 * k}" {_TEXT}>{escape(said)}</text>'
