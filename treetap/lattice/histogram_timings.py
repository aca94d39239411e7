"""Seconds of a processor for each operation of encrypted histograms on this machine: one query over a made table.

A label holder and a feature party do it as in a job, on a worker in this process, whose calls are timed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import parameters_of
from treetap.lattice.histogram_sums import HistogramSums
from treetap.native.histogram_arrays import DEGREE, MOST_BLOCKS, SEED_BYTES
from treetap.trees.candidates import Shape
from treetap.trees.slots import Slots
from treetap.workers.engines import InProcessEngine

T = TypeVar("T")
ROUNDS = 5
#: Blocks of records of the table, its columns, and their bins.
_BLOCKS, _COLUMNS, _BINS = 16, 24, 32
#: Candidates and queries of the job whose sizes are taken: a large training's.
_CANDIDATES, _QUERIES = 1 << 10, 1 << 9


@dataclass(frozen=True)
class LatticeCosts:
    """Costs of one worker, in seconds of a processor.

    Attributes:
        encrypt_s: a word of a record, its part of encoding included, to bytes.
        read_s: a word of a record, from bytes.
        sum_s: a word of a record added to a column's cell.
        product_s: the indicator of a cell in a block of records, multiplied and added up.
        inverse_s: the sum of a cell's products in some blocks, transformed back: once for each `MOST_BLOCKS` or fewer.
        hide_s: a candidate's second half, to bytes.
        answer_s: a candidate's first half.
        keep_s: a second half, from bytes.
        open_s: a first half, opened and decoded.
    """

    encrypt_s: float
    read_s: float
    sum_s: float
    product_s: float
    inverse_s: float
    hide_s: float
    answer_s: float
    keep_s: float
    open_s: float


def lattice_costs(slots: Slots, records: int) -> LatticeCosts:
    """Measure under the sizes of a job of that many records; some seconds. Each cost is the least of several rounds.

    Raises:
        BadInput: there are no kernels here, or no such sizes.
    """
    agreed = replace(parameters_of(records, slots, _BINS, _CANDIDATES, _QUERIES, 1), records=_BLOCKS * DEGREE)
    rounds = [asyncio.run(_query(agreed, slots)) for _ in range(ROUNDS)]
    return LatticeCosts(*(max(min(costs), 1e-12) for costs in zip(*rounds, strict=True)))


class _Timed(InProcessEngine):
    """A worker that counts the processor time of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        start = time.process_time()
        try:
            return await super().call(worker, kernel, *args)
        finally:
            self._seconds += time.process_time() - start

    def spent(self) -> float:
        """Seconds since this was asked last."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


async def _query(agreed: HistogramParameters, slots: Slots) -> tuple[float, ...]:
    """The costs of one query, in their order."""
    rng, worker, seed, query = np.random.default_rng(0), _Timed(), bytes(SEED_BYTES), bytes([1] * SEED_BYTES)
    most = [1 << max(width - agreed.records.bit_length() - 1, 0) for width in slots.widths]
    values = rng.integers(0, most, (agreed.records, len(most)))
    shape = Shape(_BINS, False)
    holder = HistogramKeyHolder(worker, agreed, slots, seed, "timed")
    await holder.start()
    blocks = [block async for block in holder.encrypt(values, query)]  # public polynomials are made once a job
    worker.spent()
    blocks = [block async for block in holder.encrypt(values, query)]
    encrypting, adding = worker.spent(), list[float]()
    for columns in (1, 1 + _COLUMNS):
        codes = rng.integers(0, _BINS, (agreed.records, columns))
        sums = HistogramSums(worker, agreed, seed, codes, [shape] * columns, f"{columns} timed")
        await sums.start()
        worker.spent()
        for first, count, words in blocks:
            await sums.add_block(first, count, words)
        adding.append(worker.spent())
    candidates, cells = columns * shape.sums, columns * _BINS
    order = np.arange(candidates)
    await sums.renew(order)
    few = worker.spent()
    halves = await sums.renew(order)
    hiding = worker.spent()
    firsts = await sums.answer(order)
    answering = worker.spent()
    await holder.keep_second_halves("timed", halves, candidates)
    keeping = worker.spent()
    await holder.open("timed", firsts, candidates, query)
    opening = worker.spent()
    larger = replace(agreed, records=MOST_BLOCKS * DEGREE)
    codes = rng.integers(0, _BINS, (larger.records, columns))
    sums = HistogramSums(worker, larger, seed, codes, [shape] * columns, "more blocks")
    await sums.start()
    worker.spent()
    await sums.renew(order)
    many = worker.spent()
    product = (many - few) / (MOST_BLOCKS - _BLOCKS)
    numbers = agreed.words * agreed.records
    summing = (adding[1] - adding[0]) / _COLUMNS
    return (
        encrypting / (agreed.words * (agreed.records + DEGREE)),
        (adding[0] - summing) / numbers,
        summing / numbers,
        product / cells,
        (few - hiding - _BLOCKS * product) / cells,
        hiding / candidates,
        answering / (candidates * agreed.words),
        keeping / candidates,
        opening / (candidates * agreed.words),
    )
