"""Published models on disk, read and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treetap.errors import DataError
from treetap.models.line_file import LineFile

#: Format of a published model, in its manifest. Raised when an older treetap could not read what is written; older
#: formats are read for good, and one of each is kept below tests/library/models.
#:
#: 1: `shard.jsonl`, the trees, with its SHA-256 under `shard`. 2: `files`, from the name of each file of the shard,
#: which says its kind, to the file's SHA-256.
MODEL_FORMAT = 2

#: The kind of shard that holds trees, one JSON line a tree; its file's name in jobs and models.
TREES = "trees.jsonl"

#: All kinds of shard files that parties write.
KINDS = (TREES,)

#: File names that format 1 had, by kind.
_FORMAT_1 = {TREES: "shard.jsonl"}


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
        DataError: it is not there, of a newer format, without trees, or its files are not what was published.
    """
    manifest, files = _read_checked(folder)
    return manifest, LineFile(_file_of(folder, TREES, files)).read()


def shard_file(folder: Path, kind: str) -> Path:
    """The file of one kind in a published model of any format, its content checked.

    Raises:
        DataError: the model has no file of that kind, or what `read_model` says.
    """
    return _file_of(folder, kind, _read_checked(folder)[1])


def _read_checked(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The manifest, and the names of the files by kind, all of which are there as they were published."""
    path = folder / "manifest.json"
    manifest = read_json(path)
    version = manifest.get("version", 1)
    if type(version) is not int or version < 1:
        raise DataError(f"{path}: version {version!r} is none; bring a back-up of the file back")
    if version > MODEL_FORMAT:
        raise DataError(
            f"{folder}: is a model of format {version}, written by a newer version of treetap; this one reads formats "
            f"up to {MODEL_FORMAT}: install the version that wrote it, or a later one"
        )
    field = "shard" if version == 1 else "files"
    digests = {TREES: manifest.get(field)} if version == 1 else manifest.get(field)
    if not isinstance(digests, dict) or not digests or not all(isinstance(each, str) for each in digests.values()):
        raise DataError(f"{path}: {field} has no digest of every file of the model; bring a back-up of the file back")
    files = {kind: _FORMAT_1[kind] if version == 1 else kind for kind in digests}
    for kind, name in files.items():
        if sha256_of(folder / name) != digests[kind]:
            raise DataError(f"{folder / name}: is not the file that was published; bring a back-up of it back")
    return manifest, files


def _file_of(folder: Path, kind: str, files: Mapping[str, str]) -> Path:
    if kind not in files:
        raise DataError(f"{folder / 'manifest.json'}: the model has {', '.join(sorted(files))}, but no {kind}")
    return folder / files[kind]


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object; `DataError` names one that does not, or is not there."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (ValueError, TypeError):
        raise DataError(f"{path}: is damaged; bring a back-up of it back") from None


def sha256_of(path: Path) -> str | None:
    """The digest of a file in hexadecimal; None where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
