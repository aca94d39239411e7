"""The rows of a party's file that aligned records are: a file beside the transcript, whose chain has its digest alone.

A record can be forgotten and the others still be verified. An entry is 32 random bytes, the record's row and a hash of
its id; the digest is over the SHA-256 of each entry. In the place of a forgotten record's entry stands that SHA-256,
which without the random bytes tells nothing, also to those who guess the row and the id.

    line   :data:`HEADER`
    key    32 bytes, of the hashes of ids (`treetap.models.keyed_ids`)
    entry  32 random bytes · row, 8 bytes · hash of the id, 8 bytes; forgotten: SHA-256 of the entry · −1 · 0

Numbers are little-endian. The digest is SHA-256 over line, key and the SHA-256 of each entry, in the common order.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treetap.arrays import Rows
from treetap.errors import BadInput, Malformed, cannot
from treetap.models.durable import write_whole
from treetap.models.keyed_ids import hashes
from treetap.wire.v2.transcript_pb2 import OwnAlignment

#: Line at the begin of a file, with the version of its format.
HEADER = b"treetap own rows 1\n"
#: Names of files in a transcript's folder: the first half of the digest.
NAME = re.compile(r"[0-9a-f]{32}\.own")
#: The row of a record that is forgotten.
FORGOTTEN = -1
#: An entry of the file.
ENTRY = np.dtype([("salt", "u1", 32), ("row", "<i8"), ("id", "<u8")])
KEY_BYTES = 32


@dataclass(frozen=True)
class OwnRows:
    """The content of a file: the key of its hashes, and the entries (N,) of type `ENTRY`, in the common order."""

    key: bytes
    entries: npt.NDArray[np.void]

    @classmethod
    def of(cls, rows: Rows, ids: Iterable[str], draw: Callable[[int], bytes] = secrets.token_bytes) -> OwnRows:
        """Entries of the aligned records (N,), with these ids. `draw`: random bytes, of the system outside tests."""
        key, entries = draw(KEY_BYTES), np.zeros(len(rows), dtype=ENTRY)
        entries["salt"] = np.frombuffer(draw(32 * len(rows)), dtype=np.uint8).reshape(-1, 32)
        entries["row"], entries["id"] = rows, hashes(ids, key)
        return cls(key, entries)

    @classmethod
    def read(cls, path: Path) -> OwnRows:
        """The content of a file. Raises Malformed for one that is damaged, and OSError."""
        content = path.read_bytes()
        begin = len(HEADER) + KEY_BYTES
        if not content.startswith(HEADER) or len(content) < begin or (len(content) - begin) % ENTRY.itemsize:
            raise Malformed(f"{path}: is no file of own rows, or is cut; bring a back-up of it back")
        return cls(content[len(HEADER) : begin], np.frombuffer(content[begin:], dtype=ENTRY))

    @property
    def rows(self) -> Rows:
        """The row of each record in the party's file (N,); `FORGOTTEN` of those that are."""
        return self.entries["row"].astype(np.int64)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 as the chain has it; forgetting a record does not change it."""
        state, content, size = sha256(HEADER + self.key), self.entries.tobytes(), ENTRY.itemsize
        texts = (content[first : first + size] for first in range(0, len(content), size))
        for entry, row in zip(texts, self.rows.tolist(), strict=True):
            state.update(entry[:32] if row == FORGOTTEN else sha256(entry).digest())
        return state.digest()

    def holds(self, ids: Iterable[str]) -> npt.NDArray[np.bool_]:
        """(N,) True for the entries of these ids that are not forgotten yet."""
        held: npt.NDArray[np.bool_] = np.isin(self.entries["id"], hashes(ids, self.key)) & (self.rows != FORGOTTEN)
        return held

    def without(self, gone: npt.NDArray[np.bool_]) -> OwnRows:
        """The same content with the entries at these places (N,) forgotten."""
        entries = self.entries.copy()
        for place in np.flatnonzero(gone).tolist():
            leaf = np.frombuffer(sha256(self.entries[place].tobytes()).digest(), dtype=np.uint8)
            entries[place] = (leaf, FORGOTTEN, 0)
        return OwnRows(self.key, entries)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all. Raises OSError."""
        write_whole(path, HEADER + self.key + self.entries.tobytes())


def keep(folder: Path, own: OwnRows) -> OwnAlignment:
    """Write the file beside a transcript; returns what the chain has of it. Raises OSError."""
    digest = own.digest
    own.write(path_of(folder, digest))
    return OwnAlignment(records=len(own.entries), digest=digest)


def path_of(folder: Path, digest: bytes) -> Path:
    """The file of a digest in a transcript's folder."""
    return folder / f"{digest.hex()[:32]}.own"


def kept(folder: Path, chained: OwnAlignment) -> OwnRows:
    """The content of the file of a record of the chain.

    Raises:
        BadInput: it is missing, or cannot be read.
        Malformed: it is not what the chain has the digest of.
    """
    path = path_of(folder, chained.digest)
    if not path.is_file():
        raise BadInput(
            f"{path}: is missing: it says which rows of the party's table the {chained.records} common records are; "
            "it belongs beside the transcript"
        )
    with cannot("be read", path):
        if path.stat().st_size != len(HEADER) + KEY_BYTES + ENTRY.itemsize * chained.records:
            raise Malformed(f"{path}: was changed: it is not of the {chained.records} records that the transcript says")
        own = OwnRows.read(path)
    if len(own.entries) != chained.records or own.digest != chained.digest:
        raise Malformed(f"{path}: was changed: it is not what the transcript has the digest of")
    return own
