"""Tables of time and traffic: Figures 10 to 16 and Table IV as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cells import ACCOUNTINGS, DEPTHS, EPSILON, ONE, PARTIES, SETS, TREES, Cell, changed
from paper import SYSTEMS
from pictures import AXES
from points import common, cpu, encryptions, growth, line, linear, megabytes, plain_megabytes, point, seconds, test
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
    return _classes({words: run for words, run in _runs(results) if "epsilon" not in run["trial"]})


def _classes(runs: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    names = sorted({name for run in runs.values() for name in run["traffic"]}, key=lambda name: (name in PLAIN, name))
    rows = [["class", *runs]]
    for name in names:
        rows.append([name, *(f"{run['traffic'].get(name, 0):,}" for run in runs.values())])
    return [*rows, ["all", *(f"{sum(run['traffic'].values()):,}" for run in runs.values())]]


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
    rows = [["by x", "measure", "a + b·x", "R²", "exponent of x", "of x − 1", "values"]]
    measures = {
        "encryptions": encryptions,
        "processor, s": cpu,
        "wall, whole job, s": seconds("wall"),
        "wall, trees, s": seconds("train"),
    }
    for field, values in (("parties", range(3, 11)), ("trees", TREES)):
        for words, measure in measures.items():
            found = line(results, FIRST, field, values, measure)
            if len(found) < 3:
                continue
            base, slope, square = linear(found)
            digits = 0 if measure is encryptions else 1
            shown = ", ".join(f"{each.x:g}: {each.mean:,.{digits}f}" for each in found)
            growth_of_others = f"{growth(found, 1):.2f}" if field == "parties" else "–"
            fit = f"{base:,.{digits}f} + {slope:,.{digits + 1}f} x"
            rows.append([field, words, fit, f"{square:.3f}", f"{growth(found):.2f}", growth_of_others, shown])
    return rows


def shapes(results: Results) -> list[list[str]]:
    """MB in the compact and in the paper's form of the wire."""
    rows = [["set", "parties", "depth", "compact, MB", "as printed, MB", "ratio", "same model", "seeds"]]
    cells = [Cell("processes", name, 0) for name in SETS]
    deepest = replace(cells[-1], depth=DEPTHS[-1])
    cells += [deepest, *(replace(cells[0], parties=value) for value in PARTIES if value != cells[0].parties)]
    for cell in cells:
        both = [cell, replace(cell, wire_form="paper")]
        seeds = common(results, both)
        compact, paper = (point(results, each, megabytes, seeds=seeds) for each in both)
        if compact is None or paper is None:
            continue
        found = [results.get(each.key()) for each in both]
        same = len({run["model"] for run in found if run is not None}) == 1
        rows.append(
            [
                *(WORLDS[cell.set].title, str(cell.parties), str(cell.depth), compact.shown(2), paper.shown(2)),
                *(f"{paper.mean / compact.mean:.1f}", "yes" if same else "no", str(paper.seeds)),
            ]
        )
    return rows


_ONE = replace(FIRST, labels=ONE)
#: Words → the paper's name and the cell of a system where all labels are one party's.
_SYSTEMS = {
    "SecureBoost (`boosting`)": ("SecureBoost", replace(_ONE, system="boosting")),
    "PIVODL, unmodified": ("PIVODL", _ONE),
    "PIVODL, modified (§V-F)": ("PIVODL", replace(_ONE, system="pivodl, modified")),
}


def systems(results: Results) -> list[list[str]]:
    """Table IV, and the default time of each system with all labels at one party."""
    rows = [["system", "trees, s", "processor, s", "sent, MB", "accuracy", "paper", "AUC", "paper", "seeds"]]
    measures = {seconds("train"): 2, cpu: 1, megabytes: 2, test("accuracy"): 4, test("auc"): 4}
    for words, (paper, cell) in _SYSTEMS.items():
        found = [point(results, cell, each) for each in measures]
        if found[0] is None:
            continue
        shown = ["–" if each is None else each.shown(d) for each, d in zip(found, measures.values(), strict=True)]
        theirs = [_figure(each) for each in SYSTEMS[paper]]
        rows.append([words, *shown[:4], theirs[0], shown[4], theirs[1], str(found[0].seeds)])
    for paper in ("FederBoost", "Pivot"):
        accuracy, auc = map(_figure, SYSTEMS[paper])
        rows.append([f"{paper} (not here)", "–", "–", "–", "–", accuracy, "–", auc, "–"])
    return rows


def disclosed(results: Results) -> list[list[str]]:
    """Bytes by class of the same systems, the first seed of each."""
    runs = {words: results.get(cell.key()) for words, (_, cell) in _SYSTEMS.items()}
    return _classes({words: run for words, run in runs.items() if run is not None})


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def comparison_of_gains(results: Results) -> list[list[str]]:
    """Gains announced and compared in secret."""
    rows = [
        ["gains", "whole job, s", "trees, s", "processor, s", "sent, MB", "encryptions", "AGGREGATE, bytes", "model"]
    ]
    for words in ("announce", "secure"):
        run = results.get(replace(FIRST, gain_comparison=words).key())
        if run is not None:
            figures = [f"{seconds('wall')(run):.1f}", f"{seconds('train')(run):.1f}", f"{cpu(run):.1f}"]
            figures += [f"{megabytes(run):.2f}", f"{encryptions(run):,.0f}", f"{run['traffic']['AGGREGATE']:,}"]
            rows.append([words, *figures, f"`{run['model']}`"])
    return rows
