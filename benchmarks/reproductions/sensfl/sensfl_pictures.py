"""The pictures of the page: attacks by ε, attacks by defence, and victims beside their reconstructions."""

from __future__ import annotations

from html import escape
from pathlib import Path

from panels import Panel, Series, draw
from resumable import Results
from sensfl_cells import ATTRIBUTES, NORMS, SWEPT, Cell, main_rows, sensitive
from sensfl_figures import PREDICTION, SCALES, SOURCES, Figures

_SIZE, _GAP, _LEFT, _TOP = (42, 84), 10, 150, 40


def write_pictures(results: Results, out: Path) -> None:
    """Every picture of the page."""
    figures = Figures(results)
    panels = [_by_epsilon(figures, name, source) for name in ATTRIBUTES for source in SOURCES]
    draw(panels, out / "attributes.svg", "Attributes by ε")
    (out / "victims.svg").write_text(_victims(figures), encoding="utf-8")


def _by_epsilon(figures: Figures, name: str, source: str) -> Panel:
    """The first attribute's accuracy by ε, on both scales and by both norms; without a defence at ε 0."""
    attribute, plain = ATTRIBUTES[name][0], Cell(name, 0)
    cells = [(norm, epsilon, sensitive(plain, epsilon, norm)) for norm in NORMS for epsilon in sorted(SWEPT)]
    series = []
    for norm in NORMS:
        for scale in SCALES:
            points = []
            for epsilon, cell in [(0.0003, plain), *((each, cell) for given, each, cell in cells if given == norm)]:
                found = figures.of(cell, source, "attributes", attribute, scale, "accuracy")
                if found is not None:
                    title = "clean" if cell == plain else f"{epsilon:g}"
                    points.append((title, epsilon, 100 * found.mean))
            series.append(Series(f"{norm}, {scale}", points))
    floor = figures.of(plain, source, "attributes", attribute, "floor", "accuracy")
    majority = None if floor is None else 100 * floor.mean
    title = f"{name}, {attribute}, {source}"
    return Panel(title, "ε", "accuracy, %", series, {"majority class": majority}, {}, logarithmic=True)


def _victims(figures: Figures) -> str:
    """Victims beside their reconstructions, without a defence and under SensFL."""
    body, y, wide = list[str](), _TOP, 0
    for cell in main_rows(Cell("fashion", 0)):
        for number, picture in enumerate((figures.result(cell).get(PREDICTION) or {}).get("pictures", [])):
            if not number:
                body.append(f'<text x="8" y="{y + 14}">{escape(cell.defence)}</text>')
            for place, (what, url) in enumerate(picture["images"].items()):
                x = _LEFT + place * (_SIZE[0] + 3 * _GAP)
                wide = max(wide, x + _SIZE[0] + 3 * _GAP)
                if not number and y == _TOP:
                    lines = what.split(", ")
                    body += [
                        f'<text x="{x}" y="{14 + 12 * line}">{escape(text)}</text>' for line, text in enumerate(lines)
                    ]
                body.append(
                    f'<image x="{x}" y="{y}" width="{_SIZE[0]}" height="{_SIZE[1]}" preserveAspectRatio="none" '
                    f'style="image-rendering: pixelated" href="{url}"/>'
                )
            y += _SIZE[1] + _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{y}" font-family="sans-serif" font-size="11">'
        "<title>Victims beside their reconstructions</title>"
        f'<rect width="{wide}" height="{y}" fill="white"/>{"".join(body)}</svg>\n'
    )
