"""Hashes of record ids under a random key: by them a file knows its records without their ids.

Without the key nobody can look an id up. The key lies in the same file, so such a file is as sensitive as a list of
ids: whoever holds it can test a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

#: Bytes of a hash: another id has the same one with a chance of 2^-64.
HASH_BYTES = 8
#: (N,) hashes as numbers.
Hashes = npt.NDArray[np.uint64]


def hashes(ids: Iterable[str], key: bytes) -> Hashes:
    """The hash of each id (N,), in the order of the ids. `key`: 1 to 64 bytes."""
    texts = (blake2b(text.encode(), digest_size=HASH_BYTES, key=key).digest() for text in ids)
    return np.frombuffer(b"".join(texts), dtype="<u8").astype(np.uint64)
