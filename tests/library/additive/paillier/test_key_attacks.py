"""The attacks that keys of another form carry, and that such keys have no proof: tests/setup has them in jobs."""

from __future__ import annotations

import random
import secrets
import warnings

import pytest
from gmpy2 import invert, mpz, powmod

from tests.forged_proofs import Factored, last_prime, prime
from treetap.additive.paillier.key_proof import check
from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.comparison import bits_of, blinded
from treetap.errors import Malformed

JOB = b"a job, an attempt and a party"
BITS = 16  # of a compared number


@pytest.mark.second_tier
def test_one_comparison_under_a_smooth_modulus_opens_the_number() -> None:
    """A challenger that sends no bits reads all of the champion's, each modulo a factor of its own.

    Modulo the k-th factor each "bit" x_j of the challenger but the k-th is 1/2, so that x_j ⊕ y_j is 1/2 whatever y_j
    is, and x_k makes c_k equal −y_k. So the factor divides one of the blinded numbers exactly if y_k = 0.
    """
    draw = random.Random(8)
    factors = list({prime(draw, 24) for _ in range(BITS + 4)})[:BITS]
    rest = last_prime(draw, 1024, *factors)
    n = mpz(Factored.of(*factors, rest).n)
    public = PublicKey(int(n))  # which no key's holder finds wrong
    sent = [mpz(0)] * BITS
    for k, factor in enumerate(factors):
        half = invert(2, factor)
        for j in range(BITS):
            number = (-1 - 3 * (BITS - 1 - k) * half) % factor if j == k else half
            sent[j] += number * (n // factor) * invert(n // factor, factor)
    bits = public.write(public.encrypt([public.signed(each % n) for each in sent], public.standard(BITS)))
    for _ in range(3):
        gain = secrets.randbelow(1 << BITS)
        answer = public.ring.numbers(public.read(blinded(public, bits, gain)))
        read = [
            0 if any(powmod(c, factor - 1, factor**2) == 1 for c in answer) else 1  # a plaintext that it divides
            for factor in factors
        ]
        assert read == bits_of(gain, BITS)
    with pytest.raises(Malformed, match="a fourth root is none"):
        check(n, Factored.of(*factors, rest).forged(draw, JOB)[0], JOB)


def test_marks_beside_a_plaintext_survive_noise() -> None:
    """A p that divides q − 1: an n-th power says nothing modulo q of powers of order p: marks of records add up there.

    The label holder gives each of 20 records another mark. A feature party adds up some of them, adds noise to the sum,
    re-randomises; the sum of marks is exact, and names the records.
    """
    draw = random.Random(9)
    p = prime(draw, 24)
    q = last_prime(draw, 512, p, beside=p)
    with warnings.catch_warnings(action="ignore"):
        key = SecretKey(p, q, allow_breakable=True)
    public, n = key.public, key.public.n
    generator = next(u for u in range(2, 100) if powmod(u, (q - 1) // p, q) != 1)
    mark = powmod(generator, q, q * q) - 1  # 1 modulo p², and this beyond 1 modulo q²
    mark = (1 + mpz(p) ** 2 * (mark * invert(mpz(p) ** 2, mpz(q) ** 2) % (mpz(q) ** 2))) % public.n_squared
    records, noise = range(20), 12_345
    encrypted = public.ring.numbers(public.encrypt([1] * len(records), public.standard(len(records))))
    marked = [c * powmod(mark, 1 << each, public.n_squared) % public.n_squared for each, c in enumerate(encrypted)]
    left = [each for each in records if secrets.randbits(1)]
    total = mpz(1)
    for each in left:
        total = total * marked[each] % public.n_squared
    answer = public.rerandomise_standard(public.shifted(public.ring.batch([total]), [noise]))
    assert key.decrypt_many(public.write(answer)) == [len(left) + noise]
    (seen,) = public.ring.numbers(answer)
    one = powmod(powmod(generator, q, q), (q - 1) // p, q)
    power = _logarithm(one, powmod(seen, (q - 1) // p, q), q)
    assert [each for each in records if power >> each & 1] == left
    with pytest.raises(Malformed, match="an n-th root is none"):
        check(n, Factored.of(p, q).forged(draw, JOB)[0], JOB)


def _logarithm(base: mpz, power: mpz, modulus: int) -> int:
    """The exponent below 2^20 by small and large steps."""
    small = {powmod(base, step, modulus): step for step in range(1 << 10)}
    large = invert(powmod(base, 1 << 10, modulus), modulus)
    for step in range(1 << 10):
        if power in small:
            return (step << 10) + small[power]
        power = power * large % modulus
    raise AssertionError("the exponent is larger")
