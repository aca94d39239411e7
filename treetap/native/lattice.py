"""Calls of the kernels for polynomials (`lattice.c`); shapes of arrays are checked before their addresses are used.

A polynomial is an array (primes, N) of uint32, residues modulo each prime, transformed unless it is said otherwise; a
seed is 32 bytes. Every call takes less than 10 ms.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.arrays import Bools, Ints
from treetap.native import library
from treetap.native.library import argument, in_bounds

SEED_BYTES = 32
DEGREES = (8192, 16384)
MOST_PRIMES = 14
LARGEST_PRIME = 1 << 30
_R = 1 << 32

Polynomial = npt.NDArray[np.uint32]


class _Scheme(ctypes.Structure):
    _fields_ = [
        ("n", ctypes.c_size_t),
        ("primes", ctypes.c_size_t),
        ("constants", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
    ]


class Ring:
    """Z[X]/(X^N + 1) modulo the product q of primes below 2^30, and modulo t, whose transform is the slots.

    Args:
        degree: N.
        primes: of q; each is 1 modulo 2N.
        plain: t, another prime of that kind.

    Raises:
        Unavailable: the kernels were not compiled.
    """

    def __init__(self, degree: int, primes: Sequence[int], plain: int) -> None:
        every = [*primes, plain]
        in_bounds(
            degree in DEGREES and 1 <= len(primes) <= MOST_PRIMES,
            "a ring of this degree, or of as many primes, has no kernels",
        )
        in_bounds(
            len(set(every)) == len(every)
            and all(prime % (2 * degree) == 1 and prime < LARGEST_PRIME for prime in every),
            "a prime twice, or of another ring",
        )
        self._library = library.compiled()
        self.degree, self.plain = degree, plain
        self.primes = np.array(primes, dtype=np.uint32)[:, np.newaxis]
        self.shape = (len(primes), degree)
        q = int(np.prod(np.array(primes, dtype=object)))
        message = [-pow(plain, -1, prime) % prime for prime in primes]
        opening = [pow(degree * (q // prime), -1, prime) for prime in primes]
        self._constants = np.array(
            [
                every,
                [pow(prime, -1, _R) for prime in every],
                [*message, q * pow(degree, -1, plain) % plain],
                [_R % prime for prime in every],
                [*opening, 0],
                [pow(degree, -1, prime) for prime in every],
            ],
            dtype=np.uint32,
        )
        self._tables = np.empty((len(every), 4, degree), dtype=np.uint32)
        for prime, table in zip(every, self._tables, strict=True):
            root = _root(prime, 2 * degree)
            arguments = (ctypes.c_size_t(degree), ctypes.c_uint32(prime), ctypes.c_uint32(root), argument(table))
            self._library.treetap_lattice_tables(*arguments)
        made = _Scheme(degree, len(primes), self._constants.ctypes.data, self._tables.ctypes.data)
        self._scheme = made
        self._given = ctypes.byref(made)

    def zeros(self) -> Polynomial:
        """The zero polynomial."""
        return np.zeros(self.shape, dtype=np.uint32)

    def transform(self, polynomial: Polynomial, *, back: bool = False) -> None:
        """From coefficients to values, or back, in place."""
        for place, residues in enumerate(self._checked(polynomial)):
            self._call("transform", place, ctypes.c_int(back), residues)

    def uniform(self, seed: bytes) -> Polynomial:
        """The uniform polynomial that a seed stands for."""
        in_bounds(len(seed) == SEED_BYTES, "a seed of another length")
        out = np.empty(self.shape, dtype=np.uint32)
        self._call("uniform", seed, out)
        return out

    def blinds(self, count: int) -> Ints:
        """Fresh numbers, uniform modulo t, (count,)."""
        out = np.empty(count, dtype=np.uint32)
        self._call("blinds", os.urandom(SEED_BYTES), count, out)
        return out.astype(np.int64)

    def add(self, out: Polynomial, other: Polynomial) -> None:
        """Add another polynomial, in place."""
        self._call("add", self._checked(out), self._checked(other))

    def multiply_add(self, out: Polynomial, left: Polynomial, right: Polynomial) -> None:
        """Add left·right, in place; `right` is in Montgomery form."""
        self._call("multiply_add", self._checked(out), self._checked(left), self._checked(right))

    def montgomery(self, polynomial: Polynomial) -> Polynomial:
        """A polynomial's Montgomery form."""
        return ((polynomial.astype(np.uint64) << np.uint64(32)) % self.primes).astype(np.uint32)

    def secret(self) -> Polynomial:
        """A fresh secret key with coefficients uniform in -1, 0, 1, in Montgomery form."""
        out = np.empty(self.shape, dtype=np.uint32)
        self._call("secret", os.urandom(SEED_BYTES), out)
        return out

    def encrypt(self, secret: Polynomial, values: Ints, second: Polynomial) -> Polynomial:
        """The first half of an encryption of values (n ≤ N,) between -t/2 and t/2; `second` is its uniform half."""
        out = np.empty(self.shape, dtype=np.uint32)
        values = self._slots(values, np.int64)
        halves = self._checked(second), out
        self._call("encrypt", self._checked(secret), values, len(values), os.urandom(SEED_BYTES), *halves)
        return out

    def mask(self, mask: Bools) -> Polynomial:
        """A mask (n ≤ N,) as a polynomial whose slots are 0 and 1, in Montgomery form."""
        out = np.empty(self.shape, dtype=np.uint32)
        mask = self._slots(mask, np.bool_)
        self._call("mask", mask, len(mask), out)
        return out

    def message(self, values: Ints) -> Polynomial:
        """(q/t)·m of values (n ≤ N,) between -t/2 and t/2, to be added to the first half of a ciphertext."""
        out = np.empty(self.shape, dtype=np.uint32)
        values = self._slots(values, np.int64)
        self._call("plain", values, len(values), out)
        return out

    def encrypted_zero(self, key: Polynomial) -> Polynomial:
        """A fresh encryption of zero (2, primes, N) under a public key of that shape in Montgomery form."""
        out = np.empty((2, *self.shape), dtype=np.uint32)
        self._call("zero", self._checked(key, 2), os.urandom(SEED_BYTES), out)
        return out

    def flood(self, bound: int) -> Polynomial:
        """A fresh polynomial with coefficients uniform in ±bound."""
        out = np.empty(self.shape, dtype=np.uint32)
        width = 2 * bound + 1
        limbs = -(-width.bit_length() // 32)
        in_bounds(1 <= limbs <= MOST_PRIMES, "a wider flood than any modulus")
        edges = width.to_bytes(4 * limbs, "little"), bound.to_bytes(4 * limbs, "little")
        self._call("flood", os.urandom(SEED_BYTES), limbs, *edges, out)
        return out

    def decrypt(self, secret: Polynomial, ciphertext: Polynomial) -> Ints | None:
        """The slots (N,) between -t/2 and t/2; None if the noise leaves less than one bit of budget."""
        out = np.empty(self.degree, dtype=np.uint32)
        if self._call("decrypt", self._checked(secret), self._checked(ciphertext, 2), out):
            return None
        slots = out.astype(np.int64)
        slots[slots > self.plain // 2] -= self.plain
        return slots

    def _checked(self, array: Polynomial, halves: int = 0) -> Polynomial:
        """Refuse what the kernels would read or write outside of an array."""
        in_bounds(
            array.dtype == np.uint32 and array.shape == ((halves, *self.shape) if halves else self.shape),
            "no polynomial of this ring, in words of 32 bits",
        )
        return array

    def _slots(self, values: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
        in_bounds(values.ndim == 1 and len(values) <= self.degree, "no row of values, or more than slots")
        return np.ascontiguousarray(values, dtype=kind)

    def _call(self, name: str, *arguments: Any) -> int:
        """Call a kernel: arrays and bytes go as addresses, numbers as size_t."""
        function = getattr(self._library, f"treetap_lattice_{name}")
        status: int = function(self._given, *map(argument, arguments))
        return status


def instructions(wanted: int = -1) -> str:
    """The instructions that this process uses for polynomials: `AVX2`, or `plain` ones.

    `wanted`: 0 for plain ones from now on, 1 for AVX2 if the processor has it, which is what it begins with.
    """
    return "AVX2" if library.compiled().treetap_lattice_avx2(ctypes.c_int(wanted)) else "plain"


def _root(prime: int, order: int) -> int:
    """The smallest primitive root of unity of an order that is a power of two."""
    candidates = (pow(base, (prime - 1) // order, prime) for base in range(2, prime))
    root = next(number for number in candidates if pow(number, order // 2, prime) == prime - 1)
    square, smallest, power = root * root % prime, root, root
    for _ in range(order // 2):  # all primitive roots are odd powers of one
        smallest, power = min(smallest, power), power * square % prime
    return smallest
