"""The ID2Graph paper's Figures 5 to 7: what makes the attack stronger, as SVG pictures.

    python benchmarks/reproductions/id2graph_figures.py --sets breastcancer obesity
    python benchmarks/reproductions/id2graph_figures.py --figures 6 7 --sets fars --seeds 42 43

Figure 5 gives the attacker the top k % of the columns by mutual information with the label (bars, in nats; images: the
left k %) and the label holder the rest; Figure 6 varies the depth of the trees, Figure 7 their number. Everything else
is as for Table 2, but models are trained centrally, which gives the same leaves, and ID2Graph merges equal records,
which changes no modularity. Lines are means over the seeds, bands their standard deviation.

Every result goes into the results file at once (Table 2's results are used where they fit), and the same command goes
on after an interruption. Needs TREETAP_DATA for all sets but breast cancer, and the `audit` extra.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from id2graph_runs import add_over, collect, ended, parser_of, summary, way
from id2graph_sets import SETS
from id2graph_trial import BASELINES, QUOTIENT, Trial, importance

from treetap import terminal

OUT = Path("runs/id2graph-figures")
COLOURS = {"cl": "#8c8c8c", "uni": "#0072b2", "uni+cl": "#e69f00", QUOTIENT: "#b4232a"}
MARKS = {"cl": "s", "uni": "v", "uni+cl": "D", QUOTIENT: "o"}
NAMES = {"cl": "CL", "uni": "UNI", "uni+cl": "UNI+CL", QUOTIENT: "ID2Graph"}


@dataclass(frozen=True)
class Figure:
    """The variable of a figure: the field of a trial, its values, and the words below the axis."""

    field: str
    values: tuple[int, ...]
    axis: str


FIGURES = {
    5: Figure("top", (10, 25, 50, 75, 90), "columns of the attacker, top %"),
    6: Figure("depth", (2, 4, 6, 8, 10), "depth of the trees"),
    7: Figure("trees", (1, 3, 5, 10, 20), "number of trees"),
}


def trials_of(figure: Figure, name: str, model: str, seeds: Sequence[int], over: str) -> list[Trial]:
    """All trials of one panel."""
    usual = [Trial(name, model, seed, way(name, over)) for seed in seeds]
    changes: list[dict[str, Any]] = [{figure.field: value} for value in figure.values]
    return [replace(trial, **change) for change in changes for trial in usual]


def panel(figure: Figure, results: Sequence[dict[str, Any]], name: str, model: str) -> dict[str, list[list[float]]]:
    """The lines of one panel: attack → [value, mean, standard deviation] in order.

    A seed counts if it has a result for every value: points over different seeds would not make a line.
    """
    mine = [each for each in results if (each["trial"]["set"], each["trial"]["model"]) == (name, model)]
    required = Counter(each["trial"]["seed"] for each in mine)
    mine = [each for each in mine if required[each["trial"]["seed"]] == len(figure.values)]
    lines: dict[str, list[list[float]]] = {}
    for kind in (*BASELINES, QUOTIENT):
        lines[kind] = []
        for value in figure.values:
            found = summary([each for each in mine if each["trial"][figure.field] == value], kind)
            if found is not None:
                lines[kind].append([value, found[0], found[1] or 0.0])
    return lines


def draw(number: int, panels: dict[str, dict[str, dict[str, list[list[float]]]]], path: Path) -> None:
    """One picture: a row per model, a column per set."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    figure = FIGURES[number]
    mpl.rcParams.update({"svg.hashsalt": "treetap", "svg.fonttype": "none", "font.size": 9})
    names = list(panels)
    models = list(panels[names[0]])
    shape = (len(models), len(names))
    size = (2.9 * len(names) + 0.6, 2.3 * len(models) + 0.7)
    made, axes = pyplot.subplots(*shape, figsize=size, squeeze=False, sharex=True, layout="constrained")
    for column, name in enumerate(names):
        for row, model in enumerate(models):
            here = axes[row][column]
            for kind, line in panels[name][model].items():
                if not line:
                    continue
                x, mean, spread = zip(*line, strict=True)
                low = [m - s for m, s in zip(mean, spread, strict=True)]
                high = [m + s for m, s in zip(mean, spread, strict=True)]
                here.fill_between(x, low, high, color=COLOURS[kind], alpha=0.15, linewidth=0)
                here.plot(x, mean, color=COLOURS[kind], marker=MARKS[kind], markersize=4, label=NAMES[kind])
            if figure.field == "top" and not SETS[name].images:
                _bars(here, name, last=column == len(names) - 1)
            here.set_title(f"{SETS[name].title}, {model}", fontsize=9)
            here.set_xticks(figure.values)
            here.set_ylim(-0.03, 1.0)
            here.grid(alpha=0.25)
            if column == 0:
                here.set_ylabel("V-measure")
            if row == len(models) - 1:
                here.set_xlabel(figure.axis)
    lines, titles = axes[0][0].get_legend_handles_labels()
    made.legend(lines, titles, loc="outside upper center", ncols=len(titles), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path, metadata={"Date": None, "Title": f"ID2Graph, Figure {number}"})
    pyplot.close(made)


def _bars(here: Any, name: str, *, last: bool) -> None:
    """Mutual information of the columns, best first, each at the share of columns that it completes."""
    ranked = sorted(importance(name).values(), reverse=True)
    width = 100 / len(ranked)
    right = here.twinx()
    right.bar([(j + 0.5) * width for j in range(len(ranked))], ranked, width=0.8 * width, color="#cfd8dc", zorder=0)
    right.set_ylim(0, 1.05 * max(ranked))
    right.tick_params(labelsize=7, colors="#607d8b")
    if last:
        right.set_ylabel("mutual information", color="#607d8b")
    here.set_zorder(right.get_zorder() + 1)
    here.patch.set_visible(False)


def main() -> int:
    """Run what is missing, draw, say where the pictures are."""
    parser = parser_of(__doc__, ["breastcancer", "obesity", "fars"])
    add_over(parser, "centralised")
    parser.add_argument("--figures", nargs="+", type=int, choices=list(FIGURES), default=list(FIGURES), metavar="5|6|7")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"for the pictures (default: {OUT})")
    given = parser.parse_args()
    by_figure = {
        number: [
            trial
            for name in given.sets
            for model in given.models
            for trial in trials_of(FIGURES[number], name, model, given.seeds, given.over)
        ]
        for number in given.figures
    }
    every = list(dict.fromkeys(trial for trials in by_figure.values() for trial in trials))
    results = collect(given.results, every, only_stored=given.show)
    shown: dict[int, Any] = {}
    for number, trials in by_figure.items():
        asked = [vars(trial) for trial in trials]
        some = [each for each in results if each["trial"] in asked]
        panels = {
            name: {model: panel(FIGURES[number], some, name, model) for model in given.models}
            for name in given.sets
            if any(each["trial"]["set"] == name for each in some)
        }
        if not panels:
            continue
        path = given.out / f"figure-{number}.svg"
        draw(number, panels, path)
        shown[number] = {"picture": str(path), "panels": panels}
    if given.as_json:
        print(json.dumps(shown, indent=1))
        return 0
    for number, each in shown.items():
        terminal.out.print(f"Figure {number}: {each['picture']}", highlight=False)
    return 0


if __name__ == "__main__":
    ended(main)
