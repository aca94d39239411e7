"""Stored JSON, read from files of any origin, and its checksums (SHA-256): chained from line to line, and of objects.

They detect damage, such as by a disk or an editor. They are no signature: the writer of a file can compute them.

A line's checksum covers its bytes and the checksum of the line before it: a line that is changed, missing, doubled or
moved is found. That of the first line covers a `seed`, which names the file's purpose: a file in the place of another
is found. What is cut off the end of a file is not found here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treetap.errors import DataError


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for one that is none, or is nested too deeply to be ours."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


#: The key of a checksum: the last one of a line, or any of an object.
KEY = "sha256"
_BEFORE, _AFTER = f',"{KEY}":"'.encode(), b'"}\n'
#: Bytes that a checksum adds to a line, its end included.
_ADDED = len(_BEFORE) + 64 + len(_AFTER)

Object = dict[str, Any]


def first(seed: str) -> str:
    """The checksum before the first line."""
    return hashlib.sha256(seed.encode()).hexdigest()


def checked_line(content: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """A line of an object that is not empty, with its checksum; and the checksum, hexadecimal."""
    body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    digest = _chained(before, body)
    return body[:-1] + _BEFORE + digest.encode() + _AFTER, digest


def body_of(line: bytes, before: str) -> tuple[bytes, str] | None:
    """The bytes of a line's object without its checksum, and the checksum; None where it does not fit."""
    if not line.endswith(_AFTER) or line[-_ADDED:][: len(_BEFORE)] != _BEFORE:
        return None
    body, digest = line[:-_ADDED] + b"}", line[-_ADDED + len(_BEFORE) : -len(_AFTER)]
    expected = _chained(before, body)
    return (body, expected) if digest == expected.encode() else None


def whole_lines(raw: bytes) -> list[bytes]:
    """The lines of a file's content, each with its end; without a last line that a crash cut short."""
    return raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)


def bodies_of(path: Path, lines: list[bytes], seed: str) -> tuple[list[bytes], list[str]]:
    """The objects of lines as bytes, without their checksums, and the checksums.

    Raises:
        DataError: a line is not what was written; it names file and line.
    """
    bodies, digests, before = [], [], first(seed)
    for number, line in enumerate(lines, start=1):
        fitting = body_of(line, before)
        if fitting is None:
            raise DataError(f"{path}: line {number} is damaged; bring a back-up of the file back")
        bodies.append(fitting[0])
        digests.append(before := fitting[1])
    return bodies, digests


def with_checksum(content: Mapping[str, Any], seed: str) -> Object:
    """An object with its checksum, for a file of one object."""
    plain: Object = json.loads(json.dumps(content, allow_nan=False))
    return {**plain, KEY: _of_object(plain, seed)}


def without_checksum(path: Path, content: Mapping[str, Any], seed: str) -> Object:
    """The object that a file holds, its checksum taken off.

    Raises:
        DataError: it has no checksum, or one that does not fit.
    """
    plain = {key: value for key, value in content.items() if key != KEY}
    try:
        fits = content.get(KEY) == _of_object(plain, seed)
    except RecursionError:  # nested more deeply than anything that was written
        fits = False
    if not fits:
        raise DataError(f"{path}: is damaged; bring a back-up of it back")
    return plain


def bytes_with_checksum(content: bytes, seed: str) -> bytes:
    """Bytes with their checksum at the end."""
    return content + hashlib.sha256(seed.encode() + b"\n" + content).digest()


def bytes_without_checksum(path: Path, content: bytes, seed: str) -> bytes:
    """The bytes without the checksum.

    Raises:
        DataError: they are not what was written.
    """
    plain = content[:-32]
    if bytes_with_checksum(plain, seed) != content:
        raise DataError(f"{path}: is damaged; bring a back-up of it back, or cancel the job")
    return plain


def _chained(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()


def _of_object(plain: Object, seed: str) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{seed}\n{text}".encode()).hexdigest()
