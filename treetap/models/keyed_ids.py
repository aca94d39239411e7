"""Hashes of record ids under a random key: by them a file knows its records without their ids.

Without the key no id can be looked up. The key lies in the same file, so such a file is as sensitive as a list of
ids: whoever holds it can test a guess.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError

#: Names of arrays of a file that knows its records so: the key as bytes, and (N,) hashes.
KEY, IDS = "id key", "id hashes"
#: Bytes of a key that is drawn for a file.
KEY_BYTES = 32
#: Bytes of a hash: another id has the same one with a chance of 2^-64.
HASH_BYTES = 8
#: (N,) hashes as numbers.
Hashes = npt.NDArray[np.uint64]


class HashedIds(NamedTuple):
    """Ids (N,) by their hashes under a key."""

    key: bytes
    hashes: Hashes


def drawn(ids: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of ids (N,) under a new key."""
    key = secrets.token_bytes(KEY_BYTES)
    return {KEY: np.frombuffer(key, dtype=np.uint8), IDS: hashes(ids, key)}


def among(arrays: Mapping[str, npt.NDArray[Any]], ids: Iterable[str]) -> npt.NDArray[np.bool_]:
    """(N,) True for the records of a file's arrays that are among these ids."""
    return np.isin(arrays[IDS], hashes(ids, arrays[KEY].tobytes()))


def hashes(ids: Iterable[str], key: bytes) -> Hashes:
    """The hash of each id (N,), in the order of the ids. `key`: 1 to 64 bytes."""
    texts = (blake2b(text.encode(), digest_size=HASH_BYTES, key=key).digest() for text in ids)
    return np.frombuffer(b"".join(texts), dtype="<u8").astype(np.uint64)


#: The entry of a manifest.
TRAINED_IDS = "trained_ids"
_BYTES = 8


def trained_ids(ids: Iterable[str]) -> str:
    """The entry of a manifest for these ids: sorted digests in base64."""
    return base64.b64encode(np.sort(_digests(ids)).tobytes()).decode()


def any_trained(entry: object, ids: Iterable[str]) -> bool:
    """True if one of the ids is among those of an entry; `DataError` if it is none."""
    try:
        kept = base64.b64decode(str(entry), validate=True) if isinstance(entry, str) else b"?"
        trained: npt.NDArray[np.uint64] = np.frombuffer(kept, dtype=">u8")
    except ValueError:
        raise DataError(
            f"its manifest has no {TRAINED_IDS}, by which records of the training are recognised; bring a back-up of "
            "it back"
        ) from None
    return bool(np.isin(_digests(ids), trained).any())


def without(entry: str, ids: Iterable[str]) -> tuple[str, int]:
    """An entry without these ids, and how many of them it had."""
    trained: npt.NDArray[np.uint64] = np.frombuffer(base64.b64decode(entry, validate=True), dtype=">u8")
    kept = trained[~np.isin(trained, _digests(ids))]
    return base64.b64encode(kept.tobytes()).decode(), len(trained) - len(kept)


def _digests(ids: Iterable[str]) -> npt.NDArray[np.uint64]:
    numbers = (int.from_bytes(hashlib.sha256(text.encode()).digest()[:_BYTES], "big") for text in ids)
    return np.fromiter(numbers, dtype=np.uint64).astype(">u8")
