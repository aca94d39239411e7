"""Files of a transcript, and their chain.

- Files of a transcript after a power loss or a full disk, and files that were made to harm their reader.
- The chain of a log: no bit, record or file can be changed, removed, moved or replaced without its showing.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from tests.library.wire.logs import RECEIVED, files_of, log, record_ends, texts_of
from treetap.errors import BadInput, Interrupted, Malformed
from treetap.wire import transcript_writer
from treetap.wire.tls import Insecure
from treetap.wire.transcript import HEADER, MOST_BYTES, VERSION, TranscriptReader, counted, summarise
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

#: Longer than a sector of the disk each.
TEXTS = [os.urandom(700).hex() for _ in range(3)]


def _bytes_after(content: bytes, first: int) -> bytes:
    """The content with zeros from `first` on."""
    return content[:first] + bytes(len(content) - first)


@pytest.mark.parametrize("tail", [1, 3, 4, 5, 511, 4096, 3 << 20])
def test_zeros_after_the_last_record_are_torn(tail: int, tmp_path: Path) -> None:
    """A power loss may leave the file longer than its content; every record is read, and the next writer goes on."""
    log(tmp_path, *TEXTS)
    path = tmp_path / "000001.tap"
    path.write_bytes(path.read_bytes() + bytes(tail))
    assert texts_of(tmp_path) == TEXTS
    assert TranscriptReader(tmp_path).torn
    log(tmp_path, "after")
    assert texts_of(tmp_path) == [*TEXTS, "after"]


def test_zeros_from_a_sector_or_a_write_on_are_torn(tmp_path: Path) -> None:
    """Wherever the zeros begin: whole records are read, the rest is torn, and the next writer goes on."""
    log(tmp_path / "whole", *TEXTS)
    whole = (tmp_path / "whole" / "000001.tap").read_bytes()
    ends = record_ends(whole)
    begins = [*range(0, len(whole), 512), *(end for end in ends[:-1]), *(end + 4 for end in ends[:-1])]
    for first in begins:
        folder = tmp_path / f"from-{first}"
        folder.mkdir()
        (folder / "000001.tap").write_bytes(_bytes_after(whole, first))
        kept = TEXTS[: sum(end <= first for end in ends)]
        assert texts_of(folder) == kept
        assert TranscriptReader(folder).torn
        log(folder, "after")
        assert texts_of(folder) == [*kept, "after"]


@pytest.mark.parametrize("text", ["short", TEXTS[1]], ids=["short", "long"])
def test_zeros_from_within_a_frame_on_are_torn(text: str, tmp_path: Path) -> None:
    """However little of a frame is left: with a header that then says no content, it is no empty record either."""
    log(tmp_path / "whole", text, text)
    whole = (tmp_path / "whole" / "000001.tap").read_bytes()
    first, second, *_ = record_ends(whole)
    for kept in range(1, min(40, second - first)):
        folder = tmp_path / f"kept-{kept}"
        folder.mkdir()
        (folder / "000001.tap").write_bytes(whole[: first + kept] + bytes(1024))
        assert texts_of(folder) == [text]
        log(folder, "after")
        assert texts_of(folder) == [text, "after"]


def test_zeros_elsewhere_are_damage(tmp_path: Path) -> None:
    """Within a sector, or with something behind them, zeros are no trace of a power loss."""
    log(tmp_path, *TEXTS)
    path = tmp_path / "000001.tap"
    whole = path.read_bytes()
    first, second, _ = record_ends(whole)
    changed = {
        "a length": whole[:first] + bytes(4) + whole[first + 4 :],
        "a record": whole[:first] + bytes(second - first) + whole[second:],
        "the last bytes": _bytes_after(whole, len(whole) - 3),
        "the begin": bytes(len(HEADER)) + whole[len(HEADER) :],
    }
    for content in changed.values():
        path.write_bytes(content)
        with pytest.raises(Malformed, match=r"000001\.tap: byte \d+: "):
            texts_of(tmp_path)


def test_a_file_is_on_disk_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In rotation, after a restart and at the close: every file that another one follows was synchronised whole."""
    synced: dict[str, int] = {}
    begun: list[str] = []
    real_sync, real_open = os.fsync, os.open

    def sync(descriptor: int) -> None:
        synced[os.readlink(f"/proc/self/fd/{descriptor}")] = os.fstat(descriptor).st_size
        real_sync(descriptor)

    def opened(name: str | Path, flags: int, *more: int) -> int:
        if flags & os.O_CREAT:
            begun.append(Path(name).name)
            for path in tmp_path.glob("*.tap"):
                assert synced[str(path)] == path.stat().st_size
        return real_open(name, flags, *more)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "open", opened)

    def append(writer: TranscriptWriter, text: str) -> None:
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value=text))

    with TranscriptWriter(tmp_path, 1_200, signer=Insecure("a")) as writer:
        for text in TEXTS:
            append(writer, text)
    killed = TranscriptWriter(tmp_path)
    append(killed, "a")
    killed._unlock()  # as the system does
    synced.clear()
    for path in sorted(tmp_path.glob("*.tap"))[:3]:  # on disk since the first writer
        synced[str(path)] = path.stat().st_size
    log(tmp_path, "b")
    assert begun == [f"00000{number}.tap" for number in range(1, 6)]
    assert synced[str(tmp_path / "000005.tap")] == (tmp_path / "000005.tap").stat().st_size
    assert texts_of(tmp_path) == [*TEXTS, "a", "b"]


@pytest.mark.parametrize("moment", ["made", "begun", "the old one is synchronised"])
def test_a_failed_rotation_leaves_no_gap(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that needed a new file is refused by name; once the disk takes it, numbers go on without a gap."""
    fault = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(*_: object) -> None:
        raise fault

    with TranscriptWriter(tmp_path, 1_200, signer=Insecure("a")) as writer:

        def append(text: str) -> None:
            writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value=text))

        append(TEXTS[0])
        with monkeypatch.context() as patched:
            if moment == "made":
                patched.setattr(transcript_writer.os, "open", fail)
            elif moment == "begun":
                real = transcript_writer._write_all
                patched.setattr(
                    transcript_writer,
                    "_write_all",
                    lambda file, *parts: fail() if HEADER in parts else real(file, *parts),
                )
            else:
                patched.setattr(transcript_writer.os, "fsync", fail)
            for _ in range(3):
                with pytest.raises(Interrupted, match=r"\.tap: cannot write the transcript: No space left"):
                    append(TEXTS[1])
        append(TEXTS[2])
    assert files_of(tmp_path) == ["000001.tap", "000002.tap"]
    assert texts_of(tmp_path) == [TEXTS[0], TEXTS[2]]


def test_a_record_that_cannot_be_taken_back_is_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes half a record and does not let it be cut off: the next record begins a new file."""
    real = transcript_writer._write_all

    def half(file: object, *parts: bytes) -> None:
        real(file, *(part[: len(part) // 2] for part in parts))  # type: ignore[arg-type]
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with TranscriptWriter(tmp_path, signer=Insecure("a")) as writer:
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="a"))
        with monkeypatch.context() as patched:
            patched.setattr(transcript_writer, "_write_all", half)
            patched.setattr(transcript_writer.os, "ftruncate", fail)
            with pytest.raises(Interrupted, match=r"000001\.tap: cannot write the transcript: Input/output error"):
                writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="b"))
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="c"))
    assert texts_of(tmp_path) == ["a", "c"]
    assert files_of(tmp_path) == ["000001.tap", "000002.tap"]
    assert TranscriptReader(tmp_path).anchor.state == "empty"  # nothing was read yet


# --- made to harm


def _file(folder: Path, *frames: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "000001.tap").write_bytes(HEADER + b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    return folder


def _bomb() -> bytes:
    # A frame of zeros.
    size = 256 << 20
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True).compressobj()
    block = bytes(1 << 20)
    parts = [compressor.compress(block) for _ in range(size >> 20)]
    return b"".join(parts) + compressor.flush()


def _bomb_of_said_size() -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(bytes(128 << 20))


def _lying_size() -> bytes:
    """A frame that says 1 kB and holds 64 MiB."""
    frame = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(bytes(64 << 20)))
    size = (64 << 20).to_bytes(4, "little")
    at = frame.index(size, 4)
    frame[at : at + 4] = (1 << 10).to_bytes(4, "little")
    return bytes(frame)


@pytest.mark.parametrize("bomb", [_bomb, _bomb_of_said_size, _lying_size])
def test_a_bomb_is_refused_within_bounded_memory(bomb: Callable[[], bytes], tmp_path: Path) -> None:
    """A frame that unpacks to far more than a record may hold, whatever it says of itself, whole or cut short."""
    frame = bomb()
    assert len(frame) < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole = _file(tmp_path / "whole", frame)
    with pytest.raises(Malformed, match=r"000001\.tap: byte 21: the record (unpacks to more than|is damaged)"):
        list(TranscriptReader(whole))
    cut = _file(tmp_path / "cut", frame)
    content = (cut / "000001.tap").read_bytes()
    (cut / "000001.tap").write_bytes(content[:-1])
    with suppress(Malformed):  # the streamed bomb; the two others unpack to nothing, or to less than a record
        assert list(TranscriptReader(cut)) == []
        assert bomb is not _bomb
    with pytest.raises(Malformed):
        TranscriptWriter(whole)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # kB


def test_lengths_that_no_record_has_are_refused(tmp_path: Path) -> None:
    """A sparse file of gigabytes takes neither memory nor time."""
    folder = tmp_path / "log"
    folder.mkdir()
    for length in (MOST_BYTES * 2, 0xFFFFFFFF):
        with (folder / "000001.tap").open("wb") as file:
            file.write(HEADER + length.to_bytes(4, "big") + b"\x28\xb5\x2f\xfd")
            file.truncate(16 << 30)
            file.seek(16 << 30)
            file.write(b"x")
        with pytest.raises(Malformed, match="the record's length was changed"):
            list(TranscriptReader(folder))


def test_what_readers_refuse_is_never_written(tmp_path: Path) -> None:
    """A message of more than a record may hold."""
    with TranscriptWriter(tmp_path) as writer:
        with pytest.raises(BadInput, match="does not fit a transcript"):
            writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, BytesValue(value=bytes(MOST_BYTES)))
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="a"))
    assert texts_of(tmp_path) == ["a"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A pipe, whose opening would wait for ever, and a folder."""
    folder = tmp_path / "log"
    folder.mkdir()
    os.mkfifo(folder / "000001.tap")
    with pytest.raises(BadInput, match=r"000001\.tap: is not a file"):
        list(TranscriptReader(folder))
    (folder / "000001.tap").unlink()
    (folder / "000001.tap").mkdir()
    with pytest.raises(BadInput, match=r"000001\.tap: is not a file"):
        TranscriptWriter(folder)


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    """A number that is no kind of record, also where nothing else is wrong."""
    for kind in (0, 9):
        record = TranscriptRecord(kind=kind, previous=bytes(32))  # type: ignore[arg-type]
        folder = _file(tmp_path / str(kind), zstandard.ZstdCompressor().compress(record.SerializeToString()))
        with pytest.raises(Malformed, match=f"record 0: its kind is {kind}, which is none"):
            summarise(folder)


def test_bytes_by_class_are_those_of_the_message(tmp_path: Path) -> None:
    """They are computed; a record that says others, or names a class that there is not, is refused."""
    log(tmp_path, "a")
    (record,) = TranscriptReader(tmp_path)
    assert counted(record) == record.bytes_by_class
    for classes in ({}, {"CONTROL": 3}, {"NONSENSE": 3}, {**record.bytes_by_class, "CONTROL": 1}):
        record.bytes_by_class.clear()
        record.bytes_by_class.update(classes)
        with pytest.raises(Malformed, match="record 0: its bytes by class are not those of its message"):
            counted(record)


@pytest.mark.parametrize("number", [1, VERSION - 1, VERSION + 1, 12])
def test_every_other_version_is_refused_by_its_number(number: int, tmp_path: Path) -> None:
    """Lower or higher: file, both numbers and the remedy; a writer does not go on with such a one either."""
    log(tmp_path, "a")
    path = tmp_path / "000001.tap"
    path.write_bytes(path.read_bytes().replace(HEADER, f"treetap transcript {number}\n".encode(), 1))
    said = (
        f"{path}: byte 0: is a transcript of version {number}, and this release reads version {VERSION} alone: read it "
        "with the release that wrote it"
    )
    for use in (lambda: texts_of(tmp_path), lambda: texts_of(path), lambda: log(tmp_path, "b")):
        with pytest.raises(Malformed) as refusal:
            use()
        assert str(refusal.value) == said


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
