"""Kernels of `curve.c` and `sha512.c` where the arithmetic could go wrong, in every form, against their definitions."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import platform
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from tests.library.psi.naive import A, cosets, is_member, multiple, on_curve, uniform_bytes
from tests.native.forms import HERE
from treetap.native import curve
from treetap.native.curve import Curve
from treetap.native.library import Form
from treetap.psi.group import DOMAIN, PRIME
from treetap.psi.lists import SodiumGroup

pytestmark = pytest.mark.skipif(not HERE, reason="the kernels were not compiled")

POINT_BYTES = 32
#: Clamped numbers: bits that change at every step, never, and at the ends only.
SCALARS = (2**254, 2**255 - 8, 2**254 + (0x2AAAAAAA << 3), (2**256 // 3 & (2**255 - 8)) | 2**254, 2**254 + 8)
#: Rounding modes of <fenv.h>, by the name of the machine.
MODES = {"x86_64": (0x400, 0x800, 0xC00), "aarch64": (0x800000, 0x400000, 0xC00000)}


@cache
def _special() -> list[int]:
    """Numbers below 2^255 at which words, carries and the reduction modulo p are at their ends."""
    powers = [1 << bits for bits in range(255)]
    numbers = {*powers, *(power - 1 for power in powers), *(PRIME - power for power in powers)}
    numbers |= {
        *range(PRIME, 2**255),
        *range(20),
        *(PRIME - small for small in range(1, 20)),
        A,
        PRIME - A,
        PRIME - A - 2,
    }
    for digits in itertools.product((0, 2**51 - 1), repeat=5):
        numbers.add(sum(digit << 51 * place for place, digit in enumerate(digits)))
    order_8 = cosets(bytes([1]) + bytes(31))
    numbers |= {int.from_bytes(point, "little") for point in order_8}
    return sorted(numbers)


def _encoded(numbers: list[int]) -> bytes:
    return b"".join(number.to_bytes(POINT_BYTES, "little") for number in numbers)


def _multiples(number: int, points: list[int]) -> bytes:
    """By the definition; the neutral element is 0."""
    return _encoded([multiple(number, u) or 0 for u in points])


@pytest.fixture(scope="module", params=HERE)
def group(request: pytest.FixtureRequest) -> Curve:
    """Each form."""
    form: Form = request.param
    return Curve(form)


@pytest.fixture(scope="module")
def raised() -> bytes:
    """All special numbers times the scalar whose bits change at every step."""
    return _multiples(SCALARS[3], _special())


def test_special_numbers_are_raised_as_by_the_definition(group: Curve, raised: bytes) -> None:
    """Of the curve and its twist, of low order, p and more, all-ones words."""
    assert group.raise_points(SCALARS[3].to_bytes(32, "little"), _encoded(_special())) == raised


@pytest.mark.parametrize("scalar", SCALARS)
def test_scalars_with_special_bits(scalar: int) -> None:
    """Their ends and middles, for points at the ends of words."""
    points = [9, 2, PRIME - 1, 0, 2**255 - 1, 2**51 - 1, 2**254 + 2**51 - 1]
    expected = _multiples(scalar, points)
    for form in HERE:
        assert Curve(form).raise_points(scalar.to_bytes(32, "little"), _encoded(points)) == expected


def test_no_rounding_mode_changes_a_bit(group: Curve, rounding: Iterator[None]) -> None:
    """Products are split exactly whatever the mode is."""
    points, uniform = _encoded(_special()), _encoded(_special()[: len(_special()) // 2 * 2])
    scalar = SCALARS[3].to_bytes(32, "little")
    valid = group.hash_points(uniform)
    expected = group.raise_points(scalar, points), valid, group.leading_roots(valid)
    for _ in rounding:
        assert (group.raise_points(scalar, points), group.hash_points(uniform), group.leading_roots(valid)) == expected


@pytest.fixture
def rounding() -> Iterator[Iterator[None]]:
    """Each rounding mode but the default, as long as the next is not asked for; then the default again."""
    if platform.machine() not in MODES:
        pytest.skip("the rounding modes of this machine are not known")
    set_mode = ctypes.CDLL("libm.so.6").fesetround

    def modes() -> Iterator[None]:
        for mode in MODES[platform.machine()]:
            assert set_mode(mode) == 0
            yield

    yield modes()
    set_mode(0)


def test_the_roots_of_a_check(group: Curve) -> None:
    """v of v² = u³ + Au² + u, the even one of two, for each leading point that is valid and for no other."""
    points = SodiumGroup().hash_points(b"".join(uniform_bytes(bytes([number])) for number in range(70)))
    roots = group.leading_roots(points)
    assert len(roots) == len(points)
    for at in range(0, len(points), POINT_BYTES):
        u, v = (int.from_bytes(block[at : at + POINT_BYTES], "little") for block in (points, roots))
        assert v < PRIME
        assert v % 2 == 0
        assert (v * v - u * (u * u + A * u + 1)) % PRIME == 0
    for place in (0, 1, 9, 37):
        spoilt = points[: place * POINT_BYTES] + bytes(POINT_BYTES) + points[place * POINT_BYTES :]
        assert group.leading_roots(spoilt) == roots[: place * POINT_BYTES]


def test_special_numbers_are_points_of_the_group_or_not(group: Curve, verdicts: list[bool]) -> None:
    """One by one: the verdict depends on no neighbour."""
    assert [group.leading_valid(_encoded([u])) == 1 for u in _special()] == verdicts
    members = [u for u, good in zip(_special(), verdicts, strict=True) if good]
    assert len(members) > 50
    assert group.leading_valid(_encoded(members)) == len(members)


@pytest.fixture(scope="module")
def verdicts() -> list[bool]:
    """By the definition: a multiple by the group's order is computed for points of the curve alone."""
    return [u < PRIME and on_curve(u) and is_member(u.to_bytes(POINT_BYTES, "little")) for u in _special()]


def test_digests_of_every_length() -> None:
    """Texts of 0 to 300 bytes and long ones, with prefixes: those of hashlib."""
    rng = np.random.default_rng(0)
    lengths = [*range(301), 1023, 4096, 100_000, 0]
    texts = [rng.bytes(length) for length in lengths]
    places = np.cumsum([0, *lengths]).astype(np.int64)
    for prefix in (b"", DOMAIN, bytes(range(128)), bytes(range(200))):
        expected = b"".join(hashlib.sha512(prefix + text).digest() for text in texts)
        assert curve.digests(prefix, b"".join(texts), places) == expected


def test_ids_become_points_over_several_calls(group: Curve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call has the ids of its own places, and there may be none."""
    monkeypatch.setattr(curve, "UNIT", 3)
    ids = [f"id {'x' * number}".encode() for number in range(8)]
    ends = np.cumsum([0, *map(len, ids)]).astype(np.int64).tobytes()
    expected = SodiumGroup().hash_points(b"".join(uniform_bytes(text) for text in ids))
    assert group.hash_ids(DOMAIN, b"".join(ids), ends) == expected
    assert SodiumGroup().hash_ids(DOMAIN, b"".join(ids), ends) == expected
    assert group.hash_ids(DOMAIN, b"", bytes(8)) == SodiumGroup().hash_ids(DOMAIN, b"", bytes(8)) == b""
