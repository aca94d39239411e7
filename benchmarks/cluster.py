"""A feature party's sums on a lattice in shards on a cluster of Ray, beside the plain run in threads of one process.

    python benchmarks/cluster.py [--records 100000] [--columns 20] [--bins 16] [--depth 3] [--repeat 3] [--json]
    python benchmarks/cluster.py --shards --workers 2 --records 10000000 --columns 20 --repeat 1

One tree by sets: words of all records come, then one child of every node is summed, and its halves are made. Bins are
uniform; g, h and the count have the slots of a training; words are encrypted beforehand, into a file. The label holder
opens what was made, afterwards: runs must open to the same sums, and the root to those of the table.

Nodes (by default): a thread, then one node of Ray with one worker, then two nodes with two; each node has a processor.
Shards (--shards): as many threads as workers on one node. Wall and processor seconds (of the party's processes, and
of Ray's), the largest memory of each process, and bytes between driver and workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from backends import machine, print_machine
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.ray_cluster import RayCluster, below
from treetap import terminal
from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import parameters_of
from treetap.lattice.histogram_sets import HistogramSets
from treetap.lattice.histogram_shards import Shards
from treetap.native.histogram_arrays import SEED_BYTES, WORD_BYTES
from treetap.trees.candidates import Shape
from treetap.trees.slots import Slots, width_for
from treetap.usage import measure_process
from treetap.workers.cluster.engine import Cluster, ClusterHost
from treetap.workers.engines import Engine, ThreadEngine
from treetap.workers.settings import ClusterConfig

KERNELS = "treetap.lattice.histogram_shards"
LARGEST = 2**16
SILENCE_S = 120.0
SEED, QUERY = bytes(SEED_BYTES), bytes([1] * SEED_BYTES)
Ints = npt.NDArray[np.int64]
#: First and second halves of a node.
Halves = tuple[bytes, bytes]


class Party:
    """A feature party's bins, and the words of one tree."""

    def __init__(self, given: argparse.Namespace, words: IO[bytes]) -> None:
        rng = np.random.default_rng(0)
        self.codes = rng.integers(0, given.bins, (given.records, given.columns), dtype=np.uint8)
        self.shapes = [Shape(given.bins, False)] * given.columns
        self.depth, self.words = given.depth, words
        width = width_for(given.records, LARGEST)
        self.slots = Slots((width, width, width_for(given.records, 1)))
        self.candidates = sum(shape.sums for shape in self.shapes)
        sizes = given.bins, self.candidates, 2**given.depth
        self.agreed: HistogramParameters = parameters_of(given.records, self.slots, *sizes, 1)

    def values(self) -> Ints:
        """g, h and counts of all records."""
        rng, records = np.random.default_rng(2), len(self.codes)
        g, h = rng.integers(-LARGEST, LARGEST, records), rng.integers(0, LARGEST, records)
        return np.stack([g, h, np.ones(records, dtype=np.int64)], axis=1)

    def nodes(self) -> Iterator[Ints]:
        """Those that are summed: the root, and below one child of every node, split at random."""
        rng, rows = np.random.default_rng(1), np.arange(len(self.codes))
        nodes = [rows]
        yield rows
        for _ in range(self.depth - 1):
            goes_left = [rng.random(len(here)) < 0.5 for here in nodes]
            nodes = [part for here, left in zip(nodes, goes_left, strict=True) for part in (here[left], here[~left])]
            yield from nodes[::2]

    async def encrypt(self, holder: HistogramKeyHolder) -> None:
        """Write the words of one tree."""
        async for _, _, words in holder.encrypt(self.values(), QUERY):
            self.words.write(words)

    def sent(self) -> Iterator[tuple[int, int, bytes]]:
        """The words, as messages bring them."""
        self.words.seek(0)
        width, records = self.agreed.words * WORD_BYTES, self.agreed.records
        for start, end in ((0, records), (records, records + 4096)):
            for first in range(start, end, 2**20 // width):
                count = min(2**20 // width, end - first)
                yield first, count, self.words.read(count * width)


@dataclass
class Run:
    """One tree: seconds by part, processes' largest memory in MB and seconds so far, and bytes to and from workers."""

    engine: str
    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    processes: dict[str, tuple[float, float]] = field(default_factory=dict)
    traffic: dict[str, list[int]] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure what happens inside, in all processes below this one."""
        wall, cpu = time.perf_counter(), _processor_s()
        self.traffic[name] = [0, 0]
        self._part = name
        yield
        self.wall[name], self.cpu[name] = time.perf_counter() - wall, _processor_s() - cpu

    def count(self, sent: int, received: int) -> None:
        """Note bytes to workers and from them."""
        self.traffic[self._part][0] += sent
        self.traffic[self._part][1] += received


def _processor_s() -> float:
    return sum(measure_process(pid).cpu_seconds for pid in (os.getpid(), *below(os.getpid())))


async def tree(party: Party, engine: Engine, cluster: Cluster | None, run: Run) -> list[Halves]:
    """Sum one tree; returns the halves of its nodes."""
    made, order, shards = list[Halves](), np.arange(party.candidates), None
    if cluster is None:
        sets = HistogramSets(engine, party.agreed, SEED)
    else:
        shards = Shards(cluster, party.agreed, SEED, "bench")
        with run.part("bins"):
            await shards.start(party.codes, party.shapes)
        sets = shards.sets(engine)
    await sets.start()
    with run.part("words"):
        for first, count, words in party.sent():
            await sets.add_block(first, count, words)
    with run.part("sums"):
        for rows in party.nodes():
            codes = party.codes[rows] if cluster is None else np.arange(len(party.shapes))
            made.append(await sets.answer(rows, codes, party.shapes, order))
    await sets.close()
    if shards is not None:
        shards.close()
    return made


@asynccontextmanager
async def threads(number: int) -> AsyncIterator[Engine]:
    """Threads of this process."""
    engine = ThreadEngine(number, SILENCE_S, print)
    try:
        yield engine
    finally:
        await engine.close()


async def plain(given: argparse.Namespace, party: Party, workers: int) -> list[tuple[Run, list[Halves]]]:
    """Trees summed by threads of this process."""
    runs = []
    async with threads(workers) as engine:
        for _ in range(given.repeat):
            run = Run(f"{workers} thread{'s' if workers > 1 else ''}")
            made = await tree(party, engine, None, run)
            run.processes = _processes()
            runs.append((run, made))
    return runs


async def sharded(given: argparse.Namespace, party: Party, nodes: int, workers: int) -> list[tuple[Run, list[Halves]]]:
    """Trees summed in shards on nodes of this machine, of as many processors as workers."""
    runs = []
    with RayCluster(nodes=nodes, cpus=workers // nodes) as ray:
        async with threads(workers) as engine:
            host = ClusterHost(ClusterConfig(address=ray.address, workers=workers), SILENCE_S, [KERNELS])
            try:
                await host.lease().connect()
                for _ in range(given.repeat):
                    run = Run(f"{nodes} node{'s' if nodes > 1 else ''}, {workers} worker{'s' if workers > 1 else ''}")
                    host.traffic = run.count
                    made = await tree(party, engine, host.lease(), run)
                    run.processes = _processes()
                    runs.append((run, made))
            finally:
                await host.close()
    return runs


def _processes() -> dict[str, tuple[float, float]]:
    """Largest resident memory and seconds of this process and of all below, by what they are."""
    found = dict[str, tuple[float, float]]()
    for pid in (os.getpid(), *below(os.getpid())):
        used = measure_process(pid)
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            mapped = Path(f"/proc/{pid}/maps").read_text()
        except OSError:  # it has ended
            continue
        if command.startswith("ray::WorkerActor"):
            name = "worker on the cluster"
        elif any(word in command for word in ("tests.ray_cluster", "site-packages/ray/", "ray::")):
            name = "Ray's own"
        elif pid == os.getpid():
            name = "party"
        elif "_raylet.so" in mapped:
            name = "driver"
        else:
            name = "fork server"
        found[f"{name} {sum(other.startswith(name) for other in found)}"] = used.peak_rss_mb, used.cpu_seconds
    return found


async def opened(party: Party, holder: HistogramKeyHolder, made: list[Halves]) -> list[Ints]:
    """The sums of all nodes."""
    sums = []
    for firsts, seconds in made:
        await holder.keep_second_halves("bench", BytesIO(seconds), party.candidates)
        sums.append(await holder.open("bench", firsts, party.candidates, QUERY))
    return sums


def check(party: Party, found: list[list[Ints]]) -> None:
    """Compare the sums of all runs with each other, and those of the root's first column with the table's."""
    values, bins = party.values(), party.shapes[0].n_bins
    cells = [np.bincount(party.codes[:, 0], weights=column, minlength=bins) for column in values.T]
    left = np.cumsum(np.array(cells).astype(np.int64), axis=1)[:, :-1].T
    assert np.array_equal(found[0][0][: bins - 1], left), "the root's sums are not the table's"
    for sums in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], sums, strict=True)), "runs differ"


async def measure(given: argparse.Namespace) -> list[Run]:
    """All runs, whose sums are checked."""
    runs = list[tuple[Run, list[Halves]]]()
    with tempfile.TemporaryFile() as words:
        party = Party(given, words)
        async with threads(2) as keys:
            holder = HistogramKeyHolder(keys, party.agreed, party.slots, SEED)
            await party.encrypt(holder)
        if given.shards:
            runs += await plain(given, party, given.workers)
            runs += await sharded(given, party, 1, given.workers)
        else:
            runs += await plain(given, party, 1)
            runs += await sharded(given, party, 1, 1)
            runs += await sharded(given, party, 2, 2)
        async with threads(2) as keys:
            holder = HistogramKeyHolder(keys, party.agreed, party.slots, SEED)
            check(party, [await opened(party, holder, made) for _, made in runs])
    return [run for run, _ in runs]


def report(runs: list[Run]) -> None:
    """Medians by engine, for a person."""
    table = Table("engine", "part", "wall s", "CPU s", "MB to workers", "MB from workers")
    engines = list(dict.fromkeys(run.engine for run in runs))
    for engine in engines:
        own = [run for run in runs if run.engine == engine]
        for part in own[0].wall:
            wall, cpu = (statistics.median(getattr(run, figure)[part] for run in own) for figure in ("wall", "cpu"))
            sent, received = (f"{bytes_ / 1e6:.1f}" if bytes_ else "" for bytes_ in own[0].traffic[part])
            table.add_row(engine, part, f"{wall:.2f}", f"{cpu:.2f}", sent, received)
    terminal.out.print(table)
    totals = {
        engine: [
            statistics.median(sum(getattr(run, figure).values()) for run in runs if run.engine == engine)
            for figure in ("wall", "cpu")
        ]
        for engine in engines
    }
    for engine in engines[1:]:
        wall, cpu = (b / a for a, b in zip(totals[engines[0]], totals[engine], strict=True))
        print(f"{engine} : {engines[0]}: wall {wall:.3f}, CPU {cpu:.3f}")
    memory = Table("engine", "process", "largest MB", "CPU s so far")
    for engine in engines:
        last = [run for run in runs if run.engine == engine][-1]
        for name, (peak, seconds) in last.processes.items():
            memory.add_row(engine, name, f"{peak:.0f}", f"{seconds:.1f}")
    terminal.out.print(memory)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("records", 100_000), ("columns", 20), ("bins", 16), ("depth", 3), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--shards", action="store_true")
    parser.add_argument("--workers", type=int, default=2, help="with --shards")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    runs = asyncio.run(measure(given))
    if given.as_json:
        kept = [{key: value for key, value in vars(run).items() if not key.startswith("_")} for run in runs]
        print(json.dumps({**vars(given), **machine(["auto"]), "runs": kept}, indent=1))
    else:
        print_machine(["auto"])
        report(runs)


if __name__ == "__main__":
    main()
