"""May the key owner read off a candidate sum which records were summed?

The owner knows every ciphertext it sent and both primes. Modulo p a ciphertext loses its plaintext (n ≡ 0) and keeps
its obfuscator, so C = ρ · Π_{i∈S} c_i modulo p for the subset S and the obfuscator ρ that the feature party multiplied
in. Where p-1 is smooth the owner takes discrete logarithms (Pohlig and Hellman 1978) and looks for the pair of records
that leaves an obfuscator with a short logarithm: none at all (ρ = 1) or a short exponent stands out, a standard one
does not.
"""

from __future__ import annotations

import secrets
from itertools import combinations

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from tests.library.ciphertexts import batch, integers
from treetap.additive.paillier.public_key import Packer
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.trees.slots import Slots
from treetap.workers.engines import InProcessEngine

RECORDS = 24
SUMMED = (5, 17)  # the two records of the small bin
SHORT = 256
SLOTS = Slots((30, 10))


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
            return SecretKey.from_primes(p, q), p, factors


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
    engine = InProcessEngine()
    sums = EncryptedSums(engine, key.public, SLOTS, codes, [(2, False)], "t")
    await sums.add_block(np.arange(RECORDS), blob)
    packed = await sums.candidates(None, np.arange(1))
    assert SLOTS.decode(key.decrypt_many(packed)[0], 1).tolist() == [[sum(SUMMED) - 18, 2]]
    base = int(gmpy2.powmod(h, key.public.n, attacker.p))
    assert attacker.pairs(sent, integers(key.public, packed)[0], base) == []
