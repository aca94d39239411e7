"""The log of one party's messages, received, sent and own: records in files that show cuts and changes.

A folder holds ``000001.tap``, ``000002.tap``, … Each file is the line :data:`HEADER` and then records: a length
(4 bytes, big-endian) and as many bytes, one zstd frame with a checksum that holds a serialised
``TranscriptRecord``. Each record carries its number and the SHA-256 of the record before it, uncompressed, across
files and restarts. So a changed, removed or inserted record shows, except that records missing at the very end
cannot show, and that the newest record has the frame's checksum alone.

A process that is killed leaves at most one record cut short, at the end of its file: *torn*. The next writer leaves
that file as it is and starts a new one, whose first record follows the last whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

import zstandard
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from treetap.errors import BadInput, Interrupted, Malformed, Refused
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.generated import message_class
from treetap.wire.v1 import convert
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

HEADER = b"treetap transcript 1\n"
ROTATE_BYTES = 64 * 2**20
Kind: TypeAlias = TranscriptRecord.Kind.ValueType

_ORIGIN = bytes(32)  # the predecessor's digest in record 0
_BELOW, _NAMED = 3, 10  # a state folder's parent has transcripts three levels below; how many of them are named
_FILE = re.compile(r"(\d{6,})\.tap")


class TranscriptWriter:
    """Appends records to a folder, from any thread. One writer a folder: a second one is refused with BadInput.

    A folder that holds a transcript is continued in a new file. Raises Malformed if its last file is damaged by
    more than a torn end, and BadInput if the folder cannot be used.
    """

    def __init__(self, folder: Path, rotate_bytes: int = ROTATE_BYTES, clock: Callable[[], int] = time.time_ns) -> None:
        self._folder, self._rotate_bytes, self._clock = folder, rotate_bytes, clock
        self._lock = threading.Lock()
        self._compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        self._unlock = weakref.finalize(self, os.close, _claim(folder))
        self._sequence, self._previous, self._number = 0, _ORIGIN, 0
        try:
            files = _files(folder)
            self._number = max(files, default=0)
            for _, path in sorted(files.items(), reverse=True):
                with _opened(path) as file:
                    whole = [frame for frame in _frames(path, file) if frame.whole]
                    if whole:
                        record, self._previous = whole[-1].open()
                        self._sequence = record.sequence + 1
                        break
            self._file = self._next_file()
        except BaseException:
            self._unlock()
            raise

    def append(  # in order: peer, content, place in the job
        self, kind: Kind, peer: str, step: str, job: str, attempt: int, round: int, stage: int, message: Message
    ) -> None:
        """Log one message; it is with the operating system when this returns.

        Raises Refused for a type that holds secrets, and Interrupted if the disk does not take the record.
        """
        if secret := _secret_type(cast(Descriptor, message.DESCRIPTOR)):
            raise Refused(f"{secret}: a type whose name contains secret is never logged")
        serialised = message.SerializeToString()
        record = TranscriptRecord(
            kind=kind,
            peer=peer,
            step=step,
            job=job,
            attempt=attempt,
            round=round,
            stage=stage,
            message_type=message.DESCRIPTOR.full_name,
            message=serialised,
            bytes_by_class=bytes_by_class_of(serialised, type(message)),
        )
        with self._lock:
            record.sequence, record.previous, record.unix_nanos = self._sequence, self._previous, self._clock()
            plain = record.SerializeToString()
            self._write(self._compressor.compress(plain))
            self._sequence, self._previous = self._sequence + 1, hashlib.sha256(plain).digest()

    def close(self) -> None:
        """Close the file and free the folder for another writer. Closing twice is harmless."""
        with self._lock:
            self._file.close()
            self._unlock()

    def __enter__(self) -> TranscriptWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, frame: bytes) -> None:
        end = self._file.tell()
        if len(HEADER) < end and end + len(frame) + 4 > self._rotate_bytes:
            full, self._file = self._file, self._next_file()
            full.close()
            end = len(HEADER)
        try:
            _write_all(self._file, len(frame).to_bytes(4, "big"), frame)
        except OSError as error:
            # A part of a record in the middle of a file would read as damage.
            os.ftruncate(self._file.fileno(), end)
            self._file.seek(end)
            raise Interrupted(f"{self._file.name}: cannot write the transcript: {error.strerror}") from error

    def _next_file(self) -> BinaryIO:
        self._number += 1
        path = self._folder / f"{self._number:06}.tap"
        try:
            file = open(  # noqa: SIM115  # open for as long as the writer
                path, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600)
            )
            _write_all(file, HEADER)
        except OSError as error:
            raise Interrupted(f"{path}: cannot write the transcript: {error.strerror}") from error
        return file


class TranscriptReader:
    """Iterates the records of one file, or of a folder in order, and verifies them on the way.

    Iteration raises Malformed, naming file and byte offset, for a changed or cut record and for a missing file.
    A folder must begin with record 0; a single file may begin anywhere. Raises BadInput for a path that is neither,
    and for a folder without a file of a transcript, naming folders below it that have some.
    While its writer is at work the last record may look torn.
    """

    def __init__(self, path: Path) -> None:
        self._whole = path.is_dir()
        self._files = _files(path) if self._whole else {0: path}
        if not (self._whole or path.is_file()):
            raise BadInput(f"{path}: no such transcript")
        if not self._files:
            raise BadInput(f"{path}: holds no transcript{_elsewhere(path)}")

    @property
    def torn(self) -> bool:
        """True if a file ends in a record that was cut short, as when its writer was killed."""
        for path in self._files.values():
            with _opened(path) as file:
                if any(not frame.whole for frame in _frames(path, file)):
                    return True
        return False

    def __iter__(self) -> Iterator[TranscriptRecord]:
        expected = (0, _ORIGIN) if self._whole else None
        for position, (number, path) in enumerate(sorted(self._files.items()), start=1):
            if self._whole and number != position:
                raise Malformed(f"{path}: byte 0: the file {position:06}.tap before it is missing")
            with _opened(path) as file:
                for frame in _frames(path, file):
                    if not frame.whole:
                        continue
                    record, digest = frame.open()
                    if expected is None:
                        expected = (record.sequence, record.previous if record.sequence else _ORIGIN)
                    if (record.sequence, record.previous) != expected:
                        raise Malformed(
                            f"{path}: byte {frame.offset}: record {record.sequence} does not follow record "
                            f"{expected[0] - 1}: records were removed, inserted or changed"
                        )
                    expected = (record.sequence + 1, digest)
                    yield record


def type_of(record: TranscriptRecord) -> str:
    """Full name of the type of the message that :func:`open_message` gives for ``record``."""
    return convert.name_today(record.message_type)


def open_message(record: TranscriptRecord) -> Message:
    """The message that ``record`` holds, decoded; one of version 1 of the wire as the message of today for it.

    Raises Malformed for an unknown type or bytes that do not fit it.
    """
    try:
        if record.message_type.startswith(convert.PACKAGE):
            return convert.upgraded(record.message_type, record.message)
        return message_class(record.message_type).FromString(record.message)
    except KeyError:
        raise Malformed(f"record {record.sequence}: this version knows no type {record.message_type!r}") from None
    except DecodeError:
        raise Malformed(f"record {record.sequence}: its bytes are no {record.message_type}") from None


def summarise(path: Path) -> dict[str, Any]:
    """A transcript's summary, ready for JSON: ``records``, ``first_unix_nanos`` and ``last_unix_nanos`` (None
    if empty), ``torn``, and ``rows``: ``kind`` (received, sent, own), ``peer``, ``step``, ``class``, the number of
    ``messages`` that carried the class and the ``bytes`` of it. Raises as :class:`TranscriptReader` does.
    """
    reader = TranscriptReader(path)
    counts: defaultdict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    records, first, last = 0, None, None
    for record in reader:
        records, last = records + 1, record.unix_nanos
        first = last if first is None else first
        for disclosure, size in record.bytes_by_class.items():
            count = counts[TranscriptRecord.Kind.Name(record.kind).lower(), record.peer, record.step, disclosure]
            count[0] += 1
            count[1] += size
    names = ("kind", "peer", "step", "class", "messages", "bytes")
    rows = [dict(zip(names, (*key, *count), strict=True)) for key, count in sorted(counts.items())]
    return {
        "records": records,
        "first_unix_nanos": first,
        "last_unix_nanos": last,
        "torn": reader.torn,
        "rows": rows,
    }


class _Frame(NamedTuple):
    """The place of one compressed record; it can be opened for as long as its file is open."""

    path: Path
    file: BinaryIO
    offset: int  # of the length field
    length: int  # of the compressed record
    whole: bool  # False for a torn end

    def open(self) -> tuple[TranscriptRecord, bytes]:
        """The record, and the SHA-256 of its bytes. Raises Malformed."""
        self.file.seek(self.offset + 4)
        frame = self.file.read(self.length)
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        try:
            plain = decompressor.decompress(frame)
            if decompressor.eof and not decompressor.unused_data:
                return TranscriptRecord.FromString(plain), hashlib.sha256(plain).digest()
        except (zstandard.ZstdError, DecodeError):
            pass
        raise Malformed(f"{self.path}: byte {self.offset}: the record is damaged")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file of a transcript, for all of its records; `BadInput` where the disk fails while it is open."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None


def _frames(path: Path, file: BinaryIO) -> Iterator[_Frame]:
    """The records of one open file in order. Raises Malformed for damage other than a torn end."""
    size = os.fstat(file.fileno()).st_size
    header = file.read(len(HEADER))
    if header != HEADER:
        if not HEADER.startswith(header):
            raise Malformed(f"{path}: byte 0: not a treetap transcript, or one of another version")
        yield _Frame(path, file, 0, 0, whole=False)
        return
    at = len(HEADER)
    while at < size:
        file.seek(at)
        length = int.from_bytes(field := file.read(4), "big")
        if len(field) < 4 or at + 4 + length > size:
            _require_torn(path, at, file.read())
            yield _Frame(path, file, at, 0, whole=False)
            return
        yield _Frame(path, file, at, length, whole=True)
        at += 4 + length


def _require_torn(path: Path, offset: int, rest: bytes) -> None:
    """A length that points past the end of the file is either a torn record or a changed length."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    try:
        decompressor.decompress(rest)
    except zstandard.ZstdError:
        raise Malformed(f"{path}: byte {offset}: the record is damaged") from None
    if decompressor.eof:  # a whole frame lies there, so nothing was torn off
        raise Malformed(f"{path}: byte {offset}: the record's length was changed")


def _files(folder: Path) -> dict[int, Path]:
    try:
        return {int(match[1]): path for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))}
    except OSError as error:
        raise BadInput(f"{folder}: cannot be read: {error.strerror}") from None


def _elsewhere(folder: Path) -> str:
    """The end of an error: the folders below that have transcripts, down to a few levels."""
    files = (path for depth in range(1, _BELOW + 1) for path in folder.glob("*/" * depth + "*.tap"))
    found = sorted({str(path.parent) for path in files if _FILE.fullmatch(path.name)})
    if not found:
        return f", and no folder within {_BELOW} levels below it does"
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"; these do: {', '.join(found[:_NAMED])}{more}"


def _claim(folder: Path) -> int:
    """A descriptor that holds the folder for this writer until it is closed, at the latest when the process ends."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise BadInput(f"{folder}: cannot hold a transcript: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise BadInput(f"{folder}: another process writes this transcript; give each party its own folder") from None
    return descriptor


def _write_all(file: BinaryIO, *parts: bytes) -> None:
    for part in parts:
        rest = memoryview(part)
        while rest:  # an unbuffered file may take less than it is given
            rest = rest[file.write(rest) :]


@cache
def _secret_type(message_type: Descriptor) -> str:
    """Full name of the first type reachable from ``message_type`` whose name contains secret; empty if none."""
    pending = [message_type]
    seen = set(pending)
    while pending:
        descriptor = pending.pop()
        if "secret" in descriptor.name.lower():
            return descriptor.full_name
        inner = {field.message_type for field in descriptor.fields if field.message_type is not None} - seen
        seen |= inner
        pending += inner
    return ""
