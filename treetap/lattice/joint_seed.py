"""Commitments to nonces, and the seed that all nonces of an attempt make.

A lattice's public polynomials come of it: a party that chose them could choose a0 = 0 and read the sets of records, or
a = 0 and read the values (docs/histogram-lattice.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

NONCE_BYTES = 32


def commitment(party: str, nonce: bytes) -> bytes:
    """SHA-256 that binds a party to its nonce, of `NONCE_BYTES`, before any is opened."""
    return hashlib.sha256(b"treetap lattice nonce\x1f" + party.encode() + b"\x1f" + nonce).digest()


def seed_of(job: str, attempt: int, nonces: Mapping[str, bytes]) -> bytes:
    """32 bytes: SHA-256 of the attempt and of every party's nonce, by the parties' names."""
    state = hashlib.sha256(f"treetap lattice seed\x1f{job}\x1f{attempt}".encode())
    for party, nonce in sorted(nonces.items()):
        state.update(b"\x1f" + party.encode() + b"\x1f" + nonce)
    return state.digest()
