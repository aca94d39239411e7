"""One document with a checksum, for every store that has one: whole, and refused when it is not what was written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.library.models.test_line_file import PowerCut, killed
from treetap.errors import DataError
from treetap.models.durable import read_bytes, read_document, read_json, write_bytes, write_document

OLD, NEW = {"job": "credit", "of": [1, 2.5]}, {"job": "other"}


Write: TypeAlias = Callable[[Path, dict[str, Any]], None]
Read: TypeAlias = Callable[[Path, str], dict[str, Any]]
KINDS = pytest.mark.parametrize(
    ("write", "read"),
    [
        (lambda path, content: write_document(path, content, "seed"), read_document),
        (
            lambda path, content: write_bytes(path, json.dumps(content).encode(), "seed"),
            lambda path, seed: json.loads(read_bytes(path, seed)),
        ),
    ],
    ids=["object", "bytes"],
)


@KINDS
def test_a_document_comes_back_and_no_byte_can_change_unnoticed(write: Write, read: Read, tmp_path: Path) -> None:
    """Each byte changed, the end cut off, or another file in its place is damage by its name."""
    path = tmp_path / "file"
    write(path, OLD)
    assert read(path, "seed") == OLD
    whole = path.read_bytes()
    changed = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in range(len(whole))]
    for content in (*changed, whole[:-1], b"", b"{}", b"[]"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"{path}: is damaged; bring a back-up of it back"):
            read(path, "seed")
    path.write_bytes(whole)
    with pytest.raises(DataError, match="is damaged"):
        read(path, "another seed")


@KINDS
@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_document_is_the_old_or_the_new_one(
    moment: str, write: Write, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill while it is written leaves the old one; the next writing is undisturbed."""
    path = tmp_path / "file"
    write(path, OLD)
    with killed(monkeypatch, os if moment == "fsync" else Path, moment, PowerCut()):
        write(path, NEW)
    assert read(path, "seed") == OLD
    write(path, NEW)
    assert read(path, "seed") == NEW


def test_a_document_for_people_is_sorted_and_none_is_named(tmp_path: Path) -> None:
    """One key a line; a file that is not there is named."""
    path = tmp_path / "file"
    write_document(path, {"b": 1, "a": 2}, "seed", indented=True)
    assert path.read_text().splitlines()[1:3] == [' "a": 2,', ' "b": 1,']
    with pytest.raises(DataError, match=f"{tmp_path / 'none'}: there is no such file"):
        read_json(tmp_path / "none")
