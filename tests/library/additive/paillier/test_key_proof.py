"""Proofs of a modulus's form: those of the paper's text, for no other modulus, and for nothing else."""

from __future__ import annotations

import hashlib
import math
import random
import secrets
from collections.abc import Iterator

import pytest
from gmpy2 import mpz
from scipy import stats

from tests.forged_proofs import Factored, prime
from treetap.additive.paillier.key_proof import ROUNDS, challenges, check, prove
from treetap.errors import Malformed
from treetap.native import arithmetic
from treetap.native.library import forms

DRAW = random.Random(20)
P, Q = prime(DRAW, 256), prime(DRAW, 256)
N = P * Q
WIDTH = 64
JOB = b"a job, an attempt and a party"
#: Where each part of a proof begins.
W, SIGNS, TWISTS, FOURTH, NTH = 0, WIDTH, WIDTH + 16, WIDTH + 32, WIDTH + 32 + ROUNDS * WIDTH


@pytest.fixture(autouse=True, params=["gmpy2", forms()[0]])
def _by_either_arithmetic(request: pytest.FixtureRequest) -> Iterator[None]:
    before = arithmetic.in_use()
    arithmetic.use(request.param)
    yield
    arithmetic.use(before)


def _drawn(n: int, w: int, bound_to: bytes) -> list[int]:
    """The challenges by their description: SHAKE-256 over parts with their lengths, a place and a draw."""
    width, drawn = -(-n.bit_length() // 8), list[int]()
    domain = b"treetap Paillier-Blum modulus, CGGMP21 figure 16"
    parts = (domain, n.to_bytes(width, "big"), bound_to, w.to_bytes(width, "big"))
    said = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    for place in range(ROUNDS):
        numbers = (
            int.from_bytes(hashlib.shake_256(said + bytes([0, 0, 0, place, 0, 0, 0, draw])).digest(width), "big")
            for draw in range(256)
        )
        below = (number >> (8 * width - n.bit_length()) for number in numbers)
        drawn.append(next(y for y in below if y < n))
    return drawn


def _jacobi(a: int, n: int) -> int:
    """The Jacobi symbol by quadratic reciprocity."""
    a, sign = a % n, 1
    while a:
        while a % 2 == 0:
            a //= 2
            sign = -sign if n % 8 in (3, 5) else sign
        a, n = n, a
        sign = -sign if a % 4 == n % 4 == 3 else sign
        a %= n
    return sign if n == 1 else 0


def _figure_16(n: int, proof: bytes) -> bool:
    """The verifier of the paper's figure, in Python's integers, and the canonical form of numbers."""
    width = -(-n.bit_length() // 8)
    w, a, b = (int.from_bytes(part, "big") for part in (proof[:width], proof[width:][:16], proof[width + 16 :][:16]))
    rest = proof[width + 32 :]
    roots = [int.from_bytes(rest[at : at + width], "big") for at in range(0, len(rest), width)]
    composite = n % 2 == 1 and any(pow(base, n - 1, n) != 1 for base in (2, 3, 5, 7))
    if not composite or _jacobi(w, n) != -1 or len(roots) != 2 * ROUNDS or not all(0 < x < n for x in (w, *roots)):
        return False
    for place, y in enumerate(_drawn(n, w, JOB)):
        sign, twist = (bits >> (ROUNDS - 1 - place) & 1 for bits in (a, b))
        x, z = roots[place], roots[ROUNDS + place]
        if pow(z, n, n) != y or pow(x, 4, n) != (-1) ** sign * w**twist * y % n:
            return False
    return True


def _accepted(n: int, proof: bytes, bound_to: bytes = JOB) -> bool:
    try:
        check(mpz(n), proof, bound_to)
    except Malformed:
        return False
    return True


@pytest.mark.second_tier(but=1)
def test_honest_proofs_are_the_papers() -> None:
    """The figure's verifier takes ours; ours takes those of a prover of another kind; none is repeated."""
    proof = prove(mpz(P), mpz(Q), JOB)
    assert len(proof) == (1 + 2 * ROUNDS) * WIDTH + ROUNDS // 4
    assert _accepted(N, proof)
    assert _figure_16(N, proof)
    other, good = Factored.of(P, Q).forged(DRAW, JOB)
    assert good == ROUNDS
    assert _accepted(N, other)
    assert _figure_16(N, other)
    assert prove(mpz(P), mpz(Q), JOB)[:FOURTH] != proof[:FOURTH]


def test_challenges_are_as_described() -> None:
    """Of moduli whose length is a whole number of bytes, or not."""
    for n in (N, 5 * N, 2**509 + 111):
        w = secrets.randbelow(n)
        assert challenges(mpz(n), mpz(w), JOB) == _drawn(n, w, JOB)
        assert challenges(mpz(n), mpz(w), JOB) != challenges(mpz(n), mpz(w ^ 1), JOB)


def _moduli() -> dict[str, tuple[Factored, str]]:
    """Modulus → its factors, and why its best proof is refused."""
    draw = random.Random(3)
    p, q, r = (prime(draw, 170) for _ in range(3))
    divisor = prime(draw, 60)
    primes = set[int]()
    while len(primes) < 67:
        primes.add(prime(draw, 24))
    return {
        "67 factors of 24 bits": (Factored.of(*primes), "a fourth root is none"),
        "three primes": (Factored.of(p, q, r), "a fourth root is none"),
        "a square": (Factored.of(p, p), "Jacobi symbol"),
        "a square times a prime": (Factored.of(p, p, q), "an n-th root is none"),
        "even": (Factored.of(2, p, q), "even or prime, or it has a small factor"),
        "prime": (Factored.of(p), "even or prime, or it has a small factor"),
        "p divides q - 1": (Factored.of(divisor, prime(draw, 400, beside=divisor)), "an n-th root is none"),
        "p is 1 modulo 4": (Factored.of(prime(draw, 256, 5, 8), q), "a fourth root is none"),
        "both are 1 modulo 4": (Factored.of(prime(draw, 256, 5, 8), prime(draw, 256, 5, 8)), "a fourth root is none"),
        "a small factor": (Factored.of(19, prime(draw, 500)), "even or prime, or it has a small factor"),
    }


MODULI = _moduli()


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", MODULI)
def test_no_other_modulus_has_a_proof(name: str) -> None:
    """Refused though its maker does what it can; by the figure too, but for the size of factors, which is ours."""
    modulus, fault = MODULI[name]
    proof, good = modulus.forged(DRAW, JOB)
    with pytest.raises(Malformed, match=fault):
        check(mpz(modulus.n), proof, JOB)
    assert (good == ROUNDS) is (name in ("prime", "a small factor"))
    assert _figure_16(modulus.n, proof) is (name == "a small factor")


def test_a_proof_is_for_one_modulus_and_one_purpose() -> None:
    """Not for another modulus of the same length, and not for another job, attempt or party."""
    proof = prove(mpz(P), mpz(Q), JOB)
    assert not _accepted(P * prime(DRAW, 256), proof)
    for bound_to in (b"", JOB + b"!", JOB[:-1], b"another job, an attempt and a party"):
        assert not _accepted(N, proof, bound_to)


@pytest.mark.parametrize("at", [W, SIGNS, TWISTS, FOURTH, NTH], ids=["w", "a", "b", "x", "z"])
def test_nothing_in_a_proof_may_change(at: int) -> None:
    """A bit of w, of the signs, of the twists and of either root; both verifiers agree."""
    proof = bytearray(prove(mpz(P), mpz(Q), JOB))
    proof[at + 1] ^= 1
    assert not _accepted(N, bytes(proof))
    assert not _figure_16(N, bytes(proof))


def test_numbers_have_one_form() -> None:
    """Those of n and more, and zero, are refused, as is another length."""
    proof = prove(mpz(P), mpz(Q), JOB)
    for at, number in ((W, N), (FOURTH, 0), (NTH, N), (NTH + WIDTH, 2**512 - 1)):
        with pytest.raises(Malformed, match="below n"):
            check(mpz(N), proof[:at] + number.to_bytes(WIDTH, "big") + proof[at + WIDTH :], JOB)
    for wrong in (b"", proof[:-1], proof + b"\0", proof[:FOURTH]):
        with pytest.raises(Malformed, match=f"has {len(proof)} bytes, this one {len(wrong)}"):
            check(mpz(N), wrong, JOB)
    opposite = N - int.from_bytes(proof[FOURTH : FOURTH + WIDTH], "big")  # another fourth root is one as well
    assert _accepted(N, proof[:FOURTH] + opposite.to_bytes(WIDTH, "big") + proof[FOURTH + WIDTH :])


@pytest.mark.second_tier
def test_three_primes_pass_half_of_the_rounds() -> None:
    """Of proofs of eight rounds one in 256 passes, with a new w each: 128 rounds leave 2^-128."""
    draw, tries, rounds = random.Random(5), 1000, 8
    modulus = Factored.of(*(prime(draw, 20) for _ in range(3)))
    passed, good = 0, 0
    for number in range(tries):
        proof, fitting = modulus.forged(draw, number.to_bytes(2, "big"), rounds)
        good += fitting
        try:
            check(mpz(modulus.n), proof, number.to_bytes(2, "big"), rounds)
        except Malformed:
            continue
        assert fitting == rounds
        passed += 1
    assert stats.binomtest(good, tries * rounds, 0.5).pvalue > 1e-3
    assert stats.binomtest(passed, tries, 0.5**rounds).pvalue > 1e-3
    assert passed


def test_roots_say_nothing_of_the_factors() -> None:
    """Every x is the fourth root that is a square modulo both primes; another one beside it would factor n."""
    proof = prove(mpz(P), mpz(Q), JOB)
    roots = [int.from_bytes(proof[at : at + WIDTH], "big") for at in range(FOURTH, NTH, WIDTH)]
    assert all(pow(x, (each - 1) // 2, each) == 1 for x in roots for each in (P, Q))
    other = pow(P, -1, Q) * P * roots[0] - pow(Q, -1, P) * Q * roots[0]  # x modulo Q, -x modulo P
    assert pow(other, 4, N) == pow(roots[0], 4, N)
    assert math.gcd(other - roots[0], N) in (P, Q)
