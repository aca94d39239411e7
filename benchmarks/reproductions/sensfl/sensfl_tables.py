"""The tables of the page."""

from __future__ import annotations

from collections.abc import Sequence

from marked_tables import Rows
from network_catalogue import SETS
from seed_figures import Found, federation_rows
from sensfl_cells import (
    ATTRIBUTES,
    DEPTHS,
    FEDERATED,
    IMAGES,
    TABLES,
    WIDTH,
    Cell,
    main_rows,
    other_rows,
    projected,
    residual,
    sweep,
    table_3,
    widths,
)
from sensfl_figures import PREDICTION, SCALES, SOURCES, Figures
from sensfl_paper import TABLE_1, TABLE_2, TABLE_3
from sensfl_settings import params_of

from treetap.neural.defences import DpSgd, epsilon

_MEASURES = ("accuracy", "f1", "precision", "recall")
_ATTACKS = ("decode", "match", "match-exact")
_SCORES = {"mse": 4, "psnr": 1, "ssim": 2}
#: The titles of both scales' columns.
_SHORT = {"raw": "raw", "standardised": "stand."}
_RECONSTRUCTIONS = [f"{attack}, {_SHORT[scale]}" for attack in _ATTACKS for scale in SCALES]


def attributes(figures: Figures, name: str) -> Rows:
    """Table 2: each model and defence a row, both attributes on both scales beside the paper's figures."""
    heads = _heads(name)
    papers = [f"{attribute}, paper" for attribute in ATTRIBUTES[name]]
    half = len(heads) // 2
    rows = [["model", "defence", "seeds", "task, %", *heads[:half], papers[0], *heads[half:], papers[1]]]
    for depth in DEPTHS:
        plain = Cell(name, 0, depth)
        for cell in _ordered(plain):
            task = figures.of(cell, "accuracy")
            if task is None:
                continue
            row = [f"M{depth}", cell.defence, str(len(task.values)), task.text()]
            for attribute, paper in zip(ATTRIBUTES[name], TABLE_2[name], strict=True):
                row += [_four(figures, cell, source, attribute, scale) for source in SOURCES for scale in SCALES]
                row.append(_paper(paper, cell))
            rows.append(row)
    floors = [_four(figures, Cell(name, 0), PREDICTION, attribute, "floor") for attribute in ATTRIBUTES[name]]
    if len(rows) > 1:
        empty = [""] * (half - 2)
        rows.append(["", "majority class", "", "", floors[0], *empty, "", "", floors[1], *empty, "", ""])
    return rows


def images(figures: Figures, cells: Sequence[Cell], papers: bool = False) -> Rows:
    """Each cell a row: accuracy of the task, and MSE, PSNR and SSIM of each attack on both scales."""
    extra = [f"{each}, paper" for each in TABLE_1] if papers else []
    rows = [["set", "model", "width", "defence", "seeds", "task, %", *_RECONSTRUCTIONS, "mean image", *extra]]
    for cell in cells:
        task = figures.of(cell, "accuracy")
        if task is None:
            continue
        found = [_three(figures, cell, attack, scale) for attack in _ATTACKS for scale in SCALES]
        row = [SETS[cell.set].title, _model(cell), str(cell.width or WIDTH[cell.set]), cell.defence]
        row += [str(len(task.values)), task.text(), *found, _three(figures, cell, "decode", "floor")]
        rows.append(row + ([_paper(each, cell) for each in TABLE_1.values()] if papers else []))
    return rows


def table_1_cells() -> list[Cell]:
    """The rows of Table 1, in its order."""
    return [cell for name in IMAGES for depth in DEPTHS for cell in _ordered(Cell(name, 0, depth))]


def residual_cells() -> list[Cell]:
    """The rows of bottoms of residual blocks, by set, blocks and width."""
    return sorted(
        residual((0,)),
        key=lambda cell: (cell.set != IMAGES[0], cell.averaged, cell.depth, -(cell.width or WIDTH[cell.set])),
    )


def width_cells() -> list[Cell]:
    """The rows by width."""
    return widths((0,))


def clients(figures: Figures) -> Rows:
    """Table 3: two and three parties, MSE, PSNR and SSIM of each attack beside the paper's figures."""
    papers = [f"{name}, paper" for name in TABLE_3]
    rows = [["set", "model", "parties", "defence", "seeds", "task, %", *_RECONSTRUCTIONS, "mean image", *papers]]
    cells = sorted(table_3((0,)), key=lambda cell: (cell.set != IMAGES[0], cell.depth, cell.parties, cell.sensitivity))
    for cell in cells:
        task = figures.of(cell, "accuracy")
        if task is None:
            continue
        row = [SETS[cell.set].title, _model(cell), str(cell.parties), cell.defence, str(len(task.values)), task.text()]
        row += [_three(figures, cell, attack, scale) for attack in _ATTACKS for scale in SCALES]
        row.append(_three(figures, cell, "decode", "floor"))
        for each in TABLE_3.values():
            accuracy, psnr, mse, ssim = (column[cell.depth - 1] for column in each[cell.parties])
            row.append(f"{100 * accuracy:.0f}: {mse:.4f} {psnr:.1f} {_short(ssim)}" if cell.sensitivity else "–")
        rows.append(row)
    return rows


def swept(figures: Figures, name: str) -> Rows:
    """Tables by hidden layers, width, ε and norm: each a row, accuracies of the attributes on both scales."""
    heads = _heads(name)
    rows = [["model", "width", "defence", "seeds", "task, %", *heads]]
    for cell in sorted(
        sweep((0,)), key=lambda cell: (cell.depth, cell.width or WIDTH[name], cell.norm, cell.sensitivity)
    ):
        task = figures.of(cell, "accuracy")
        if cell.set != name or task is None:
            continue
        row = [f"M{cell.depth}", str(cell.width or WIDTH[name]), cell.defence, str(len(task.values)), task.text()]
        for attribute in ATTRIBUTES[name]:
            for source in SOURCES:
                for scale in SCALES:
                    row.append(_short(figures.of(cell, source, "attributes", attribute, scale, "accuracy")))
        rows.append(row)
    return rows


def projections(figures: Figures) -> Rows:
    """Each network a row: what one projection makes of the norm, and of its square."""
    rows = [["set", "model", "width", "weights", "factor of the norm", "factor of its square"]]
    for cell in projected((0,)):
        if found := figures.result(cell, "projections"):
            weights = f"after {cell.defence}" if cell.sensitivity else "initial"
            row = [SETS[cell.set].title, _model(cell), str(WIDTH[cell.set]), weights]
            rows.append([*row, f"{found['factor']:.3f}", f"{found['square']:.3f}"])
    return rows


def federations(figures: Figures) -> Rows:
    """One cell of each table: how far the weights of a federation lie from those of the centralised code."""
    return federation_rows((cell.name(), figures.result(cell, "federation", small=True)) for cell in FEDERATED)


def accounted() -> Rows:
    """The accountant's ε of each noise, by set."""
    rows = [["set", "noise of the paper", "taken as", "noise multiplier", "epochs", "ε at δ 1e-5"]]
    for name in (*TABLES, *IMAGES):
        for cell in _ordered(Cell(name, 0)):
            if cell.noise:
                epochs = params_of(cell).epochs
                found = epsilon(DpSgd(1.0, cell.multiplier), epochs)
                reading = "of the mean" if cell.on_mean else "of the sum"
                row = [
                    SETS[name].title,
                    f"{cell.noise:g}",
                    reading,
                    f"{cell.multiplier:g}",
                    str(epochs),
                    f"{found:.3g}",
                ]
                rows.append(row)
    return rows


def _heads(name: str) -> list[str]:
    """The heads of the columns of a set's attributes."""
    return [
        f"{attribute}, {source}, {_SHORT[scale]}"
        for attribute in ATTRIBUTES[name]
        for source in SOURCES
        for scale in SCALES
    ]


def _ordered(plain: Cell) -> list[Cell]:
    """The rows of a model as tables have them: without a defence, SensFL by norm, DP-SGD by reading and noise."""
    cells = [*main_rows(plain), *other_rows(plain)]
    return sorted(cells, key=lambda cell: (bool(cell.noise), cell.norm, cell.on_mean, -cell.noise))


def _model(cell: Cell) -> str:
    if cell.residual:
        return f"{cell.depth} residual block{'s' if cell.depth > 1 else ''}{', averaged' if cell.averaged else ''}"
    return f"M{cell.depth}"


def _four(figures: Figures, cell: Cell, source: str, attribute: str, scale: str) -> str:
    found = [figures.of(cell, source, "attributes", attribute, scale, measure) for measure in _MEASURES]
    return " ".join(map(_short, found))


def _three(figures: Figures, cell: Cell, attack: str, scale: str) -> str:
    found = [figures.of(cell, PREDICTION, "reconstructions", attack, scale, each) for each in _SCORES]
    return " ".join(
        _short(each) if digits == 2 else _mean(each, digits)
        for each, digits in zip(found, _SCORES.values(), strict=True)
    )


def _mean(found: Found | None, digits: int) -> str:
    """The mean of a figure."""
    return "–" if found is None else f"{found.mean:.{digits}f}"


def _short(found: Found | float | None) -> str:
    """A figure between 0 and 1 with two digits, without the 0 before its point."""
    if found is None:
        return "–"
    mean = found.mean if isinstance(found, Found) else found
    text = f"{mean:.2f}"
    return text.removeprefix("0") if text.startswith("0.") else text.replace("-0.", "−.")


def _paper(table: dict[str, list[tuple[float, ...]]], cell: Cell) -> str:
    """The paper's figures of a cell's row."""
    if cell.on_mean:
        return "–"
    row = table["SensFL" if cell.sensitivity else f"{cell.noise:g}" if cell.noise else "clean"][cell.depth - 1]
    if len(row) == len(_SCORES):
        return f"{row[0]:.4f} {row[1]:.1f} {_short(row[2])}"
    return " ".join(map(_short, row))
