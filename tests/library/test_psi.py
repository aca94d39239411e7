"""The group arithmetic of private set intersection: raising commutes, bad points are refused, shuffles are uniform."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings

from treetap import psi
from treetap.errors import Malformed

#: The order of the group, from RFC 8032.
ORDER = 2**252 + 27742317777372353535851937790883648493


def _raised(exponent: psi.Exponent, block: bytes) -> bytes:
    return psi.raise_points({}, exponent.for_kernel(), block)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True))
def test_raising_commutes_and_keeps_the_order(ids: list[str]) -> None:
    """Two parties that raise in either order find the same points, place for place."""
    one, two = psi.Exponent.draw(), psi.Exponent.draw()
    first = _raised(two, psi.blind({}, one.for_kernel(), ids))
    second = _raised(one, psi.blind({}, two.for_kernel(), ids))
    assert first == second
    assert len(np.unique(psi.points(first))) == len(ids)


def test_an_exponent_can_be_exchanged() -> None:
    """Raising by new over old takes the old one away and puts the new one on."""
    old, new = psi.Exponent.draw(), psi.Exponent.draw()
    ids = ["a", "b"]
    exchanged = _raised(new.over(old), psi.blind({}, old.for_kernel(), ids))
    assert exchanged == psi.blind({}, new.for_kernel(), ids)


def test_ids_are_hashed_into_the_prime_order_group() -> None:
    """Every hash is a valid point, and the group's order takes it to the identity: order − 1 gives its inverse."""
    minus_one = (ORDER - 1).to_bytes(32, "little")
    for value in (b"", b"a", b"b", bytes(1000)):
        point = psi.hash_to_group(value)
        assert bindings.crypto_core_ed25519_is_valid_point(point)
        inverse = bindings.crypto_scalarmult_ed25519_noclamp(minus_one, point)
        identity = bindings.crypto_core_ed25519_add(point, inverse)
        assert identity == bytes([1]) + bytes(31)


def test_the_hash_stays_what_it_is() -> None:
    """Parties of different versions must hash alike: a changed hash finds no common record at all."""
    pinned = "5572c987f93d70033b7db321c7f565fb3fa49fffe760712bae504766e36679f6"
    assert psi.hash_to_group(b"patient-1").hex() == pinned


@pytest.mark.parametrize(
    "point",
    [
        bytes(32),  # of small order
        bytes([1]) + bytes(31),  # the identity
        bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),  # of order 2
        bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),  # of order 8
        bytes.fromhex("0200000000000000000000000000000000000000000000000000000000000000"),  # on no curve
        b"\xff" * 32,  # not canonical
    ],
)
def test_what_is_no_point_of_the_group_is_refused(point: bytes) -> None:
    """A peer that sends points outside the subgroup would learn bits of the exponent from what comes back."""
    good = psi.hash_to_group(b"a")
    with pytest.raises(Malformed, match="a blinded identifier is not a point of the group"):
        _raised(psi.Exponent.draw(), good + point)


def test_a_point_with_a_part_of_small_order_is_refused() -> None:
    """A valid point plus one of order 8 is on the curve, not in the subgroup."""
    small = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
    mixed = bindings.crypto_core_ed25519_add(psi.hash_to_group(b"a"), small)
    with pytest.raises(Malformed, match="not a point of the group"):
        _raised(psi.Exponent.draw(), mixed)


def test_half_a_point_is_refused() -> None:
    """A block whose length is no multiple of a point's."""
    with pytest.raises(Malformed, match="33 bytes are not a whole number"):
        _raised(psi.Exponent.draw(), bytes(33))


def test_shuffles_are_uniform() -> None:
    """Each order of four points comes about equally often: chi-square below its 99.99th percentile."""
    block = b"".join(bytes([value]) * psi.POINT_BYTES for value in range(4))
    rounds = 24 * 200
    seen = Counter(bytes(psi.shuffled(block)[:: psi.POINT_BYTES]) for _ in range(rounds))
    expected = rounds / 24
    assert set(seen) <= {bytes(order) for order in permutations(range(4))}
    assert sum((count - expected) ** 2 / expected for count in seen.values()) < 58.6  # 23 degrees of freedom


def test_common_points_are_sorted_and_found() -> None:
    """What all lists hold, in the order of the points' bytes, wherever it stands."""
    made = [bytes([value]) * psi.POINT_BYTES for value in (9, 3, 7, 0, 5)]
    lists = [psi.points(b"".join(made[i] for i in order)) for order in ((0, 1, 2, 3), (3, 4, 1, 0), (1, 0, 3))]
    found, places = psi.common(*lists)
    assert found.tobytes() == made[3] + made[1] + made[0]
    assert places.tolist() == [3, 1, 0]
    assert [len(each) for each in psi.common(lists[0], psi.points(b""))] == [0, 0]


def test_a_point_twice_is_malformed() -> None:
    """Ids are distinct, hence so are their points."""
    twice = psi.points(bytes([1]) * 2 * psi.POINT_BYTES)
    with pytest.raises(Malformed, match="holds one twice"):
        psi.common(psi.points(b""), twice)


def test_exponents_are_not_shown() -> None:
    """Neither text form has a digit of the number, and no two draws are alike."""
    one, two = psi.Exponent.draw(), psi.Exponent.draw()
    assert repr(one) == str(one) == "<Exponent>"
    assert one.for_kernel() != two.for_kernel()
    assert 0 < int.from_bytes(one.for_kernel(), "little") < ORDER
