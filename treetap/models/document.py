"""Files of one document with a checksum: written whole, and refused when they are not what was written.

A document is a JSON object, or bytes. The checksum (SHA-256) covers a `seed`, which names the file's purpose: a file in
the place of another is found. It detects damage, such as by a disk or an editor. It is no signature: the writer of a
file can compute it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treetap.errors import DataError
from treetap.models.durable import make_folder, write_whole

#: The key of a checksum: the last one of a line, or any of an object.
KEY = "sha256"
#: What a person does about a damaged file.
CURE = "bring a back-up of it back"
Object = dict[str, Any]


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text of any origin. Raises ValueError for none, or one nested too deeply to be ours."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Object:
    """A file that holds one JSON object; `DataError` names one that does not, or is not there."""
    try:
        return dict(parse_json(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (ValueError, TypeError):
        raise DataError(f"{path}: is damaged; {CURE}") from None


def read_document(path: Path, seed: str, content: Object | None = None) -> Object:
    """The object that a file holds, its checksum taken off. `content`: the file's, where it was read already.

    Raises:
        DataError: it is no object, has no checksum, or one that does not fit.
    """
    content = read_json(path) if content is None else content
    plain = {key: value for key, value in content.items() if key != KEY}
    try:
        fits = content.get(KEY) == _checksum(plain, seed)
    except RecursionError:  # nested more deeply than anything that was written
        fits = False
    if not fits:
        raise DataError(f"{path}: is damaged; {CURE}")
    return plain


def write_document(path: Path, content: Mapping[str, Any], seed: str, *, indented: bool = False) -> None:
    """Write an object with its checksum, so that after a crash either the old or the new one is there."""
    make_folder(path.parent)
    write_whole(path, document(content, seed, indented=indented))


def document(content: Mapping[str, Any], seed: str, *, indented: bool = False) -> bytes:
    """An object with its checksum, as its file holds it. `indented`: for people, sorted by key."""
    plain: Object = json.loads(json.dumps(content, allow_nan=False))
    whole = {**plain, KEY: _checksum(plain, seed)}
    return json.dumps(whole, indent=1 if indented else None, sort_keys=indented).encode()


def write_bytes(path: Path, content: bytes, seed: str) -> None:
    """Write bytes with their checksum at the end, as `write_document` does."""
    make_folder(path.parent)
    write_whole(path, content + hashlib.sha256(seed.encode() + b"\n" + content).digest())


def read_bytes(path: Path, seed: str) -> bytes:
    """The bytes of a file without their checksum; `DataError` if they are not what was written."""
    content = path.read_bytes()
    if hashlib.sha256(seed.encode() + b"\n" + content[:-32]).digest() != content[-32:]:
        raise DataError(f"{path}: is damaged; {CURE}, or cancel the job")
    return content[:-32]


def _checksum(plain: Object, seed: str) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{seed}\n{text}".encode()).hexdigest()
