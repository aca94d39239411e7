"""Numbers modulo 2^(64·w), of pairs and from residues, against Python's integers."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest

from tests.native.forms import HERE
from treetap.native import rings

pytestmark = pytest.mark.skipif(not HERE, reason="the kernels were not compiled")
SIZES = (0, 1, 63, 64, 65)


def numbers(values, w):
    """Integers as numbers of w words, (n, w)."""
    whole = 1 << 64 * w
    data = b"".join((value % whole).to_bytes(8 * w, "little") for value in values)
    return np.frombuffer(data, dtype=np.uint64).reshape(-1, w).copy()


def integers(array):
    """The integers of numbers in any shape."""
    w = array.shape[-1]
    return [sum(word << 64 * k for k, word in enumerate(row)) for row in array.reshape(-1, w).tolist()]


def drawn(some, w, count):
    """Integers below 2^(64·w), small ones, and those just below it."""
    whole = 1 << 64 * w
    return [
        some.choice((some.randrange(whole), some.randrange(4), whole - 1 - some.randrange(4))) for _ in range(count)
    ]


@pytest.mark.parametrize("w", range(1, rings.MOST_WORDS + 1))
@pytest.mark.parametrize("count", SIZES)
def test_numbers_are_integers_modulo_a_power(w, count):
    """Sums, differences, products and bits."""
    some, whole = random.Random(w * 100 + count), 1 << 64 * w
    x, y, z = (drawn(some, w, count) for _ in range(3))
    a, b, c = (numbers(values, w) for values in (x, y, z))
    assert integers(rings.add(a, b)) == [(p + q) % whole for p, q in zip(x, y, strict=True)]
    assert integers(rings.sub(a, b)) == [(p - q) % whole for p, q in zip(x, y, strict=True)]
    assert integers(rings.mul(a, b)) == [p * q % whole for p, q in zip(x, y, strict=True)]
    assert integers(rings.mac(c, a, b, minus=True)) == [(r - p * q) % whole for p, q, r in zip(x, y, z, strict=True)]
    for bits in {1, 64, 64 * w - 3}:
        rows = rings.bits_of(a, bits, bits)
        assert rows.shape == (bits, -(-count // 64))
        wanted = [sum((p >> bit & 1) << k for k, p in enumerate(x)) for bit in range(bits)]
        assert not count or integers(rows) == wanted


@pytest.mark.parametrize(
    "operand",
    [
        lambda a: a[:, :1],
        lambda a: a[0],
        lambda a: a[0, 0],
        lambda a: np.concatenate([a, a[::-1]], axis=2)[:, :, 4:],
        lambda a: a[::-1, ::-1],
        np.asfortranarray,
        lambda a: np.broadcast_to(a[:1, :1], a.shape),
        lambda a: np.frombuffer(b"\0" + a.tobytes(), dtype=np.uint8)[1:].view(np.uint64).reshape(a.shape),
        lambda a: np.stack([a, a[::-1]]),
    ],
    ids=["node", "row", "number", "part", "backward", "columns", "repeated", "odd", "stacked"],
)
def test_operands_broadcast_wherever_they_lie(operand):
    """As if they had been copied to one block of the result's shape."""
    a = np.random.default_rng(1).integers(0, 1 << 64, (3, 5, 4), dtype=np.uint64)
    b = operand(a)
    shape = np.broadcast_shapes(a.shape, b.shape)
    whole = [np.ascontiguousarray(np.broadcast_to(one, shape)) for one in (a, b)]
    for operation in (rings.add, rings.sub, rings.mul):
        for one, other in ((0, 1), (1, 0)):
            made = operation((a, b)[one], (a, b)[other])
            assert np.array_equal(made, operation(whole[one], whole[other]))
        assert operation(a[np.newaxis, :, :0], a[:, :0]).shape == (1, 3, 0, 4)
    assert np.array_equal(rings.bits_of(b, 200, 200), rings.bits_of(b.copy(), 200, 203)[3:])


@pytest.mark.parametrize("w", [1, 4, 5, 8])
def test_pairs_of_places_are_compared_in_all_nodes(w):
    """Cross products of every pair, of numbers that lie apart too."""
    some, whole = random.Random(w), 1 << 64 * w
    nodes, n, pairs = 3, 7, list(combinations(range(7), 2))
    i, j = (np.array(places, dtype=np.int64) for places in zip(*pairs, strict=True))
    both = numbers(drawn(some, w, 2 * nodes * n), w).reshape(nodes, n, 2 * w)
    a, b = both[..., :w], both[..., w:]
    plus = numbers(drawn(some, w, nodes * len(pairs)), w).reshape(nodes, len(pairs), w)
    x, y, z = (np.array(integers(one), dtype=object).reshape(one.shape[:2]) for one in (a, b, plus))
    crossed = (z + x[:, j] * y[:, i] - x[:, i] * y[:, j]) % whole
    assert integers(rings.minors(plus.copy(), a, b, i, j)) == crossed.ravel().tolist()
    for places in ((i, j + 1), (i - 1, j)):
        with pytest.raises(ValueError, match="a place beyond the last number"):
            rings.minors(plus.copy(), a, b, *places)


@pytest.mark.parametrize(
    ("moduli", "w"),
    [
        ((1 << 38, (1 << 38) - 1, (1 << 38) - 3), 2),
        ((1 << 42, (1 << 42) - 1, (1 << 42) - 3, 5), 3),
        ((1 << 42, (1 << 42) - 1, (1 << 42) - 3), 8),
        (((1 << 32) - 1, (1 << 32) + 1), 1),
        ((1 << 16, (1 << 16) - 1, (1 << 15) + 3), 1),
        (tuple((1 << 33) - c for c in (0, 1, 3, 5, 7, 9, 13)), 4),
        ((3,), 1),
    ],
)
def test_numbers_come_from_their_residues(moduli, w):
    """Zero, the middle, random ones, and those at the bounds of every step; and their negatives."""
    some, product = random.Random(w), math.prod(moduli)
    for count in SIZES:
        parts = [sum(some.choice((0, 1, t - 1)) * (product // t) for t in moduli) % product for _ in range(count)]
        values = [some.choice((some.randrange(product), 0, product // 2, part)) for part in parts]
        residues = np.array([[value % t for t in moduli] for value in values], dtype=np.uint64).reshape(-1, len(moduli))
        assert integers(rings.crt(residues, moduli, w)) == values
        assert integers(rings.crt(residues, moduli, w, minus=True)) == [-value % product for value in values]


def test_what_does_not_fit_never_reaches_a_kernel(monkeypatch):
    """Other shapes, types and sizes are refused before an address is used."""
    monkeypatch.setattr(rings.library, "compiled", lambda: pytest.fail("a call reached a kernel"))
    a, wide = np.zeros((2, 3, 4), dtype=np.uint64), np.zeros((1, 9), dtype=np.uint64)
    place = np.zeros(1, dtype=np.int64)
    pair, rows = np.zeros((2, 1, 4), dtype=np.uint64), np.zeros((5, 3), dtype=np.uint64)
    fixed = a.copy()
    fixed.flags.writeable = False
    for call in [
        lambda: rings.add(a, a[:, :2]),
        lambda: rings.add(a, a[..., :1]),
        lambda: rings.add(a, a.astype(np.int64)),
        lambda: rings.add(wide, wide),
        lambda: rings.add(a[0, 0, 0], a[0, 0, 0]),
        lambda: rings.mac(a[:, ::2], a[:, ::2], a[:, ::2]),
        lambda: rings.mac(fixed, a, a),
        lambda: rings.mac(a[:1], a, a),
        lambda: rings.bits_of(a, 257, 257),
        lambda: rings.bits_of(a, 0, 1),
        lambda: rings.minors(pair, a, a, place, np.zeros(2, dtype=np.int64)),
        lambda: rings.minors(pair, a, a, place.astype(np.int32), place.astype(np.int32)),
        lambda: rings.minors(a, a, a, place, place),
        lambda: rings.crt(rows, (1 << 38, (1 << 38) - 1), 2),
        lambda: rings.crt(rows, (1 << 43, 3, 5), 2),
        lambda: rings.crt(rows, (1 << 38, (1 << 38) - 1, (1 << 38) - 3), 1),
        lambda: rings.crt(rows + np.uint64(5), (1 << 38, 7, 5), 2),
    ]:
        with pytest.raises(ValueError, match=r"\w"):
            call()
