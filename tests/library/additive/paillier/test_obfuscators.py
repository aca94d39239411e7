"""What an obfuscator is drawn from: as long as its proof wants it, afresh for every ciphertext, on a fit key only."""

from __future__ import annotations

import secrets

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from tests.library.ciphertexts import batch, integers
from treetap.additive.paillier.public_key import Packer, TwistedObfuscators
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import Batch
from treetap.additive.residues.fixed_base import Exponents, FixedBase
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.errors import BadInput
from treetap.protocols.key_options import Obfuscation
from treetap.trees.slots import Slots
from treetap.workers.engines import InProcessEngine

BITS = 1024
KEY = SecretKey.generate(BITS)
PUBLIC = KEY.public
P, Q = (mpz(int.from_bytes(half, "big")) for half in (KEY.for_worker()[:128], KEY.for_worker()[128:]))
#: A uniform number is this much shorter than its bound with a chance of 2^-64.
SLACK = 64


def drawn(ciphertext: mpz) -> mpz:
    """The r of a ciphertext (1 + m·n)·r^n, which the key's owner can take out: c mod n is r^n mod n."""
    root = gmpy2.invert(PUBLIC.n, (P - 1) * (Q - 1))
    return gmpy2.powmod(ciphertext % PUBLIC.n, root, PUBLIC.n)


def test_every_packed_ciphertext_has_its_own_obfuscator() -> None:
    """Sums of nothing are only their obfuscators, and those of one answer are all different."""
    packed = Packer(PUBLIC, 300, 3).pack_fresh(PUBLIC.ring.ones(14))
    assert len(packed) == len(set(integers(PUBLIC, packed))) == 5
    assert KEY.decrypt_many(PUBLIC.write(packed)) == [0] * 5


@pytest.mark.real_time
async def test_the_sums_of_an_empty_table_are_all_different() -> None:
    """No ciphertext of an answer repeats within it or in the next one, though every plaintext is zero."""
    codes = np.zeros((0, 3), dtype=np.uint8)
    sums = EncryptedSums(InProcessEngine(), PUBLIC, Slots((60, 60, 60)), codes, [(5, True)] * 3, "t")
    order = np.arange(sums.n_candidates)
    blob = await sums.candidates(None, order) + await sums.candidates([np.zeros(0, dtype=np.int64)] * 2, order)
    ciphertexts = integers(PUBLIC, blob)
    assert len(set(ciphertexts)) == len(ciphertexts) == 6 + 11
    assert len({drawn(ciphertext) for ciphertext in ciphertexts}) == len(ciphertexts)


@pytest.mark.parametrize("kind", ["packed", "obfuscator", "re-randomised"])
def test_standard_obfuscators_are_drawn_from_all_units(kind: str) -> None:
    """Each r has the length of n: a short one could be found by trying, and with it the plaintext."""
    if kind == "packed":
        made = Packer(PUBLIC, 900, 1).pack_fresh(PUBLIC.ring.ones(20))
    elif kind == "obfuscator":
        made = PUBLIC.standard(20)
    else:
        made = PUBLIC.rerandomise_standard(batch(PUBLIC, [1] * 20))
    found = integers(PUBLIC, made)
    lengths = [drawn(ciphertext).bit_length() for ciphertext in found]
    assert min(lengths) > BITS - SLACK
    assert len(set(found)) == 20


def test_the_owners_standard_obfuscators_are_drawn_from_all_units() -> None:
    """Modulo p an obfuscator s^p is s itself: it has the length of p, and the other half that of q."""
    ciphertexts = integers(PUBLIC, KEY.encrypt_many([7] * 20, "standard"))
    for prime in (P, Q):
        halves = [ciphertext % prime for ciphertext in ciphertexts]
        assert min(half.bit_length() for half in halves) > BITS // 2 - SLACK
        assert len(set(halves)) == 20


class Powers:
    """Every exponent that a fixed-base table was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exponents: list[int] = []
        powers = FixedBase.powers

        def spy(table: FixedBase, exponents: Exponents) -> Batch:
            self.exponents += [int.from_bytes(row.tobytes(), "little") for row in exponents]
            return powers(table, exponents)

        monkeypatch.setattr(FixedBase, "powers", spy)


@pytest.mark.parametrize(("kind", "length"), [("short-exponent", 256), ("half-length", BITS // 2)])
def test_exponents_have_the_length_that_their_security_rests_on(
    kind: Obfuscation, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 bits twice, or half of n's bits once for both primes; a new exponent for every ciphertext."""
    powers = Powers(monkeypatch)
    KEY.encrypt_many([0] * 30, kind)
    left, right = powers.exponents[:30], powers.exponents[30:]
    assert len(left) == len(right) == 30
    if kind == "half-length":
        assert left == right
    else:
        assert not set(left) & set(right)
    for side in (left, right):
        assert len(set(side)) == 30
        assert length - 16 < max(exponent.bit_length() for exponent in side) <= length


@pytest.mark.parametrize(("kind", "length"), [("short-exponent", 256), ("half-length", BITS // 2)])
def test_a_party_without_the_key_draws_exponents_of_the_same_lengths(
    kind: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the public half draws is as long as what the owner draws, one exponent each."""
    powers = Powers(monkeypatch)
    assert len(set(integers(PUBLIC, TwistedObfuscators(PUBLIC, kind, window=8).draw(20)))) == 20
    assert len(set(powers.exponents)) == 20
    assert length - 16 < max(exponent.bit_length() for exponent in powers.exponents) <= length


def _prime(bits: int, residue: int, modulus: int) -> int:
    """A prime of just so many bits, the two top ones set, in a residue class."""
    while True:
        candidate = secrets.randbits(bits) | (3 << (bits - 2))
        candidate -= (candidate - residue) % modulus
        if gmpy2.is_prime(candidate, 25) and candidate >> (bits - 2) == 3:
            return candidate


@pytest.mark.parametrize(
    ("p_class", "q_class"),
    [((1, 4), (3, 4)), ((3, 4), (1, 4)), ((7, 12), (7, 12))],
    ids=["p is 1 mod 4", "q is 1 mod 4", "p-1 and q-1 share 3"],
)
def test_an_imported_key_is_fit_in_both_primes_and_in_what_they_share(
    p_class: tuple[int, int], q_class: tuple[int, int]
) -> None:
    """Short obfuscators are refused if either prime is not 3 mod 4 or if p-1 and q-1 share more than 2."""
    key = SecretKey.from_primes(_prime(BITS // 2, *p_class), _prime(BITS // 2, *q_class))
    for kind in ("half-length", "short-exponent"):
        with pytest.raises(BadInput, match="use standard"):
            key.prepare(kind)
    assert key.decrypt_many(key.encrypt_many([-5], "standard")) == [-5]
