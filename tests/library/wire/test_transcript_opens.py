"""A transcript's files are opened once to be written and once to be read, however many records they hold."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from tests.library.wire.logs import RECEIVED, files_of, log, texts_of
from tests.opens import opened_to_read, opened_to_write
from treetap.errors import BadInput
from treetap.wire.transcript import TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter

TEXTS = [f"{number:064}" for number in range(60)]
ROTATE_BYTES = 1_500


def _held(folder: Path) -> list[str]:
    """Files below a folder that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # of the listing itself
            continue
        if path.startswith(f"{folder}{os.sep}"):
            found.append(Path(path).name)
    return found


def _append(writer: TranscriptWriter, text: str) -> None:
    writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value=text))


def test_a_file_is_opened_once_to_be_written(tmp_path: Path) -> None:
    """Sixty records take no more opens than one; what append returned from is in the file; closing releases it."""
    counts = []
    for number in (1, len(TEXTS)):
        folder = tmp_path / str(number)
        with opened_to_write(folder) as opened, TranscriptWriter(folder) as writer:
            for text in TEXTS[:number]:
                _append(writer, text)
                assert texts_of(folder)[-1] == text
                assert _held(folder) == ["000001.tap"]
        counts.append(len(opened))
        assert _held(folder) == []
    assert counts[0] == counts[1] > 0


def test_rotation_releases_the_full_file(tmp_path: Path) -> None:
    """A writer holds the newest file alone."""
    with TranscriptWriter(tmp_path, ROTATE_BYTES) as writer:
        for text in TEXTS:
            _append(writer, text)
            assert _held(tmp_path) == [files_of(tmp_path)[-1]]
    assert len(files_of(tmp_path)) > 4
    assert texts_of(tmp_path) == TEXTS


def test_a_file_is_opened_once_to_be_read(tmp_path: Path) -> None:
    """Reading a log opens each file once and holds one at a time; so does its continuation, of the last file alone."""
    log(tmp_path, *TEXTS, rotate_bytes=ROTATE_BYTES)
    files = files_of(tmp_path)
    with opened_to_read(tmp_path) as opened:
        records = iter(TranscriptReader(tmp_path))
        for _ in TEXTS:
            next(records)
            assert len(_held(tmp_path)) == 1
        assert list(records) == []
    assert [path.name for path in opened] == files
    assert _held(tmp_path) == []
    with opened_to_read(tmp_path) as opened:
        log(tmp_path, "later", rotate_bytes=ROTATE_BYTES)
    assert [path.name for path in opened] == files[-1:]
    assert texts_of(tmp_path) == [*TEXTS, "later"]


def test_a_reader_that_stops_halfway_holds_no_file(tmp_path: Path) -> None:
    """Whoever takes the first record only leaves no file open."""
    log(tmp_path, *TEXTS)
    records = iter(TranscriptReader(tmp_path))
    next(records)
    assert _held(tmp_path) == ["000001.tap"]
    del records
    assert _held(tmp_path) == []


@pytest.mark.parametrize("moment", ["at its begin", "within a record"])
def test_a_disk_that_fails_while_reading_is_told(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk names the file, whether it comes with the header or with a record."""
    log(tmp_path, "a", "b")
    true_open = Path.open

    class Broken:
        """A file whose later reads fail."""

        def __init__(self, path: Path) -> None:
            self._file, self._left = true_open(path, "rb"), 0 if moment == "at its begin" else 2

        def read(self, size: int = -1) -> bytes:
            if self._left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._left -= 1
            return self._file.read(size)

        def seek(self, place: int) -> int:
            return self._file.seek(place)

        def fileno(self) -> int:
            return self._file.fileno()

        def __enter__(self) -> Broken:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

    monkeypatch.setattr(Path, "open", lambda path, *_, **__: Broken(path))
    with pytest.raises(BadInput, match=r"000001\.tap: cannot be read: Input/output error"):
        list(TranscriptReader(tmp_path))
    with pytest.raises(BadInput, match=r"000001\.tap: cannot be read: Input/output error"):
        TranscriptWriter(tmp_path)
    monkeypatch.undo()
    assert texts_of(tmp_path) == ["a", "b"]
    assert _held(tmp_path) == []
