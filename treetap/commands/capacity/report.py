"""The answer of `treetap capacity` on a terminal: what saturates first, phases with bars, demands, lines, memory."""

from __future__ import annotations

from treetap import terminal
from treetap.capacity.processes import PHASES
from treetap.commands.capacity.document import Answer

#: Characters of the bar of a whole tree.
BAR = 48
MEANINGS = {
    "prepare": "gradients, drawn records",
    "encrypt": "label holder's workers",
    "send": "ciphertexts and sums, between parties",
    "sum": "feature parties' workers",
    "pack": "feature parties' workers",
    "open": "label holder's workers",
    "decide": "own sums, splits, children, scores",
}


def show(found: Answer) -> None:
    """Print the answer."""
    tree, training, verdict = found.tree, found.training, found.verdict
    terminal.out.print(
        f"{training.records:,} records, {' + '.join(map(str, found.question.columns))} columns, {training.key.scheme} "
        f"{training.key.bits}: {duration(tree.seconds)} a tree, {duration(found.seconds)} for {training.trees} trees"
    )
    terminal.out.print(f"saturates first: {verdict.first}")
    terminal.out.print(
        f"a line between parties would saturate first below {rate(verdict.line_bits_per_s)} in one direction"
    )
    terminal.out.print(_phases(found))
    terminal.out.print(_demands(found))
    terminal.out.print(_lines(found))
    terminal.out.print(_memory(found))
    measured = ", ".join(found.measured.machine.get(name, "") for name in ("processor", "arithmetic", "measured"))
    terminal.out.print(
        f"by costs measured on: {measured}. Reading, binning, alignment and key generation are not in these figures."
    )


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


def _phases(found: Answer) -> object:
    table = terminal.table("phase", "busy", "from first to last, of one tree", "at")
    for name in PHASES:
        activity = found.tree.phases[name]
        if activity.seconds:
            span = bar(activity.first, activity.last, found.tree.seconds)
            table.add_row(name, duration(activity.seconds), span, MEANINGS[name])
    return table


def _demands(found: Answer) -> object:
    table = terminal.table("resource", "at", "alone a tree would take", "in use")
    for each in found.verdict.demands:
        if each.seconds > 0.005 * found.tree.seconds:
            share = f"{100 * each.seconds / found.tree.seconds:.0f} %"
            table.add_row(each.kind, each.party, duration(each.seconds), share)
    return table


def _lines(found: Answer) -> object:
    table = terminal.table("line", "bytes a tree", "messages a tree", "bytes of all trees")
    for each in found.tree.connections:
        name, trees = f"{each.sender.name} to {each.receiver.name}", found.training.trees
        table.add_row(
            name, terminal.size(each.line.bytes), f"{each.line.messages:,}", terminal.size(trees * each.line.bytes)
        )
    return table


def _memory(found: Answer) -> object:
    table = terminal.table("memory", "main process", "a worker", "first machine", "each further")
    for name, each in found.memory.items():
        further = terminal.size(each.other_node) if each.other_node else ""
        cells = [terminal.size(value) for value in (each.main, each.worker, each.first_node)]
        table.add_row(name + (" (too much)" if name in found.verdict.too_full else ""), *cells, further)
    return table
