"""Exponents: the field of the group's order behind the clamped numbers of X25519."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from treetap.psi import group, lists
from treetap.psi.group import ORDER, Exponent, NotClamped
from treetap.tables.record_ids import Ids

#: ℓ = 2^252 + C
C = ORDER - 2**252


def _of(eighth: int) -> int:
    """The exponent s with (s - 2^254)/8 = eighth modulo ℓ."""
    return (2**254 + 8 * eighth) % ORDER


def _is_small_multiple(number: int) -> bool:
    """True for 8k with |k| ≤ C: these are the ones without a clamped number."""
    eighth = number * pow(8, -1, ORDER) % ORDER
    return min(eighth, ORDER - eighth) <= C


@given(st.integers(1, ORDER - 1))
@example(1)
@example(ORDER - 1)
@example(_of(0))
@example(_of(2**251 - 1))
@example(_of(2**251 + 2 * C + 1))
@example(_of(C))
@example(_of(ORDER - 1))
def test_a_clamped_number_stands_for_s_or_minus_s(number: int) -> None:
    """It has the form that X25519 gives every scalar, which therefore leaves it alone."""
    assume(not _is_small_multiple(number))
    scalar = int.from_bytes(Exponent(number).for_kernel(), "little")
    assert scalar % ORDER in (number, ORDER - number)
    assert scalar % 8 == 0
    assert scalar >> 254 == 1


@pytest.mark.parametrize("eighth", [2**251, 2**251 + 1, 2**251 + C, 2**251 + 2 * C])
def test_the_few_without_a_clamped_number_are_refused(eighth: int) -> None:
    """There are 2C + 1 of them, from 2^251 on: neither s nor -s is 2^254 + 8j with j below 2^251."""
    for number in (_of(eighth), -_of(eighth) % ORDER):
        if number == 0:
            continue
        assert _is_small_multiple(number)
        with pytest.raises(NotClamped, match="once in 2\\^126 times; run the job again"):
            Exponent(number)
    with pytest.raises(NotClamped):
        Exponent(_of(eighth) * 7 % ORDER).over(Exponent(7))


def test_another_one_is_drawn_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniformly among the others."""
    drawn = iter([_of(2**251) - 1, 41])
    monkeypatch.setattr(group.secrets, "randbelow", lambda below: next(drawn) if below == ORDER - 1 else None)
    assert Exponent.draw().for_kernel() == Exponent(42).for_kernel()


def test_an_exponent_can_be_exchanged() -> None:
    """Raising by new over old takes the old one away and puts the new one on."""
    old, new, ids = Exponent.draw(), Exponent.draw(), Ids.of(["a", "b"]).packed()
    exchanged = lists.raise_points(new.over(old).for_kernel(), lists.blind(old.for_kernel(), *ids))
    assert exchanged == lists.blind(new.for_kernel(), *ids)


def test_exponents_are_not_shown() -> None:
    """Neither text form has a digit of the number, and no two draws are alike."""
    one, two = Exponent.draw(), Exponent.draw()
    assert repr(one) == str(one) == "<Exponent>"
    assert one.for_kernel() != two.for_kernel()
