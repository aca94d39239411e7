"""Paillier's public half: operations that need no secret key (Paillier 1999).

n = pq, g = n + 1, Enc(m; r) = (1 + m·n) · r^n mod n². Sums multiply, products by a plaintext are powers, and a negative
plaintext m is n - |m|. A ciphertext travels as a big-endian block of fixed width.

An obfuscator r^n is used once: two ciphertexts that share one reveal the difference of their plaintexts. Two kinds are
here; the key owner has faster ones in `treetap.additive.paillier.secret_key`.

* standard: fresh uniform r, one full power; no assumption beyond Paillier's. The only kind fit for a ciphertext whose
  reader owns the key, because the owner knows the group's order and may strip a short exponent.
* half-length: h_n^a with h_n = (-y²)^n and a of half the length of n (Damgård, Jurik and Nielsen 2010, §4.2). Sound for
  keys with p ≡ q ≡ 3 (mod 4) and gcd(p-1, q-1) = 2, between parties that do not hold the key.
* short-exponent: the same with a of 256 bits. Assumes that discrete logarithms with 256-bit exponents are hard in a
  group whose order the reader does not know.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz

from treetap.additive.residues.batches import Batch
from treetap.additive.residues.ciphertexts import SHORT_EXPONENT_BITS, Ciphertexts, Obfuscators, random_unit
from treetap.errors import BadInput, PlaintextOverflow
from treetap.protocols.key_options import PAILLIER, SCHEMES

SCHEME = SCHEMES[PAILLIER]


def check_key_bits(bits: int, allow_breakable: bool = False) -> None:
    """Refuse a key size that is not offered; never replace it by another.

    Args:
        bits: length of n.
        allow_breakable: accept 512 bits too, with a warning; it exists only to repeat a paper's measurement.

    Raises:
        BadInput: the size is not offered.
    """
    if not SCHEME.offers(bits, allow_breakable=allow_breakable):
        raise BadInput(f"Paillier keys have {', '.join(map(str, SCHEME.key_bits))} bits, not {bits}")
    if bits not in SCHEME.key_bits:
        warnings.warn(
            f"a {bits}-bit Paillier key protects nothing: use it only to repeat a paper's figure", stacklevel=3
        )


class PublicKey(Ciphertexts):
    """Encrypts, adds and re-randomises; cannot decrypt.

    Attributes:
        scheme: its name in a job.
        plain_bits: bits of a signed plaintext.
        n_squared: n², the modulus of ciphertexts.

    Raises:
        BadInput: n is even or its size is not offered.
    """

    __slots__ = ("n_squared", "plain_bits")
    scheme = PAILLIER

    def __init__(self, n: int, allow_breakable: bool = False) -> None:
        bits = int(n).bit_length()
        check_key_bits(bits, allow_breakable)
        if n % 2 == 0:
            raise BadInput("a Paillier modulus is odd, this one is even")
        self.n_squared = mpz(n) ** 2
        self.plain_bits = SCHEME.plain_bits(bits)
        super().__init__(mpz(n), self.n_squared, "n²", SCHEME.ciphertext_bytes(bits))

    @classmethod
    def from_bytes(cls, data: bytes, allow_breakable: bool = False) -> PublicKey:
        """Read n back and check its size and oddness.

        Raises:
            BadInput: the number cannot be a modulus of an offered size.
        """
        return cls(int.from_bytes(data, "big"), allow_breakable)

    def obfuscators(self, kind: str) -> TwistedObfuscators:
        """TwistedObfuscators of a kind for ciphertexts whose readers do not own the key."""
        return TwistedObfuscators(self, kind)

    def signed(self, residue: int) -> int:
        """The signed plaintext that a residue modulo n stands for: above n/2 it is negative."""
        return int(residue - self.n if 2 * residue > self.n else residue)

    def check_plain(self, plain: int) -> None:
        """Refuse a plaintext that would come back with another sign or size."""
        if 2 * abs(plain) >= self.n:
            raise PlaintextOverflow(
                f"a {self.bits}-bit key holds |plaintext| < n/2, this one has {plain.bit_length()} bits"
            )

    def encrypt(self, plains: Sequence[int], obfuscators: Batch) -> Batch:
        """(1 + plain·n) · obfuscator mod n² of each plaintext; a fresh obfuscator each time.

        Raises:
            PlaintextOverflow: |plain| is not below n/2.
        """
        for plain in plains:
            self.check_plain(plain)
        return self.ring.multiply(self.ring.batch([1 + plain * self.n for plain in plains]), obfuscators)

    def shifted(self, ciphertexts: Batch, plains: Sequence[int]) -> Batch:
        """Ciphertexts of the sums with these numbers, not re-randomised: the factor of m is 1 + m·n mod n²."""
        return self.ring.multiply(ciphertexts, self.ring.batch([1 + int(plain % self.n) * self.n for plain in plains]))

    def rerandomise_standard(self, ciphertexts: Batch) -> Batch:
        """The same plaintexts under fresh standard obfuscators: for every ciphertext whose reader owns the key."""
        return self.ring.multiply(ciphertexts, self.standard(len(ciphertexts)))


class TwistedObfuscators(Obfuscators):
    """TwistedObfuscators for a party without the key, of one of the kinds above.

    The short ones come from one fixed-base table modulo n². Powers of h_n all have the Jacobi symbol 1, which every
    party can compute, while the owner's obfuscators (`standard`, or `short-exponent` with its two independent
    exponents) have -1 half of the time. A re-randomised ciphertext of the owner and a fresh one of this party could so
    be told apart. Hence every second draw, at random, is multiplied by z^n for a z with the symbol -1.

    Raises:
        BadInput: an unknown kind.
    """

    def __init__(self, public: PublicKey, kind: str, window: int | None = None) -> None:
        if kind not in ("standard", "half-length", "short-exponent"):
            raise BadInput(f"obfuscation is one of standard, half-length, short-exponent, not {kind!r}")
        bits = SHORT_EXPONENT_BITS if kind == "short-exponent" else -(-public.bits // 2)
        super().__init__(public, None if kind == "standard" else public.short_powers(bits, window))
        if self._table is None:
            return
        z = random_unit(public.n)
        while gmpy2.jacobi(z, public.n) != -1:
            z = random_unit(public.n)
        self._twist = public.ring.batch([gmpy2.powmod(z, public.n, public.n_squared)])

    def draw(self, count: int) -> Batch:
        drawn = super().draw(count)
        if self._table is None:
            return drawn
        twisted = np.flatnonzero(np.frombuffer(secrets.token_bytes(count), dtype=np.uint8) & 1)
        drawn[twisted] = self._public.ring.multiply(drawn[twisted], self._twist)
        return drawn
