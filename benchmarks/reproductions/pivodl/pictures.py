"""Which lines stand in which plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cells import ACCOUNTINGS, DEPTHS, EPSILON, EPSILONS, ONE, PARTIES, SETS, TREES, Cell
from paper import ACCURACY, MODIFIED_S
from plots import Line, Panel, draw
from points import Measure, cpu, line, megabytes, plain_megabytes, seconds, test
from resumable import Results
from worlds import WORLDS

AXES: dict[str, tuple[str, Sequence[float]]] = {
    "parties": ("parties", PARTIES),
    "depth": ("depth of a tree", DEPTHS),
    "trees": ("trees", TREES),
}
WAYS = {None: "exact", "zcdp": "ε 8, L = T·2^depth", "paper": "ε 8, L = T"}


def write_pictures(results: Results, out: Path) -> None:
    """All plots of the results at hand, as SVG below `out`."""
    for number, name in enumerate(AXES, start=6):
        draw([_measures(results, name)], out / f"figure-{number}.svg", f"PIVODL, Figure {number}")
    draw([_by_epsilon(results)], out / "figure-9.svg", "PIVODL, Figure 9")
    usual = [Cell("processes", name, 0) for name in SETS]
    times, sizes = [], []
    for name, (axis, values) in AXES.items():
        found = [Line(WORLDS[cell.set].title, line(results, cell, name, values, cpu)) for cell in usual]
        found += [
            Line(
                f"{WORLDS[cell.set].title}, plain",
                line(results, replace(cell, over="plain"), name, values, cpu),
                dashed=True,
            )
            for cell in usual
        ]
        times.append(Panel(f"by {name}", axis, "processor seconds", found, zero=True))
        lines = [Line(WORLDS[cell.set].title, line(results, cell, name, values, megabytes)) for cell in usual]
        plain = [
            Line(f"{WORLDS[cell.set].title}, plain", line(results, cell, name, values, plain_megabytes), dashed=True)
            for cell in usual
        ]
        sizes.append(Panel(f"by {name}", axis, "MB", lines + plain, zero=True))
    draw([times], out / "figures-10-12.svg", "PIVODL, Figures 10 to 12")
    draw([sizes], out / "figures-13-15.svg", "PIVODL, Figures 13 to 15")
    draw([_scaling(results)], out / "scaling.svg", "PIVODL, time by parties and trees")
    draw([_systems(results)], out / "figure-16.svg", "PIVODL, Figure 16")


def _ways(results: Results, name: str, field: str, values: Sequence[float], measure: Measure) -> list[Line]:
    """Lines without noise and with the default ε under both accountings."""
    found = []
    for accounting, title in WAYS.items():
        cell = Cell("centralised", name, 0)
        if accounting is not None:
            cell = replace(cell, epsilon=EPSILON, accounting=accounting)
        found.append(Line(title, line(results, cell, field, values, measure)))
    return found


def _measures(results: Results, field: str) -> list[Panel]:
    axis, values = AXES[field]
    panels = [
        Panel(
            WORLDS[name].title,
            axis,
            "test accuracy",
            _ways(results, name, field, values, test("accuracy")),
            level=(ACCURACY[name], "paper, about"),
        )
        for name in ACCURACY
    ]
    lines = _ways(results, "energy", field, values, test("rmse"))
    return [*panels, Panel(WORLDS["energy"].title, axis, "test RMSE, Wh", lines, logarithmic=True)]


def _by_epsilon(results: Results) -> list[Panel]:
    panels = []
    for name in SETS:
        measure = "rmse" if WORLDS[name].regression else "accuracy"
        lines = [
            Line(
                (WAYS[accounting] or "").replace("ε 8, ", ""),
                line(results, Cell("centralised", name, 0, accounting=accounting), "epsilon", EPSILONS, test(measure)),
            )
            for accounting in ACCOUNTINGS
        ]
        level = (ACCURACY[name], "paper, about") if name in ACCURACY else None
        panels.append(
            Panel(WORLDS[name].title, "ε", f"test {measure}", lines, level=level, logarithmic=measure == "rmse")
        )
    return panels


def _scaling(results: Results) -> list[Panel]:
    cell = Cell("processes", SETS[0], 0)
    return [
        Panel(
            f"{WORLDS[SETS[0]].title}, by {field}",
            AXES[field][0],
            "seconds",
            [
                Line("processor", line(results, cell, field, values, cpu), fit=True),
                Line("wall, trees", line(results, cell, field, values, seconds("train")), fit=True),
            ],
            zero=True,
        )
        for field, values in (("parties", range(3, 11)), ("trees", TREES))
    ]


def _systems(results: Results) -> list[Panel]:
    one = Cell("processes", SETS[0], 0, labels=ONE)
    modified = replace(one, system="pivodl, modified")
    boosted = replace(one, system="boosting")
    by_depth = [
        Line("SecureBoost", line(results, boosted, "depth", DEPTHS, cpu)),
        Line("PIVODL, modified", line(results, modified, "depth", DEPTHS, cpu)),
    ]
    by_parties = [
        Line("modified, processor", line(results, modified, "parties", PARTIES, cpu)),
        Line("modified, wall, trees", line(results, modified, "parties", PARTIES, seconds("train"))),
    ]
    return [
        Panel("labels of one party, by depth", "depth of a tree", "processor seconds", by_depth, logarithmic=True),
        Panel(
            "labels of one party, by parties",
            "parties",
            "seconds",
            by_parties,
            level=(MODIFIED_S, "paper, about"),
            logarithmic=True,
        ),
    ]
