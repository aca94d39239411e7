"""Commitments to nonces, and the seed that all nonces of an attempt make.

A lattice's public polynomials come of it: a party that chose them could choose a0 = 0 and read the sets of records, or
a = 0 and read the values (docs/cryptography.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

import numpy as np

from treetap.lattice.histogram_scheme import kernels
from treetap.native.histogram_arrays import DEGREE, SEED_BYTES, Binned, Moduli

NONCE_BYTES = 32


@cache
def self_test() -> bytes:
    """SHA-256 of words and products that this machine's kernels make of fixed seeds; every form gives the same.

    Raises:
        BadInput: there are no kernels here.
    """
    fixed, seed, sums = kernels(), bytes(SEED_BYTES), np.zeros((1, 2, DEGREE), dtype=np.uint64)
    public = fixed.public(seed, 0, 1)
    words, _ = fixed.encrypt(public, 0, fixed.secrets(seed, 1), seed, Moduli(38, (0,)), DEGREE)
    fixed.cells(public, Binned(np.zeros((1, DEGREE), dtype=np.uint8), (1,)), 0, range(1), sums)
    return hashlib.sha256(words.tobytes() + sums.tobytes()).digest()


def commitment(party: str, nonce: bytes) -> bytes:
    """SHA-256 that binds a party to its nonce, of `NONCE_BYTES`, before any is opened."""
    return hashlib.sha256(b"treetap lattice nonce\x1f" + party.encode() + b"\x1f" + nonce).digest()


def seed_of(job: str, attempt: int, nonces: Mapping[str, bytes]) -> bytes:
    """32 bytes: SHA-256 of the attempt and of every party's nonce, by the parties' names."""
    state = hashlib.sha256(f"treetap lattice seed\x1f{job}\x1f{attempt}".encode())
    for party, nonce in sorted(nonces.items()):
        state.update(b"\x1f" + party.encode() + b"\x1f" + nonce)
    return state.digest()
