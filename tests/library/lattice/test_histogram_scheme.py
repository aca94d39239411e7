"""Layouts of encrypted histograms: plaintexts as integers, their residues as sums, candidates from cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.lattice.histogram_tables import SHAPES, drawn, plain_sums, sizes
from treetap.errors import BadInput, Malformed, PlaintextOverflow, Refused
from treetap.lattice import histogram_scheme
from treetap.lattice.histogram_parameters import ATTEMPTS
from treetap.lattice.histogram_scheme import (
    Opener,
    blocks_of,
    encode,
    left_sums,
    parameters_of,
    radices,
    rounded_up,
)
from treetap.native.histogram_arrays import DEGREE
from treetap.native.library import Unavailable
from treetap.trees.candidates import Kind, Shape
from treetap.trees.slots import Slots

widths_of_slots = st.lists(st.integers(2, 63), min_size=1, max_size=12)


def integers(words: np.ndarray) -> list[int]:
    """Numbers in two's complement, whose lowest words come first, as integers."""
    size = 64 * len(words)
    unsigned = [sum(int(word) << (64 * place) for place, word in enumerate(column)) for column in words.T]
    return [number - (1 << size) if number >> (size - 1) else number for number in unsigned]


@settings(max_examples=60, deadline=None)
@given(widths_of_slots, st.integers(0, 2**32))
def test_plaintexts_are_those_of_slots(widths: list[int], seed: int) -> None:
    """Of any sign, at every offset in a word, over several words: the integers that `Slots.encode` makes."""
    slots, rng = Slots(tuple(widths)), np.random.default_rng(seed)
    edges = np.array([(1 << (width - 1)) - 1 for width in widths])
    values = np.stack(
        [-edges, edges, np.zeros_like(edges), -np.minimum(edges, 1), *rng.integers(-edges, edges + 1, (6, len(edges)))]
    )
    assert integers(encode(slots, values)) == slots.encode(list(values.T))


@pytest.mark.parametrize("value", [1 << 9, -(1 << 9), -(1 << 63)])
def test_a_value_that_does_not_fit_its_slot(value: int) -> None:
    """It is named with its slot, in either sign."""
    with pytest.raises(PlaintextOverflow, match="slot 1 of 10 bits holds values below 512"):
        encode(Slots((20, 10)), np.array([[0, 0], [1, value]]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(2, 60), min_size=1, max_size=7), st.integers(0, 2**32))
def test_residues_open_to_sums(widths: list[int], seed: int) -> None:
    """By Chinese remainders, at the edges of every slot and between them."""
    parameters = parameters_of(1000, slots := Slots(tuple(widths)), 7, 8, 8, 1)
    rng = np.random.default_rng(seed)
    edges = np.array([(1 << (width - 1)) - 1 for width in widths])
    values = np.stack([edges, -edges, rng.integers(-edges, edges + 1)])
    plain = slots.encode(list(values.T))
    residues = np.array([[number % t for t in parameters.moduli] for number in plain], dtype=np.uint64)
    assert Opener(parameters, slots).sums(residues).tolist() == values.tolist()


def test_residues_of_no_sum() -> None:
    """A number beyond the last slot is refused."""
    parameters, slots = sizes(1000, SHAPES)
    beyond = math.prod(parameters.moduli) // 2
    assert beyond >> (slots.bits - 1)
    residues = np.array([[beyond % t for t in parameters.moduli]], dtype=np.uint64)
    with pytest.raises(Malformed, match="bits left above the last slot"):
        Opener(parameters, slots).sums(residues)


@pytest.mark.parametrize("shapes", [*([shape] for shape in SHAPES), SHAPES, SHAPES[::-1], []], ids=str)
def test_candidates_are_left_sums_of_cells(shapes: list[Shape]) -> None:
    """Of every kind of column, alone and side by side, in canonical order; with empty bins and negative values."""
    codes, values = drawn(np.random.default_rng(3), 300, shapes)
    starts = np.cumsum([0, *radices(shapes)])
    cells = np.zeros((starts[-1], 3), dtype=np.int64)
    for place, start in enumerate(starts[:-1]):
        np.add.at(cells, start + codes[:, place], values)
    sums = left_sums(cells.view(np.uint64), shapes).view(np.int64)
    assert len(sums) == sum(shape.sums for shape in shapes)
    assert np.array_equal(sums, plain_sums(codes, values, shapes))


def test_halves_of_numbers_are_added_without_carries() -> None:
    """A column of 256 cells at the largest halves of 52 bits stays below 2^64."""
    cells = np.full((256, 1, 2), (1 << 52) - 1, dtype=np.uint64)
    for shape in (Shape(255, True), Shape(256, False), Shape(255, True, Kind.ONE_HOT)):
        assert int(left_sums(cells, [shape]).max()) == 255 * ((1 << 52) - 1) < 1 << 64


def test_sizes_follow_from_the_layout_alone() -> None:
    """Bounds are powers of two; attempts end where no more of them are hidden together."""
    assert [rounded_up(count) for count in (0, 1, 2, 3, 4, 5, 1023, 1024, 1025)] == [1, 1, 2, 4, 4, 8, 1024, 1024, 2048]
    assert [blocks_of(records) for records in (1, DEGREE, DEGREE + 1)] == [1, 1, 2]
    slots = Slots((38, 36, 6))
    assert parameters_of(16, slots, 3, 4, 4, 1) == parameters_of(16, slots, 3, 4, 4, ATTEMPTS)
    with pytest.raises(Refused, match=f"attempt {ATTEMPTS + 1} of a job on a lattice: .* train under another name"):
        parameters_of(16, slots, 3, 4, 4, ATTEMPTS + 1)
    with pytest.raises(BadInput, match="bins 257"):
        parameters_of(16, slots, 256, 4, 4, 1)


def test_without_kernels_the_scheme_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the kernels' own."""

    def missing() -> None:
        raise Unavailable("no compiler")

    monkeypatch.setattr(histogram_scheme, "Histograms", missing)
    histogram_scheme.kernels.cache_clear()
    with pytest.raises(BadInput, match="scheme = 'lattice' needs native kernels, but no compiler: install a C "):
        histogram_scheme.kernels()
    monkeypatch.undo()
    histogram_scheme.kernels.cache_clear()
