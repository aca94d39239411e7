"""Kernels of `curve.c` that compute with both coordinates, in every form, against the definitions."""

from __future__ import annotations

import hashlib
from functools import reduce

import pytest

from tests.library.psi import full_points
from tests.library.psi.full_points import BASE, Point, encoded, even, minus, plus, times
from tests.library.psi.naive import uniform_bytes
from tests.native.forms import HERE
from treetap.native import curve
from treetap.native.curve import WINDOWS, Curve
from treetap.psi.group import PRIME

pytestmark = pytest.mark.skipif(not HERE, reason="the kernels were not compiled")
SCALAR = 2**254 + 8 * 0x1234_5678_9ABC_DEF0_1357_9BDF
UNIFORM = b"".join(uniform_bytes(bytes([number])) for number in range(37))


def _numbers(block: bytes) -> list[int]:
    return [int.from_bytes(block[at : at + 32], "little") for at in range(0, len(block), 32)]


@pytest.fixture(scope="module", params=HERE)
def group(request: pytest.FixtureRequest) -> Curve:
    """Each form."""
    return Curve(request.param)


def test_the_definitions_agree_with_rfc_8032() -> None:
    """The base point has its encoding there, and the map to edwards25519 keeps sums."""
    from nacl import bindings

    assert encoded(BASE).hex() == "58" + "66" * 31
    two, three = (encoded(times(number, BASE)) for number in (2, 3))
    assert bindings.crypto_core_ed25519_add(encoded(BASE), two) == three


def test_hashed_points_have_a_root(group: Curve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same points as without, and v of each, over several calls."""
    monkeypatch.setattr(curve, "UNIT", 16)
    points, roots = group.hash_rooted(UNIFORM)
    assert points == group.hash_points(UNIFORM)
    for u, v in zip(_numbers(points), _numbers(roots), strict=True):
        assert (u, v) in (even(u), minus(even(u)))


def test_raised_points_have_the_sign_of_the_multiple(group: Curve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of either of the two points with the same u."""
    monkeypatch.setattr(curve, "UNIT", 16)
    points, roots = group.hash_rooted(UNIFORM)
    raised, made = group.raise_rooted(SCALAR.to_bytes(32, "little"), points, roots)
    before, after = (list(zip(*map(_numbers, pair), strict=True)) for pair in ((points, roots), (raised, made)))
    assert len({v % 2 for _, v in after}) == len({v % 2 for _, v in before}) == 2
    assert after == [times(SCALAR, point) for point in before]


def _summed(group: Curve, points: bytes, roots: bytes, signs: bytes, digits: bytes) -> list[Point]:
    """The sums of all windows, as points of Curve25519."""
    block = _numbers(group.sum_multiples(points, roots, signs, digits))
    made: list[Point] = []
    for x, y, z, t in zip(*(block[WINDOWS * part :][:WINDOWS] for part in range(4)), strict=True):
        assert (x * y - z * t) % PRIME == 0
        assert z
        inverse = pow(z, -1, PRIME)
        x, y = x * inverse % PRIME, y * inverse % PRIME  # noqa: PLW2901 - affine
        if x == 0:
            assert y == 1
            made.append(None)
            continue
        u = (1 + y) * pow(1 - y, -1, PRIME) % PRIME
        made.append((u, full_points.TO_EDWARDS * u * pow(x, -1, PRIME) % PRIME))
    return made


@pytest.mark.parametrize("count", [0, 1, 9, 37])
def test_sums_of_multiples(group: Curve, count: int) -> None:
    """Digits at their ends among them, points that are alike or each other's negatives, and either root given."""
    points, roots = (block[: 32 * count] for block in group.hash_rooted(UNIFORM))
    if count > 20:
        points, roots = points[:640] + points[: 32 * (count - 20)], roots[:640] + roots[: 32 * (count - 20)]
    drawn = hashlib.shake_128(b"digits").digest(WINDOWS * count)
    digits = (bytes([0, 128, 127, 1, 255] * WINDOWS)[: WINDOWS * min(count, 5)] + drawn)[: WINDOWS * count]
    signs = bytes(number % 3 == 0 for number in range(count))
    meant = [minus(even(u)) if odd else even(u) for u, odd in zip(_numbers(points), signs, strict=True)]
    expected = []
    for window in range(WINDOWS):
        own = [int.from_bytes(digits[at : at + 1], signed=True) for at in range(window, len(digits), WINDOWS)]
        expected.append(reduce(plus, map(times, own, meant), None))
    assert _summed(group, points, roots, signs, digits) == expected
    other = b"".join((PRIME - v).to_bytes(32, "little") for v in _numbers(roots))
    assert _summed(group, points, other, signs, digits) == expected
