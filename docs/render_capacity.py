"""Simulates the trainings of docs/capacity.md: its tables, and docs/capacity.svg.

Usage: python docs/render_capacity.py

Costs are those of docs/capacity-measured.json; minutes. Needs the extras capacity and bench.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rendering import with_table

from treetap.capacity.measurements import Measurements
from treetap.capacity.site import Nodes, Site
from treetap.commands.capacity.document import Question, answer, document
from treetap.commands.capacity.report import duration, rate
from treetap.protocols.key_options import OKAMOTO_UCHIYAMA, PAILLIER, KeyKind
from treetap.trees.params import BoostingParams

HERE = Path(__file__).parent
RECORDS = (10_000_000, 100_000_000)
NODES = (2, 4, 8, 16, 32, 64)
#: Fewest nodes in the tables; the picture has all.
TABLED = 8
CORES, MEMORY_GB, INNER = 16, 64.0, 10e9
#: Names of lines between the parties → bit/s in each direction, seconds one way.
LINES = {"1 Gbit/s, 5 ms": (1e9, 0.005), "10 Gbit/s, 0.5 ms": (1e10, 0.0005)}
SCHEMES = {PAILLIER: "Paillier", OKAMOTO_UCHIYAMA: "Okamoto–Uchiyama"}
OBFUSCATION = "short-exponent"
COLORS = {PAILLIER: "#2166ac", OKAMOTO_UCHIYAMA: "#b2182b"}
STYLES = dict(zip(LINES, ("o-", "s--"), strict=True))


@dataclass(frozen=True)
class Point:
    """One simulated tree. `nodes`: of both parties together, half each; the label holder's hold the key."""

    records: int
    nodes: int
    scheme: str
    line: str
    found: dict[str, Any]


def points(measured: Measurements) -> list[Point]:
    """Every combination, simulated on all processors."""
    asked = list(product(RECORDS, LINES, SCHEMES, NODES))
    with ProcessPoolExecutor() as pool:
        runs = [pool.submit(simulated, measured, *each) for each in asked]
        return [
            Point(records, nodes, scheme, line, run.result())
            for (records, line, scheme, nodes), run in zip(asked, runs, strict=True)
        ]


def simulated(measured: Measurements, records: int, line: str, scheme: str, nodes: int) -> dict[str, Any]:
    """The document on a tree of depth 3 on 25 + 25 columns with 32 bins."""
    params = BoostingParams(n_estimators=100, max_depth=3)
    question = Question(records, (25, 25), params, KeyKind(scheme, 2048), OBFUSCATION, 0.5)
    machines = Nodes(nodes // 2, CORES, CORES, MEMORY_GB)
    bits, delay = LINES[line]
    site = Site(machines, machines, bits, delay, INNER, cluster_holds_key=True)
    return document(answer(question, question.training(), site, measured))


def table(found: list[Point], records: int) -> str:
    """The rows of a number of records."""
    lines = [
        "| scheme | line | nodes | a tree | 100 trees | saturates first | the line would, below | fits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        if each.records == records and each.nodes >= TABLED:
            seconds = each.found["seconds"]["tree"]
            cells = [
                SCHEMES[each.scheme],
                each.line,
                f"{each.nodes // 2} + {each.nodes // 2}",
                duration(seconds),
                duration(100 * seconds),
                each.found["saturates_first"],
                rate(each.found["line_saturates_below_bits_per_s"]),
                "yes" if each.found["fits"] else "no",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def demands(found: list[Point]) -> str:
    """Demands of a tree of the smaller table on each resource, by nodes: Paillier, the faster line."""
    some = [each for each in found if each.records == RECORDS[0] and each.scheme == PAILLIER]
    some = [each for each in some if each.line == list(LINES)[1]]
    names = dict.fromkeys((d["party"], d["kind"]) for each in some for d in each.found["demands"])
    lines = ["| seconds of a tree | " + " | ".join(f"{each.nodes} nodes" for each in some) + " |"]
    lines.append("|---|" + "---|" * len(some))
    for party, kind in names:
        by = [{(d["party"], d["kind"]): d["seconds"] for d in each.found["demands"]}[party, kind] for each in some]
        if max(by) >= 1:
            lines.append(f"| {party}: {kind} | " + " | ".join(f"{seconds:.1f}" for seconds in by) + " |")
    lines.append(
        "| **simulated tree** | " + " | ".join(f"**{each.found['seconds']['tree']:.1f}**" for each in some) + " |"
    )
    return "\n".join(lines) + "\n"


def draw(found: list[Point], path: Path) -> None:
    """Seconds of a tree by nodes, a panel for each number of records."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, records in zip(figure.subplots(1, len(RECORDS)), RECORDS, strict=True):
        for scheme, name in SCHEMES.items():
            for line, style in STYLES.items():
                some = [p for p in found if (p.records, p.scheme, p.line) == (records, scheme, line)]
                seconds = [p.found["seconds"]["tree"] / 60 for p in some]
                axes.plot([p.nodes for p in some], seconds, style, color=COLORS[scheme], label=f"{name}, {line}")
        axes.set(xscale="log", ylim=(0, None), xlabel="nodes of both parties", ylabel="minutes a tree")
        axes.set_title(f"{records // 1_000_000} M records × 50 columns", fontsize=10)
        axes.set_xticks(NODES, [str(count) for count in NODES], minor=False)
        axes.minorticks_off()
        axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(frameon=False, fontsize=7, loc="upper right")
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Simulate, and put the tables into the page; returns the exit status."""
    if len(sys.argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = points(Measurements.load(HERE / "capacity-measured.json"))
    page = (HERE / "capacity.md").read_text(encoding="utf-8")
    for records in RECORDS:
        page = with_table(page, f"{records // 1_000_000} M records", table(found, records))
    page = with_table(page, "demands", demands(found))
    (HERE / "capacity.md").write_text(page, encoding="utf-8")
    draw(found, HERE / "capacity.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
