"""Ciphertexts as integers, for tests that look into them."""

from __future__ import annotations

from collections.abc import Iterable

from gmpy2 import mpz

from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.residues.batches import Batch


def integers(public: PublicKey, ciphertexts: Batch | bytes) -> list[mpz]:
    """The numbers of a batch, or of concatenated blocks."""
    return public.ring.numbers(public.read(ciphertexts) if isinstance(ciphertexts, bytes) else ciphertexts)


def batch(public: PublicKey, numbers: Iterable[int]) -> Batch:
    """A batch of numbers."""
    return public.ring.batch(numbers)
