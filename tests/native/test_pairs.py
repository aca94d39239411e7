"""The order of products into cells, read without computing one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treetap.additive.residues.batches import Cells
from treetap.additive.residues.native_residues import NativeResidues
from treetap.native import library, pairs

TOGETHER = 8
pytestmark = pytest.mark.skipif(not library.PATH.exists(), reason=library.built())


def followed(places, cells, count, held, spares):
    """The sets of values that each row holds in the end, the products computed, and the calls that computed them."""
    rows: list[list[int] | None] = [[-1 - row] if row < held else None for row in range(count)] + [None] * spares
    products = calls = 0
    for order in pairs.passes(places, cells, count, held, spares):
        assert order.spares <= spares
        for row, place in zip(order.put.tolist(), order.put_at.tolist(), strict=True):
            assert rows[row] is None, "a value is put where nothing is"
            rows[row] = [place]
        for start in range(0, len(order.rows), TOGETHER):
            together = order.rows[start : start + TOGETHER].tolist()
            assert len(set(together)) == len(together), "a row twice within eight products"
        for row, place in zip(order.rows.tolist(), order.rows_at.tolist(), strict=True):
            rows[row] = [*rows[row], place]
        for left, right in order.rounds:
            named = [*left.tolist(), *right.tolist()]
            assert len(set(named)) == len(named), "a row twice within a round"
            for into, row in zip(left.tolist(), right.tolist(), strict=True):
                rows[into], rows[row] = [*rows[into], *rows[row]], None
        products += len(order.rows) + sum(len(left) for left, _ in order.rounds)
        calls += 1 + len(order.rounds)
    assert rows[count:] == [None] * spares, "a spare row that is left"
    return rows[:count], products, calls


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_value_reaches_its_cell_once(data):
    """Cells at random, one, all different, sorted, some empty, some held: each holds its values, by as many products as
    there are values beyond the first of each cell."""
    count = data.draw(st.integers(1, 40))
    n = data.draw(st.integers(0, 300))
    kind = data.draw(st.sampled_from(["random", "sorted", "one", "different", "few"]))
    held = data.draw(st.integers(0, count))
    spares = data.draw(st.sampled_from([1, 2, 9, 4096]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    cells = rng.integers(0, count, n)
    if kind == "sorted":
        cells.sort()
    elif kind == "one":
        cells[:] = count - 1
    elif kind == "different":
        cells = rng.permutation(count)
    elif kind == "few":
        cells %= 3
        cells = np.minimum(cells, count - 1)
    places = rng.integers(0, 50, len(cells))
    rows, products, _ = followed(places, cells, count, held, spares)
    expected = [[-1 - cell] if cell < held else [] for cell in range(count)]
    for place, cell in zip(places.tolist(), cells.tolist(), strict=True):
        expected[cell].append(place)
    assert [sorted(row or []) for row in rows] == [sorted(values) for values in expected]
    begun = len(set(cells.tolist()) - set(range(held)))
    assert products == len(cells) - begun


@pytest.mark.parametrize(("n", "count"), [(8192, 1), (8192, 2), (8192, 500), (8192, 8192), (60_000, 1024), (2, 1)])
def test_calls_are_few_and_full(n, count):
    """All values take one call, the rows of cells at most three, and no more than the depth of a tree of pairs; nearly
    all products are computed eight at a time."""
    cells = np.random.default_rng(0).integers(0, count, n)
    largest = int(np.bincount(cells).max())
    (order,) = pairs.passes(np.arange(n), cells, count, 0, pairs.SPARES)
    assert len(order.rounds) <= min(3, math.ceil(math.log2(largest)))
    assert len(order.put) <= count + 8 * min(count, n // 8)
    sizes = [len(order.rows), *(len(left) for left, _ in order.rounds)]
    vectors = sum(-(-size // TOGETHER) for size in sizes)
    assert vectors <= sum(sizes) / TOGETHER + 4


def test_memory_beside_the_cells_is_bounded():
    """Sorted cells, the worst order, take no more than the spare rows, in a few passes."""
    n, count = 200_000, 10_000
    orders = list(pairs.passes(np.arange(n), np.sort(np.arange(n) % count), count, 0, pairs.SPARES))
    assert max(order.spares for order in orders) <= pairs.SPARES
    assert len(orders) <= 1 + 8 * count // pairs.SPARES


def test_values_are_copied_only_where_a_row_begins(monkeypatch):
    """The native backend computes in one block: kernels get the same memory in each call, and a value is put at most
    once."""
    n, count = 5000, 100
    ring = NativeResidues(2**127 - 1, 127, "plain")
    values = ring.batch(range(1, n + 1))
    cells = Cells(np.arange(n), np.random.default_rng(1).integers(0, count, n), count)
    calls, put = [], []
    products, copied = ring._kernel.products, ring._kernel.put

    def watched(left, right, left_at, right_at, out, out_at):
        calls.append((left.ctypes.data, out.ctypes.data, len(out_at)))
        return products(left, right, left_at, right_at, out=out, out_at=out_at)

    def watched_put(out, out_at, numbers, at):
        put.append(len(at))
        copied(out, out_at, numbers, at)

    monkeypatch.setattr(ring._kernel, "products", watched)
    monkeypatch.setattr(ring._kernel, "put", watched_put)
    ring.cell_products(values, cells)
    assert len({address for left, out, _ in calls for address in (left, out)}) == 1
    assert sum(done for *_, done in calls) == n - count
    assert sum(put) <= 8 * count
    assert len(calls) <= 4


def test_cells_beyond_the_last_one_are_refused():
    """They would be written outside of the rows."""
    for cells in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="beyond the last"):
            list(pairs.passes(np.arange(2), np.array(cells), 3, 0, 8))
    with pytest.raises(ValueError, match="one cell for each place"):
        list(pairs.passes(np.arange(3), np.arange(2), 3, 0, 8))
    with pytest.raises(ValueError, match="64-bit"):
        list(pairs.passes(np.arange(2), np.arange(2, dtype=np.int32), 3, 0, 8))
    with pytest.raises(ValueError, match="no spare row"):
        list(pairs.passes(np.arange(2), np.arange(2), 3, 0, spares=0))
