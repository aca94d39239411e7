"""Tables of the test measures: Figures 6 to 9 as numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from cells import ACCOUNTINGS, DRAWS, EPSILON, EPSILONS, SETS, Cell, changed
from paper import ACCURACY
from pictures import AXES
from points import SEEDS, Measure, common, point, test, trained
from resumable import Results
from worlds import WORLDS

#: How the noise is set, and the words of a table.
NOISE = {
    None: "none",
    "zcdp": "ε 8, L = T·2^depth",
    "paper": "ε 8, L = T",
}


def _with(name: str, accounting: str | None) -> Cell:
    cell = Cell("centralised", name, 0)
    return cell if accounting is None else replace(cell, epsilon=EPSILON, accounting=accounting)


def _shown(results: Results, cell: Cell, measure: Measure, digits: int) -> str:
    found = point(results, cell, measure)
    return "–" if found is None else found.shown(digits)


def _measure(name: str) -> tuple[str, int]:
    return ("rmse", 1) if WORLDS[name].regression else ("accuracy", 4)


def defaults(results: Results) -> list[list[str]]:
    """The default setting of each set: measures of the training and the test rows, with and without noise."""
    rows = [["set", "noise", "training accuracy or RMSE", "test accuracy or RMSE", "paper, about", "test AUC", "seeds"]]
    for name in SETS:
        measure, digits = _measure(name)
        for accounting, words in NOISE.items():
            cell = _with(name, accounting)
            found = point(results, cell, test(measure))
            if found is None:
                continue
            paper = "–" if name not in ACCURACY else f"{ACCURACY[name]:.2f}"
            auc = "–" if WORLDS[name].regression else _shown(results, cell, test("auc"), 4)
            training = _shown(results, cell, trained(measure), digits)
            rows.append([WORLDS[name].title, words, training, found.shown(digits), paper, auc, str(found.seeds)])
    return rows


def by_draw(results: Results) -> list[list[str]]:
    """The credit set's default setting over the seeds and several draws of the noise: means and standard errors."""
    rows = [["L", "trainings", "accuracy", "least", "share ≥ .81", "AUC", "least"]]
    for accounting in ACCOUNTINGS:
        cells = [replace(_with(SETS[0], accounting), seed=seed, draw=draw) for seed in SEEDS for draw in DRAWS]
        found = [each for each in (results.get(cell.key()) for cell in cells) if each is not None]
        if len(found) < 2:
            continue
        accuracy, auc = ([test(name)(each) for each in found] for name in ("accuracy", "auc"))
        above = sum(value >= 0.81 for value in accuracy) / len(accuracy)
        releases = "T·2^depth" if accounting == "zcdp" else "T"
        rows.append([releases, str(len(found)), *_mean(accuracy), f"{above:.0%}", *_mean(auc)])
    return rows


def _mean(values: Sequence[float]) -> list[str]:
    error = statistics.stdev(values) / len(values) ** 0.5
    return [f"{statistics.mean(values):.4f} ± {error:.4f}", f"{min(values):.4f}"]


def by_parameter(results: Results) -> list[list[str]]:
    """Means over the seeds by parties, depth and trees."""
    rows = [["set", "parameter", "noise", *(f"{k}." for k in range(1, 6)), "seeds"]]
    for name in SETS:
        measure, digits = _measure(name)
        for field, (_, values) in AXES.items():
            for accounting, words in NOISE.items():
                cells = [changed(_with(name, accounting), field, value) for value in values]
                rows += _row([WORLDS[name].title, _named(field, values), words], results, cells, test(measure), digits)
    return rows


def by_epsilon(results: Results) -> list[list[str]]:
    """Means over the seeds by ε."""
    rows = [["set", "L", "measure", *(f"ε {value:g}" for value in EPSILONS), "seeds"]]
    for name in SETS:
        for accounting in ACCOUNTINGS:
            releases = "T·2^depth" if accounting == "zcdp" else "T"
            cells = [replace(Cell("centralised", name, 0), epsilon=value, accounting=accounting) for value in EPSILONS]
            for measure, digits in (("rmse", 1),) if WORLDS[name].regression else (("accuracy", 4), ("auc", 4)):
                rows += _row([WORLDS[name].title, releases, measure], results, cells, test(measure), digits)
    return rows


def _named(field: str, values: Sequence[float]) -> str:
    return f"{field} {', '.join(f'{value:g}' for value in values)}"


def _row(head: list[str], results: Results, cells: Sequence[Cell], measure: Measure, digits: int) -> list[list[str]]:
    seeds = common(results, cells)
    found = [point(results, cell, measure, seeds=seeds) for cell in cells]
    if all(each is None for each in found):
        return []
    shown = ["–" if each is None else f"{each.mean:,.{digits}f}" for each in found]
    return [[*head, *shown, str(max(each.seeds for each in found if each is not None))]]
