"""The answer of `treetap capacity`: demands and memory, as JSON types, and on a terminal with bars for the phases.

The demand on a resource is the time that a tree would take if that resource alone bounded it. A tree takes at least the
largest demand; how much more, is waiting of one for another. Memory is that of the arrays and ciphertexts that a
process keeps at its fullest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from treetap import terminal
from treetap.commands.capacity.keyed import KeyedTree
from treetap.commands.capacity.lattice import LatticeTree
from treetap.commands.capacity.measuring import Measurements
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import PartyColumns, Training
from treetap.commands.capacity.tree import LONG, PHASES, Party, Tree
from treetap.errors import ConfigError

MIB = 2**20
#: Features of more bytes stay in their source, if that is of files that are read in parts.
_STREAMED = 128 * MIB
LINE, SERIES = "line", "messages, one after the other"
#: Characters of the bar of a whole tree.
BAR = 48


def estimate(job: Training, site: Site, measured: Measurements) -> Tree:
    """One tree of a job, by the costs of its scheme.

    Raises:
        ConfigError: they were not measured.
    """
    kernels = measured.of(job.key, job.obfuscation)
    if job.agreed is not None and measured.lattice is not None:
        return LatticeTree(job, site, measured.host, job.agreed, measured.lattice)
    if kernels is None:
        raise ConfigError(f"the measurements have no costs of {job.key.scheme}: measure them")
    return KeyedTree(job, site, measured.host, kernels)


def document(tree: Tree, machine: dict[str, str]) -> dict[str, Any]:
    """The answer as JSON types; seconds and bytes are of one tree unless the name says otherwise.

    `machine`: on which costs were measured.
    """
    job, parties, trees = tree.job, [tree.holder, *tree.others.values()], tree.job.params.n_estimators
    demands = sorted(_demands(tree, parties), key=lambda demand: -demand["seconds"])
    others = max(demand["seconds"] for demand in demands if demand["kind"] not in (LINE, SERIES))
    fullest = max(max(party.sent, party.received) for party in parties)
    memory = {party.name: _memory(tree, party) for party in parties}
    # memory goes before time: without it the job does not run
    full = [name for name, of in memory.items() if max(of["first_node"], of["other_node"]) > tree.site.memory * 1e9]
    first = "{party}: {kind}".format(**demands[0])
    return {
        "machine": machine,
        "training": {
            "records": job.records,
            "drawn": job.drawn,
            "columns": [len(columns.shapes) for columns in (job.own, *job.others.values())],
            "max_bin": job.params.max_bin,
            "trees": trees,
            "depth": len(job.levels),
            "scheme": job.key.scheme,
            **tree.facts(),
        },
        "seconds": {
            "tree": tree.seconds,
            "streamed": tree.streamed_s,
            "once": tree.once_s,
            "all_trees": tree.once_s + trees * tree.seconds,
        },
        "phases": {
            name: dict(zip(("seconds", "first", "last"), tree.phases[name], strict=True))
            for name in PHASES
            if name in tree.phases and tree.phases[name][0]
        },
        "demands": [demand | {"share": demand["seconds"] / tree.seconds} for demand in demands],
        "saturates_first": f"memory of {', '.join(full)}" if full else first,
        "line_saturates_below_bits_per_s": 8 * fullest / others if others else 0.0,
        "operations_all_trees": tree.operations(),
        "lines": [
            {
                "from": line.sender.name,
                "to": line.receiver.name,
                "bytes": round(line.bytes),
                "messages": line.messages,
                "bytes_all_trees": round(line.bytes) * trees,
            }
            for line in (*tree.to.values(), *tree.back.values())
        ],
        "memory_bytes": memory,
        "fits": not full,
    }


def _demands(tree: Tree, parties: list[Party]) -> Iterator[dict[str, Any]]:
    """Seconds of a tree by each resource alone."""
    site = tree.site
    demands = [("the machine", "cores", sum(party.main_s + party.workers_s for party in parties) / site.cores)]
    for party in parties:
        on_cores = party.workers_s / (party.nodes * min(site.cores, site.workers_each))
        demands.append((party.name, "main process", party.main_s))
        demands.append((party.name, "workers", party.busiest_s if site.one_machine else max(party.busiest_s, on_cores)))
        demands.append((party.name, LINE, max(party.sent, party.received) / tree.bytes_per_s))
        demands.append(
            (party.name, "network between its nodes", max(party.inner_out, party.inner_into) / tree.inner_bytes_per_s)
        )
    for line in (*tree.to.values(), *tree.back.values()):
        demands.append((f"{line.sender.name} to {line.receiver.name}", SERIES, line.seconds))
    of_kind = (LINE, "network between its nodes") if site.one_machine else ("cores",)
    return ({"party": party, "kind": kind, "seconds": s} for party, kind, s in demands if kind not in of_kind)


def _memory(tree: Tree, party: Party) -> dict[str, float]:
    """Bytes of the main process, of each worker, of the first machine and of each further one."""
    job, slots = tree.job, len(tree.job.slots.widths)
    main, worker = tree.host.process_mb * MIB, tree.host.worker_mb * MIB
    worker += tree.worker_bytes(party)
    if party is tree.holder:  # bins, summands, scores before and after a round, labels, rows of the nodes
        main += _table(job.records, job.own) + job.records * (2 * slots + 6) * LONG
    else:
        main += _table(job.records, job.others[party.name]) + job.records * 4 * LONG
    workers = tree.site.workers_each * worker
    return {"main": main, "worker": worker, "first_node": main + workers, "other_node": workers * (party.nodes > 1)}


def _table(records: int, columns: PartyColumns) -> float:
    """Bins, and features as long as they are not left in their source."""
    return records * columns.row_bytes + min(records * len(columns.shapes) * LONG, _STREAMED)


def show(said: dict[str, Any], memory_gb: float) -> None:
    """Print a document on a terminal; `memory_gb`: of each machine."""
    training, whole, size = said["training"], said["seconds"]["tree"], terminal.size
    scheme = " ".join(str(training[part]) for part in ("scheme", "key_bits") if part in training)
    terminal.out.print(
        f"{training['records']:,} records, {' + '.join(map(str, training['columns']))} columns, "
        f"{scheme}: {duration(whole)} a tree, {duration(said['seconds']['all_trees'])} for "
        f"{training['trees']} trees\nsaturates first: {said['saturates_first']}\na line between parties would saturate "
        f"first below {rate(said['line_saturates_below_bits_per_s'])} in one direction"
    )
    phases = terminal.table("phase", "busy", "from first to last, of one tree", "at")
    for name, span in said["phases"].items():
        phases.add_row(name, duration(span["seconds"]), bar(span["first"], span["last"], whole), PHASES[name])
    demands = terminal.table("resource", "at", "alone a tree would take", "in use")
    for row in said["demands"]:
        # the others would be 0 %
        if row["share"] > 0.005:
            demands.add_row(row["kind"], row["party"], duration(row["seconds"]), f"{100 * row['share']:.0f} %")
    lines = terminal.table("line", "bytes a tree", "messages a tree", "bytes of all trees")
    for row in said["lines"]:
        name, count = f"{row['from']} to {row['to']}", f"{row['messages']:,}"
        lines.add_row(name, size(row["bytes"]), count, size(row["bytes_all_trees"]))
    memory = terminal.table("memory", "main process", "a worker", "first machine", "each further")
    for name, of in said["memory_bytes"].items():
        much = " (too much)" if max(of["first_node"], of["other_node"]) > memory_gb * 1e9 else ""
        memory.add_row(name + much, *(size(count) if count else "" for count in of.values()))
    for table in (phases, demands, lines, memory):
        terminal.out.print(table)
    measured = ", ".join(said["machine"].get(name, "") for name in ("processor", "arithmetic", "measured"))
    terminal.out.print(
        f"by costs measured on: {measured}. Reading, binning, alignment and key generation are not in these figures."
    )


def show_costs(measured: Measurements) -> None:
    """Print measured costs on a terminal."""
    table = terminal.table("cost", "seconds of a processor, or bytes")
    for name, cost in measured.figures():
        table.add_row(name, f"{cost:.3g}")
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
