"""Ciphertexts as residues: the arithmetic of this process, blocks on the wire, and obfuscators that are n-th powers.

A ciphertext of 0 is an n-th power modulo the scheme's modulus, and every n-th power is one. An *obfuscator* is such a
power of a secret number; a ciphertext times a fresh one is another ciphertext of the same plaintext. It is used once:
two ciphertexts that share one reveal the difference of their plaintexts.

Which arithmetic this process has (`treetap.native.arithmetic`) is asked in `residues`, and nowhere else.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import gmpy2
import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.additive.residues.batches import Batch, Places, Residues, power
from treetap.additive.residues.fixed_base import FixedBase
from treetap.errors import Malformed
from treetap.native import arithmetic

SHORT_EXPONENT_BITS = 256


def random_unit(modulus: mpz) -> mpz:
    """Uniform element of Z*_modulus from the operating system."""
    while True:
        unit = mpz(secrets.randbelow(int(modulus)))
        if gmpy2.gcd(unit, modulus) == 1:
            return unit


class Ciphertexts:
    """Ciphertexts under one key: read, written, obfuscated.

    Attributes:
        n: the key's modulus.
        bits: length of n.
        ciphertext_bytes: width of a ciphertext on the wire.
        ring: arithmetic modulo the modulus of ciphertexts, on batches of them.
    """

    __slots__ = ("_modulus_name", "bits", "ciphertext_bytes", "n", "ring")

    def __init__(self, n: mpz, modulus: mpz, modulus_name: str, ciphertext_bytes: int) -> None:
        self.n, self.bits = n, int(n.bit_length())
        self.ciphertext_bytes, self._modulus_name = ciphertext_bytes, modulus_name
        self.ring = residues(modulus)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bool(self.n == other.n)

    def __hash__(self) -> int:
        return hash(self.n)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bits} bits)"

    def to_bytes(self) -> bytes:
        """n, big-endian, without leading zeros."""
        return int(self.n).to_bytes(-(-self.bits // 8), "big")

    def units(self, count: int) -> list[mpz]:
        """Fresh uniform elements of Z*_n; the n-th power of each is a standard obfuscator."""
        return [random_unit(self.n) for _ in range(count)]

    def standard(self, count: int) -> Batch:
        """Fresh standard obfuscators: r^n for uniform r ∈ Z*_n each."""
        return power(self.ring, self.ring.batch(self.units(count)), int(self.n))

    def short_powers(self, bits: int, window: int | None = None) -> FixedBase:
        """A table for h^a, h = (-y²)^n of a fresh uniform y ∈ Z*_n, and exponents a of `bits` bits."""
        y = random_unit(self.n)
        base = gmpy2.powmod(-y * y % self.n, self.n, self.ring.modulus)
        return FixedBase(self.ring, base, bits, window)

    def write(self, ciphertexts: Batch) -> bytes:
        """Ciphertexts as concatenated big-endian blocks of fixed width."""
        return self.ring.write(ciphertexts, self.ciphertext_bytes)

    def read(self, data: bytes) -> Batch:
        """Ciphertexts from concatenated blocks.

        Raises:
            Malformed: not a whole number of blocks, or a block that is zero or not below the modulus.
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
            raise self._foreign()
        return ciphertexts

    def check_blocks(self, data: bytes) -> None:
        """Refuse what `read` refuses, for those who compute with the blocks in another way."""
        self._whole(data)
        width = self.ciphertext_bytes
        zero, limit = bytes(width), self.ring.modulus.to_bytes(width, "big")
        # Blocks of one width compare as the numbers that they hold.
        if not all(zero < data[at : at + width] < limit for at in range(0, len(data), width)):
            raise self._foreign()

    def trivial(self, data: bytes) -> npt.NDArray[np.bool_]:
        """The blocks that hold the trivial ciphertext 1 of an empty sum, shape (n,)."""
        blocks = np.frombuffer(data, dtype=np.uint8).reshape(-1, self.ciphertext_bytes)
        ones: npt.NDArray[np.bool_] = (blocks[:, -1] == 1) & ~blocks[:, :-1].any(axis=1)
        return ones

    def _foreign(self) -> Malformed:
        return Malformed(
            f"a ciphertext is zero or not below {self._modulus_name}: it was made under another key or damaged"
        )

    def _whole(self, data: bytes) -> None:
        if len(data) % self.ciphertext_bytes:
            raise Malformed(f"{len(data)} bytes are not a whole number of ciphertexts of {self.ciphertext_bytes} bytes")


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


class Obfuscators:
    """Obfuscators for a party without the key: standard ones, or powers by a table of short exponents."""

    def __init__(self, public: Ciphertexts, table: FixedBase | None) -> None:
        self._public, self._table = public, table

    def draw(self, count: int) -> Batch:
        """`count` obfuscators, each to be used once."""
        return self._public.standard(count) if self._table is None else self._table.random_powers(count)
