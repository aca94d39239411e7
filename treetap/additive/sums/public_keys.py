"""Public keys of all schemes: what the sums ask of one, the scheme that has it, by name, and packing under any of them.

The packed ciphertext is r^n · Π c_k^(2^(bits·k)), in each scheme modulo its own number. Packing by Horner's rule
squares |n| times and so does r^n; simultaneous exponentiation (Straus 1964) shares the squarings, which makes
re-randomisation nearly free. The exponent n is cut into sliding windows of odd digits; exponent and positions are
public, so the order of steps is fixed per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.additive.residues.batches import Batch, Places, Powers, Residues
from treetap.additive.residues.ciphertexts import Obfuscators
from treetap.errors import Malformed
from treetap.protocols.key_options import SCHEMES

#: A public key on its way to a worker of the same party: scheme and bytes.
Handed = tuple[str, bytes]


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

    def shifted(self, ciphertexts: Batch, plains: Sequence[int]) -> Batch:
        """Ciphertexts of the sums with these numbers, not re-randomised; `BadInput` where only the owner can."""
        ...

    def read(self, data: bytes) -> Batch:
        """Ciphertexts from concatenated blocks; `Malformed` if one cannot be a ciphertext under this key."""
        ...

    def write(self, ciphertexts: Batch) -> bytes:
        """Ciphertexts as concatenated blocks."""
        ...

    def read_factors(self, data: bytes) -> Batch:
        """As `read`, for ciphertexts that are multiplied into cells and nothing else."""
        ...

    def write_products(self, products: Batch, factors: Places) -> bytes:
        """Products of so many factors each as concatenated blocks."""
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


@lru_cache(maxsize=2)
def in_worker(key: Handed) -> PublicKey:
    """The key in the worker, with its tables; its size was accepted where it was made or received."""
    return public_key(*key, allow_breakable=True)


def check_proof(_state: dict[str, Any], key: Handed, proof: bytes, bound_to: bytes) -> None:
    """Check the proof of a key's form in a worker; `Malformed` if it fits not this key, or not what it is bound to."""
    scheme, data = key
    if not (rounds := SCHEMES[scheme].proof_rounds):
        raise Malformed(f"scheme {scheme!r} has no proof of a key's form, and one came")
    module: Any = import_module(f"{SCHEMES[scheme].package}.key_proof")
    module.check(mpz.from_bytes(data, "big"), proof, bound_to, rounds)


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
