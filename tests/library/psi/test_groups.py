"""One group in several arithmetics: libsodium and every form of the kernels give the bytes of the definitions."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nacl import bindings

from tests.library.psi.naive import A, cosets, is_member, is_square, multiple, on_curve, to_u, uniform_bytes
from tests.native.forms import HERE
from treetap.errors import Malformed
from treetap.native import arithmetic, curve
from treetap.native.curve import Curve
from treetap.psi import lists
from treetap.psi.group import ORDER, POINT_BYTES, PRIME, Exponent
from treetap.psi.lists import Group, SodiumGroup
from treetap.tables.record_ids import Ids

pytestmark = [
    pytest.mark.usefixtures("same_arithmetic_after"),
    pytest.mark.skipif(not HERE, reason="the kernels were not compiled"),
]
#: The group by every form of the kernels that this processor has.
CURVES = [Curve(form) for form in HERE]
GROUPS: list[Group] = [SodiumGroup(), *CURVES]
#: Numbers of 256 bits at which carries, the top bit and the reduction modulo p could go wrong.
EXTREME = (0, 1, 2, 9, A, PRIME - A, PRIME - 2, PRIME - 1, PRIME, PRIME + 1, 2**255 - 1, 2**255, 2**255 + 1, 2**256 - 1)
NUMBERS = st.one_of(
    st.sampled_from(EXTREME),
    st.integers(0, 2**256 - 1),
    st.integers(0, 255).map(lambda bits: (1 << bits) - 1),
    st.integers(0, 4).map(lambda word: ((1 << 51) - 1) << (51 * word)),
)
BYTES = NUMBERS.map(lambda number: number.to_bytes(POINT_BYTES, "little"))
EXPONENTS = st.one_of(st.sampled_from((1, 2, 3, ORDER - 1, (ORDER + 1) // 2)), st.integers(2**200, 2**252))


@pytest.fixture(params=["gmpy2", *HERE])
def backend(request: pytest.FixtureRequest) -> str:
    """Each arithmetic, in use in this process."""
    arithmetic.use(request.param)
    return str(request.param)


def _hashes(count: int) -> bytes:
    """Points of the group."""
    return SodiumGroup().hash_points(b"".join(uniform_bytes(bytes([number])) for number in range(count)))


def _verdicts(group: Group, points: list[bytes]) -> list[bool]:
    """For each point by itself, then within one block: up to the first invalid one all are valid."""
    alone = [group.leading_valid(point) == 1 for point in points]
    first = next((place for place, good in enumerate(alone) if not good), len(points))
    assert group.leading_valid(b"".join(points)) == first
    return alone


@settings(max_examples=60)
@given(st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=20))
@example([(bytes(32), bytes(32)), (bytes(32), bytes([1]) * 32)])
def test_uniform_bytes_become_the_same_points(pairs: list[tuple[bytes, bytes]]) -> None:
    """Elligator 2, its signs, the sum and the cofactor are libsodium's, for halves of any value."""
    uniform = b"".join(first + second for first, second in pairs)
    expected = SodiumGroup().hash_points(uniform)
    assert [group.hash_points(uniform) for group in CURVES] == [expected] * len(CURVES)


@settings(max_examples=20)
@given(st.lists(EXPONENTS, min_size=1, max_size=3), st.integers(1, 12))
def test_points_are_raised_to_the_same_points(numbers: list[int], count: int) -> None:
    """Raising by an element of the field of ℓ elements, though kernels take a clamped number for it."""
    block = by_definition = _hashes(count)
    for number in numbers:
        exponent = Exponent(number)
        raised = {group.raise_points(exponent.for_kernel(), block) for group in GROUPS}
        assert len(raised) == 1
        block = raised.pop()
    for number in numbers:
        found = multiple(number, int.from_bytes(by_definition[:POINT_BYTES], "little"))
        assert found is not None
        by_definition = found.to_bytes(POINT_BYTES, "little")
    assert block[:POINT_BYTES] == by_definition


def test_blocks_of_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole batches and vectors, parts of them, several calls, and nothing."""
    monkeypatch.setattr(curve, "UNIT", 264)
    whole, scalar = _hashes(1) * 530, Exponent.draw().for_kernel()
    raised = SodiumGroup().raise_points(scalar, whole[:POINT_BYTES])
    uniform = uniform_bytes(bytes([0]))
    spoilt = whole[: 300 * POINT_BYTES] + bytes(POINT_BYTES) + whole[: 9 * POINT_BYTES]
    for group in CURVES:
        for count in (0, 1, 8, 9, 129, 257, 265, 530):
            assert group.raise_points(scalar, whole[: count * POINT_BYTES]) == raised * count
            assert group.leading_valid(whole[: count * POINT_BYTES]) == count
            assert group.hash_points(uniform * count) == whole[: count * POINT_BYTES]
        assert group.leading_valid(spoilt) == 300
    assert SodiumGroup().leading_valid(spoilt) == 300


@settings(max_examples=60)
@given(st.lists(BYTES, min_size=1, max_size=12))
@example([number.to_bytes(POINT_BYTES, "little") for number in EXTREME])
def test_any_bytes_get_the_same_verdict(points: list[bytes]) -> None:
    """That of the definitions, for encodings of p and more, the twist, low order, and points outside the subgroup."""
    expected = [is_member(point) for point in points]
    assert [_verdicts(group, points) for group in GROUPS] == [expected] * len(GROUPS)


@pytest.mark.parametrize("start", range(6))
def test_points_with_a_part_of_low_order_are_refused(start: int) -> None:
    """Of the eight points P + T only P is of the group, whatever T of order 2, 4 or 8 is added; nor is any T itself."""
    found = bindings.crypto_core_ed25519_from_uniform(bytes([start + 1]) * 32)
    points = [*cosets(found), *cosets(bytes([1]) + bytes(31))]
    expected = [True] + [False] * 15
    assert [is_member(point) for point in points] == expected
    assert [_verdicts(group, points) for group in GROUPS] == [expected] * len(GROUPS)


def test_ids_are_hashed_into_the_group(backend: str) -> None:
    """By libsodium's hash to edwards25519; parties of different releases must hash alike, or find nothing common."""
    for value in (b"", b"a", b"b", bytes(1000)):
        uniform = uniform_bytes(value)
        halves = [bindings.crypto_core_ed25519_from_uniform(half) for half in (uniform[:32], uniform[32:])]
        point = lists.group().hash_points(uniform)
        assert point == to_u(bindings.crypto_core_ed25519_add(*halves))
        assert is_member(point)
    pinned = "64e0e6d37f43c8f65bb2a9982fee54780392ceb188d51f776692faedbe389b15"
    assert lists.group().hash_points(uniform_bytes(b"patient-1")).hex() == pinned


def _twist_point() -> bytes:
    return next(u for u in range(2, 20) if not on_curve(u)).to_bytes(POINT_BYTES, "little")


@pytest.mark.parametrize(
    "bad",
    [
        lambda: bytes(POINT_BYTES),
        lambda: (1).to_bytes(POINT_BYTES, "little"),
        lambda: (PRIME - 1).to_bytes(POINT_BYTES, "little"),
        lambda: PRIME.to_bytes(POINT_BYTES, "little"),
        lambda: bytes([255]) * POINT_BYTES,
        _twist_point,
        lambda: (int.from_bytes(_hashes(1), "little") + 2**255).to_bytes(POINT_BYTES, "little"),
    ],
    ids=["zero", "of order 4", "minus one", "p", "all ones", "twist", "the top bit"],
)
def test_what_is_no_point_of_the_group_is_refused(backend: str, bad: Callable[[], bytes]) -> None:
    """Wherever it stands in a block, by raising and by checking."""
    good = _hashes(9)
    for block in (bad() + good, good + bad()):
        for refuse in (lambda block=block: lists.raise_points(Exponent.draw().for_kernel(), block),
                       lambda block=block: lists.check_points(block)):  # fmt: skip
            with pytest.raises(Malformed, match="a blinded identifier is not a point of the group"):
                refuse()
    assert lists.check_points(good) == good


def test_half_a_point_is_refused(backend: str) -> None:
    """A block whose length is no multiple of a point's."""
    with pytest.raises(Malformed, match="33 bytes are not a whole number"):
        lists.raise_points(Exponent.draw().for_kernel(), bytes(33))


def test_blinded_points_have_one_form_whatever_the_id(backend: str) -> None:
    """What can be told from a u without the exponent is the same for all ids: the curve, the subgroup, the form.

    All are below p, of the curve and not of its twist, and of the subgroup: u and u² + Au + 1, whose product says curve
    or twist, are each a square. Were some ids mapped to the twist, or to other cosets of the subgroup, these would be
    bits of the id that no exponent hides.
    """
    ids = [f"id {number}" for number in range(40)]
    block = lists.blind(Exponent.draw().for_kernel(), *Ids.of(ids).packed())
    for point in [block[at : at + POINT_BYTES] for at in range(0, len(block), POINT_BYTES)]:
        u = int.from_bytes(point, "little")
        assert is_member(point)
        assert is_square(u)
        assert is_square(u * u + A * u + 1)


def test_every_point_is_any_ids_point_under_some_exponent(backend: str) -> None:
    """Raising by s is undone by raising by 1/s: it permutes the group, so that a uniform s leaves nothing of the id."""
    points = _hashes(12)
    exponent = Exponent.draw()
    there = lists.raise_points(exponent.for_kernel(), points)
    back = Exponent(1).over(exponent)
    assert lists.raise_points(back.for_kernel(), there) == points


def test_fresh_exponents_make_two_ids_alike() -> None:
    """Four bits at either end of two ids' points, under 400 exponents each: chi-square of 15 degrees below 1e-7."""
    counts: dict[str, list[Counter[int]]] = {value: [Counter(), Counter()] for value in ("a", "patient 2")}
    for value, seen in counts.items():
        hashed = lists.group().hash_points(uniform_bytes(value.encode()))
        for _ in range(400):
            point = lists.group().raise_points(Exponent.draw().for_kernel(), hashed)
            seen[0][point[0] & 15] += 1
            seen[1][point[31] >> 3] += 1
    for one, other in zip(*counts.values(), strict=True):
        cells = set(one) | set(other)
        assert sum((one[cell] - other[cell]) ** 2 / (one[cell] + other[cell]) for cell in cells) < 62


def test_secrets_stay_out_of_errors(backend: str) -> None:
    """A refused block names neither a point nor the exponent."""
    exponent, point = Exponent.draw(), secrets.token_bytes(31) + b"\xff"
    with pytest.raises(Malformed) as refused:
        lists.raise_points(exponent.for_kernel(), point)
    said = str(refused.value)
    assert point.hex() not in said
    assert exponent.for_kernel().hex() not in said
