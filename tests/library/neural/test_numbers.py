"""Numbers of embeddings and gradients as bytes."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from treetap.neural.numbers import from_bytes, rounded, to_bytes  # noqa: E402
from treetap.neural.params import NUMBER_BYTES  # noqa: E402

pytestmark = pytest.mark.second_tier

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 5))
#: The largest number that bfloat16 has is a little below that of float32.
FLOATS = st.floats(-(2.0**127), 2.0**127, width=32)


@given(hnp.arrays(np.float32, SHAPES, elements=FLOATS), st.sampled_from(["float32", "bfloat16"]))
@settings(max_examples=80)
def test_numbers_survive_as_their_reader_has_them(values: np.ndarray, wire_type: str) -> None:
    """A tensor of any strides is read as `rounded` says, bit by bit; to read it again changes nothing."""
    tensor = torch.from_numpy(values).t().contiguous().t()
    content = to_bytes(tensor, wire_type)
    assert len(content) == values.size * NUMBER_BYTES[wire_type]
    found = from_bytes(content, *values.shape, wire_type)
    assert found.dtype == torch.float32
    assert torch.equal(found.view(torch.int32), rounded(tensor, wire_type).contiguous().view(torch.int32))
    assert to_bytes(found, wire_type) == content


@given(hnp.arrays(np.float32, SHAPES, elements=FLOATS))
@settings(max_examples=40)
def test_bfloat16_is_rounded_to_the_nearest_even(values: np.ndarray) -> None:
    """The rule on the bits of float32: add half of the last place, and the lowest bit that is kept; drop 16 bits."""
    bits = values.view(np.uint32).astype(np.uint64)
    expected = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint32) << 16
    found = rounded(torch.from_numpy(values), "bfloat16").numpy()
    assert np.array_equal(found.view(np.uint32), expected)


def test_the_least_significant_byte_is_first() -> None:
    """The same bytes on every machine: rows one after the other."""
    values = torch.tensor([[1.0, -2.5], [3.0e-5, 0.0]])
    assert to_bytes(values, "float32") == struct.pack("<4f", 1.0, -2.5, 3.0e-5, 0.0)
    assert to_bytes(values[:1], "bfloat16") == bytes.fromhex("803f20c0")
    assert from_bytes(bytes.fromhex("803f20c0"), 1, 2, "bfloat16").tolist() == [[1.0, -2.5]]
    assert from_bytes(struct.pack("<2f", 7.0, 8.0), 2, 1, "float32").tolist() == [[7.0], [8.0]]


def test_a_tensor_that_is_read_can_be_written() -> None:
    """It is a copy: the network may work on it, and the message is not changed."""
    content = struct.pack("<2f", 1.0, 2.0)
    found = from_bytes(content, 1, 2, "float32")
    found.add_(1.0)
    assert content == struct.pack("<2f", 1.0, 2.0)


@pytest.mark.parametrize("content", [b"", bytes(7), bytes(9), bytes(12), bytes(16)])
def test_other_lengths_are_refused(content: bytes) -> None:
    """Two numbers of float32 are eight bytes."""
    with pytest.raises(ValueError, match=f"{len(content)} bytes for 2 × 1 numbers of float32"):
        from_bytes(content, 2, 1, "float32")


@pytest.mark.parametrize("wire_type", ["float32", "bfloat16"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(wire_type: str, bad: float) -> None:
    """One such number among many would spoil every weight."""
    values = torch.zeros(3, 4)
    values[2, 1] = bad
    with pytest.raises(ValueError, match="not finite"):
        from_bytes(to_bytes(values, wire_type), 3, 4, wire_type)
