"""Signed slots: round trips, sums at the borders, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treetap.errors import Malformed, PlaintextOverflow
from treetap.trees.slots import Slots, width_for


@st.composite
def layouts(draw):
    """Slots and records of values that fit them, the borders drawn often."""
    widths = tuple(draw(st.lists(st.integers(1, 63), min_size=1, max_size=5)))
    values = []
    for width in widths:
        bound = (1 << (width - 1)) - 1
        values.append(st.one_of(st.sampled_from([-bound, 0, bound]), st.integers(-bound, bound)))
    return Slots(widths), draw(st.lists(st.tuples(*values), min_size=1, max_size=6))


def columns_of(records):
    return [np.array(column, dtype=np.int64) for column in zip(*records, strict=True)]


@given(layouts())
def test_groups_come_back_from_one_plaintext(case):
    """Groups stacked by powers of 2^bits decode to all records, borrows carried from group to group."""
    slots, records = case
    plain = sum(packed << (slots.bits * place) for place, packed in enumerate(slots.encode(columns_of(records))))
    assert slots.decode(plain, len(records)).tolist() == [list(record) for record in records]


@given(st.data(), st.integers(1, 40), st.integers(0, 2**30), st.integers(0, 2**30))
def test_packed_sums_up_to_the_bound_are_exact(data, records, first, second):
    """Slots of width_for(records, largest) hold every sum, also when all values lie at the same end."""
    slots = Slots((width_for(records, first), width_for(records, second)))
    columns = [
        np.array(data.draw(st.lists(st.sampled_from([-top, top]), min_size=records, max_size=records)), dtype=np.int64)
        for top in (first, second)
    ]
    one_sided = [np.full(records, -first, dtype=np.int64), np.full(records, second, dtype=np.int64)]
    for table in (columns, one_sided):
        assert slots.decode(sum(slots.encode(table)), 1)[0].tolist() == [int(column.sum()) for column in table]


@given(st.integers(0, 2**20), st.integers(0, 2**30))
def test_width_is_the_smallest(records, largest):
    """One bit less could not hold the largest sum."""
    width = width_for(records, largest)
    assert records * largest < 1 << (width - 1)
    assert width == 1 or records * largest >= 1 << (width - 2)


@given(st.integers(1, 62), st.integers(1, 20), st.booleans())
def test_a_value_outside_its_slot_is_refused(width, beyond, negative):
    """The first value that does not fit raises instead of wrapping into the neighbour."""
    value = (1 << (width - 1)) - 1 + beyond
    column = np.array([0, -value if negative else value], dtype=np.int64)
    with pytest.raises(PlaintextOverflow, match=r"slot 1 .* magnitude, got a larger one"):
        Slots((4, width, 4)).encode([column * 0, column, column * 0])
    with pytest.raises(PlaintextOverflow):
        Slots((63,)).encode([np.array([-(2**63)], dtype=np.int64)])


@given(layouts(), st.integers(1, 2**70), st.booleans())
def test_bits_above_the_last_slot_are_refused(case, excess, negative):
    """A plaintext with anything left above its last slot is not what it claims to be."""
    slots, records = case
    plain = slots.encode(columns_of(records[:1]))[0] + ((-excess if negative else excess) << slots.bits)
    with pytest.raises(Malformed):
        slots.decode(plain, 1)


def test_widths_and_sums_beyond_int64_are_refused():
    """Nothing wider than 63 bits is offered, and the message says what to change."""
    for widths in ((64,), (0,), ()):
        with pytest.raises(PlaintextOverflow):
            Slots(widths)
    with pytest.raises(PlaintextOverflow, match="fewer fractional bits"):
        width_for(2**20, 2**43)


def test_groups_per_plaintext():
    """Two bits of a plaintext stay free for the sign, and a record larger than a plaintext is refused."""
    assert Slots((40, 40, 16)).groups_per_plaintext(2046) == 21
    assert Slots((63, 62)).groups_per_plaintext(125) == 1
    with pytest.raises(PlaintextOverflow, match="of this key holds"):
        Slots((63, 63)).groups_per_plaintext(125)


def test_columns_must_match_slots():
    """A missing column or columns of different lengths are refused."""
    with pytest.raises(ValueError, match="as many columns"):
        Slots((4, 4)).encode([np.zeros(3, dtype=np.int64)])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        Slots((4, 4)).encode([np.zeros(3, dtype=np.int64), np.zeros(2, dtype=np.int64)])


def test_no_records_pack_to_nothing():
    """An empty table is allowed."""
    assert Slots((4, 4)).encode([np.zeros(0, dtype=np.int64)] * 2) == []
