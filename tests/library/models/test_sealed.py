"""Sealed files: what is changed, moved, doubled or cut is found, a torn end is not, and no key encrypts twice."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from treetap.errors import ConfigError, DataError, Interrupted, Malformed
from treetap.models.durable import read_whole, write_whole
from treetap.models.line_file import LineFile
from treetap.models.sealed import ADDED, HEADER_BYTES, MAGIC, Seal, StateKey
from treetap.wire import transcript_writer
from treetap.wire.tap_file import HEADER
from treetap.wire.transcript import TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.transcript_pb2 import OwnSplit, TranscriptRecord

KEY = StateKey(bytes(range(32)))
PART = 1 << 20


def seal(folder: Path, key: StateKey = KEY) -> Seal:
    """The seal of a folder in which every file is sealed."""
    return Seal(folder, key, lambda _: True)


def lines(path: Path, count: int = 3, key: StateKey = KEY, folder: Path | None = None) -> list[bytes]:
    """Write a file of that many lines; returns its header and its frames."""
    file = LineFile(path, lambda: "seed", seal(folder or path.parent, key))
    ends = [HEADER_BYTES]
    for number in range(count):
        file.put({"canary": f"record-{number}"}, number)
        ends.append(path.stat().st_size)
    raw = path.read_bytes()
    return [raw[:HEADER_BYTES], *(raw[a:b] for a, b in pairwise(ends))]


def read(path: Path, key: StateKey = KEY) -> list[str]:
    """The canaries of a file of lines."""
    return [line["canary"] for line in LineFile(path, lambda: "seed", seal(path.parent, key)).read()]


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1])
def test_a_whole_file_is_read_as_it_was_written(size: int, tmp_path: Path) -> None:
    """Of no bytes, of one frame and of two; without a key its bytes are the content."""
    content, path = os.urandom(size), tmp_path / "file"
    write_whole(path, content, seal=seal(tmp_path))
    assert read_whole(path, seal(tmp_path)) == content
    assert path.stat().st_size == HEADER_BYTES + max(1, -(-size // PART)) * ADDED + size
    write_whole(path, content)
    assert path.read_bytes() == content


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    """Of header, length, salt, ciphertext and tag: the error names the file."""
    path = tmp_path / "file"
    raw = b"".join(lines(path, 2))
    assert b"record-" not in raw
    for place in range(len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(DataError, match=str(path)):
            read(path)


@pytest.mark.parametrize(
    ("meddle", "frame"),
    [
        (lambda own, _: [own[0], own[2], own[1], own[3]], 0),
        (lambda own, _: [own[0], own[1], own[3]], 1),
        (lambda own, _: [*own[:3], own[2], own[3]], 2),
        (lambda own, other: [*own[:3], other[3]], 2),
        (lambda own, other: [own[0], *other[1:]], 0),
    ],
    ids=["swapped", "left out", "doubled", "of another file", "all of another file"],
)
def test_a_moved_frame_is_refused(meddle: Callable[..., list[bytes]], frame: int, tmp_path: Path) -> None:
    """By its number in its file."""
    path = tmp_path / "file"
    other, own = lines(tmp_path / "other"), lines(path)
    path.write_bytes(b"".join(meddle(own, other)))
    with pytest.raises(DataError, match=rf"{path}: .*frame {frame}\b"):
        read(path)


def test_a_file_in_the_place_of_another_job_s_is_refused(tmp_path: Path) -> None:
    """Its place is bound to every frame, and so is the key."""
    folder = tmp_path / "jobs"
    for job in ("a", "b"):
        (folder / job).mkdir(parents=True)
    write_whole(folder / "a" / "scores.npz", b"scores", seal=seal(tmp_path))
    (folder / "a" / "scores.npz").rename(folder / "b" / "scores.npz")
    with pytest.raises(DataError, match="frame 0 was changed, moved or is of another file"):
        read_whole(folder / "b" / "scores.npz", seal(tmp_path))
    other = StateKey(bytes(32))
    with pytest.raises(DataError, match=f"encrypted with state key {KEY.id.hex()}, not with {other.id.hex()}"):
        read_whole(folder / "b" / "scores.npz", seal(tmp_path, other))
    with pytest.raises(DataError, match="give the configuration of its party"):
        read_whole(folder / "b" / "scores.npz")
    (folder / "b" / "scores.npz").write_bytes(b"scores")
    with pytest.raises(DataError, match="is not encrypted, though there is a state_key"):
        read_whole(folder / "b" / "scores.npz", seal(tmp_path))


def test_a_whole_file_that_is_cut_at_a_frame_is_refused(tmp_path: Path) -> None:
    """Its last frame says that it is the last."""
    path = tmp_path / "file"
    write_whole(path, bytes(2 * PART), seal=seal(tmp_path))
    raw = path.read_bytes()
    for cut in (HEADER_BYTES + PART + ADDED, HEADER_BYTES + PART, HEADER_BYTES, HEADER_BYTES - 1):
        path.write_bytes(raw[:cut])
        with pytest.raises(DataError, match=str(path)):
            read_whole(path, seal(tmp_path))


def test_a_torn_line_does_not_count_and_the_next_takes_its_place(tmp_path: Path) -> None:
    """Wherever a crash cut the last frame, and with the zeros that a power loss leaves."""
    path = tmp_path / "file"
    *_, last = lines(path)
    raw = path.read_bytes()
    for cut in range(1, len(last) + 1):
        path.write_bytes(raw[:-cut])
        assert read(path) == ["record-0", "record-1"]
    path.write_bytes(raw[: -len(last)] + bytes(600))
    assert read(path) == ["record-0", "record-1"]
    LineFile(path, lambda: "seed", seal(tmp_path)).put({"canary": "again"}, 2)
    assert read(path) == ["record-0", "record-1", "again"]


def test_no_salt_comes_twice_when_an_end_is_cut_and_written_again(tmp_path: Path) -> None:
    """Frame 1 is written over and over, by a new opening each time: no two frames have one key."""
    path = tmp_path / "file"
    lines(path, 1)
    kept, salts = path.stat().st_size, set()
    for again in range(50):
        LineFile(path, lambda: "seed", seal(tmp_path)).put({"canary": f"other {again}"}, 1)
        salts.add(path.read_bytes()[kept + 8 :][:24])
    assert len(salts) == 50


def test_a_state_key_stays_in_its_process(tmp_path: Path) -> None:
    """It is neither pickled nor printed, and only 64 hexadecimal digits are one."""
    for kept in (KEY, seal(tmp_path)):
        with pytest.raises(TypeError, match="stays in its process"):
            pickle.dumps(kept)
    assert bytes(range(32)).hex()[:16] not in repr(KEY) + repr(seal(tmp_path))
    assert StateKey.of_text(f"{bytes(range(32)).hex()}\n", "state_key").id == KEY.id
    with pytest.raises(ConfigError, match="state_key: must hold 64 hexadecimal digits") as refused:
        StateKey.of_text("passphrase", "state_key")
    assert "passphrase" not in str(refused.value)


def _write(folder: Path, count: int, under: Seal | None) -> None:
    with TranscriptWriter(folder, seal=under) as writer:
        for node in range(count):
            split = OwnSplit(node=node)
            writer.append(TranscriptRecord.OWN, "", "own_split", "job", 1, 0, 0, split)


def test_a_transcript_goes_on_after_every_cut(tmp_path: Path) -> None:
    """A sealed file that is cut anywhere is torn as one in clear is; its reader and its next writer go on."""
    whole, folder, under = tmp_path / "whole", tmp_path / "job", seal(tmp_path)
    _write(folder, 2, under)
    file = folder / "000001.tap"
    raw = file.read_bytes()
    assert raw.startswith(MAGIC)
    assert HEADER not in raw
    for cut in (*range(0, HEADER_BYTES + ADDED + len(HEADER), 7), len(raw) - ADDED, len(raw) - 1, len(raw)):
        file.write_bytes(raw[:cut])
        reader = TranscriptReader(folder, seal=under)
        records = list(reader)
        assert len(records) == {len(raw): 2, len(raw) - 1: 1, len(raw) - ADDED: 1}.get(cut, 0)
        assert reader.torn == (cut not in (len(raw), HEADER_BYTES + ADDED + len(HEADER)))
    file.write_bytes(raw[:-1])
    _write(folder, 2, under)
    assert [record.sequence for record in TranscriptReader(folder, seal=under)] == [0, 1, 2]
    _write(whole, 2, None)
    with pytest.raises(Malformed, match="treetap state export"):
        list(TranscriptReader(folder))
    with pytest.raises(Malformed, match="is not encrypted"):
        list(TranscriptReader(whole, seal=under))


def test_a_next_file_that_the_disk_refuses_leaves_the_one_before_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter record that still fits goes into the file before, under that file's frames."""
    folder, under = tmp_path / "job", seal(tmp_path)

    def refuse(_: Path) -> None:
        raise OSError(28, "No space left on device")

    def write(length: int) -> None:
        entry = OwnSplit(feature_name=os.urandom(length).hex())
        writer.append(TranscriptRecord.OWN, "", "own_split", "job", 1, 0, 0, entry)

    with TranscriptWriter(folder, 700, seal=under) as writer:
        write(1)
        with monkeypatch.context() as patched:
            patched.setattr(transcript_writer, "sync_folder", refuse)
            with pytest.raises(Interrupted, match=r"000002\.tap: cannot write"):
                write(450)
        write(1)
    assert [path.name for path in folder.iterdir()] == ["000001.tap"]
    assert len(list(TranscriptReader(folder, seal=under))) == 2
