"""Estimates the trainings whose tables a page has: these tables, and docs/capacity.svg.

Usage: python -m renderers.capacity

Costs are those of capacity-measured.json beside this file, on a lattice of capacity-lattice.json. Needs
the extra bench.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from renderers.rendering import DOCS, MEASURED, with_tables, write
from treetap.commands.capacity.measuring import Measurements
from treetap.commands.capacity.question import Site, TrainingOptions
from treetap.commands.capacity.report import document, duration, estimate, rate
from treetap.protocols.key_options import LATTICE, PAILLIER

HERE = Path(__file__).parent
RECORDS = (10_000_000, 100_000_000)
NODES = (2, 4, 8, 16, 32, 64)
#: Fewest nodes in the tables; the picture has all.
TABLED = 8
#: Names of lines between the parties → Mbit/s in each direction, milliseconds one way.
LINES = {"1 Gbit/s, 5 ms": (1e3, 5.0), "10 Gbit/s, 0.5 ms": (1e4, 0.5)}
SCHEMES = {PAILLIER: "Paillier"}
COLORS = {PAILLIER: "#2166ac"}
STYLES = dict(zip(LINES, ("o-", "s--"), strict=True))


@dataclass(frozen=True)
class Point:
    """One estimated tree. `nodes`: of both parties together, half each; the label holder's hold the key."""

    records: int
    nodes: int
    scheme: str
    line: str
    found: dict[str, Any]


def points(measured: Measurements) -> list[Point]:
    """Every combination."""
    asked = product(RECORDS, LINES, SCHEMES, NODES)
    return [
        Point(records, nodes, scheme, line, estimated(measured, records, line, scheme, nodes))
        for records, line, scheme, nodes in asked
    ]


def estimated(measured: Measurements, records: int, line: str, scheme: str, nodes: int) -> dict[str, Any]:
    """The document on a tree of depth 3 on 25 + 25 columns with 32 bins."""
    training = TrainingOptions(records=records, scheme=scheme).training()
    bandwidth, delay = LINES[line]
    site = Site(nodes=f"{nodes // 2},{nodes // 2}", bandwidth=bandwidth, delay=delay, cluster_holds_key=True)
    return document(estimate(training, site, measured), measured.machine)


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
        "| **estimated tree** | " + " | ".join(f"**{each.found['seconds']['tree']:.1f}**" for each in some) + " |"
    )
    return "\n".join(lines) + "\n"


def on_lattice(measured: Measurements) -> str:
    """The trees of the other tables on a lattice, by one machine at each party."""
    lines = [
        "| records | line | way | a tree | 100 trees | to the feature party | back | saturates first |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for records, line in product((1_000_000, *RECORDS), LINES):
        found = estimated(measured, records, line, LATTICE, 2)
        there, back = (f"{each['bytes'] / 1e9:.2f} GB" for each in found["lines"])
        seconds, way = found["seconds"], found["training"]["way"]
        cells = [f"{records // 1_000_000} M", line, way, duration(seconds["tree"]), duration(seconds["all_trees"])]
        lines.append("| " + " | ".join([*cells, there, back, found["saturates_first"]]) + " |")
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
    """Estimate, and put the tables into the page; returns the exit status."""
    if len(sys.argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = points(Measurements.load(HERE / "capacity-measured.json"))
    tables = {f"{records // 1_000_000} M records": table(found, records) for records in RECORDS}
    tables |= {"demands": demands(found), "lattice": on_lattice(Measurements.load(HERE / "capacity-lattice.json"))}
    write(with_tables(tables, MEASURED))
    draw(found, DOCS / "capacity.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
