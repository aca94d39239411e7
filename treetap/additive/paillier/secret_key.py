"""Paillier's secret half: the only file that can decrypt.

The owner works modulo p² and q² and joins by the Chinese remainder theorem. Three kinds of obfuscator:

* standard: s^p mod p² and t^q mod q² for uniform s ∈ Z*_p, t ∈ Z*_q. This is r^n for uniform r ∈ Z*_n: modulo p² it is
  ((r mod p)^q)^p, and raising to q permutes Z*_p because gcd(q, p-1) = 1.
* half-length: h_n^a, h_n = (-y²)^n, one exponent a of ceil(|n|/2) bits (Damgård, Jurik and Nielsen 2010, §4.2).
* short-exponent: independent exponents of at least 256 bits modulo p² and modulo q². Assumes that discrete logarithms
  with 256-bit exponents are hard in a group whose order the reader does not know: only for readers without the key.

Arithmetic is not constant-time: an attacker that can time this process on its own machine is outside the trust model.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NoReturn

import gmpy2
from gmpy2 import mpz

from treetap.additive.paillier.key_proof import prove
from treetap.additive.paillier.public_key import (
    SHORT_EXPONENT_BITS,
    PublicKey,
    check_key_bits,
    random_unit,
    residues,
)
from treetap.additive.residues.batches import Batch, power
from treetap.additive.residues.fixed_base import FixedBase, random_exponents
from treetap.errors import BadInput, Malformed
from treetap.protocols import key_options


class SecretKey:
    """Generates keys, encrypts fast, decrypts. It cannot be pickled and its repr shows no secret."""

    __slots__ = (
        "_h_p",
        "_h_q",
        "_p",
        "_p_inverse",
        "_q",
        "_rings",
        "_tables",
        "public",
    )

    def __init__(self, p: int, q: int, allow_breakable: bool = False) -> None:
        self._p, self._q = mpz(p), mpz(q)
        self.public = PublicKey(p * q, allow_breakable)
        n = self.public.n
        largest = 2 * max(self._p.bit_length(), self._q.bit_length())
        self._rings = residues(self._p**2, largest), residues(self._q**2, largest)
        self._p_inverse = gmpy2.invert(self._p, self._q)
        # L((1 + n)^(p-1) mod p²) = (p-1)·q mod p, inverted once (Paillier 1999, §7).
        self._h_p = gmpy2.invert((self._p - 1) * (n // self._p), self._p)
        self._h_q = gmpy2.invert((self._q - 1) * (n // self._q), self._q)
        self._tables: dict[str, tuple[FixedBase, FixedBase]] = {}

    def __repr__(self) -> str:
        return f"SecretKey({self.public.bits} bits)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key is not pickled, copied or stored")

    @classmethod
    def generate(cls, bits: int = 2048, allow_breakable: bool = False) -> SecretKey:
        """A fresh key whose n has exactly `bits` bits, p ≡ q ≡ 3 (mod 4) and gcd(p-1, q-1) = 2.

        Raises:
            BadInput: a size that is not offered.
        """
        check_key_bits(bits, allow_breakable)
        while True:
            p, q = _blum_prime(bits // 2), _blum_prime(bits // 2)
            if p != q and gmpy2.gcd(p - 1, q - 1) == 2 and gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1:
                return cls(int(p), int(q), allow_breakable)

    def prove(self, bound_to: bytes) -> bytes:
        """A fresh proof that n is a Paillier–Blum modulus, as those of `generate` are; see `key_proof`."""
        return prove(self._p, self._q, bound_to, key_options.PROOF_ROUNDS)

    def prepare(self, kind: str) -> None:
        """Build the tables of an obfuscation now instead of at first use.

        Raises:
            BadInput: an unknown kind, or a short kind under a key that is not fit for it.
        """
        if kind not in key_options.OBFUSCATIONS:
            raise BadInput(f"obfuscation is one of {', '.join(key_options.OBFUSCATIONS)}, not {kind!r}")
        if kind == "standard" or kind in self._tables:
            return
        if self._p % 4 != 3 or self._q % 4 != 3 or gmpy2.gcd(self._p - 1, self._q - 1) != 2:
            raise BadInput(
                f"{kind} obfuscation needs p ≡ q ≡ 3 (mod 4) and gcd(p-1, q-1) = 2, which this imported key lacks: "
                "use standard or a key made by treetap"
            )
        n = self.public.n
        y = random_unit(n)
        base = -y * y % n
        of_p, of_q = self._rings
        self._tables[kind] = (
            FixedBase(of_p, gmpy2.powmod(base, n, of_p.modulus), self._exponent_bits(kind)),
            FixedBase(of_q, gmpy2.powmod(base, n, of_q.modulus), self._exponent_bits(kind)),
        )

    def encrypt_many(self, plains: Iterable[int], kind: str) -> bytes:
        """Encrypt signed plaintexts, |plain| < n/2, each with its own fresh obfuscator.

        Returns:
            One big-endian block of `public.ciphertext_bytes` per plaintext, concatenated.

        Raises:
            BadInput: see `prepare`.
            PlaintextOverflow: a plaintext is too large for the key.
        """
        messages = [int(plain) for plain in plains]
        for message in messages:
            self.public.check_plain(message)
        n, width = int(self.public.n), -(-self.public.bits // 8)
        residues_of_n = b"".join([(message % n).to_bytes(width, "big") for message in messages])
        halves = []
        for ring, obfuscators in zip(self._rings, self._obfuscators(len(messages), kind), strict=True):
            # 1 + m·n modulo p² or q²: modulo n² it is the same, joined
            plain = ring.add(ring.multiples(residues_of_n, width, n), ring.ones(1))
            halves.append(ring.multiply(plain, obfuscators))
        return self._rings[0].join(halves[0], self._rings[1], halves[1], self.public.ciphertext_bytes)

    def _obfuscators(self, count: int, kind: str) -> tuple[Batch, Batch]:
        """`count` fresh obfuscators, modulo p² and modulo q²."""
        self.prepare(kind)
        if kind == "standard":
            return self._standard(0, self._p, count), self._standard(1, self._q, count)
        left, right = self._tables[kind]
        exponents = random_exponents(count, self._exponent_bits(kind))
        # half-length: one exponent modulo both, as it is one power modulo n²
        others = exponents if kind == "half-length" else random_exponents(count, self._exponent_bits(kind))
        return left.powers(exponents), right.powers(others)

    def _standard(self, side: int, prime: mpz, count: int) -> Batch:
        """s^prime modulo prime² of fresh units s."""
        ring = self._rings[side]
        return power(ring, ring.batch([random_unit(prime) for _ in range(count)]), int(prime))

    def _exponent_bits(self, kind: str) -> int:
        return SHORT_EXPONENT_BITS if kind == "short-exponent" else -(-self.public.bits // 2)

    def decrypt_many(self, ciphertexts: bytes) -> list[int]:
        """Decrypt concatenated ciphertexts to signed plaintexts in (-n/2, n/2).

        Raises:
            Malformed: not whole ciphertexts, or a number that is no ciphertext under this key.
        """
        p, q, width = self._p, self._q, self.public.ciphertext_bytes
        self.public.check_blocks(ciphertexts)
        # Paillier 1999, §7: decryption modulo p and q apart, L_p(x) = (x - 1) / p.
        powers = [
            ring.numbers(power(ring, ring.multiples(ciphertexts, width, 1), int(prime - 1)))
            for ring, prime in zip(self._rings, (p, q), strict=True)
        ]
        plains = []
        for of_p, of_q in zip(*powers, strict=True):
            left, p_rest = gmpy2.f_divmod(of_p - 1, p)
            right, q_rest = gmpy2.f_divmod(of_q - 1, q)
            if p_rest or q_rest:
                raise Malformed("a ciphertext shares a factor with n: it is no ciphertext under this key")
            low = left * self._h_p % p
            high = right * self._h_q % q
            plains.append(self.public.signed(low + p * ((high - low) * self._p_inverse % q)))
        return plains


def _blum_prime(bits: int) -> mpz:
    """Random prime ≡ 3 (mod 4) with its two top bits set, so that a product of two has exactly 2·bits bits."""
    while True:
        candidate = mpz(secrets.randbits(bits)) | (mpz(3) << (bits - 2)) | 3
        if gmpy2.is_prime(candidate, 40):
            return candidate
