"""The pictures of the page: accuracy before and after quitting, and accuracy against attacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from network_cells import ALONE, BASELINES, MULTI_HEAD, Cell
from network_figures import Figures
from network_tables import SHARES, active_cells, baseline_cells, both_cells, dimip_cells, joint_cells
from panels import Panel, Series, draw
from resumable import Results


def write_pictures(results: Results, out: Path) -> None:
    """Every picture of the page."""
    figures = Figures(results)
    draw([_quitting(figures, "fashion"), _quitting(figures, "cifar10")], out / "figure-3.svg", "Quitting")
    passive = dimip_cells(), baseline_cells()
    few, every = "completion_mlp", "completion_mlp_all"
    panels = [
        _against(figures, *passive, few, "Passive completion, 40 labels"),
        _against(figures, *passive, every, "Passive completion, all labels"),
        _against(figures, *_active(), few, "Active completion, 40 labels"),
        _against(figures, *_active(), every, "Active completion, all labels"),
    ]
    draw(panels, out / "figures-4-5.svg", "Accuracy against completion")
    draw(
        [
            _joint(figures),
            _against(figures, dimip_cells("cifar10"), {}, few, "CIFAR-10, 40 labels", "cifar10"),
            _against(figures, dimip_cells("cifar10"), {}, every, "CIFAR-10, all labels", "cifar10"),
        ],
        out / "figure-7.svg",
        "Dropout and DIMIP together, and DIMIP on CIFAR-10",
    )
    draw([_both(Figures(results, (0,)))], out / "both.svg", "Completion against attacks on gradients")


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
