"""Named draws from a key: the same on every machine, in every release of numpy, and in any order.

Each draw is the output of SHAKE-256 (FIPS 202) over the key and the draw's name, or a stream under it.
Under a key of the operating system it is private; under the seed of a job every party can repeat it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from treetap.arrays import Floats, Ints, Words

#: Bytes of a private key.
KEY_BYTES = 32


class Draws:
    """Draws under one key; a draw's `path` is its name."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "<Draws>"  # the key stays out of logs

    @classmethod
    def of_job(cls, seed: int) -> Draws:
        """Draws that every party of a job repeats from its seed."""
        return cls(f"job {int(seed)}".encode())

    @classmethod
    def reproducible(cls, seed: int, party: str) -> Draws:
        """A party's draws where the job says `reproducible`: no secret."""
        return cls(f"reproducible {int(seed)} {party}".encode())

    def keys(self, count: int, *path: str | int) -> Words:
        """Numbers of 64 bits (count,)."""
        name = "\x1f".join(f"s:{part}" if isinstance(part, str) else f"i:{int(part)}" for part in path).encode()
        state = hashlib.shake_256(len(self._key).to_bytes(4, "little") + self._key + name)
        return np.frombuffer(state.digest(8 * count), dtype="<u8").astype(np.uint64, copy=False)

    def uniform(self, count: int, *path: str | int) -> Floats:
        """Numbers (count,) in [0, 1), multiples of 2^-53."""
        return (self.keys(count, *path) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def laplace(self, scale: float, count: int, *path: str | int) -> Floats:
        """Numbers (count,) of the Laplace distribution with mean 0, by its inverse distribution function."""
        centred = (self.uniform(count, *path) - 0.5) + 2.0**-54  # exact, and in (-1/2, 1/2): each noise is finite
        return np.asarray(-scale * np.sign(centred) * np.log1p(-2.0 * np.abs(centred)))

    def signs(self, count: int, *path: str | int) -> npt.NDArray[np.float32]:
        """Numbers (count,), each 1 or -1."""
        drawn_bytes = self.source(*path)(-(-count // 64) * 8)
        bits = np.unpackbits(np.frombuffer(drawn_bytes, dtype=np.uint8), count=count)
        drawn = bits.astype(np.float32)
        drawn *= 2.0
        drawn -= 1.0
        return drawn

    def source(self, *path: str | int) -> Callable[[int], bytes]:
        """Uniform bytes, as many as its argument says, then further ones: the draw is AES-256's key in counter mode."""
        key = self.keys(KEY_BYTES // 8, *path).astype("<u8").tobytes()
        cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        return lambda count: cipher.update(bytes(count))

    def integers(self, below: int, count: int, *path: str | int) -> Ints:
        """Whole numbers (count,) in [0, below); the bias of the remainder is below 2^-32 for below ≤ 2^32."""
        return np.asarray((self.keys(count, *path) % np.uint64(below)).astype(np.int64))

    def order(self, count: int, *path: str | int) -> Ints:
        """A permutation (count,): the places of `count` keys, sorted; equal keys keep their places."""
        return np.argsort(self.keys(count, *path), kind="stable").astype(np.int64)

    def happens(self, probability: float, *path: str | int) -> bool:
        """True with this probability."""
        return bool(self.uniform(1, *path)[0] < probability)


def new_key() -> bytes:
    """A private key, from the operating system."""
    return secrets.token_bytes(KEY_BYTES)
