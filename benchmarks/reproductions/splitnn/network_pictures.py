"""The pictures of the page: accuracy before and after quitting, and accuracy against attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from network_cells import ALONE, BASELINES, MULTI_HEAD, Cell
from network_figures import Figures
from network_tables import SHARES, active_cells, baseline_cells, both_cells, dimip_cells, joint_cells
from resumable import Results

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
    """One pair of axes, with lines at levels of y and x where there are any."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    across: Mapping[str, float | None]
    upright: Mapping[str, float | None]


def write_pictures(results: Results, out: Path) -> None:
    """Every picture of the page."""
    figures = Figures(results)
    _draw([_quitting(figures, "fashion"), _quitting(figures, "cifar10")], out / "figure-3.svg", "Quitting")
    passive = dimip_cells(), baseline_cells()
    few, every = "completion_mlp", "completion_mlp_all"
    panels = [
        _against(figures, *passive, few, "Passive completion, 40 labels"),
        _against(figures, *passive, every, "Passive completion, all labels"),
        _against(figures, *_active(), few, "Active completion, 40 labels"),
        _against(figures, *_active(), every, "Active completion, all labels"),
    ]
    _draw(panels, out / "figures-4-5.svg", "Accuracy against completion")
    _draw(
        [
            _joint(figures),
            _against(figures, dimip_cells("cifar10"), {}, few, "CIFAR-10, 40 labels", "cifar10"),
            _against(figures, dimip_cells("cifar10"), {}, every, "CIFAR-10, all labels", "cifar10"),
        ],
        out / "figure-7.svg",
        "Dropout and DIMIP together, and DIMIP on CIFAR-10",
    )
    _draw([_both(Figures(results, (0,)))], out / "both.svg", "Completion against attacks on gradients")


def _active() -> tuple[dict[str, Cell], dict[str, Cell]]:
    cells = active_cells()
    weights = {name: cell for name, cell in cells.items() if not cell.gradient}
    return weights, {name: cell for name, cell in cells.items() if cell.gradient}


def _points(figures: Figures, cells: Mapping[str, Cell], x: str, y: str) -> list[tuple[str, float, float]]:
    found = []
    for name, cell in cells.items():
        pair = [figures.of(cell, each) or figures.attack(cell, each) for each in (x, y)]
        if pair[0] is not None and pair[1] is not None:
            found.append((name, 100 * pair[0].mean, 100 * pair[1].mean))
    return found


def _level(figures: Figures, cell: Cell) -> float | None:
    found = figures.of(cell, "accuracy")
    return None if found is None else 100 * found.mean


def _quitting(figures: Figures, name: str) -> Panel:
    dropped = {f"p {share:g}": Cell(name, 0, dropout=share) for share in SHARES}
    heads = {"further head": Cell(name, 0, way=MULTI_HEAD)}
    series = [
        Series("Party-wise Dropout", _points(figures, dropped, "accuracy", "accuracy_after")),
        Series("a further head", _points(figures, heads, "accuracy", "accuracy_after")),
    ]
    alone = _level(figures, Cell(name, 0, way=ALONE))
    title = {"fashion": "Fashion-MNIST", "cifar10": "CIFAR-10"}[name]
    return Panel(title, "accuracy together, %", "after quitting, %", series, {"alone": alone}, {})


def _against(
    figures: Figures,
    dimip: Mapping[str, Cell],
    others: Mapping[str, Cell],
    attack: str,
    title: str,
    name: str = "fashion",
) -> Panel:
    kept = {text: cell for text, cell in dimip.items() if cell.random_labels and not cell.momentum}
    series = [Series("DIMIP", _points(figures, kept, attack, "accuracy"))]
    for kind in BASELINES:
        cells = {text: cell for text, cell in others.items() if cell.gradient.startswith(kind)}
        if cells:
            series.append(Series(kind, _points(figures, cells, attack, "accuracy")))
    floor = figures.floor(name, attack)
    untrained = None if floor is None else 100 * floor.mean
    alone = _level(figures, Cell(name, 0, way=ALONE))
    return Panel(title, "attack accuracy, %", "accuracy, %", series, {"alone": alone}, {"untrained bottom": untrained})


def _joint(figures: Figures) -> Panel:
    series = []
    for share in (0.0, 0.3):
        cells = {f"λ {cell.dimip:g}": cell for cell in joint_cells().values() if cell.dropout == share}
        series.append(Series(f"p {share:g}", _points(figures, cells, "completion_mlp", "accuracy_after")))
    return Panel("Dropout and DIMIP", "completion, 40 labels, %", "after quitting, %", series, {}, {})


def _both(figures: Figures) -> Panel:
    series = []
    for title, cell in both_cells().items():
        points = _points(figures, {title: cell}, "completion_mlp", "gradient_labels")
        series.append(Series(title, points, joined=False))
    floor = figures.floor("fashion", "completion_mlp")
    untrained = None if floor is None else 100 * floor.mean
    x, y = "completion of the model, 40 labels, %", "training labels from gradients, 40 known, %"
    return Panel("Completion against attacks on gradients", x, y, series, {}, {"untrained bottom": untrained})


def _draw(panels: Sequence[Panel], path: Path, title: str) -> None:
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
    here.grid(alpha=0.25)
    if any(series.points for series in panel.series):
        here.legend(fontsize=6, frameon=False)
