"""Proof that a list is another one, raised point by point in its order by the exponent of a key that was sent before.

The key is K = n·B, B the base point of edwards25519 and n the clamped number of the exponent. Lists know points by u
alone, where a point and its negative are one; here P_i is the point of the list with the even v, and the raised list
has a sign beside each point: n·P_i is Q_i, its point with the even v, or -Q_i. The list's owner draws numbers c_i,
which it tells nobody, and forms a sum over each list:

    S = Σ c_i·P_i        T = Σ c_i·(±Q_i)

Once the raised list is back, with its signs, it sends S. The other party answers n·S and proves that
log_B(K) = log_S(n·S) without telling it: with a random r, A = r·B and A' = r·S, challenge
e = H(statement, K, S, n·S, A, A') and response z = r + e·n modulo ℓ, checked by A = z·B - e·K and A' = z·S - e·n·S
(Chaum and Pedersen, CRYPTO 1992; sums of many by small random numbers: Bellare, Garay and Rabin, EUROCRYPT 1998). The
owner then compares n·S with T.

It holds for every i but with probability 2⁻¹²⁸: all P_i, Q_i and K are of the group of prime order ℓ, which the checks
of lists and `valid_key` see to, so no part of low order and no point of the twist can hide in a sum; were one
±Q_i not n·P_i, of all values of its c_i, 2¹²⁸ numbers that differ modulo ℓ, one alone would make T = n·S, and all
points and signs are fixed before anything that depends on a c_i is sent. In a ring S goes around, and each party raises
and proves what came. The statement has the names of both parties in their roles, the job, the attempt and both keys: a
proof that is sent back to its maker, or one of another job or attempt, is none. T = n·S alone does not do: who sends
the other's points and key times a number of its own, and has its own sum raised, has n·S without knowing n.
The c_i choose addresses in the kernel of sums, hence are secret from those alone who watch no cache of this processor.

Who proves gives n·P_i in full where a list alone gives ±n·P_i. If numbers n·P look random to those who know P and K
alone (decisional Diffie-Hellman), so does the bit: the list tells no less. S can be any point: the owner learns what
one id more in its list would tell.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gmpy2 import invert, mpz
from nacl import bindings
from nacl.exceptions import CryptoError

from treetap.native.curve import WINDOWS
from treetap.psi.group import ORDER, POINT_BYTES, PRIME, Exponent

#: Separates this use of the hashes from every other.
DOMAIN = b"treetap alignment proof 2\x00"
SCALAR_BYTES = 32
#: Points whose numbers c_i come from one call of SHAKE-256.
NUMBERS_AT_ONCE = 4_096
_P, _D = mpz(PRIME), mpz(-121665) * invert(mpz(121666), mpz(PRIME)) % PRIME
#: x, y, z, t of edwards25519.
_Extended: TypeAlias = "tuple[mpz, mpz, mpz, mpz]"
_NEUTRAL: _Extended = (mpz(0), mpz(1), mpz(1), mpz(0))


@dataclass(frozen=True)
class Claim:
    """The claim of a proof, without the lists: who proves, to whom, in which attempt at which job.

    `digest`: of the job, 32 bytes. `key`, `other_key`: the prover's and the verifier's, 32 bytes each.
    """

    job: str
    digest: bytes
    attempt: int
    prover: str
    verifier: str
    key: bytes
    other_key: bytes

    def statement(self, hop: int) -> bytes:
        """64 bytes that a proof is bound to; `hop`: the number of parties that have raised the sum before."""
        state = hashlib.sha512(DOMAIN)
        texts = (self.job.encode(), self.digest, self.prover.encode(), self.verifier.encode())
        numbers = (number.to_bytes(8, "little") for number in (self.attempt, hop))
        for part in (*texts, self.key, self.other_key, *numbers):
            state.update(len(part).to_bytes(8, "little") + part)
        return state.digest()


def digits_of(numbers: bytes, first: int, last: int) -> bytes:
    """The c_i of points `first` to before `last`, from a seed: WINDOWS digits of a byte each, see `sum_multiples`."""
    begin = first // NUMBERS_AT_ONCE
    blocks = range(begin, -(-last // NUMBERS_AT_ONCE))
    drawn = b"".join(
        hashlib.shake_256(DOMAIN + numbers + block.to_bytes(8, "little")).digest(WINDOWS * NUMBERS_AT_ONCE)
        for block in blocks
    )
    return drawn[WINDOWS * (first - begin * NUMBERS_AT_ONCE) :][: WINDOWS * (last - first)]


@dataclass
class Sums:
    """The sums of multiples of parts of a list, added up; `numbers`: the seed of the c_i."""

    numbers: bytes
    windows: list[_Extended] = field(default_factory=lambda: [_NEUTRAL] * WINDOWS)

    def add(self, block: bytes) -> None:
        """Add what `Curve.sum_multiples` returned for some points."""
        numbers = [mpz.from_bytes(block[at : at + POINT_BYTES], "little") for at in range(0, len(block), POINT_BYTES)]
        parts = (numbers[WINDOWS * part : WINDOWS * (part + 1)] for part in range(4))
        self.windows = [_plus(own, more) for own, more in zip(self.windows, zip(*parts, strict=True), strict=True)]

    def encoded(self) -> bytes:
        """The sum of all windows, each times its power of 256, as 32 bytes of edwards25519."""
        total = _NEUTRAL
        for window in reversed(self.windows):
            for _ in range(8):
                total = _plus(total, total)
            total = _plus(total, window)
        x, y, z, _ = total
        inverse = invert(z, _P)
        encoded: bytes = (y * inverse % _P | (x * inverse % _P & 1) << 255).to_bytes(POINT_BYTES, "little")
        return encoded


def _plus(p: Sequence[mpz], q: Sequence[mpz]) -> _Extended:
    """ "add-2008-hwcd-3" of the Explicit-Formulas Database: complete on this curve."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % _P, (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * _D * p[3] * q[3] % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def key_of(exponent: Exponent) -> bytes:
    """K, 32 bytes."""
    key: bytes = bindings.crypto_scalarmult_ed25519_base_noclamp(exponent.for_kernel())
    return key


def valid_key(key: bytes) -> bool:
    """True for an encoding of a point of the group, but for its neutral element."""
    return len(key) == POINT_BYTES and bool(bindings.crypto_core_ed25519_is_valid_point(key))


def same_but_for_sign(one: bytes, other: bytes) -> bool:
    """True for two encodings of one point, or of a point and its negative: one exponent tells the other."""
    return len(one) == len(other) == POINT_BYTES and one[:-1] == other[:-1] and one[-1] & 127 == other[-1] & 127


def raised_by(exponent: Exponent, source: bytes) -> bytes:
    """A point of the group times the exponent's number, 32 bytes."""
    raised: bytes = bindings.crypto_scalarmult_ed25519_noclamp(exponent.for_kernel(), source)
    return raised


def prove(exponent: Exponent, claim: Claim, statement: bytes, source: bytes) -> tuple[bytes, bytes]:
    """Challenge and response for S = `source`, 32 bytes each."""
    number, nonce = exponent.for_kernel(), (1 + secrets.randbelow(ORDER - 1)).to_bytes(SCALAR_BYTES, "little")
    raised = raised_by(exponent, source)
    nonces = (
        bindings.crypto_scalarmult_ed25519_base_noclamp(nonce),
        bindings.crypto_scalarmult_ed25519_noclamp(nonce, source),
    )
    challenge = _challenge(statement, (claim.key, source, raised, *nonces))
    reduced = bindings.crypto_core_ed25519_scalar_reduce(number + bytes(SCALAR_BYTES))
    product = bindings.crypto_core_ed25519_scalar_mul(challenge, reduced)
    return challenge, bindings.crypto_core_ed25519_scalar_add(nonce, product)


def holds(claim: Claim, statement: bytes, sums: tuple[bytes, bytes], proof: tuple[bytes, bytes]) -> bool:
    """True if a proof, challenge and response, shows log_B(K) = log_S(T); `sums`: S and T."""
    (source, raised), (challenge, response) = sums, proof
    if any(len(part) != SCALAR_BYTES or int.from_bytes(part, "little") >= ORDER for part in proof):
        return False
    multiply, base = bindings.crypto_scalarmult_ed25519_noclamp, bindings.crypto_scalarmult_ed25519_base_noclamp
    try:
        nonces = [
            bindings.crypto_core_ed25519_sub(forward, multiply(challenge, back))
            for forward, back in ((base(response), claim.key), (multiply(response, source), raised))
        ]
    except CryptoError:  # a scalar of 0, or a sum that is the neutral element
        return False
    return _challenge(statement, (claim.key, source, raised, *nonces)) == challenge


def _challenge(statement: bytes, points: Iterable[bytes]) -> bytes:
    challenge: bytes = bindings.crypto_core_ed25519_scalar_reduce(
        hashlib.sha512(DOMAIN + statement + b"".join(points)).digest()
    )
    return challenge
