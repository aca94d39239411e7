"""The plots of the reproduction: points with their best and worst, in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from points import Point, linear

COLOURS = ("#0072b2", "#e69f00", "#b4232a", "#009e73", "#8c8c8c", "#cc79a7")
MARKS = ("o", "s", "D", "v", "^", "x")


@dataclass(frozen=True)
class Line:
    """A line of a panel; `fit` draws the least-squares line through its means too."""

    title: str
    points: Sequence[Point]
    fit: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `level`: a dotted line at the paper's number."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    level: tuple[float, str] | None = None
    logarithmic: bool = False
    zero: bool = field(default=False)


def draw(panels: Sequence[Sequence[Panel]], path: Path, title: str) -> None:
    """A picture of rows of panels; panels without a point stay empty."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.hashsalt": "treetap", "svg.fonttype": "none", "font.size": 9})
    shape = (len(panels), max(map(len, panels)))
    size = (3.4 * shape[1] + 0.4, 2.7 * shape[0] + 0.3)
    made, axes = pyplot.subplots(*shape, figsize=size, squeeze=False, layout="constrained")
    for row, some in enumerate(panels):
        for column, panel in enumerate(some):
            _draw(axes[row][column], panel)
        for rest in axes[row][len(some) :]:
            rest.set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path, metadata={"Date": None, "Title": title})
    pyplot.close(made)


def _draw(here: Any, panel: Panel) -> None:
    ticks: set[float] = set()
    for place, line in enumerate(panel.lines):
        if not line.points:
            continue
        x, mean = [each.x for each in line.points], [each.mean for each in line.points]
        errors = [[each.mean - each.low for each in line.points], [each.high - each.mean for each in line.points]]
        style = {"color": COLOURS[place % len(COLOURS)], "linestyle": "--" if line.dashed else "-"}
        if line.fit and len(line.points) > 2:
            base, slope, square = linear(line.points)
            here.plot(x, [base + slope * at for at in x], color=style["color"], linewidth=0.8)
            style["linestyle"] = "none"
            title = f"{line.title}: {base:.3g} + {slope:.3g} x, R² {square:.3f}"
        else:
            title = line.title
        here.errorbar(
            x, mean, yerr=errors, marker=MARKS[place % len(MARKS)], markersize=4, capsize=2, label=title, **style
        )
        ticks |= set(x)
    if panel.level is not None:
        here.axhline(panel.level[0], color="#555555", linestyle=":", linewidth=1, label=panel.level[1])
    if panel.logarithmic:
        here.set_yscale("log")
    elif panel.zero:
        here.set_ylim(bottom=0)
    here.set_xticks(sorted(ticks))
    here.set_title(panel.title, fontsize=9)
    here.set_xlabel(panel.x)
    here.set_ylabel(panel.y)
    here.grid(alpha=0.25)
    if ticks:
        here.legend(fontsize=7, frameon=False)
