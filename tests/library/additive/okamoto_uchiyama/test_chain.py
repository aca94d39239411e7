"""Entries along a chain under Okamoto and Uchiyama's scheme: the next member cannot tell which were kept."""

from __future__ import annotations

import gmpy2
import pytest

from tests.library.additive.sums.test_masked_sums import jacobi, kept_or_dropped, repeated, trivial
from treetap.additive.residues.ciphertexts import SHORT_EXPONENT_BITS, random_unit
from treetap.additive.residues.fixed_base import FixedBase
from treetap.additive.sums.secret_keys import generate
from treetap.protocols.key_options import OKAMOTO_UCHIYAMA

pytestmark = pytest.mark.filterwarnings("ignore:a 1024-bit Okamoto-Uchiyama key")
with pytest.warns(UserWarning, match="1024-bit"):
    KEY = generate(OKAMOTO_UCHIYAMA, 1024, allow_breakable=True)
N = KEY.public.n


@pytest.mark.parametrize("kind", ["short-exponent", "standard"])
def test_as_shipped_the_next_member_cannot_tell_kept_from_dropped(kind: str) -> None:
    """None of the distinguishers does better than a coin; fresh zeros have either Jacobi symbol without a twist."""
    seen, kept = kept_or_dropped("short-exponent", kind, 150, KEY)
    assert len(set(seen)) == len(seen)
    for tells in (trivial, repeated, lambda ciphertexts: jacobi(ciphertexts, N)):
        assert 0.25 < (tells(seen) == kept).mean() < 0.75
    assert 0.2 < jacobi(seen, N)[~kept].mean() < 0.8  # of 150, by a deviation of 4 %


def test_a_base_that_is_a_square_would_let_the_symbol_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Powers of y² in the place of -y²: a symbol of -1 is a kept entry, never a dropped one."""
    public = type(KEY.public)

    def squares(self: object, bits: int, window: int | None = None) -> FixedBase:
        assert bits == SHORT_EXPONENT_BITS
        return FixedBase(KEY.public.ring, gmpy2.powmod(random_unit(N), 2 * N, N), bits, window)

    monkeypatch.setattr(public, "short_powers", squares)
    seen, kept = kept_or_dropped("short-exponent", "short-exponent", 150, KEY)
    said_kept = jacobi(seen, N)
    assert not said_kept[~kept].any()
    assert said_kept[0::2][kept[0::2]].mean() > 0.3  # of those that are encrypted for every record
