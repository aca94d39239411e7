"""Paillier's public half: operations that need no secret key (Paillier 1999).

n = pq, g = n + 1, Enc(m; r) = (1 + m·n) · r^n mod n². Sums multiply, products by a plaintext are powers, and a negative
plaintext m is n - |m|. A ciphertext travels as a big-endian block of fixed width.

A ciphertext times a fresh *obfuscator* r^n, an encryption of 0, is another ciphertext of the same plaintext. It is used
once: two ciphertexts that share one reveal the difference of their plaintexts. Three kinds are here; the key owner has
faster ones in `treetap.additive.paillier.secret_key`.

* standard: fresh uniform r, one full power; no assumption beyond Paillier's. The only kind fit for a ciphertext whose
  reader owns the key, because the owner knows the group's order and may strip a short exponent.
* half-length: h_n^a with h_n = (-y²)^n and a of half the length of n (Damgård, Jurik and Nielsen 2010, §4.2). Sound for
  keys with p ≡ q ≡ 3 (mod 4) and gcd(p-1, q-1) = 2, between parties that do not hold the key.
* short-exponent: the same with a of 256 bits. Assumes that discrete logarithms with 256-bit exponents are hard in a
  group whose order the reader does not know.

A packed ciphertext is r^n · Π c_k^(2^(bits·k)). Packing by Horner's rule squares |n| times and so does r^n;
simultaneous exponentiation (Straus 1964) shares the squarings, which makes re-randomisation nearly free. The exponent n
is cut into sliding windows of odd digits; exponent and positions are public, so the order of steps is fixed per key.

Which arithmetic this process has (`treetap.native.arithmetic`) is asked in `residues`, and nowhere else.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Sequence

import gmpy2
import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.additive.residues.batches import Batch, Places, Powers, Residues, power
from treetap.additive.residues.fixed_base import FixedBase
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.native import arithmetic
from treetap.protocols.key_options import BREAKABLE_BITS, KEY_LENGTHS, OBFUSCATIONS, PAILLIER, KeyKind

SHORT_EXPONENT_BITS = 256


def check_key_bits(bits: int, allow_breakable: bool = False) -> None:
    """Refuse a key size that is not offered; never replace it by another.

    Args:
        bits: length of n.
        allow_breakable: accept 512 bits too, with a warning; it exists only to repeat a paper's measurement.

    Raises:
        BadInput: the size is not offered.
    """
    if allow_breakable and bits == BREAKABLE_BITS:
        warnings.warn(
            f"a {bits}-bit Paillier key protects nothing: use it only to repeat a paper's figure", stacklevel=3
        )
    elif bits not in KEY_LENGTHS:
        raise BadInput(f"Paillier keys have {', '.join(map(str, KEY_LENGTHS))} bits, not {bits}")


def random_unit(modulus: mpz) -> mpz:
    """Uniform element of Z*_modulus from the operating system."""
    while True:
        unit = mpz(secrets.randbelow(int(modulus)))
        if gmpy2.gcd(unit, modulus) == 1:
            return unit


def residues(modulus: int, bits: int = 0) -> Residues:
    """The arithmetic of this process modulo an odd number.

    Args:
        modulus: the number.
        bits: length of the largest of several moduli whose residues are to be joined.
    """
    if form := arithmetic.form_in_use():
        from treetap.additive.residues.native_residues import NativeResidues

        return NativeResidues(modulus, max(bits, int(modulus).bit_length()), form)
    from treetap.additive.residues.gmpy2_residues import Gmpy2Residues

    return Gmpy2Residues(modulus)


class PublicKey:
    """Encrypts, adds and re-randomises; cannot decrypt.

    Attributes:
        n: the key's modulus, of `bits` bits, and n_squared: n², the modulus of ciphertexts.
        plain_bits: bits of a signed plaintext.
        ciphertext_bytes: width of a ciphertext on the wire.
        ring: arithmetic modulo n² on batches of ciphertexts; a product is a ciphertext of the sum.

    Raises:
        BadInput: n is even or its size is not offered.
    """

    __slots__ = ("bits", "ciphertext_bytes", "n", "n_squared", "plain_bits", "ring")

    def __init__(self, n: int, allow_breakable: bool = False) -> None:
        self.n, self.bits = mpz(n), int(n).bit_length()
        check_key_bits(self.bits, allow_breakable)
        if n % 2 == 0:
            raise BadInput("a Paillier modulus is odd, this one is even")
        self.n_squared = self.n**2
        kind = KeyKind(PAILLIER, self.bits)
        self.plain_bits, self.ciphertext_bytes = kind.plain_bits, kind.ciphertext_bytes
        self.ring = residues(self.n_squared)

    @classmethod
    def from_bytes(cls, data: bytes, allow_breakable: bool = False) -> PublicKey:
        """Read n back and check its size and oddness.

        Raises:
            BadInput: the number cannot be a modulus of an offered size.
        """
        return cls(int.from_bytes(data, "big"), allow_breakable)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bool(self.n == other.n)

    def __hash__(self) -> int:
        return hash(self.n)

    def __repr__(self) -> str:
        return f"PublicKey({self.bits} bits)"

    def to_bytes(self) -> bytes:
        """n, big-endian, without leading zeros."""
        return int(self.n).to_bytes(-(-self.bits // 8), "big")

    def units(self, count: int) -> list[mpz]:
        """Fresh uniform elements of Z*_n; the n-th power of each is a standard obfuscator."""
        return [random_unit(self.n) for _ in range(count)]

    def standard(self, count: int) -> Batch:
        """Fresh standard obfuscators: r^n for uniform r ∈ Z*_n each."""
        return power(self.ring, self.ring.batch(self.units(count)), int(self.n))

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

    def write(self, ciphertexts: Batch) -> bytes:
        """Ciphertexts as concatenated big-endian blocks of fixed width."""
        return self.ring.write(ciphertexts, self.ciphertext_bytes)

    def read(self, data: bytes) -> Batch:
        """Ciphertexts from concatenated blocks.

        Raises:
            Malformed: not a whole number of blocks, or a block that is zero or not below n².
        """
        return self._all_good(data, self.ring.read)

    def read_factors(self, data: bytes) -> Batch:
        """As `read`, for ciphertexts that are multiplied into cells and nothing else."""
        return self._all_good(data, self.ring.read_factors)

    def write_products(self, products: Batch, factors: Places) -> bytes:
        """Products of so many factors each as concatenated blocks."""
        return self.ring.write_products(products, factors, self.ciphertext_bytes)

    def _all_good(self, data: bytes, read: Callable[[bytes, int], tuple[Batch, int]]) -> Batch:
        self._whole(data)
        ciphertexts, good = read(data, self.ciphertext_bytes)
        if good * self.ciphertext_bytes < len(data):
            raise _foreign()
        return ciphertexts

    def check_blocks(self, data: bytes) -> None:
        """Refuse what `read` refuses, for those who compute with the blocks in another way."""
        self._whole(data)
        width = self.ciphertext_bytes
        zero, limit = bytes(width), self.n_squared.to_bytes(width, "big")
        # Blocks of one width compare as the numbers that they hold.
        if not all(zero < data[at : at + width] < limit for at in range(0, len(data), width)):
            raise _foreign()

    def _whole(self, data: bytes) -> None:
        if len(data) % self.ciphertext_bytes:
            raise Malformed(f"{len(data)} bytes are not a whole number of ciphertexts of {self.ciphertext_bytes} bytes")

    def trivial(self, data: bytes) -> npt.NDArray[np.bool_]:
        """The blocks that hold the trivial ciphertext 1 of an empty sum, shape (n,)."""
        blocks = np.frombuffer(data, dtype=np.uint8).reshape(-1, self.ciphertext_bytes)
        ones: npt.NDArray[np.bool_] = (blocks[:, -1] == 1) & ~blocks[:, :-1].any(axis=1)
        return ones


def _foreign() -> Malformed:
    return Malformed("a ciphertext is zero or not below n²: it was made under another key or damaged")


class TwistedObfuscators:
    """Obfuscators for a party without the key, of one of the kinds above.

    The short ones come from one fixed-base table modulo n². Powers of h_n all have the Jacobi symbol 1, which every
    party can compute, while the owner's obfuscators (`standard`, or `short-exponent` with its two independent
    exponents) have -1 half of the time. A re-randomised ciphertext of the owner and a fresh one of this party could so
    be told apart. Hence every second draw, at random, is multiplied by z^n for a z with the symbol -1.

    Raises:
        BadInput: an unknown kind.
    """

    def __init__(self, public: PublicKey, kind: str, window: int | None = None) -> None:
        if kind not in OBFUSCATIONS:
            raise BadInput(f"obfuscation is one of {', '.join(OBFUSCATIONS)}, not {kind!r}")
        self._public = public
        self._table: FixedBase | None = None
        if kind == "standard":
            return
        n, y, z = public.n, random_unit(public.n), random_unit(public.n)
        base = gmpy2.powmod(-y * y % n, n, public.n_squared)
        bits = SHORT_EXPONENT_BITS if kind == "short-exponent" else -(-public.bits // 2)
        self._table = FixedBase(public.ring, base, bits, window)
        while gmpy2.jacobi(z, n) != -1:
            z = random_unit(n)
        self._twist = public.ring.batch([gmpy2.powmod(z, n, public.n_squared)])

    def draw(self, count: int) -> Batch:
        """`count` obfuscators, each to be used once."""
        if self._table is None:
            return self._public.standard(count)
        drawn = self._table.random_powers(count)
        twisted = np.flatnonzero(np.frombuffer(secrets.token_bytes(count), dtype=np.uint8) & 1)
        drawn[twisted] = self._public.ring.multiply(drawn[twisted], self._twist)
        return drawn


class Packer:
    """Packs groups of `bits` bits under one key.

    Attributes:
        groups: ciphertexts that one packed ciphertext holds.
    """

    def __init__(self, public: PublicKey, bits: int, groups: int) -> None:
        self._public = public
        self._bits = bits
        self.groups = groups
        self._program = Powers.of(int(public.n), [bits * place for place in range(groups)])

    def pack(self, ciphertexts: Batch, units: Sequence[mpz]) -> Batch:
        """r^n · Π c_k^(2^(bits·k)) of each `groups` ciphertexts, least significant first; the last has the rest.

        `units` holds the r of each packed ciphertext, fresh uniform elements of Z*_n wherever the result leaves this
        party (`pack_fresh`).
        """
        ring, count = self._public.ring, len(units)
        values = np.concatenate([ciphertexts, ring.ones(1)])
        places = np.arange(count * self.groups, dtype=np.int64).reshape(count, self.groups)
        return ring.powers(ring.batch(units), self._program, values, np.minimum(places, len(ciphertexts)))

    def pack_fresh(self, ciphertexts: Batch) -> Batch:
        """Pack any number of ciphertexts, each packed one with its own fresh standard obfuscator."""
        count = -(-len(ciphertexts) // self.groups)
        return self.pack(ciphertexts, self._public.units(count))
