"""The answer of `treetap capacity`: as JSON types, and on a terminal with bars for the phases."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from treetap import terminal
from treetap.commands.capacity.machines import PHASES
from treetap.commands.capacity.measurements import Measurements
from treetap.commands.capacity.messages import TreeMessages
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.simulation import Tree, simulate
from treetap.commands.capacity.training import Training
from treetap.commands.capacity.verdict import judge

#: Characters of the bar of a whole tree.
BAR = 48
MEANINGS = dict(
    zip(
        PHASES,
        (
            "gradients, drawn records",
            "label holder's workers",
            "ciphertexts and sums, between parties",
            "feature parties' workers",
            "feature parties' workers",
            "label holder's workers",
            "own sums, splits, children, scores",
        ),
        strict=True,
    )
)


def answer(training: Training, site: Site, measured: Measurements) -> Tree:
    """Simulate; the measurements have the training's kind of key."""
    kernels = measured.of(training.key, training.obfuscation)
    assert kernels is not None
    sizes = TreeMessages(training, "capacity").sizes(site.machines[0] * site.workers_each)
    return simulate(training, site, measured.host, kernels, sizes)


def document(tree: Tree, machine: dict[str, str]) -> dict[str, Any]:
    """The answer as JSON types; seconds and bytes are of one tree unless the name says otherwise.

    `machine`: on which costs were measured.
    """
    training, verdict = tree.training, judge(tree)
    columns = [training.own, *training.others.values()]
    return {
        "machine": machine,
        "training": {
            "records": training.records,
            "drawn": training.drawn,
            "columns": [len(each.shapes) for each in columns],
            "max_bin": columns[-1].shapes[0].n_bins,
            "trees": training.trees,
            "depth": len(training.levels),
            "scheme": training.key.scheme,
            "key_bits": training.key.bits,
            "obfuscation": training.obfuscation,
            "candidates_per_ciphertext": training.candidates_per_ciphertext,
        },
        "seconds": {"tree": tree.seconds, "streamed": tree.streamed_s, "all_trees": training.trees * tree.seconds},
        "phases": {
            name: dict(zip(("seconds", "first", "last"), span, strict=True))
            for name, span in tree.world.spans().items()
        },
        "demands": [asdict(demand) | {"share": demand.seconds / tree.seconds} for demand in verdict.demands],
        "saturates_first": verdict.first,
        "line_saturates_below_bits_per_s": verdict.line_bits_per_s,
        "operations_all_trees": training.operations(tree.counts),
        "lines": [
            {
                "from": line.sender.name,
                "to": line.receiver.name,
                "bytes": line.bytes,
                "messages": line.messages,
                "bytes_all_trees": line.bytes * training.trees,
            }
            for line in (*tree.to.values(), *tree.back.values())
        ],
        "memory_bytes": {name: asdict(memory) for name, memory in verdict.memory.items()},
        "too_full": list(verdict.too_full),
        "fits": not verdict.too_full,
    }


def show(said: dict[str, Any]) -> None:
    """Print a document on a terminal."""
    training, seconds, size = said["training"], said["seconds"], terminal.size
    terminal.out.print(
        f"{training['records']:,} records, {' + '.join(map(str, training['columns']))} columns, {training['scheme']} "
        f"{training['key_bits']}: {duration(seconds['tree'])} a tree, {duration(seconds['all_trees'])} for "
        f"{training['trees']} trees"
    )
    terminal.out.print(f"saturates first: {said['saturates_first']}")
    limit = rate(said["line_saturates_below_bits_per_s"])
    terminal.out.print(f"a line between parties would saturate first below {limit} in one direction")
    phases = terminal.table("phase", "busy", "from first to last, of one tree", "at")
    for name, span in said["phases"].items():
        phases.add_row(
            name, duration(span["seconds"]), bar(span["first"], span["last"], seconds["tree"]), MEANINGS[name]
        )
    demands = terminal.table("resource", "at", "alone a tree would take", "in use")
    for row in said["demands"]:
        if row["share"] > 0.005:
            demands.add_row(row["kind"], row["party"], duration(row["seconds"]), f"{100 * row['share']:.0f} %")
    lines = terminal.table("line", "bytes a tree", "messages a tree", "bytes of all trees")
    for row in said["lines"]:
        name, count = f"{row['from']} to {row['to']}", f"{row['messages']:,}"
        lines.add_row(name, size(row["bytes"]), count, size(row["bytes_all_trees"]))
    memory = terminal.table("memory", "main process", "a worker", "first machine", "each further")
    for name, row in said["memory_bytes"].items():
        cells = [size(value) if value else "" for value in row.values()]
        memory.add_row(name + (" (too much)" if name in said["too_full"] else ""), *cells)
    _print(phases, demands, lines, memory)
    measured = ", ".join(said["machine"].get(name, "") for name in ("processor", "arithmetic", "measured"))
    terminal.out.print(
        f"by costs measured on: {measured}. Reading, binning, alignment and key generation are not in these figures."
    )


def show_costs(measured: Measurements) -> None:
    """Print measured costs on a terminal."""
    table = terminal.table("cost", "seconds of a processor, or bytes")
    for name, value in measured.figures():
        table.add_row(name, f"{value:.3g}")
    _print(table)


def _print(*tables: Table) -> None:
    for table in tables:
        terminal.out.print(table)


def duration(seconds: float) -> str:
    """A time for a person."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def rate(bits_per_s: float) -> str:
    """A bandwidth for a person."""
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if bits_per_s >= factor:
            return f"{bits_per_s / factor:.2f} {unit}"
    return f"{bits_per_s / 1e3:.1f} kbit/s"


def bar(first: float, last: float, whole: float) -> str:
    """The part of a tree's time from first to last, as blocks; at least one."""
    begin = min(int(BAR * first / whole), BAR - 1)
    length = max(1, min(round(BAR * (last - first) / whole), BAR - begin))
    return " " * begin + "█" * length + " " * (BAR - begin - length)
