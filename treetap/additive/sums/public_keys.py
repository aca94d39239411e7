"""Public keys of all schemes: what the sums ask of one, and the scheme that has it, by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.additive.residues.batches import Batch, Residues
from treetap.protocols.key_options import SCHEMES

#: A public key on its way to a worker of the same party: scheme and bytes.
Handed = tuple[str, bytes]


class Obfuscators(Protocol):
    """Obfuscators for a party without the key, of one kind."""

    def draw(self, count: int) -> Batch:
        """`count` obfuscators, each to be used once."""
        ...


class PublicKey(Protocol):
    """Adds ciphertexts and re-randomises them; cannot decrypt.

    Attributes:
        scheme: its name.
        n: the modulus of the key.
        bits: length of n.
        plain_bits: a signed plaintext m of which sums come back right has |m| < 2^(plain_bits - 1), or more.
        ciphertext_bytes: width of a ciphertext on the wire.
        ring: arithmetic on batches of ciphertexts; a product is a ciphertext of the sum.
    """

    @property
    def scheme(self) -> str: ...
    @property
    def n(self) -> mpz: ...
    @property
    def bits(self) -> int: ...
    @property
    def plain_bits(self) -> int: ...
    @property
    def ciphertext_bytes(self) -> int: ...
    @property
    def ring(self) -> Residues: ...

    def to_bytes(self) -> bytes:
        """n, big-endian, without leading zeros."""
        ...

    def obfuscators(self, kind: str) -> Obfuscators:
        """Obfuscators of a kind for ciphertexts whose readers do not own the key; `BadInput` where there is none."""
        ...

    def units(self, count: int) -> Sequence[mpz]:
        """Fresh numbers whose n-th powers are standard obfuscators, fit for ciphertexts that the key's owner reads."""
        ...

    def read(self, data: bytes) -> Batch:
        """Ciphertexts from concatenated blocks; `Malformed` if one cannot be a ciphertext under this key."""
        ...

    def write(self, ciphertexts: Batch) -> bytes:
        """Ciphertexts as concatenated blocks."""
        ...

    def trivial(self, data: bytes) -> npt.NDArray[np.bool_]:
        """The blocks that hold the trivial ciphertext 1 of an empty sum, shape (n,)."""
        ...


def public_key(scheme: str, data: bytes, *, allow_breakable: bool = False) -> PublicKey:
    """A scheme's public key from its bytes.

    Raises:
        BadInput: they cannot be a key of an offered size.
    """
    module: Any = import_module(f"{SCHEMES[scheme].package}.public_key")
    key: PublicKey = module.PublicKey.from_bytes(data, allow_breakable)
    return key


def handed(public: PublicKey) -> Handed:
    """The key for a worker of the same party."""
    return public.scheme, public.to_bytes()


def in_worker(key: Handed) -> PublicKey:
    """The key in the worker; its size was accepted where it was made or received."""
    return public_key(*key, allow_breakable=True)
