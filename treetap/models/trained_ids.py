"""The records that a model was trained on, kept with it as digests of ids: a party can refuse to score them again.

An id is kept as the first 8 bytes of its SHA-256. Another id has the same ones with a chance of 2^-64: a record of
another table is refused wrongly about once in 10^7 predictions of a million records by a model of as many.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError

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
