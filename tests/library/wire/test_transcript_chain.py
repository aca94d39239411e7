"""The chain of a log: no bit, record or file can be changed, removed, moved or replaced without its showing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.library.wire.logs import files_of, log, record_ends, texts_of
from treetap.errors import Malformed
from treetap.wire.transcript import HEADER, TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.transcript_pb2 import TranscriptRecord


def test_no_changed_bit_goes_unnoticed(tmp_path: Path) -> None:
    """For every bit of a file: reading is Malformed with file and offset, or every record is what it was."""
    log(tmp_path, "alpha", "beta")
    path = tmp_path / "000001.tap"
    whole = path.read_bytes()
    ends = record_ends(whole)
    told = list(TranscriptReader(tmp_path))
    unchanged = 0
    for place in range(len(whole)):
        begin = max(offset for offset in (0, len(HEADER), ends[0]) if offset <= place)
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            outcome = _read_or_complaint(tmp_path)
            assert outcome == told or str(outcome).startswith(f"{path}: byte {begin}: ")
            unchanged += outcome == told
    assert unchanged <= 2 * 8  # bits that zstd's format leaves unused


def _read_or_complaint(path: Path) -> list[TranscriptRecord] | str:
    try:
        return list(TranscriptReader(path))
    except Malformed as error:
        return str(error)


def _cut_the_middle(folder: Path) -> str:
    content = (folder / "000002.tap").read_bytes()
    end, _ = record_ends(content)
    (folder / "000002.tap").write_bytes(content[: len(HEADER)] + content[end:])
    return f"000002.tap: byte {len(HEADER)}: record 3 does not follow record 1"


def _cut_the_end_of_a_file(folder: Path) -> str:
    content = (folder / "000002.tap").read_bytes()
    (folder / "000002.tap").write_bytes(content[: record_ends(content)[0]])
    return f"000003.tap: byte {len(HEADER)}: record 4 does not follow record 2"


def _remove_a_file(folder: Path) -> str:
    (folder / "000002.tap").unlink()
    return "000003.tap: byte 0: the file 000002.tap before it is missing"


def _remove_the_first_file(folder: Path) -> str:
    (folder / "000001.tap").unlink()
    return "000002.tap: byte 0: the file 000001.tap before it is missing"


def _remove_and_rename(folder: Path) -> str:
    (folder / "000002.tap").unlink()
    (folder / "000003.tap").rename(folder / "000002.tap")
    return f"000002.tap: byte {len(HEADER)}: record 4 does not follow record 1"


def _replace_a_record(folder: Path) -> str:
    """Another log's record of the same number and size."""
    log(folder / "other", "a", "x")
    log(folder / "other", "c", "d")
    (folder / "other" / "000001.tap").rename(folder / "000001.tap")
    return f"000002.tap: byte {len(HEADER)}: record 2 does not follow record 1"


def _swap_records(folder: Path) -> str:
    content = (folder / "000003.tap").read_bytes()
    first, _ = record_ends(content)
    (folder / "000003.tap").write_bytes(HEADER + content[first:] + content[len(HEADER) : first])
    return f"000003.tap: byte {len(HEADER)}: record 5 does not follow record 3"


def _another_version(folder: Path) -> str:
    (folder / "000002.tap").write_bytes(b"treetap transcript 7\n")
    return "000002.tap: byte 0: is a transcript of version 7"


@pytest.mark.parametrize(
    "tamper",
    [
        _cut_the_middle,
        _cut_the_end_of_a_file,
        _remove_a_file,
        _remove_the_first_file,
        _remove_and_rename,
        _replace_a_record,
        _swap_records,
        _another_version,
    ],
)
def test_what_was_removed_moved_or_replaced_shows(tmp_path: Path, tamper: Callable[[Path], str]) -> None:
    """Each way to falsify a log of three files is Malformed at the file and byte where the chain breaks."""
    for pair in ("ab", "cd", "ef"):
        log(tmp_path, *pair)
    assert texts_of(tmp_path) == list("abcdef")
    expected = tamper(tmp_path)
    with pytest.raises(Malformed) as caught:
        list(TranscriptReader(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/{expected}")


def test_a_writer_does_not_go_on_from_damage(tmp_path: Path) -> None:
    """Continuing after a changed record would give the change a place in the chain."""
    log(tmp_path, "a")
    path = tmp_path / "000001.tap"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(Malformed, match=rf"{path}: byte {len(HEADER)}: the record is damaged"):
        TranscriptWriter(tmp_path)
    assert files_of(tmp_path) == ["000001.tap"]
