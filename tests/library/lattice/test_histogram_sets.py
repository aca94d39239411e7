"""Histograms of sets, and in shards.

- Encrypted histograms by sets: one query's words serve any nodes, in bins of their own; sums equal integers.
- Shards of records: what workers of a cluster sum is, over all of them, what one sums; a lost one changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from tests.library.engines import workers
from tests.library.lattice.histogram_tables import SEED, SHAPES, Ints, drawn, plain_sums, sizes
from tests.shards_here import ShardsHere
from treetap.errors import Malformed, PlaintextOverflow
from treetap.lattice import histogram_sets, histogram_shards
from treetap.lattice.histogram_key_holder import BLOCK_BYTES, HistogramKeyHolder
from treetap.lattice.histogram_scheme import added, radices
from treetap.lattice.histogram_sets import HistogramSets
from treetap.lattice.histogram_shards import Shards
from treetap.native.histogram_arrays import DEGREE, WORD_BYTES
from treetap.trees.candidates import Shape
from treetap.workers.engines import Engine

pytestmark = pytest.mark.real_time

QUERY = b"\x11" * 32
SMALL = [Shape(3, True), Shape(2, False)]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


class _Ends:
    def __init__(self, holder: HistogramKeyHolder, sets: HistogramSets) -> None:
        self.holder, self.sets = holder, sets

    async def send(self, values: Ints) -> None:
        async for part in self.holder.encrypt(values, QUERY):
            await self.sets.add_block(*part)

    async def opened(
        self, rows: Ints, codes: Ints, shapes: Sequence[Shape], order: Ints, noise: Ints | None = None
    ) -> Ints:
        plus = None if noise is None else added(self.holder.parameters, noise)
        firsts, seconds = await self.sets.answer(rows, codes, shapes, order, plus)
        await self.holder.keep_second_halves("b", BytesIO(seconds), len(order))
        return await self.holder.open("b", firsts, len(order), QUERY)


@asynccontextmanager
async def _ends(
    records: int, shapes: Sequence[Shape], *, holding: int = 0, summing: int = 0, outputs: int = 1
) -> AsyncIterator[_Ends]:
    parameters, slots = sizes(records, shapes, outputs=outputs)
    async with workers(holding) as own, workers(summing) as others:
        both = _Ends(HistogramKeyHolder(own, parameters, slots, SEED), HistogramSets(others, parameters, SEED))
        await both.sets.start()
        yield both
        await both.sets.close()
        await both.holder.close()


async def _nodes(both: _Ends, values: Ints, shapes: Sequence[Shape], sets: Sequence[Ints]) -> None:
    """Nodes of these records, each in bins of its own and another order."""
    rng, places = np.random.default_rng(len(values)), sum(shape.sums for shape in shapes)
    for rows in sets:
        codes, _ = drawn(rng, len(rows), shapes)
        order = rng.permutation(places)
        opened = await both.opened(rows, codes, shapes, order)
        assert np.array_equal(opened, plain_sums(codes, values[rows], shapes)[order])


@pytest.mark.parametrize("records", [1, 300])
async def test_sums_of_every_kind_of_column_are_those_of_integers(records: int) -> None:
    """All records, none, some, and a single one, under the same words; more nodes than a second half would serve."""
    _, values = drawn(np.random.default_rng(records), records, SHAPES)
    every, rng = np.arange(records), np.random.default_rng(1)
    sets = [every, every[:0], np.flatnonzero(rng.random(records) < 0.3), every[-1:], every[::2], every[1::2]]
    async with _ends(records, SHAPES) as both:
        await both.send(values)
        await _nodes(both, values, SHAPES, sets)
        places = sum(shape.sums for shape in SHAPES)
        assert both.sets.operations == {
            "additions": len(sets) * records * len(SHAPES),
            "hidden": len(sets) * places,
            "answered": len(sets) * places,
        }


async def test_noise_is_added_to_the_sums_at_their_places() -> None:
    """Positive and negative numbers in every slot, of which only the right slot of the right candidate has one."""
    rng, places = np.random.default_rng(3), sum(shape.sums for shape in SHAPES)
    codes, values = drawn(rng, 50, SHAPES)
    noise = rng.integers(-4, 5, (places, values.shape[1])) << np.array([20, 20, 2])
    order = rng.permutation(places)
    async with _ends(300, SHAPES) as both:
        await both.send(np.concatenate([values, np.zeros((250, 3), dtype=np.int64)]))
        opened = await both.opened(np.arange(50), codes, SHAPES, order, noise)
        assert np.array_equal(opened, plain_sums(codes, values, SHAPES)[order] + noise)
        with pytest.raises(PlaintextOverflow):
            await both.opened(np.arange(50), codes, SHAPES, order, noise << 40)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("holding", "summing", "blocks"), [(0, 2, (0, 2)), (2, 3, (0, 1, 2)), (1, 1, (1,)), (2, 0, (2, 3))]
)
async def test_blocks_on_threads(holding: int, summing: int, blocks: tuple[int, ...]) -> None:
    """Nodes whose records lie in some blocks alone: the sums of integers, at any number of workers."""
    records = 3 * DEGREE + 17
    _, values = drawn(np.random.default_rng(5), records, SHAPES[:6])
    rows = np.flatnonzero(np.isin(np.arange(records) // DEGREE, blocks))
    async with _ends(records, SHAPES[:6], holding=holding, summing=summing) as both:
        await both.send(values)
        await _nodes(both, values, SHAPES[:6], [rows, rows[::7], rows[:1]])


@pytest.mark.second_tier
@pytest.mark.parametrize("summing", [0, 2])
async def test_more_blocks_than_one_transform_takes_and_columns_of_many_cells(summing: int) -> None:
    """66 blocks of which one is empty, and columns whose products no worker has at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram_sets, "CELLS_AT_ONCE", 4)
        records, shapes = 65 * DEGREE + 3, [Shape(2, True), Shape(2, False), Shape(2, False)]
        _, values = drawn(np.random.default_rng(6), records, shapes)
        rows = np.flatnonzero(np.arange(records) // DEGREE != 7)
        async with _ends(records, shapes, summing=summing) as both:
            await both.send(values)
            await _nodes(both, values, shapes, [rows])


def test_products_come_in_calls_of_some_cells() -> None:
    """No more cells and blocks at once than a call may take; columns are taken together up to a bound."""
    parameters, _ = sizes(2 * DEGREE, SHAPES)
    job = histogram_sets.NodeSums(parameters, SEED)
    job.begin((40, 60))
    job.place([0, 1], np.array([0, DEGREE], dtype=np.uint32), np.array([[39, 0], [59, 1]], dtype=np.uint8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram_sets, "PRODUCTS_PER_CALL", 30)
        calls = 1
        while job.multiply():
            calls += 1
    assert calls == 100 // 15 + 1
    assert {int(cell) for cell in np.flatnonzero(job.products.any(axis=(1, 2)))} == {0, 39, 41, 99}
    shapes = [Shape(cells, False) for cells in (500, 12, 1, 600, 255, 257, 1)]
    parts = [list(part) for part in histogram_sets.at_once(shapes, 512)]
    assert parts == [[0, 1], [2], [3], [4, 5], [6]]


async def test_halves_are_drawn_anew_for_equal_nodes() -> None:
    """The same node twice, and candidates with equal sets: no half has a twin."""
    codes, values = drawn(np.random.default_rng(2), 40, SMALL)
    codes[:] = 0
    order, rows = np.arange(6), np.arange(40)
    async with _ends(40, SMALL) as both:
        await both.send(values)
        answers = [await both.sets.answer(rows, codes, SMALL, order) for _ in range(2)]
        width = both.holder.parameters.second_half_bytes
        seconds = [second[at : at + width] for _, second in answers for at in range(0, len(second), width)]
        assert len(set(seconds)) == 12
        assert answers[0][0] != answers[1][0]


async def test_a_party_without_columns_answers_nothing() -> None:
    """Words are taken, and there is no half to send."""
    _, values = drawn(np.random.default_rng(2), 5, SMALL)
    async with _ends(5, []) as both:
        await both.send(values)
        nothing = np.zeros((5, 0), dtype=np.int64)
        assert await both.sets.answer(np.arange(5), nothing, [], np.arange(0)) == (b"", b"")


@pytest.mark.second_tier
async def test_words_of_many_outputs_come_in_parts_that_a_message_holds() -> None:
    """Parts that begin within a block, of its zeros too."""
    outputs, records = 15, DEGREE + 5
    _, values = drawn(np.random.default_rng(8), records, SMALL)
    values = np.concatenate([np.tile(values[:, :2], outputs), values[:, 2:]], axis=1)
    async with _ends(records, SMALL, outputs=outputs) as both:
        assert both.holder.parameters.words * DEGREE * WORD_BYTES > BLOCK_BYTES
        await both.send(values)
        await _nodes(both, values, SMALL, [np.arange(records), np.arange(3, records, 5)])


async def test_what_does_not_fit_is_refused() -> None:
    """Words that are not due or lack; records twice or beyond the last; codes of other records."""
    codes, values = drawn(np.random.default_rng(4), 60, SMALL)
    order = np.arange(6)
    async with _ends(60, SMALL) as both:
        ((_, _, words),) = [part async for part in both.holder.encrypt(values, QUERY)]
        width = both.holder.parameters.words * WORD_BYTES
        parts = [(0, 60, words[: 60 * width]), (60, DEGREE, words[60 * width :])]
        with pytest.raises(Malformed, match="are not those that are due"):
            await both.sets.add_block(*parts[1])
        await both.sets.add_block(*parts[0])
        with pytest.raises(Malformed, match=f"a query has 60 words, not {60 + DEGREE}"):
            await both.sets.answer(np.arange(60), codes, SMALL, order)
        await both.sets.add_block(*parts[1])
        with pytest.raises(Malformed, match="are not those that are due"):
            await both.sets.add_block(*parts[0])
        for rows in ([0, 0], [1, 0], [-1, 3], [3, 60]):
            with pytest.raises(ValueError, match="not ascending numbers of records"):
                await both.sets.answer(np.array(rows), codes[:2], SMALL, order)
        for other in (codes[:59], codes[:, :1], codes - 4):
            with pytest.raises(ValueError, match="bin"):
                await both.sets.answer(np.arange(60), other, SMALL, order)


async def test_halves_of_another_node_are_no_sums() -> None:
    """First halves go with the second ones that were drawn with them alone."""
    codes, values = drawn(np.random.default_rng(4), 60, SMALL)
    order, rows = np.arange(6), np.arange(60)
    async with _ends(60, SMALL) as both:
        await both.send(values)
        firsts, _ = await both.sets.answer(rows, codes, SMALL, order)
        _, seconds = await both.sets.answer(rows, codes, SMALL, order)
        await both.holder.keep_second_halves("b", BytesIO(seconds), 6)
        with pytest.raises(Malformed, match=r"more noise than sums|bits left above the last slot"):
            await both.holder.open("b", firsts, 6, QUERY)


async def test_workers_forget() -> None:
    """Of u_k nothing is kept once a call has ended; at the end there is no word."""
    codes, values = drawn(np.random.default_rng(4), 60, SMALL)
    async with _ends(60, SMALL) as both:
        await both.send(values)
        await both.sets.answer(np.arange(60), codes, SMALL, np.arange(6))
        (job,) = both.sets._parts
        kept = [value for value in vars(job).values() if isinstance(value, np.ndarray)]
        assert not any(array.dtype == np.int8 for array in kept)
    assert both.sets._parts == []


async def _totals(workers: int, records: int, shapes: list[Shape], codes: Ints, words: list[Any], rows: Ints) -> Any:
    """Sums of words and of a·I of a node, over all shards."""
    parameters, _ = sizes(records, shapes)
    shards = Shards(ShardsHere(workers), parameters, SEED, "t")  # type: ignore[arg-type]
    await shards.start(codes, shapes)
    for first, _, block in words[:-1]:
        await shards.take(first, block)
    await shards.enter(rows, np.arange(len(shapes)), shapes)
    return await shards.words(), [products async for products in shards.products(shapes)]


@pytest.mark.real_time
@pytest.mark.parametrize("workers", [2, 3, 7])
async def test_totals_over_shards_are_those_of_one_worker(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word by word and coefficient by coefficient, modulo q: whichever records shards have, also within a block."""
    records, rng = 2 * DEGREE + 100, np.random.default_rng(workers)
    codes, values = drawn(rng, records, SHAPES)
    monkeypatch.setattr(histogram_shards, "BINS_BYTES", 1000)
    monkeypatch.setattr(histogram_shards, "UNPACKED", 999)
    monkeypatch.setattr(histogram_shards, "CELLS_PER_ANSWER", 2)

    parameters, slots = sizes(records, SHAPES)
    holder = HistogramKeyHolder(Engine(), parameters, slots, SEED)
    words = [part async for part in holder.encrypt(values, QUERY)]
    for rows in (np.arange(records), np.flatnonzero(rng.random(records) < 0.3), np.arange(3), np.arange(0)):
        one = await _totals(1, records, SHAPES, codes, words, rows)
        some = await _totals(workers, records, SHAPES, codes, words, rows)
        assert np.array_equal(one[0], some[0])
        assert [len(products) for products in some[1]] == radices(SHAPES)
        assert all(np.array_equal(a, b) for a, b in zip(one[1], some[1], strict=True))
