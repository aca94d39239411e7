"""Published models on disk, read and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from treetap.errors import DataError

#: Format of a published model, in its manifest. Raised when an older treetap could not read new models; older
#: formats stay readable, and one of each is kept below tests/library/models.
SHARD_VERSION = 1


#: Party → handle of its split → name of the feature.
Names = Mapping[str, Mapping[int, str]]


#: File of the feature names that other parties have sent, beside the label holder's shard.
NAMES = "names.json"


def read_names(folder: Path) -> dict[str, dict[int, str]]:
    """The names of a model's features that other parties have sent; none if they were never requested.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / NAMES
    if not path.is_file():
        return {}
    try:
        return {
            str(party): {int(handle): str(name) for handle, name in names.items()}
            for party, names in read_json(path).items()
        }
    except (AttributeError, ValueError):
        raise DataError(f"{path}: is damaged; remove it, and have the names sent again by predict --explain") from None


def read_model(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A published model's manifest and trees, of this format or an older one; nothing is written.

    Raises:
        DataError: it is not there, of a newer format, or its files differ from the published ones.
    """
    manifest = read_json(folder / "manifest.json")
    version = manifest.get("version", 1)
    if type(version) is not int or version < 1:
        raise DataError(f"{folder / 'manifest.json'}: version {version!r} is none; bring a back-up of the file back")
    if version > SHARD_VERSION:
        raise DataError(
            f"{folder}: is a model of format {version}, written by a newer version of treetap; this one reads formats "
            f"up to {SHARD_VERSION}: install the version that wrote it, or a later one"
        )
    if manifest.get("shard") != sha256_of(folder / "shard.jsonl"):
        raise DataError(f"{folder / 'shard.jsonl'}: is not the file that was published; bring a back-up of it back")
    return manifest, read_lines(folder / "shard.jsonl")


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object; `DataError` names one that does not, or is not there."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (ValueError, TypeError):
        raise DataError(f"{path}: is damaged; bring a back-up of it back") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a shard; `DataError` names a line that is none."""
    return parse_lines(path, whole_lines(path.read_bytes())) if path.is_file() else []


def whole_lines(raw: bytes) -> list[bytes]:
    """The lines of a shard's content, each with its end; a line cut short by a crash at the end of the file is none."""
    return raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)


def parse_lines(path: Path, lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The JSON objects of a shard's lines; `DataError` names a line that is none."""
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise DataError(f"{path}: line {number} is damaged; bring a back-up of the file back") from None
    return found


def sha256_of(path: Path) -> str | None:
    """The digest of a file in hexadecimal; None where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
