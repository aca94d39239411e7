"""Ciphertexts and keys of the lattice scheme as arrays and as bytes. A peer's bytes are checked before they are used.

A ciphertext is two transformed polynomials, (2, primes, N) residues below each prime; `treetap/native/polynomials.h`
has their order. As bytes it has 32-bit words, little-endian. What the label holder encrypts, and its public key, have a
uniform second polynomial: they are sent as the seed of that one and the words of the first.

The label holder: makes the key, encrypts columns of integers, decrypts sums.

The key is used for one job: a decryption that fails reveals one bit about it to a member.
"""

from __future__ import annotations

import functools
import os
from typing import NoReturn

import numpy as np

from treetap.arrays import Ints
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.lattice.parameters import Parameters
from treetap.native import library
from treetap.native.lattice import SEED_BYTES, Polynomial, Ring

WORD = "<u4"


class Scheme:
    """The ring of a set of parameters; the same for owner and members of one job."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.modulus = parameters.plain
        self.ring = Ring(parameters.degree, parameters.primes, parameters.plain)

    def seeded(self, first: Polynomial, seed: bytes) -> bytes:
        """A ciphertext or public key whose second polynomial a seed stands for."""
        return seed + to_bytes(first)

    def ciphertext(self, data: bytes) -> Polynomial:
        """A ciphertext from a peer's bytes, seeded or whole.

        Raises:
            Malformed: other parameters, truncated, or not a ciphertext that hides anything.
        """
        parameters = self.parameters
        if len(data) == parameters.seeded_bytes:
            return self._expanded(data, "ciphertext")
        if len(data) != parameters.ciphertext_bytes:
            raise Malformed(
                f"a ciphertext of {len(data)} bytes, this job's parameters give {parameters.seeded_bytes} or "
                f"{parameters.ciphertext_bytes}"
            )
        value = self._words(data, 2, "ciphertext")
        if not value[1].any():
            raise Malformed("a ciphertext hides nothing: its second polynomial is zero")
        return value

    def public_key(self, data: bytes) -> Polynomial:
        """A public key (2, primes, N) from a peer's bytes. Raises Malformed for other parameters or truncation."""
        if len(data) != self.parameters.seeded_bytes:
            raise Malformed(f"a public key of {len(data)} bytes, its parameters give {self.parameters.seeded_bytes}")
        return self._expanded(data, "public key")

    def draw(self) -> tuple[bytes, Polynomial]:
        """A fresh seed and the uniform polynomial that it stands for."""
        seed = os.urandom(SEED_BYTES)
        return seed, self.ring.uniform(seed)

    def _expanded(self, data: bytes, what: str) -> Polynomial:
        value = np.empty((2, *self.ring.shape), dtype=np.uint32)
        value[0] = self._words(data[SEED_BYTES:], 1, what)[0]
        value[1] = self.ring.uniform(data[:SEED_BYTES])
        return value

    def _words(self, data: bytes, polynomials: int, what: str) -> Polynomial:
        value = np.frombuffer(data, dtype=WORD).reshape(polynomials, *self.ring.shape).astype(np.uint32, copy=False)
        if (value.max(axis=-1, keepdims=True) >= self.ring.primes).any():
            raise Malformed(f"not a {what} of this job's parameters: a number beyond its prime")
        return value


def to_bytes(value: Polynomial) -> bytes:
    """The words of polynomials."""
    return value.astype(WORD, copy=False).tobytes()


@functools.lru_cache(maxsize=4)
def scheme_of(parameters: Parameters) -> Scheme:
    """The scheme of these parameters; building one takes some 30 ms, hence once per process.

    Raises:
        BadInput: treetap's kernels were not compiled.
    """
    try:
        return Scheme(parameters)
    except library.Unavailable as error:
        raise BadInput(f"the lattice backend needs the native kernels, but {error}: or take protocol eini") from error


class LatticeKey:
    """A secret key with its scheme. It cannot be pickled and its repr shows no secret."""

    def __init__(self, parameters: Parameters) -> None:
        """A fresh key.

        Raises:
            BadInput: treetap's kernels were not compiled.
        """
        self.parameters = parameters
        self._scheme = scheme_of(parameters)
        self._secret = self._scheme.ring.secret()

    def __repr__(self) -> str:
        return f"LatticeKey(N = {self.parameters.degree})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key is not pickled or copied")

    @property
    def modulus(self) -> int:
        """t: sums are exact between -t/2 and t/2."""
        return self._scheme.modulus

    def public_bytes(self) -> bytes:
        """Parameters and a fresh public key, which is an encryption of zero, for the members."""
        return self.parameters.to_bytes() + self.encrypt(np.zeros(0, dtype=np.int64))

    def encrypt(self, column: Ints) -> bytes:
        """One column (n ≤ N,) as a ciphertext whose uniform half is a seed.

        Raises:
            PlaintextOverflow: more than N records, or a number outside ±t/2.
        """
        if len(column) > self.parameters.degree:
            raise PlaintextOverflow(f"{len(column)} records in a ciphertext of {self.parameters.degree} slots")
        if len(column) and max(int(column.max()), -int(column.min())) > (self.modulus - 1) // 2:
            raise PlaintextOverflow(f"a number beyond ±{(self.modulus - 1) // 2} does not fit a slot")
        seed, second = self._scheme.draw()
        return self._scheme.seeded(self._scheme.ring.encrypt(self._secret, column, second), seed)

    def decrypt(self, data: bytes, n: int) -> Ints:
        """The first n numbers of a returned sum.

        Raises:
            Malformed: not a ciphertext of these parameters, or its noise exceeds what a sum can have.
        """
        opened = self._scheme.ring.decrypt(self._secret, self._scheme.ciphertext(data))
        if opened is None:
            raise Malformed("a returned sum has more noise than the agreed number of columns can make")
        return opened[:n]
