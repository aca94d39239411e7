"""Obfuscators, and why their owner draws them whole.

- What an obfuscator is drawn from: as long as its proof wants it, afresh for every ciphertext, on a fit key only.
- May the key owner read off a candidate sum which records were summed?

  The owner knows every ciphertext it sent and both primes. Modulo p a ciphertext loses its plaintext (n ≡ 0) and
  keeps its obfuscator, so C = ρ · Π_{i∈S} c_i modulo p for the subset S and the obfuscator ρ that the feature party
  multiplied in. Where p-1 is smooth the owner takes discrete logarithms (Pohlig and Hellman 1978) and looks for the
  pair of records that leaves an obfuscator with a short logarithm: none at all (ρ = 1) or a short exponent stands
  out, a standard one does not.
"""

from __future__ import annotations

import secrets
from itertools import combinations

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
from treetap.workers.engines import Engine

BITS = 1024
KEY = SecretKey.generate(BITS)
PUBLIC = KEY.public
P, Q = KEY._p, KEY._q
#: A uniform number is this much shorter than its bound with a chance of 2^-64.
SLACK = 64
RECORDS = 24
SUMMED = (5, 17)  # the two records of the small bin
SHORT = 256
SLOTS = Slots((30, 10))


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
    sums = EncryptedSums(Engine(), PUBLIC, Slots((60, 60, 60)), codes, [(5, True)] * 3)
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
    key = SecretKey(_prime(BITS // 2, *p_class), _prime(BITS // 2, *q_class))
    for kind in ("half-length", "short-exponent"):
        with pytest.raises(BadInput, match="use standard"):
            key.prepare(kind)
    assert key.decrypt_many(key.encrypt_many([-5], "standard")) == [-5]


def smooth_prime(bits: int) -> tuple[int, list[int]]:
    """A prime p ≡ 3 (mod 4) of `bits` bits whose p-1 has only small factors, and those factors."""
    while True:
        factors, product = [], 2
        candidates = [prime for prime in range(3, 2000, 2) if gmpy2.is_prime(prime)]
        while product.bit_length() < bits - 11:
            prime = candidates.pop(secrets.randbelow(len(candidates)))
            factors.append(prime)
            product *= prime
        for last in candidates:
            if (product * last).bit_length() == bits and gmpy2.is_prime(product * last + 1):
                return product * last + 1, [2, *factors, last]


def smooth_key() -> tuple[SecretKey, int, list[int]]:
    """A valid key whose p-1 is smooth; q is an ordinary prime."""
    while True:
        p, factors = smooth_prime(512)
        q = int(gmpy2.next_prime(mpz(secrets.randbits(512)) | (mpz(1) << 511)))
        if (
            q % 4 == 3
            and (p * q).bit_length() == 1024
            and gmpy2.gcd(p - 1, q - 1) == 2
            and gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1
        ):
            return SecretKey(p, q), p, factors


def generator(p: int, factors: list[int]) -> int:
    """A generator of Z*_p."""
    base = 2
    while any(gmpy2.powmod(base, (p - 1) // prime, p) == 1 for prime in factors):
        base += 1
    return base


class Attacker:
    """The curious key owner: logarithms modulo p, then a search over pairs of records."""

    def __init__(self, p: int, factors: list[int]) -> None:
        self.p, self.factors = p, factors
        base = generator(p, factors)
        self.powers = []
        for prime in factors:
            root = gmpy2.powmod(base, (p - 1) // prime, p)
            self.powers.append({gmpy2.powmod(root, exponent, p): exponent for exponent in range(prime)})

    def logarithm(self, value: int) -> int:
        """Pohlig-Hellman: the logarithm modulo p-1, from its residues modulo each small factor."""
        total = 0
        for prime, table in zip(self.factors, self.powers, strict=True):
            rest = (self.p - 1) // prime
            residue = table[gmpy2.powmod(value, rest, self.p)]
            total += residue * rest * int(gmpy2.invert(rest, prime))
        return total % (self.p - 1)

    def pairs(self, sent: list[mpz], answer: mpz, base: int) -> list[tuple[int, int]]:
        """Pairs of records whose sum leaves an obfuscator base^a with a below 2^256, base^0 included."""
        order = self.p - 1
        unit = self.logarithm(base)
        logs = [self.logarithm(ciphertext % self.p) for ciphertext in sent]
        target = self.logarithm(answer % self.p)
        # a·unit = rest (mod p-1): divide by what unit shares with the order, where rest must be divisible too.
        shared = int(gmpy2.gcd(unit, order))
        inverse = int(gmpy2.invert(unit // shared, order // shared))
        found = []
        for first, second in combinations(range(len(sent)), 2):
            rest = (target - logs[first] - logs[second]) % order
            if rest % shared == 0 and rest // shared * inverse % (order // shared) < 1 << SHORT:
                found.append((first, second))
        return found


def setting():
    """A smooth key, its attacker, the ciphertexts sent, and a public base of short exponents, h^n with h = -y²."""
    key, p, factors = smooth_key()
    y = secrets.randbelow(int(key.public.n))
    h = mpz(-y * y) % key.public.n
    blob = key.encrypt_many(SLOTS.encode([np.arange(RECORDS) - 9, np.ones(RECORDS, dtype=np.int64)]), "standard")
    return key, Attacker(p, factors), integers(key.public, blob), blob, h


def answer_with(key: SecretKey, sent: list[mpz], r: mpz) -> mpz:
    """The feature party's sum of the two records, packed with the obfuscator r^n."""
    summed = batch(key.public, [sent[SUMMED[0]] * sent[SUMMED[1]]])
    packed = Packer(key.public, SLOTS.bits, SLOTS.groups_per_plaintext(key.public.plain_bits)).pack(summed, [r])
    assert SLOTS.decode(key.decrypt_many(key.public.write(packed))[0], 1).tolist() == [[sum(SUMMED) - 18, 2]]
    return integers(key.public, packed)[0]


def test_without_rerandomisation_the_owner_names_the_records():
    """A bare sum of two records is the product of exactly one pair of ciphertexts."""
    key, attacker, sent, _, h = setting()
    base = int(gmpy2.powmod(h, key.public.n, attacker.p))
    assert attacker.pairs(sent, answer_with(key, sent, mpz(1)), base) == [SUMMED]


def test_short_exponents_do_not_hide_the_records_from_a_smooth_key():
    """An obfuscator with a 256-bit exponent is stripped, and the pair is named all the same."""
    key, attacker, sent, _, h = setting()
    r = gmpy2.powmod(h, secrets.randbits(SHORT), key.public.n)
    base = int(gmpy2.powmod(h, key.public.n, attacker.p))
    assert attacker.pairs(sent, answer_with(key, sent, r), base) == [SUMMED]


@pytest.mark.real_time
async def test_as_shipped_the_owner_finds_nothing():
    """The same attack on the same two records finds no pair in what EncryptedSums sends."""
    key, attacker, sent, blob, h = setting()

    codes = np.ones((RECORDS, 1), dtype=np.uint8)
    codes[list(SUMMED)] = 0
    engine = Engine()
    sums = EncryptedSums(engine, key.public, SLOTS, codes, [(2, False)])
    await sums.add_block(np.arange(RECORDS), blob)
    packed = await sums.candidates(None, np.arange(1))
    assert SLOTS.decode(key.decrypt_many(packed)[0], 1).tolist() == [[sum(SUMMED) - 18, 2]]
    base = int(gmpy2.powmod(h, key.public.n, attacker.p))
    assert attacker.pairs(sent, integers(key.public, packed)[0], base) == []
