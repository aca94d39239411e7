"""The encrypted part of a boosting job, under Paillier's scheme or on a lattice: both roles, in this process.

Records, bins and the nodes of all trees are those of credit default, of which the label holder has the first 12 columns
and the feature party the other 11; the centralised trainer finds the trees, which are the federation's. Values are any
that fit a record's slots: what they are changes no time. Packing of slots and Chinese remainders are included, as are
the calls that workers get, which run at once here; messages and main processes are not. Every opened sum is compared
with numpy's.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import two_party

from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_scheme import parameters_of, rounded_up
from treetap.lattice.histogram_sums import HistogramSums
from treetap.lattice.histogram_ways import Needs, built_nodes
from treetap.native.histogram_arrays import SEED_BYTES
from treetap.party.boosting.ciphers import layout
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised import CentralTrees, train
from treetap.trees.ensemble import Tree
from treetap.trees.loss import record_bounds
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots
from treetap.trees.tree_bins import GlobalBins, goes_left, left_sums_of
from treetap.workers.engines import Engine

Ints = npt.NDArray[np.int64]
KEY_BITS = 2048


@dataclass(frozen=True)
class Job:
    """A job's encrypted part.

    Attributes:
        params: of the job.
        columns: of the feature party.
        bins: its codes, by which numpy makes the sums.
        trees: for each tree and stage the records of each node that is built.
        slots: layout of a record's plaintext.
        values: (N, S) of every record.
    """

    params: BoostingParams
    columns: BinnedTable
    bins: GlobalBins
    trees: Sequence[Sequence[Sequence[Ints]]]
    slots: Slots
    values: Ints

    @property
    def candidates(self) -> int:
        """Split candidates of a node."""
        return sum(shape.sums for shape in self.columns.shapes)

    def check(self, nodes: Sequence[Ints], opened: Ints, order: Ints) -> None:
        """Compare the opened sums of some nodes, in an order of candidates, with numpy's."""
        sums = left_sums_of(self.bins, self.values, [1] * len(nodes), nodes)[:, order]
        if not np.array_equal(sums.reshape(opened.shape), opened):
            raise SystemExit("lattice_training: sums are not those of numpy")


class Opened(list[tuple[Sequence[Ints], Ints, Ints]]):
    """Records of some nodes, their opened sums, and the order of candidates."""


@dataclass
class Took:
    """CPU seconds of both roles, bytes in both directions, and what a record of them has."""

    cpu_s: float
    sent: int
    returned: int
    words: int = 0
    word_bits: int = 0


def job(depth: int, trees: int, records: int = two_party.RECORDS) -> Job:
    """Credit default, grown or cut to `records` records."""
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet")
    names = [name for name in table.column_names if name not in ("ID", two_party.LABEL)]
    grown = two_party.grown(table.select([*names, two_party.LABEL]), records).slice(0, records)
    columns = [grown.column(name).to_numpy() for name in names]
    parties = {"holder": names[: two_party.OWN], "party": names[two_party.OWN :]}
    x = np.stack(columns, axis=1).astype(np.float64)
    bins = [(name, bin_table(x[:, [names.index(column) for column in own]], own, 32)) for name, own in parties.items()]
    params = BoostingParams(n_estimators=trees, max_depth=depth, max_bin=32, learning_rate=0.3, reg_lambda=1.0)
    model = train(bins, grown.column(two_party.LABEL).to_numpy(), params)
    nodes = grown_nodes(model, dict(bins), records, depth)
    own = bins[1][1]
    tree_bins = GlobalBins(own, np.arange(len(own.features)))
    g, h = record_bounds(params.objective)
    rng = np.random.default_rng(3)
    values = np.stack(
        [rng.integers(-g, g + 1, records), rng.integers(0, h + 1, records), np.ones(records, np.int64)], axis=1
    )
    return Job(params, own, tree_bins, nodes, layout(params, records, 1), values)


def records_of(model: CentralTrees, tree: Tree, bins: Mapping[str, BinnedTable], records: int) -> dict[int, Ints]:
    """The records of each node of a tree; `bins`: of each party."""
    drawn = {1: np.arange(records)}
    for made in sorted(tree.splits, key=lambda made: made.node):
        columns = GlobalBins(bins[made.owner], np.arange(len(bins[made.owner].features)))
        mask = goes_left(columns, made.node, drawn[made.node], model.entry(made)[0])
        drawn[2 * made.node], drawn[2 * made.node + 1] = drawn[made.node][mask], drawn[made.node][~mask]
    return drawn


def grown_nodes(
    model: CentralTrees, bins: Mapping[str, BinnedTable], records: int, depth: int
) -> list[list[list[Ints]]]:
    """For each tree and level the records of each node that is summed: of two siblings those of the smaller one."""
    trees = []
    for tree in model.ensemble.trees:
        drawn = records_of(model, tree, bins, records)
        pairs = sorted({node >> 1 for node in drawn if node > 1})
        smaller = [min((2 * parent, 2 * parent + 1), key=lambda child: len(drawn[child])) for parent in pairs]
        levels: list[list[Ints]] = [[drawn[1]]] + [[] for _ in range(1, depth)]
        for node in smaller:
            if (level := node.bit_length() - 1) < depth:
                levels[level].append(drawn[node])
        trees.append(levels)
    return trees


def by_paillier(job: Job, secret: SecretKey) -> Took:
    """A key of 2,048 bits, short exponents; ciphertexts once a tree."""
    return asyncio.run(_timed(_keyed(job, secret)))


def by_lattice(job: Job) -> Took:
    """Queries, which are what the layout chooses here."""
    return asyncio.run(_timed(_queries(job)))


def key() -> SecretKey:
    """A key, before time is taken: a job has it once."""
    return SecretKey.generate(KEY_BITS)


async def _timed(run: Coroutine[Any, Any, tuple[Took, Opened, Job]]) -> Took:
    """The run's figures, and its processor time; sums are compared afterwards."""
    start = time.process_time()
    took, opened, job = await run
    took.cpu_s = time.process_time() - start
    for nodes, sums, order in opened:
        job.check(nodes, sums, order)
    return took


async def _keyed(job: Job, secret: SecretKey) -> tuple[Took, Opened, Job]:
    engine, took, opened = Engine(), Took(0.0, 0, 0), Opened()
    holder = KeyHolder(engine, secret, job.slots, "short-exponent")
    await holder.start()
    count, columns = job.candidates, [job.values[:, slot] for slot in range(job.values.shape[1])]
    for t, stages in enumerate(job.trees):
        order = np.random.default_rng(t).permutation(count)
        sums = EncryptedSums(engine, secret.public, job.slots, job.columns.codes, job.columns.shapes)
        async for first, ciphertexts in holder.encrypt_blocks(columns):
            rows = np.arange(first, first + len(ciphertexts) // secret.public.ciphertext_bytes)
            await sums.add_block(rows, ciphertexts)
            took.sent += len(ciphertexts)
        for stage, nodes in enumerate(stages):
            packed = await sums.candidates(nodes if stage else None, order)
            took.returned += len(packed)
            opened.append((nodes, await holder.open(packed, len(nodes) * count), order))
        await sums.close()
    await holder.close()
    return took, opened, job


async def _queries(job: Job) -> tuple[Took, Opened, Job]:
    records, count = len(job.values), job.candidates
    queries = rounded_up(job.params.n_estimators * built_nodes(job.params, Needs.of(job.params)))
    agreed = parameters_of(records, job.slots, job.params.max_bin, rounded_up(count), queries, 1)
    engine, took, opened = Engine(), Took(0.0, 0, 0, agreed.words, agreed.word_bits), Opened()
    seed = os.urandom(SEED_BYTES)
    holder = HistogramKeyHolder(engine, agreed, job.slots, seed)
    sums = HistogramSums(engine, agreed, seed, job.columns.codes, job.columns.shapes)
    await sums.start()
    for t, stages in enumerate(job.trees):
        order, asked = np.random.default_rng(t).permutation(count), 0
        for nodes in stages:
            for rows in nodes:
                of_node, query = np.zeros_like(job.values), os.urandom(SEED_BYTES)
                of_node[rows] = job.values[rows]
                async for first, some, words in holder.encrypt(of_node, query):
                    await sums.add_block(first, some, words)
                    took.sent += len(words)
                if not asked % agreed.queries_per_second_half:
                    halves = b"".join([some async for some in sums.renew(order)])
                    took.returned += len(halves)
                    await holder.keep_second_halves("party", BytesIO(halves), count)
                asked += 1
                firsts = await sums.answer(order)
                took.returned += len(firsts)
                opened.append(([rows], await holder.open("party", firsts, count, query), order))
    await sums.close()
    await holder.close()
    return took, opened, job
