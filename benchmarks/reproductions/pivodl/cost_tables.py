"""Tables of time and traffic: Figures 10 to 16 and Table IV as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cells import ACCOUNTINGS, EPSILON, ONE, PARTIES, SETS, TREES, Cell, changed
from paper import SYSTEMS
from pictures import AXES
from points import cpu, growth, line, linear, megabytes, plain_megabytes, point, seconds
from resumable import Results
from worlds import WORLDS

FIRST = Cell("processes", SETS[0], 0)
PLAIN = ("CONTROL", "TOPOLOGY", "METRIC")


def _runs(results: Results) -> list[tuple[str, Mapping[str, Any]]]:
    """The runs of the default setting over processes, by words."""
    cells = {
        f"{bits} bits, {form}": replace(FIRST, key_bits=bits, wire_form=form)
        for bits in (512, 2048)
        for form in ("compact", "paper")
    }
    cells |= {
        f"512 bits, compact, ε 8, L = {'T·2^depth' if each == 'zcdp' else 'T'}": replace(
            FIRST, epsilon=EPSILON, accounting=each
        )
        for each in ACCOUNTINGS
    }
    found = {words: results.get(cell.key()) for words, cell in cells.items()}
    return [(words, each) for words, each in found.items() if each is not None]


def costs(results: Results) -> list[list[str]]:
    """Time, bytes and measures of the default setting."""
    rows = [["run", "whole job, s", "trees, s", "processor, s", "sent, MB", "test accuracy", "test AUC"]]
    for words, run in _runs(results):
        measured = run["metrics"]["test"]
        figures = [f"{seconds('wall')(run):.1f}", f"{seconds('train')(run):.1f}", f"{cpu(run):.1f}"]
        rows.append([words, *figures, f"{megabytes(run):.2f}", f"{measured['accuracy']:.4f}", f"{measured['auc']:.4f}"])
    return rows


def by_class(results: Results) -> list[list[str]]:
    """Bytes by disclosure class of the same runs without noise."""
    runs = [(words, run) for words, run in _runs(results) if "epsilon" not in run["trial"]]
    names = sorted({name for _, run in runs for name in run["traffic"]}, key=lambda name: (name in PLAIN, name))
    rows = [["class", *(words for words, _ in runs)]]
    for name in names:
        rows.append([name, *(f"{run['traffic'].get(name, 0):,}" for _, run in runs)])
    return [*rows, ["all", *(f"{sum(run['traffic'].values()):,}" for _, run in runs)]]


def times(results: Results) -> list[list[str]]:
    """Processor seconds and MB by parties, depth and trees of each set."""
    head = ["set", "by", "value", "processor, s", "plain, s", "whole job, s", "sent, MB", "plain, MB", "seeds"]
    rows = [head]
    for name in SETS:
        for field, (_, values) in AXES.items():
            for value in values:
                cell = changed(Cell("processes", name, 0), field, value)
                found = [point(results, cell, each) for each in (cpu, seconds("wall"), megabytes, plain_megabytes)]
                if found[0] is None:
                    continue
                found.insert(1, point(results, replace(cell, over="plain"), cpu))
                shown = ["–" if each is None else each.shown(1) for each in found]
                rows.append([WORLDS[name].title, field, f"{value:g}", *shown, str(found[0].seeds)])
    return rows


def scaled(results: Results) -> list[list[str]]:
    """The growth of time: a linear fit, and the exponent of a power law."""
    rows = [["by", "seconds", "a + b·x", "R²", "exponent", "values"]]
    for field, values in (("parties", range(3, 11)), ("trees", TREES)):
        for words, measure in (
            ("processor", cpu),
            ("wall, whole job", seconds("wall")),
            ("wall, trees", seconds("train")),
        ):
            found = line(results, FIRST, field, values, measure)
            if len(found) < 3:
                continue
            base, slope, square = linear(found)
            shown = ", ".join(f"{each.x:g}: {each.mean:.1f}" for each in found)
            rows.append([field, words, f"{base:.2f} + {slope:.2f} x", f"{square:.3f}", f"{growth(found):.2f}", shown])
    return rows


def shapes(results: Results) -> list[list[str]]:
    """MB in the compact and in the paper's form of the wire."""
    rows = [["set", "parties", "compact, MB", "as printed, MB", "ratio", "same model", "seeds"]]
    cells = [Cell("processes", name, 0) for name in SETS]
    cells += [replace(cells[0], parties=value) for value in PARTIES if value != cells[0].parties]
    for cell in cells:
        printed = replace(cell, wire_form="paper")
        sizes = [point(results, each, megabytes) for each in (cell, printed)]
        compact, paper = sizes
        if compact is None or paper is None:
            continue
        runs = [results.get(each.key()) for each in (cell, printed)]
        same = len({run["model"] for run in runs if run is not None}) == 1
        rows.append(
            [
                *(WORLDS[cell.set].title, str(cell.parties), compact.shown(2), paper.shown(2)),
                *(f"{paper.mean / compact.mean:.1f}", "yes" if same else "no", str(paper.seeds)),
            ]
        )
    return rows


def systems(results: Results) -> list[list[str]]:
    """Table IV, and the default time of each system with all labels at one party."""
    one = replace(FIRST, labels=ONE)
    ours = {
        "SecureBoost": ("SecureBoost (`boosting`)", replace(one, system="boosting")),
        "PIVODL": ("PIVODL, unmodified", one),
        "": ("PIVODL, modified (`centralised_labels`)", replace(one, system="pivodl, modified")),
    }
    rows = [["system", "trees, s", "processor, s", "sent, MB", "accuracy", "paper", "AUC", "paper", "seeds"]]
    for paper, (words, cell) in ours.items():
        found = [
            point(results, cell, each) for each in (seconds("train"), cpu, megabytes, _test("accuracy"), _test("auc"))
        ]
        if found[0] is None:
            continue
        shown = [
            "–" if each is None else each.shown(digits) for each, digits in zip(found, (2, 1, 2, 4, 4), strict=True)
        ]
        accuracy, auc = ("–" if each is None else f"{each:.4f}" for each in SYSTEMS.get(paper, (None, None)))
        rows.append([words, *shown[:3], shown[3], accuracy, shown[4], auc, str(found[0].seeds)])
    for paper in ("FederBoost", "Pivot"):
        accuracy, auc = ("–" if each is None else f"{each:.4f}" for each in SYSTEMS[paper])
        rows.append([f"{paper} (not here)", "–", "–", "–", "–", accuracy, "–", auc, "–"])
    return rows


def _test(name: str) -> Any:
    return lambda run: run["metrics"]["test"][name]


def comparison_of_gains(results: Results) -> list[list[str]]:
    """Gains announced and compared in secret."""
    rows = [["gains", "whole job, s", "trees, s", "processor, s", "sent, MB", "model"]]
    for words in ("announce", "secure"):
        run = results.get(replace(FIRST, gain_comparison=words).key())
        if run is not None:
            figures = [f"{seconds('wall')(run):.1f}", f"{seconds('train')(run):.1f}", f"{cpu(run):.1f}"]
            rows.append([words, *figures, f"{megabytes(run):.2f}", f"`{run['model']}`"])
    return rows
