"""Secret keys of all schemes, for the label holder: what encryption and decryption ask of one, by the scheme's name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Protocol

from treetap.additive.sums.public_keys import PublicKey
from treetap.protocols.key_options import SCHEMES

#: A secret key on its way to a worker of the same party: scheme and bytes.
HandedSecret = tuple[str, bytes]


class SecretKey(Protocol):
    """Encrypts fast and decrypts. It cannot be pickled and its repr shows no secret."""

    @property
    def public(self) -> PublicKey:
        """Its public half."""
        ...

    def for_worker(self) -> bytes:
        """The key for a worker process of the same party, over its private pipe: the only way by which it leaves."""
        ...

    def prove(self, bound_to: bytes) -> bytes:
        """A fresh proof of the key's form, bound to what it is for; empty where the scheme has none."""
        ...

    def prepare(self, kind: str, plain_bits: int) -> None:
        """Build the tables for an obfuscation, and for plaintexts of that length, now instead of at first use.

        Raises:
            BadInput: the scheme or this key has no such obfuscation.
        """
        ...

    def encrypt_many(self, plains: Iterable[int], kind: str) -> bytes:
        """Encrypt signed plaintexts, each with its own fresh obfuscator, to concatenated blocks.

        Raises:
            BadInput: see `prepare`.
            PlaintextOverflow: a plaintext is too large for the key.
        """
        ...

    def decrypt_many(self, ciphertexts: bytes) -> list[int]:
        """Decrypt concatenated ciphertexts to signed plaintexts.

        Raises:
            Malformed: not whole ciphertexts, or a number that is no ciphertext under this key.
        """
        ...


def generate(scheme: str, bits: int, *, allow_breakable: bool = False) -> SecretKey:
    """A fresh key whose n has exactly `bits` bits; `BadInput` for a size that is not offered."""
    key: SecretKey = _class(scheme).generate(bits, allow_breakable)
    return key


def handed(secret: SecretKey) -> HandedSecret:
    """The key for a worker of the same party."""
    return secret.public.scheme, secret.for_worker()


def in_worker(key: HandedSecret) -> SecretKey:
    """The key in the worker."""
    scheme, data = key
    secret: SecretKey = _class(scheme).from_worker(data)
    return secret


def _class(scheme: str) -> Any:
    return import_module(f"{SCHEMES[scheme].package}.secret_key").SecretKey
