"""Shards of records: what workers of a cluster sum is, over all of them, what one sums; a lost one changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.library.lattice.histogram_tables import SEED, SHAPES, Ints, drawn, sizes
from tests.shards_here import ShardsHere
from treetap.lattice import histogram_shards
from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_scheme import radices
from treetap.lattice.histogram_shards import Shards
from treetap.native.histogram_arrays import DEGREE
from treetap.trees.candidates import Shape
from treetap.workers.engines import InProcessEngine

QUERY = b"\x11" * 32


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
    holder = HistogramKeyHolder(InProcessEngine(), parameters, slots, SEED, "t")
    await holder.start()
    words = [part async for part in holder.encrypt(values, QUERY)]
    for rows in (np.arange(records), np.flatnonzero(rng.random(records) < 0.3), np.arange(3), np.arange(0)):
        one = await _totals(1, records, SHAPES, codes, words, rows)
        some = await _totals(workers, records, SHAPES, codes, words, rows)
        assert np.array_equal(one[0], some[0])
        assert [len(products) for products in some[1]] == radices(SHAPES)
        assert all(np.array_equal(a, b) for a, b in zip(one[1], some[1], strict=True))
