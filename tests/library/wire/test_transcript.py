"""Transcripts, and which files are open.

- The log of a party: its chain shows every change, and a kill leaves it readable.
- A transcript's files are opened once to be written and once to be read, however many records they hold.
"""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from tests.library.wire.logs import OWN, RECEIVED, SENT, files_of, log, record_ends, texts_of
from tests.library.wire.samples import Inner, Outer, sample_type
from tests.opens import opened_to_read, opened_to_write
from treetap.errors import BadInput, Interrupted, Malformed, Refused
from treetap.wire import transcript_writer
from treetap.wire.signatures import Anchor
from treetap.wire.transcript import HEADER, TranscriptReader, open_message, summarise
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

TEXTS = [f"{number:064}" for number in range(60)]
ROTATE_BYTES = 1_500


def test_a_record_carries_what_was_logged(tmp_path: Path) -> None:
    """Every argument comes back, with the clock's time, the type's name and the classes of the bytes."""
    message = Inner(block=b"xyz", count=1)
    with TranscriptWriter(tmp_path / "log", clock=lambda: 17) as writer:
        writer.append(SENT, "bank", "gradients", "j1", 2, 5, 3, message)
        writer.append(OWN, "", "split", "j1", 2, 5, 3, Inner())
    first, second = TranscriptReader(tmp_path / "log")
    assert first == TranscriptRecord(
        sequence=0,
        unix_nanos=17,
        kind=SENT,
        peer="bank",
        step="gradients",
        job="j1",
        attempt=2,
        round=5,
        stage=3,
        message_type="treetap_tests.Inner",
        message=message.SerializeToString(),
        bytes_by_class={"CIPHERTEXT": 5, "CONTROL": 2},
        previous=bytes(32),
    )
    assert second.sequence == 1
    assert len(second.previous) == len(hashlib.sha256().digest())
    assert open_message(first) == message


def test_files_are_for_their_owner_and_begin_with_magic_and_version(tmp_path: Path) -> None:
    """A transcript holds what its party learned: folder and files are closed to others."""
    log(tmp_path / "log", "a")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "log" / "000001.tap").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "log" / "000001.tap").read_bytes().startswith(b"treetap transcript 6\n")


def test_a_new_folder_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is brought to disk in the folder above it, and so are those above it that are new: the power may fail."""
    synchronised, true_fsync = set(), os.fsync

    def fsync(descriptor: int) -> None:
        synchronised.add(os.fstat(descriptor).st_ino)
        true_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    TranscriptWriter(tmp_path / "transcripts" / "job").close()
    folders = (tmp_path, tmp_path / "transcripts", tmp_path / "transcripts" / "job")
    assert {folder.stat().st_ino for folder in folders} <= synchronised


def test_files_rotate_and_read_as_one(tmp_path: Path) -> None:
    """No file exceeds the limit but one that holds a single larger record; the chain runs on across files."""
    texts = [os.urandom(60).hex() for _ in range(9)] + [os.urandom(2_000).hex(), "after"]
    log(tmp_path, *texts, rotate_bytes=700)
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert len(sizes) > 4
    assert sum(size > 700 for size in sizes) == 1
    assert texts_of(tmp_path) == texts
    assert texts_of(tmp_path / "000002.tap") == texts[len(texts_of(tmp_path / "000001.tap")) :][:2]


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second writer would fork the chain: it is refused until the first one closes."""
    with TranscriptWriter(tmp_path) as writer:
        with pytest.raises(BadInput, match="another process writes this transcript"):
            TranscriptWriter(tmp_path)
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="a"))
    writer.close()
    log(tmp_path, "b")
    assert texts_of(tmp_path) == ["a", "b"]


def test_a_folder_is_free_after_a_close_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the closing, the file and the lock go with it, and not only once the writer is garbage."""
    writer = TranscriptWriter(tmp_path)
    writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="a"))

    def defect(descriptor: int) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", defect)
        with pytest.raises(MemoryError):
            writer.close()
    log(tmp_path, "b")
    assert texts_of(tmp_path) == ["a", "b"]
    writer.close()


def test_threads_may_share_a_writer(tmp_path: Path) -> None:
    """Records from four threads make one unbroken chain."""
    with TranscriptWriter(tmp_path, rotate_bytes=4_000) as writer:

        def run(name: str) -> None:
            for k in range(50):
                writer.append(RECEIVED, name, "s", "j", 1, 0, k, StringValue(value=name))

        threads = [threading.Thread(target=run, args=(f"t{k}",)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(texts_of(tmp_path)) == sorted(f"t{k}" for k in range(4) for _ in range(50))


def test_secrets_are_refused(tmp_path: Path) -> None:
    """A type whose name says secret, and one that can hold such a type, are not logged."""
    with TranscriptWriter(tmp_path) as writer:
        for name in ("SecretKeyOfSomeone", "Carrier"):
            with pytest.raises(Refused, match="SecretKeyOfSomeone: a type whose name contains secret"):
                writer.append(OWN, "", "s", "j", 1, 0, 0, sample_type(name)())
    assert texts_of(tmp_path) == []


def test_a_record_cut_anywhere_at_the_end_is_torn_and_the_rest_is_read(tmp_path: Path) -> None:
    """For every length at which a kill may leave the file: whole records read, torn is reported, writing goes on."""
    log(tmp_path / "whole", "a", "b")
    whole = (tmp_path / "whole" / "000001.tap").read_bytes()
    ends = record_ends(whole)
    for length in range(len(whole)):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / "000001.tap").write_bytes(whole[:length])
        kept = ["a", "b"][: sum(end <= length for end in ends)]
        reader = TranscriptReader(folder)
        assert [StringValue.FromString(record.message).value for record in reader] == kept
        assert reader.torn == (length not in (len(HEADER), *ends))
        if length % 7 == 0:
            log(folder, "c")
            assert texts_of(folder) == [*kept, "c"]
            assert TranscriptReader(folder).torn == reader.torn


def test_a_killed_writer_leaves_a_log_that_reads_and_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing loses nothing that append had returned from."""
    code = (
        "import sys, os; from pathlib import Path; from treetap.wire.transcript_writer import TranscriptWriter as W\n"
        "from google.protobuf.wrappers_pb2 import BytesValue as V\n"
        f"w = W(Path({str(tmp_path)!r}), rotate_bytes=300_000); k = 0\n"
        "while True:\n"
        "    w.append(1, 'p', 's', 'j', 1, 0, k, V(value=os.urandom(50_000))); k += 1; os.write(1, b'.')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        returned = len(process.stdout.read(12))
        process.send_signal(signal.SIGKILL)
        returned += len(process.stdout.read())
    log(tmp_path, "after")
    records = list(TranscriptReader(tmp_path))
    assert [record.sequence for record in records] == list(range(len(records)))
    assert len(records) - 1 in (returned, returned + 1)


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed record is taken back and named; once there is space the log goes on without a break."""
    real = transcript_writer._write_all
    with TranscriptWriter(tmp_path) as writer:

        def fill(file: object, *parts: bytes) -> None:
            real(file, *(part[:3] for part in parts))  # type: ignore[arg-type]
            raise OSError(28, "No space left on device")

        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="a"))
        with monkeypatch.context() as patched:
            patched.setattr(transcript_writer, "_write_all", fill)
            with pytest.raises(Interrupted, match=r"000001\.tap: cannot write the transcript: No space left"):
                writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="b"))
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="c"))
    assert texts_of(tmp_path) == ["a", "c"]


def test_unusable_paths_are_told(tmp_path: Path) -> None:
    """No transcript, and a folder that cannot be one, are the person's input."""
    with pytest.raises(BadInput, match="no such transcript"):
        TranscriptReader(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot hold a transcript"):
        TranscriptWriter(tmp_path / "file" / "log")


def test_messages_open_without_importing_their_module() -> None:
    """A reader needs no list of modules: the wire's types are found by name; others are told."""
    code = (
        "import sys; from treetap.wire.transcript import open_message, TranscriptRecord\n"
        "message = open_message(TranscriptRecord(message_type='treetap.wire.v2.RecordChunk'))\n"
        "print(type(message).__name__, 'grpc' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["RecordChunk", "False"]
    with pytest.raises(Malformed, match=r"record 4: this version knows no type 'treetap\.Nothing'"):
        open_message(TranscriptRecord(sequence=4, message_type="treetap.Nothing"))
    with pytest.raises(Malformed, match=r"record 4: its bytes are no treetap_tests\.Inner"):
        open_message(TranscriptRecord(sequence=4, message_type="treetap_tests.Inner", message=b"\x0a\x09"))


def test_a_summary_counts_by_kind_peer_step_and_class(tmp_path: Path) -> None:
    """Messages are those that carried the class; bytes are those of the class; times are the first and the last."""
    clock = iter(range(100, 200))
    with TranscriptWriter(tmp_path, clock=lambda: next(clock)) as writer:
        for block in (b"", b"x", b"yz"):
            writer.append(RECEIVED, "bank", "gradients", "j", 1, 0, 0, Inner(block=block, count=1))
        writer.append(SENT, "bank", "sums", "j", 1, 0, 0, Outer(blocks=[b"abc"]))
    with (tmp_path / "000001.tap").open("ab") as file:
        file.write(b"\x00")
    row = ("kind", "peer", "step", "class", "messages", "bytes")
    assert summarise(tmp_path) == {
        "records": 4,
        "first_unix_nanos": 100,
        "last_unix_nanos": 103,
        "torn": True,
        "signed": Anchor("unsigned").plain(),
        "own_rows": [],
        "rows": [
            dict(zip(row, ("received", "bank", "gradients", "CIPHERTEXT", 2, 7), strict=True)),
            dict(zip(row, ("received", "bank", "gradients", "CONTROL", 3, 6), strict=True)),
            dict(zip(row, ("sent", "bank", "sums", "CANDIDATE_SUM", 1, 5), strict=True)),
        ],
    }
    TranscriptWriter(tmp_path / "empty").close()
    assert summarise(tmp_path / "empty")["first_unix_nanos"] is None


def test_large_ciphertexts_come_back_whole(tmp_path: Path) -> None:
    """Twelve megabytes that do not compress take up hardly more on disk and read back equal."""
    block = os.urandom(12_000_000)
    with TranscriptWriter(tmp_path) as writer:
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, BytesValue(value=block))
    (record,) = TranscriptReader(tmp_path)
    opened = open_message(record)
    assert isinstance(opened, BytesValue)
    assert opened.value == block
    assert (tmp_path / "000001.tap").stat().st_size < 12_010_000


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
