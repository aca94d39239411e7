"""The content of a state folder's files, in every encoding in which they may have an id."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from binascii import Error
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import pyarrow.parquet as pq

from treetap.models.arrays import read_arrays
from treetap.models.keyed_ids import HASH_BYTES, KEY
from treetap.wire.own_rows import OwnRows
from treetap.wire.transcript import TranscriptReader

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{8,}={0,2}")


def holding(state: Path, ids: Iterable[str]) -> set[str]:
    """The places of files that have one of the ids: as text, or as a hash under any of the party's keys or none."""
    files = {path.relative_to(state).as_posix(): list(_views(path)) for path in state.rglob("*") if path.is_file()}
    keys = {key for path in state.rglob("*") if path.is_file() for key in _keys(path)}
    needles = [needle for text in ids for needle in _needles(text, keys)]
    return {place for place, views in files.items() if any(needle in view for view in views for needle in needles)}


def _needles(text: str, keys: Iterable[bytes]) -> Iterator[bytes]:
    yield text.encode()
    yield hashlib.sha256(text.encode()).digest()[:8]
    yield from (blake2b(text.encode(), digest_size=HASH_BYTES, key=key).digest() for key in keys)


def _keys(path: Path) -> Iterator[bytes]:
    if path.suffix == ".own":
        yield OwnRows.read(path).key
    elif path.suffix == ".npz":
        yield from (array.tobytes() for name, array in read_arrays(path).items() if name in (KEY, "key"))
    elif path.parent.name == "queries":
        yield bytes.fromhex(json.loads(path.read_text().splitlines()[0])["key"])


def _views(path: Path) -> Iterator[bytes]:
    """The file as it is, and what is compressed or encoded in it."""
    raw = path.read_bytes()
    yield raw
    if path.suffix == ".tap":
        yield from (record.message for record in TranscriptReader(path))
    elif path.suffix == ".npz":
        yield from (array.tobytes() for array in read_arrays(path).values())
    elif path.suffix == ".parquet":
        yield str(pq.read_table(path).to_pylist()).encode()
    elif path.suffix in (".json", ".jsonl"):
        for text in _BASE64.findall(raw):
            try:
                yield base64.b64decode(text, validate=True)
            except Error:
                continue
