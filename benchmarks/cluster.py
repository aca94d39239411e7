"""A party's workers on a cluster of Ray against worker processes, and on two nodes against one.

    python benchmarks/cluster.py [--records 100000] [--columns 20] [--bins 16] [--key-bits 2048] [--trees 1] [--depth 3]
                                 [--arithmetic auto …] [--repeat 3] [--scaling-only] [--json]

Encrypted sums are a feature party's work: each tree's blocks of ciphertexts are added up by bin, at the root as they
come, then on each level for one child of every node. A training has the label holder's besides, on worker processes
in either case: it encrypts every tree's gradients, and opens the candidates. Bins are uniform; g, h and the count have
the slots of a training. Clusters are of one machine, with a processor per node; engines take turns.

Overhead: two workers, wall and processor seconds of all processes, Ray's included, as a ratio to worker processes.
Scaling: encryption beforehand, encrypted sums alone; one node with one worker against two nodes with two.
Each of the names after --arithmetic (docs/deploy.md) does all of it in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from backends import add_arithmetic, backends, machine, print_machine, print_ratios
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.ray_cluster import RayCluster, below
from treetap import terminal
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.native import arithmetic
from treetap.trees.slots import Slots, width_for
from treetap.usage import measure_process
from treetap.workers.cluster.engine import ClusterEngine
from treetap.workers.engines import Engine, KeyEngine, ProcessEngine, await_workers
from treetap.workers.settings import ClusterConfig

MODULES = ("treetap.additive.sums.key_holder", "treetap.additive.sums.tree_sums")
LARGEST = 2**16
SILENCE_S = 60.0
Codes = npt.NDArray[np.uint8]
Blocks = list[tuple[int, bytes]]


class Federation:
    """Bins of a feature party's columns, and the label holder's columns of one tree."""

    def __init__(self, given: argparse.Namespace) -> None:
        rng = np.random.default_rng(0)
        self.codes: Codes = rng.integers(0, given.bins, (given.records, given.columns)).astype(np.uint8)
        self.shapes = [(given.bins, False)] * given.columns
        width = width_for(given.records, LARGEST)
        self.slots = Slots((width, width, width_for(given.records, 1)))
        g, h = rng.integers(-LARGEST, LARGEST, given.records), rng.integers(0, LARGEST, given.records)
        self.columns = [g, h, np.ones(given.records, dtype=np.int64)]
        self.depth = given.depth

    def levels(self) -> Iterator[list[npt.NDArray[np.int64]]]:
        """Nodes to be summed below the root: the smaller child of each, split at random."""
        rng = np.random.default_rng(1)
        nodes = [np.arange(len(self.codes))]
        for _ in range(self.depth - 1):
            halves = [np.array_split(rng.permutation(rows), 2) for rows in nodes]
            nodes = [np.sort(half) for pair in halves for half in pair]
            yield nodes[::2]


async def sums(engine: Engine, table: Federation, key: SecretKey, blocks: Blocks) -> list[bytes]:
    """A feature party's work for one tree; returns what it sends, by level."""
    width = key.public.ciphertext_bytes
    adder = EncryptedSums(engine, key.public, table.slots, table.codes, table.shapes, "bench")
    permutation = np.arange(adder.n_candidates)
    try:
        for start, blob in blocks:
            await adder.add_block(np.arange(start, start + len(blob) // width), blob)
        sent = [await adder.candidates(None, permutation)]
        sent += [await adder.candidates(nodes, permutation) for nodes in table.levels()]
    finally:
        await adder.close()
    return sent


async def training(engine: Engine, keys: KeyEngine, table: Federation, key: SecretKey, trees: int) -> None:
    """Both parties' work for some trees."""
    for _ in range(trees):
        owner = KeyHolder(keys, key, table.slots, "short-exponent", "bench")
        await owner.start()
        blocks = [block async for block in owner.encrypt_blocks(table.columns)]
        sent = await sums(engine, table, key, blocks)
        candidates = len(table.codes[0]) * (table.shapes[0][0] - 1)
        for level, packed in enumerate(sent):
            await owner.open(packed, candidates * max(1, 2 ** (level - 1)))
        await owner.close()


class Seconds:
    """Wall and processor seconds of a stretch; processors of this process and of all below it."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0


@contextmanager
def measured() -> Iterator[Seconds]:
    """Measure what happens inside."""
    found = Seconds()
    wall, cpu = time.perf_counter(), _processor_s()
    yield found
    found.wall, found.cpu = time.perf_counter() - wall, _processor_s() - cpu


def _processor_s() -> float:
    return sum(measure_process(pid).cpu_seconds for pid in (os.getpid(), *below(os.getpid())))


async def overhead(given: argparse.Namespace, table: Federation, key: SecretKey) -> list[dict[str, Any]]:
    """Pairs of runs on two worker processes and on two actors."""
    runs = []
    keys = ProcessEngine(2, SILENCE_S, MODULES)
    keys.start()
    with RayCluster(nodes=2) as cluster:
        engines: dict[str, ProcessEngine | ClusterEngine] = {
            "process": ProcessEngine(2, SILENCE_S, MODULES),
            "ray": ClusterEngine(ClusterConfig(address=cluster.address), 2, SILENCE_S, MODULES),
        }
        try:
            for engine in engines.values():
                engine.start()
                await await_workers(engine)
            blocks = await encrypted(keys.lease(), table, key)
            for _ in range(given.repeat):
                sent = {}
                for name, engine in engines.items():
                    with measured() as alone:
                        sent[name] = await sums(engine.lease(), table, key, blocks)
                    runs.append({"what": "sums", "engine": name, "wall_s": alone.wall, "cpu_s": alone.cpu})
            for name, engine in engines.items():
                with measured() as whole:
                    await training(engine.lease(), keys.lease(), table, key, given.trees)
                runs.append({"what": "training", "engine": name, "wall_s": whole.wall, "cpu_s": whole.cpu})
        finally:
            for engine in (*engines.values(), keys):
                await engine.close()
    return runs


async def encrypted(keys: KeyEngine, table: Federation, key: SecretKey) -> Blocks:
    """All ciphertexts of one tree."""
    owner = KeyHolder(keys, key, table.slots, "short-exponent", "beforehand")
    await owner.start()
    blocks = [block async for block in owner.encrypt_blocks(table.columns)]
    await owner.close()
    return blocks


async def scaling(given: argparse.Namespace, table: Federation, key: SecretKey) -> list[dict[str, Any]]:
    """Encrypted sums on one node and on two."""
    keys = ProcessEngine(2, SILENCE_S, MODULES)
    keys.start()
    blocks = await encrypted(keys.lease(), table, key)
    await keys.close()
    runs = []
    with RayCluster(nodes=1) as cluster:
        for nodes in (1, 2):
            if nodes == 2:
                cluster.add()
            engine = ClusterEngine(ClusterConfig(address=cluster.address), nodes, SILENCE_S, MODULES)
            engine.start()
            try:
                await await_workers(engine)
                for _ in range(given.repeat):
                    with measured() as alone:
                        await sums(engine.lease(), table, key, blocks)
                    runs.append({"what": "scaling", "nodes": nodes, "wall_s": alone.wall, "cpu_s": alone.cpu})
            finally:
                await engine.close()
    return runs


def medians(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per comparison: both medians and their ratio, of wall and of processor seconds."""
    rows = []
    for what, by, one, other in (
        ("sums", "engine", "process", "ray"),
        ("training", "engine", "process", "ray"),
        ("scaling", "nodes", 1, 2),
    ):
        for figure in ("wall_s", "cpu_s"):
            first, second = (
                [run[figure] for run in runs if run["what"] == what and run[by] == which] for which in (one, other)
            )
            if first and second:
                a, b = statistics.median(first), statistics.median(second)
                ratio = a / b if what == "scaling" else b / a
                rows.append({"what": what, "figure": figure, str(one): a, str(other): b, "ratio": ratio})
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    """The medians for a person."""
    table = Table(
        "arithmetic", "what", "seconds", "process, or 1 node", "ray, or 2 nodes", "ray : process, or 1 : 2 nodes"
    )
    for row in rows:
        backend, what, figure, first, second, ratio = row.values()
        table.add_row(backend, what, figure, f"{first:.2f}", f"{second:.2f}", f"{ratio:.3f}")
    terminal.out.print(table)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("records", 100_000), ("columns", 20), ("bins", 16), ("key-bits", 2048)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("trees", 1), ("depth", 3), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    add_arithmetic(parser, ["auto"])
    parser.add_argument("--scaling-only", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    held, table = SecretKey.generate(given.key_bits).for_worker(), Federation(given)
    runs: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for backend in backends(given.arithmetic):
        arithmetic.use(backend)
        key = SecretKey.from_worker(held)
        more = [] if given.scaling_only else asyncio.run(overhead(given, table, key))
        more += asyncio.run(scaling(given, table, key))
        rows += [{"arithmetic": backend, **row} for row in medians(more)]
        runs += [{"arithmetic": backend, **run} for run in more]
    if given.as_json:
        print(json.dumps({**vars(given), **machine(given.arithmetic), "medians": rows, "runs": runs}, indent=1))
    else:
        print_machine(given.arithmetic)
        report(rows)
        told = [{**run, "on": run.get("engine") or f"nodes {run['nodes']}"} for run in runs]
        print_ratios(told, ("what", "on"), {"wall": "wall_s", "CPU": "cpu_s"})


if __name__ == "__main__":
    main()
