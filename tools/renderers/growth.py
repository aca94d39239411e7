"""Draws docs/growth.svg and fills the tables of growth of a page from the results of benchmarks/growth.py.

Usage: python -m tools.renderers.growth, which needs the extra `bench`; with --check nothing is drawn or written, and
the exit status is 1 if the tables of the page are others than those of the results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.renderers.rendering import DOCS, MEASURED, ROOT, stale, with_tables, write

PICTURE = DOCS / "growth.svg"
RESULTS = ROOT / "benchmarks" / "growth.jsonl"
#: Title of a measure → its figures, by name, with what makes the unit of the axis of what is measured.
MEASURES: Mapping[str, Mapping[str, tuple[str, float]]] = {
    "seconds": {"CPU, all processes": ("cpu_s", 1), "wall": ("wall_s", 1)},
    "MiB": {"largest process": ("largest_process_mib", 1), "all processes": ("all_mib", 1)},
    "MB sent": {"bytes on the wire": ("bytes", 1e-6)},
}
AXES = {"records": "record", "columns": "column", "trees": "tree", "depth": "level", "parties": "party"}
COLOURS, MARKS = ("#0072b2", "#e69f00"), ("o", "s")


@dataclass(frozen=True)
class Curve:
    """A figure by what is varied: its points ascend."""

    x: Sequence[float]
    y: Sequence[float]

    @property
    def exponent(self) -> float:
        """b of the least-squares fit of y = a·x^b."""
        return float(np.polyfit(np.log(self.x), np.log(self.y), 1)[0])

    @property
    def slope(self) -> float:
        """b of the least-squares fit of y = a + b·x: what one more costs."""
        return float(np.polyfit(self.x, self.y, 1)[0])

    @property
    def last(self) -> float:
        """The exponent between the last two points, where what does not grow matters least."""
        return float(np.log(self.y[-1] / self.y[-2]) / np.log(self.x[-1] / self.x[-2]))


def read_results(path: Path) -> list[dict[str, Any]]:
    """The results, each with the memory of all processes together."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{**each, "all_mib": sum(each["peak_mib"].values())} for each in found]


def curve(results: Sequence[Mapping[str, Any]], axis: str, figure: str, unit: float = 1) -> Curve:
    """The figure of the trainings in which nothing but `axis` differs from most others."""
    base = {name: _commonest([each["trial"][name] for each in results]) for name in AXES}
    chosen = [each for each in results if all(each["trial"][name] == base[name] for name in AXES if name != axis)]
    chosen.sort(key=lambda each: int(each["trial"][axis]))
    return Curve([each["trial"][axis] for each in chosen], [each[figure] * unit for each in chosen])


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The exponents: over all points, and between the last two."""
    lines = [f"| | {' | '.join(AXES)} |\n", f"|---|{'---|' * len(AXES)}\n"]
    for figures in MEASURES.values():
        for title, (figure, _) in figures.items():
            curves = [curve(results, axis, figure) for axis in AXES]
            cells = " | ".join(f"{each.exponent:.2f} ({each.last:.2f})" for each in curves)
            lines.append(f"| {title} | {cells} |\n")
    return "".join(lines)


def more_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Costs of one more of each."""
    lines = ["| one more | CPU ms | KiB, all processes | KiB, largest process | kB sent |\n", "|---|---|---|---|---|\n"]
    for axis, one in AXES.items():
        figures = (("cpu_s", 1000), ("all_mib", 1024), ("largest_process_mib", 1024), ("bytes", 1e-3))
        cells = " | ".join(_rounded(curve(results, axis, figure, unit).slope) for figure, unit in figures)
        lines.append(f"| {one} | {cells} |\n")
    return "".join(lines)


def draw(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A column of panels for each measure, a row for what is varied, on logarithmic axes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.hashsalt": "treetap", "svg.fonttype": "none", "font.size": 9})
    made, axes = pyplot.subplots(len(AXES), len(MEASURES), figsize=(9, 12), sharey="col", layout="constrained")
    for column, (measure, figures) in zip(axes.T, MEASURES.items(), strict=True):
        for here, axis in zip(column, AXES, strict=True):
            here.set_ylabel(measure)
            for place, (title, (figure, unit)) in enumerate(figures.items()):
                found = curve(results, axis, figure, unit)
                label = f"{title}: {axis}^{found.exponent:.2f}"
                here.plot(found.x, found.y, marker=MARKS[place], color=COLOURS[place], label=label)
            _finish(here, axis, curve(results, axis, "cpu_s").x)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(
        path, metadata={"Date": None, "Title": "Costs of a training by records, columns, trees, depth and parties"}
    )
    pyplot.close(made)


def _finish(here: Any, axis: str, values: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    here.set(xscale="log", yscale="log", xlabel=axis)
    here.set_xticks(values, [f"{value / 1000:g} k" if value >= 1000 else f"{value:g}" for value in values])
    here.minorticks_off()
    here.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    here.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    here.grid(color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        here.spines[side].set_visible(False)
    here.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), borderpad=0)


def _rounded(number: float) -> str:
    """Three digits, or whole numbers."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _commonest(values: Sequence[int]) -> int:
    return max(set(values), key=values.count)


def main() -> int:
    """Draw and fill, or compare; returns the exit status."""
    parser = argparse.ArgumentParser(description="Draw the growth of a training's costs, and fill the page's table.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with status 1 if the page is stale")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    given = parser.parse_args()
    results = read_results(given.results)
    pages = with_tables({"growth": table(results), "one more": more_table(results)}, MEASURED)
    if given.check:
        for path in stale(pages):
            print(f"{path} is stale: run python -m tools.renderers.growth", file=sys.stderr)
        return int(bool(stale(pages)))
    draw(results, PICTURE)
    write(pages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
