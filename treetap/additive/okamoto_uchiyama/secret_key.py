"""Okamoto and Uchiyama's secret half: the only file of the scheme that can decrypt.

The owner works modulo p² and modulo q and joins by the Chinese remainder theorem. The n-th powers are the numbers x
with x^(p-1) = 1 modulo p², any modulo q: what decryption sees of g^m · r^n is the part of g^m whose order is p.

Two kinds of obfuscator (`treetap.additive.okamoto_uchiyama.public_key`):

* standard: s^p mod p² and t mod q for uniform s ∈ Z*_p, t ∈ Z*_q. This is r^n for uniform r ∈ Z*_n: modulo p² it is
  ((r mod p)^q)^p, and raising to q permutes Z*_p, as raising to p² permutes Z*_q, because no prime divides the order of
  the other's units. It hides the part of g^m that is an n-th power, so (1 + p)^x with the same logarithm as g^m takes
  the place of g^m.
* short-exponent: powers of h = g^n with independent exponents of 256 bits modulo p² and modulo q. Assumes that discrete
  logarithms with 256-bit exponents are hard in a group whose order the reader does not know.

g = -y² for a uniform y: a non-residue modulo both primes, as both are 3 modulo 4, so that h has all of the group's
2-part and powers of it both Jacobi symbols. Exponents 2^b + m, b = bits of the largest |m|, are positive without an
inversion; g^(-2^b) takes it back.

Arithmetic is not constant-time: an attacker that can time this process on its own machine is outside the trust model.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NoReturn

import gmpy2
import numpy as np
from gmpy2 import mpz

from treetap.additive.okamoto_uchiyama.public_key import PublicKey, check_key_bits, check_obfuscation
from treetap.additive.residues.batches import Batch, power
from treetap.additive.residues.ciphertexts import SHORT_EXPONENT_BITS, random_unit, residues
from treetap.additive.residues.fixed_base import LARGEST_TABLE, Exponents, FixedBase, random_exponents
from treetap.errors import Malformed


class SecretKey:
    """Generates keys, encrypts fast, decrypts. It cannot be pickled and its repr shows no secret."""

    __slots__ = ("_g", "_g_slope", "_of_g", "_of_h", "_p", "_plain_bits", "_q", "_rings", "public")

    def __init__(self, p: int, q: int, g: int, allow_breakable: bool = False) -> None:
        self._p, self._q, self._g = mpz(p), mpz(q), mpz(g)
        self.public = PublicKey(p * p * q, allow_breakable)
        self._rings = residues(self._p**2), residues(self._q)
        # L(g^(p-1) mod p²) mod p, which decryption divides by
        self._g_slope = self._logarithm(gmpy2.powmod(self._g, self._p - 1, self._p**2))
        self._of_h: tuple[FixedBase, FixedBase] | None = None
        self._of_g: tuple[FixedBase, FixedBase] | None = None
        self._plain_bits = 0  # that the tables of g are for

    def __repr__(self) -> str:
        return f"SecretKey({self.public.bits} bits)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key is not pickled, copied or stored: hand it to a worker with for_worker()")

    @classmethod
    def generate(cls, bits: int = 2048, allow_breakable: bool = False) -> SecretKey:
        """A fresh key whose n has exactly `bits` bits, p ≡ q ≡ 3 (mod 4) and gcd(p-1, q-1) = 2.

        Raises:
            BadInput: a size that is not offered.
        """
        check_key_bits(bits, allow_breakable)
        while True:
            p, q = _blum_prime(bits), _blum_prime(bits)
            if p != q and gmpy2.gcd(p - 1, q - 1) == 2 and gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1:
                break
        n = p * p * q
        while True:
            y = random_unit(n)
            g = -y * y % n
            if gmpy2.powmod(g, p - 1, p * p) != 1:
                return cls(int(p), int(q), int(g), allow_breakable)

    def for_worker(self) -> bytes:
        """The key for a worker process of the same party, over its private pipe: the only way by which it leaves."""
        width = -(-self.public.bits // 8)
        return b"".join(int(part).to_bytes(width, "big") for part in (self._p, self._q, self._g))

    @classmethod
    def from_worker(cls, data: bytes) -> SecretKey:
        """The key in the worker; its size was accepted where it was made."""
        width = len(data) // 3
        p, q, g = (int.from_bytes(data[at : at + width], "big") for at in (0, width, 2 * width))
        return cls(p, q, g, allow_breakable=True)

    def prove(self, bound_to: bytes) -> bytes:
        """Nothing: the scheme has no proof of a key's form."""
        del bound_to
        return b""

    def prepare(self, kind: str, plain_bits: int = 0) -> None:
        """Build the tables of an obfuscation, and for plaintexts of `plain_bits` bits, now instead of at first use.

        Raises:
            BadInput: the scheme has no such obfuscation.
        """
        check_obfuscation(kind)
        if kind == "standard":
            return
        if self._of_h is None:
            h = gmpy2.powmod(self._g, self.public.n, self.public.n)
            self._of_h = self._tables(h, SHORT_EXPONENT_BITS)
        if self._of_g is None or self._plain_bits < plain_bits:
            self._plain_bits = plain_bits
            self._of_g = self._tables(self._g, plain_bits + 1)

    def encrypt_many(self, plains: Iterable[int], kind: str) -> bytes:
        """Encrypt signed plaintexts of up to `public.plain_bits` bits, each with its own fresh obfuscator.

        Returns:
            One big-endian block of `public.ciphertext_bytes` per plaintext, concatenated.

        Raises:
            BadInput: see `prepare`.
            PlaintextOverflow: a plaintext is too large for the key.
        """
        messages = [int(plain) for plain in plains]
        self.public.check_plains(messages)
        self.prepare(kind, max((message.bit_length() for message in messages), default=1))
        of_p, of_q = self._rings
        low, high = self._standard(messages) if kind == "standard" else self._short(messages)
        return of_p.join(low, of_q, high, self.public.ciphertext_bytes)

    def decrypt_many(self, ciphertexts: bytes) -> list[int]:
        """Decrypt concatenated ciphertexts to signed plaintexts in (-p/2, p/2).

        Raises:
            Malformed: not whole ciphertexts, or a number that is no ciphertext under this key.
        """
        p, q, width = self._p, self._q, self.public.ciphertext_bytes
        self.public.check_blocks(ciphertexts)
        of_p, _ = self._rings
        powers = of_p.numbers(power(of_p, of_p.multiples(ciphertexts, width, 1), int(p - 1)))
        inverse, half = gmpy2.invert(self._g_slope, p), p >> 1
        plains = []
        for place, number in enumerate(powers):
            if number % p == 0 or mpz.from_bytes(ciphertexts[place * width : (place + 1) * width], "big") % q == 0:
                raise Malformed("a ciphertext shares a factor with n: it is no ciphertext under this key")
            plain = self._logarithm(number) * inverse % p
            plains.append(int(plain - p if plain > half else plain))
        return plains

    def _logarithm(self, number: mpz) -> mpz:
        """L(x) = (x - 1) / p of x ≡ 1 (mod p), x below p²."""
        return (number - 1) // self._p

    def _tables(self, base: mpz, exponent_bits: int) -> tuple[FixedBase, FixedBase]:
        """Tables of one base, modulo p² and modulo q."""
        of_p, of_q = (
            FixedBase(ring, base, exponent_bits, limit=3 * LARGEST_TABLE // 4)  # there are four, not two
            for ring in self._rings
        )
        return of_p, of_q

    def _standard(self, messages: Sequence[int]) -> tuple[Batch, Batch]:
        """Ciphertexts under standard obfuscators, modulo p² and modulo q."""
        p, (of_p, of_q) = self._p, self._rings
        # (1 + slope·p)^m decrypts as g^m: 1 + slope·p is g without its n-th power, since (1 + x·p)^(p-1) = 1 - x·p
        slope = -self._g_slope * p
        plain = of_p.batch([1 + message * slope for message in messages])
        units = of_p.batch([random_unit(p) for _ in messages])
        return of_p.multiply(plain, power(of_p, units, int(p))), of_q.batch([random_unit(self._q) for _ in messages])

    def _short(self, messages: Sequence[int]) -> tuple[Batch, Batch]:
        """Ciphertexts under short exponents, modulo p² and modulo q."""
        assert self._of_g is not None, "tables are prepared"
        assert self._of_h is not None, "tables are prepared"
        bits = self._plain_bits
        raised = _little_endian([(1 << bits) + message for message in messages], bits + 1)
        back = gmpy2.powmod(gmpy2.invert(self._g, self.public.n), mpz(1) << bits, self.public.n)
        powers = []
        for ring, of_g, of_h in zip(self._rings, self._of_g, self._of_h, strict=True):
            hidden = of_h.powers(random_exponents(len(messages), SHORT_EXPONENT_BITS))
            powers.append(ring.multiply(ring.multiply(of_g.powers(raised), hidden), ring.batch([back])))
        return powers[0], powers[1]


def _little_endian(numbers: Sequence[int], bits: int) -> Exponents:
    """Exponents of up to `bits` bits as `FixedBase` takes them, (n, bytes)."""
    width = -(-bits // 8)
    data = b"".join([number.to_bytes(width, "little") for number in numbers])
    return np.frombuffer(data, dtype=np.uint8).reshape(len(numbers), width)


def _blum_prime(bits: int) -> mpz:
    """Random prime ≡ 3 (mod 4) between the cube roots of 2^(bits-1) and 2^bits: p²q of two has exactly `bits` bits."""
    least, most = gmpy2.iroot(mpz(1) << (bits - 1), 3)[0] + 1, gmpy2.iroot(mpz(1) << bits, 3)[0]
    while True:
        candidate = least + secrets.randbelow(int(most - least)) | 3
        if candidate < most and gmpy2.is_prime(candidate, 40):
            return candidate
