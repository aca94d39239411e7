"""Proofs that a list was raised by one exponent, against the definition in integers, and what makes none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from nacl import bindings

from tests.library.psi import full_points
from tests.library.psi.full_points import BASE, encoded, even, minus, plus, proves, times
from tests.library.psi.naive import ORDER_8, multiple, uniform_bytes
from tests.native.forms import HERE
from treetap.errors import Malformed
from treetap.native.curve import Curve
from treetap.psi import lists as kernels
from treetap.psi import proof
from treetap.psi.group import ORDER, Exponent
from treetap.psi.proof import Claim, Sums, digits_of
from treetap.tables.record_ids import Ids

pytestmark = pytest.mark.skipif(not HERE, reason="the kernels were not compiled")
COUNT = 300
EXPONENT, OTHER = Exponent.draw(), Exponent.draw()
CLAIM = Claim("job", bytes(32), 1, "bank", "telco", proof.key_of(EXPONENT), proof.key_of(OTHER))
Lists = tuple[bytes, bytes, bytes]
NUMBERS = bytes(range(64))


@pytest.fixture(params=HERE)
def curve(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Curve:
    """Each form, which the kernels of workers compute with."""
    made = Curve(request.param)
    monkeypatch.setattr(kernels, "group", lambda: made)
    return made


@pytest.fixture
def lists(curve: Curve) -> Lists:
    """A list, what it becomes, and signs."""
    points = curve.hash_points(b"".join(uniform_bytes(bytes([number % 256, 1])) for number in range(COUNT)))[: 32 * 250]
    return points, *kernels.raise_signed(EXPONENT.for_kernel(), points)


def _numbers(block: bytes) -> list[int]:
    return [int.from_bytes(block[at : at + 32], "little") for at in range(0, len(block), 32)]


def _summed(points: bytes, signs: bytes, part: int = 97) -> bytes:
    """As a party sums a list that it checks, by calls of this number of points."""
    sums = Sums(NUMBERS)
    for first in range(0, len(signs), part):
        block = points[32 * first : 32 * (first + part)]
        sums.add(kernels.check_summed(block, signs[first : first + part], NUMBERS, first))
    return sums.encoded()


def _holds(lists: Lists) -> bool:
    """The sum raised by the exponent of the key is that of the list that came back."""
    points, raised, signs = lists
    return proof.raised_by(EXPONENT, _summed(points, bytes(len(signs)))) == _summed(raised, signs)


def test_an_honest_list_is_proven_in_every_form(lists: Lists) -> None:
    """Of points of which some change their sign and some do not."""
    assert set(lists[2]) == {0, 1}
    assert _holds(lists)


def test_a_list_is_summed_where_it_is_made(lists: Lists) -> None:
    """As where it is checked: of ids that are blinded, and of a list that is raised; by any calls."""
    points, raised, signs = lists
    packed = Ids.of([f"id {number}" for number in range(40)])
    made, sums = Sums(NUMBERS), bytearray()
    for first in range(0, 40, 16):
        texts = packed.take(np.arange(first, min(first + 16, 40))).packed()
        block, part = kernels.blind_summed(EXPONENT.for_kernel(), *texts, NUMBERS, first)
        made.add(part)
        sums += block
    assert sums == kernels.blind(EXPONENT.for_kernel(), *packed.packed())
    assert made.encoded() == _summed(bytes(sums), bytes(40))
    again, block = kernels.raise_summed(OTHER.for_kernel(), raised, signs, NUMBERS, 0)
    made = Sums(NUMBERS)
    made.add(block)
    assert made.encoded() == _summed(raised, signs)
    assert again == kernels.raise_points(OTHER.for_kernel(), raised)
    with pytest.raises(Malformed, match="is not a point of the group"):
        kernels.check_summed(points[:32] + bytes(32), bytes(2), NUMBERS, 0)


@pytest.mark.second_tier(but=1)
def test_sums_and_proofs_are_those_of_the_definition(curve: Curve, lists: Lists) -> None:
    """Recovered signs, numbers of 128 bits, sums and the equations of a proof, in integers."""
    points, raised, signs = lists
    number = int.from_bytes(EXPONENT.for_kernel(), "little")
    before = [even(u) for u in _numbers(points)[:20]]
    after = [minus(even(u)) if odd else even(u) for u, odd in zip(_numbers(raised)[:20], signs, strict=False)]
    assert after == [times(number, point) for point in before]
    digits = digits_of(NUMBERS, 0, 20)
    weights = [
        sum(int.from_bytes(digits[at : at + 1], signed=True) << 8 * at % 128 for at in range(16 * k, 16 * k + 16))
        for k in range(20)
    ]
    assert max(weights).bit_length() == 127
    source, reached = (full_points.total(list(map(times, weights, side))) for side in (before, after))
    assert _summed(points[:640], bytes(20), 7) == encoded(source)
    assert _summed(raised[:640], signs[:20], 20) == encoded(reached) == proof.raised_by(EXPONENT, encoded(source))
    statement, key = CLAIM.statement(0), times(number, BASE)
    assert encoded(key) == CLAIM.key
    made = proof.prove(EXPONENT, CLAIM, statement, encoded(source))
    assert proves(statement, key, source, reached, b"".join(made), proof.DOMAIN)
    assert not proves(statement, key, source, plus(reached, BASE), b"".join(made), proof.DOMAIN)


def test_numbers_do_not_depend_on_the_calls() -> None:
    """Nor are two alike; another seed gives others."""
    seed = bytes(64)
    whole = digits_of(seed, 0, 10_000)
    parts = [digits_of(seed, first, min(first + 3_001, 10_000)) for first in range(0, 10_000, 3_001)]
    assert b"".join(parts) == whole
    assert len({whole[at : at + 16] for at in range(0, len(whole), 16)}) == 10_000
    assert digits_of(seed, 5, 5) == b""
    assert digits_of(bytes(63) + b"1", 0, 9) != whole[:144]


def _with(block: bytes, place: int, width: int, new: bytes) -> bytes:
    return block[: width * place] + new + block[width * (place + 1) :]


def _cancelling(points: bytes, raised: bytes, signs: bytes) -> tuple[bytes, bytes]:
    """Q_3 + X and Q_7 - X for Q_3 and Q_7: the plain sum of all is as before."""
    shift = times(99, BASE)
    for place, added in ((3, shift), (7, minus(shift))):
        point = even(_numbers(raised)[place])
        moved = plus(minus(point) if signs[place] else point, added)
        assert moved is not None
        raised = _with(raised, place, 32, moved[0].to_bytes(32, "little"))
        signs = _with(signs, place, 1, bytes([moved[1] % 2]))
    return raised, signs


FORGED: dict[str, Callable[[Lists], Lists]] = {
    "one point of another exponent": lambda of: (
        of[0],
        _with(of[1], 200, 32, kernels.raise_points(OTHER.for_kernel(), of[0][6400:6432])),
        of[2],
    ),
    "one point twice as much": lambda of: (
        of[0],
        _with(of[1], 0, 32, (multiple(2, _numbers(of[1])[0]) or 0).to_bytes(32, "little")),
        of[2],
    ),
    "two points exchanged": lambda of: (of[0], of[1][32:64] + of[1][:32] + of[1][64:], of[2]),
    "the order turned": lambda of: (of[0], of[1][-32:] + of[1][:-32], of[2][-1:] + of[2][:-1]),
    "one sign turned": lambda of: (*of[:2], _with(of[2], 249, 1, bytes([1 - of[2][249]]))),
    "all signs turned": lambda of: (*of[:2], bytes(1 - sign for sign in of[2])),
    "two changes that add up to none": lambda of: (of[0], *_cancelling(*of)),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_one_forged_pair_of_many_is_caught(curve: Curve, lists: Lists, forgery: str) -> None:
    """Whichever it is, in every form."""
    assert not _holds(FORGED[forgery](lists))


@pytest.mark.parametrize(
    "other",
    [
        {"job": "another"},
        {"digest": b"1" * 32},
        {"attempt": 2},
        {"prover": "telco", "verifier": "bank"},
        {"verifier": "other"},
        {"key": proof.key_of(OTHER)},
        {"other_key": proof.key_of(EXPONENT)},
        {"job": "jobb", "digest": bytes(31)},
    ],
    ids=" ".join,
)
def test_a_proof_is_of_one_claim(other: dict[str, object]) -> None:
    """Not of another job, attempt, party or key; nor the other way round, as one that comes back would be."""
    source = encoded(times(5, BASE))
    reached = encoded(times(5 * int.from_bytes(EXPONENT.for_kernel(), "little"), BASE))
    statement = CLAIM.statement(1)
    made = proof.prove(EXPONENT, CLAIM, statement, source)
    assert proof.holds(CLAIM, statement, (source, reached), made)
    changed = replace(CLAIM, **other)  # type: ignore[arg-type]
    assert not proof.holds(changed, changed.statement(1), (source, reached), made)
    assert not proof.holds(CLAIM, CLAIM.statement(0), (source, reached), made)


def test_no_response_above_the_order_or_of_another_length() -> None:
    """A proof has one form; numbers of 0, with which libsodium computes nothing, are none either."""
    source, number = times(7, BASE), int.from_bytes(EXPONENT.for_kernel(), "little")
    sums = encoded(source), encoded(times(number, source))
    statement = CLAIM.statement(0)
    challenge, response = proof.prove(EXPONENT, CLAIM, statement, sums[0])
    assert proof.holds(CLAIM, statement, sums, (challenge, response))
    again = (int.from_bytes(response, "little") + ORDER).to_bytes(32, "little")
    for wrong in (
        (challenge, again),
        (challenge, response[:31]),
        (b"", b""),
        (bytes(32), response),
        (challenge, bytes(32)),
    ):
        assert not proof.holds(CLAIM, statement, sums, wrong)


def test_nonces_are_drawn_anew() -> None:
    """Two proofs of one statement by one nonce would tell the exponent."""
    made = {proof.prove(EXPONENT, CLAIM, bytes(64), encoded(BASE)) for _ in range(4)}
    assert len(made) == 4


def test_keys_of_low_order_or_none_are_refused() -> None:
    """A key is a point of the group of prime order, in its one encoding."""
    low = ORDER_8
    assert proof.valid_key(CLAIM.key)
    assert not proof.valid_key(bindings.crypto_core_ed25519_add(CLAIM.key, low))
    for wrong in (low, b"", bytes(32), b"\x01" + bytes(31), b"\xff" * 32, CLAIM.key[:31]):
        assert not proof.valid_key(wrong)
