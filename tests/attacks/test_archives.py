"""Archives that were made to harm their reader: one named error each, within bounded disk and memory."""

from __future__ import annotations

import gzip
import io
import lzma
import resource
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from treetap.attacks.view import kept_messages
from treetap.attacks.view.kept_messages import unpack
from treetap.errors import BadInput

MEGABYTE = bytes(1 << 20)


def _zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("1/000001.tap", "w") as file:
        for _ in range(24):
            file.write(MEGABYTE)


def _lying_zip(path: Path) -> None:
    """An entry that says it is short."""
    _zip_bomb(path)
    content = path.read_bytes()
    path.write_bytes(content.replace((24 << 20).to_bytes(4, "little"), (100).to_bytes(4, "little")))


def _packed_bomb(opened: Any, path: Path) -> None:
    with opened(path, "wb") as file:
        for _ in range(24):
            file.write(MEGABYTE)


def _long_header(path: Path) -> None:
    """A tar archive whose header of names is 24 MiB long."""
    info = tarfile.TarInfo("name")
    info.type, info.size = tarfile.XHDTYPE, 24 << 20
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf(tarfile.PAX_FORMAT))
        for _ in range(24):
            file.write(MEGABYTE)


def _header_without_content(path: Path) -> None:
    """The same, where nothing follows."""
    info = tarfile.TarInfo("name")
    info.type, info.size = tarfile.XHDTYPE, 7 << 30
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def _sparse(path: Path) -> None:
    """A file of a gigabyte of holes."""
    info = tarfile.TarInfo("000001.tap")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 0
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = header[398:410] = b"00000000000\0"
    header[483:495] = f"{1 << 30:011o}\0".encode()
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path.write_bytes(bytes(header) + bytes(1024))


def _name_with_a_zero(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("000001.tap")
        info.pax_headers = {"path": "a\0b/000001.tap"}
        archive.addfile(info, io.BytesIO())


def _file_as_folder(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("000001.tap", b"")
        archive.writestr("000001.tap/000002.tap", b"")


def _leads_out(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("a/../../000001.tap"), io.BytesIO())


@pytest.mark.parametrize(
    "made",
    [
        _zip_bomb,
        _lying_zip,
        partial(_packed_bomb, gzip.open),
        partial(_packed_bomb, partial(lzma.open, preset=0)),
        _long_header,
        _header_without_content,
        _sparse,
        _name_with_a_zero,
        _file_as_folder,
        _leads_out,
    ],
)
def test_what_harms_is_refused(made: Callable[[Path], None], tmp_path: Path) -> None:
    """The archive is named, what came out of it is bounded, and nothing lies outside."""
    path, into = tmp_path / "theirs", tmp_path / "into"
    made(path)
    assert path.stat().st_size < 1 << 20
    into.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInput, match=f"{path}: "):
        unpack(path, into)
    assert sum(file.stat().st_blocks * 512 for file in into.rglob("*.tap")) < 40 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kB
    assert sorted(each.name for each in tmp_path.iterdir()) == ["into", "theirs"]


def test_links_are_left_out(tmp_path: Path) -> None:
    """A link in an archive is no file of a transcript."""
    path, into = tmp_path / "theirs", tmp_path / "into"
    into.mkdir()
    with tarfile.open(path, "w:bz2") as archive:
        link = tarfile.TarInfo("000001.tap")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        content = tarfile.TarInfo("000002.tap")
        content.size = 3
        archive.addfile(content, io.BytesIO(b"abc"))
    unpack(path, into)
    assert [(each.name, each.read_bytes()) for each in into.iterdir()] == [("000002.tap", b"abc")]


def test_the_bound_grows_with_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large transcript comes out whole."""
    monkeypatch.setattr(kept_messages, "_AT_LEAST", 0)
    path, into = tmp_path / "theirs", tmp_path / "into"
    into.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("000001.tap", MEGABYTE)
    unpack(path, into)
    assert (into / "000001.tap").stat().st_size == len(MEGABYTE)
