"""Ciphertexts and keys of the lattice scheme as arrays and as bytes. A peer's bytes are checked before they are used.

A ciphertext is two transformed polynomials, (2, primes, N) residues below each prime; `treetap/native/polynomials.h`
has their order. As bytes it has 32-bit words, little-endian. What the label holder encrypts, and its public key, have a
uniform second polynomial: they are sent as the seed of that one and the words of the first.
"""

from __future__ import annotations

import functools
import os

import numpy as np

from treetap.errors import BadInput, Malformed
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

    def secret_key(self, data: bytes) -> Polynomial:
        """A secret key that this party itself saved."""
        secret: Polynomial = self._words(data, 1, "secret key")[0]
        return secret

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
