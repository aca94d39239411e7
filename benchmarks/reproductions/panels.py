"""Pictures of pages: panels of named points, as SVG files that are the same for the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLOURS = ("#0072b2", "#e69f00", "#b4232a", "#009e73", "#8c8c8c", "#cc79a7")
MARKS = ("o", "s", "D", "v", "^", "x")


@dataclass(frozen=True)
class Series:
    """Named points (x, y) of one colour; `joined` by a line."""

    title: str
    points: Sequence[tuple[str, float, float]]
    joined: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes, with lines at levels of y and x where there are any; `logarithmic`: in x."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    across: Mapping[str, float | None]
    upright: Mapping[str, float | None]
    logarithmic: bool = False


def draw(panels: Sequence[Panel], path: Path, title: str) -> None:
    """Draw panels side by side."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.hashsalt": "treetap", "svg.fonttype": "none", "font.size": 9})
    wide = 3.6 if len(panels) > 1 else 6.5
    made, axes = pyplot.subplots(
        1, len(panels), figsize=(wide * len(panels), 3.4 if wide < 4 else 5), squeeze=False, layout="constrained"
    )
    for here, panel in zip(axes[0], panels, strict=True):
        _fill(here, panel)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path, metadata={"Date": None, "Title": title})
    pyplot.close(made)


def _fill(here: Any, panel: Panel) -> None:
    for place, series in enumerate(panel.series):
        if not series.points:
            continue
        names, x, y = zip(*series.points, strict=True)
        line, colour = "-" if series.joined else "none", COLOURS[place % len(COLOURS)]
        mark = MARKS[(place // len(COLOURS) + place) % len(MARKS)]
        here.plot(x, y, marker=mark, markersize=5, linestyle=line, linewidth=0.8, color=colour, label=series.title)
        if series.joined:
            for name, across, up in zip(names, x, y, strict=True):
                here.annotate(name.split()[-1], (across, up), fontsize=6, xytext=(3, 3), textcoords="offset points")
    for name, level in panel.across.items():
        if level is not None:
            here.axhline(level, color="#555555", linestyle=":", linewidth=1, label=name)
    for name, level in panel.upright.items():
        if level is not None:
            here.axvline(level, color="#555555", linestyle="--", linewidth=1, label=name)
    here.set_title(panel.title, fontsize=9)
    here.set_xlabel(panel.x)
    here.set_ylabel(panel.y)
    if panel.logarithmic:
        here.set_xscale("log")
    here.grid(alpha=0.25)
    if any(series.points for series in panel.series):
        here.legend(fontsize=6, frameon=False)
