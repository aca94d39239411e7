"""One file of a transcript: its records as frames, and what a killed process or a power loss leaves at its end.

A file is the line :data:`HEADER` and then records: a length (4 bytes, big-endian) and as many bytes, one zstd
frame with a checksum that holds a serialised ``TranscriptRecord``.

A process that is killed leaves at most one record cut short, at the end of its file: *torn*. After a power loss the
end may read as zeros as well, from where the last write began or from the begin of a sector of the disk.
Files may be of any origin: no record is read that would unpack to more than :data:`MOST_BYTES`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard
from google.protobuf.message import DecodeError

from treetap.errors import BadInput, Malformed
from treetap.removed import STATE, removed
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

#: Version of the format, which is raised with the protocol's too: records hold its messages.
VERSION = 6
#: Line at the begin of a file.
HEADER = f"treetap transcript {VERSION}\n".encode()
#: Names of files in a transcript's folder: their number and the ending.
TAP = re.compile(r"(\d{6,})\.tap")
#: The predecessor's digest in record 0.
ORIGIN = bytes(32)
#: The most bytes of a record, uncompressed.
MOST_BYTES = 20 * 2**20

_OTHER = re.compile(rb"treetap transcript (\d{1,4})\n")
_LONGEST = MOST_BYTES + MOST_BYTES // 128 + 1024  # bytes of a frame; zstd hardly lengthens what does not compress
_SECTOR = 512
_MOST_ZEROS = 4 * MOST_BYTES
_BLOCK = 1 << 20
_PIECE = 1 << 10  # a compressed piece of this size unpacks to 32 MiB at most


class Frame(NamedTuple):
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
        try:
            size = zstandard.get_frame_parameters(frame).content_size
            if size > MOST_BYTES:  # also where it is not said
                raise Malformed(f"{self.path}: byte {self.offset}: the record unpacks to more than {MOST_BYTES} bytes")
            plain = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
            return TranscriptRecord.FromString(plain), hashlib.sha256(plain).digest()
        except (zstandard.ZstdError, DecodeError):
            raise Malformed(f"{self.path}: byte {self.offset}: the record is damaged") from None

    def sound(self) -> bool:
        """True if the record can be opened."""
        try:
            self.open()
        except Malformed:
            return False
        return True


def framed(plain: bytes, compressor: zstandard.ZstdCompressor) -> bytes:
    """A record as a file holds it: length, then compressed. Raises BadInput for one longer than readers take."""
    if len(plain) > MOST_BYTES:
        raise BadInput(f"a record of {len(plain)} bytes does not fit a transcript: {MOST_BYTES} bytes are the most")
    frame = compressor.compress(plain)
    return len(frame).to_bytes(4, "big") + frame


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file of a transcript, for all of its records; `BadInput` where the disk fails while it is open."""
    try:
        if not path.is_file():  # such as a pipe, whose opening would wait for its other end
            raise BadInput(f"{path}: is not a file")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None


def frames(path: Path, file: BinaryIO) -> Iterator[Frame]:
    """The records of one open file in order. Raises Malformed for damage other than a torn end."""
    size = os.fstat(file.fileno()).st_size
    begin = file.read(len(HEADER) + 3)
    header = begin[: len(HEADER)]
    written = _written(file, size)
    if header != HEADER:
        if begin.startswith(b"treetap sealed "):
            raise Malformed(f"{path}: byte 0: is encrypted by a state_key, which {removed([STATE], 'key.json')}")
        if other := _OTHER.match(begin):
            raise Malformed(
                f"{path}: byte 0: is a transcript of version {int(other[1])}, and this release reads version {VERSION} "
                "alone: read it with the release that wrote it"
            )
        # A header that a crash cut short is a torn file, not a foreign one.
        if written > len(HEADER) or not HEADER.startswith(header[:written]):
            raise Malformed(f"{path}: byte 0: not a treetap transcript")
        yield Frame(path, file, 0, 0, whole=False)
        return
    at = len(HEADER)
    while at < size:
        file.seek(at)
        length = int.from_bytes(field := file.read(4), "big")
        end = at + 4 + length
        if len(field) == 4 and 0 < length <= _LONGEST and end <= size:
            frame = Frame(path, file, at, length, whole=True)
            # File systems may leave zeros behind what was written: then the digest decides.
            if end <= written or not _zeroed(at, written, size) or frame.sound():
                yield frame
                at = end
                continue
        else:
            _require_torn(path, file, at, length, size, written)
        yield Frame(path, file, at, 0, whole=False)
        return


def files_of(folder: Path) -> dict[int, Path]:
    """The files of a transcript's folder by their numbers. Raises BadInput for a folder that cannot be read."""
    try:
        return {int(match[1]): path for path in folder.iterdir() if (match := TAP.fullmatch(path.name))}
    except OSError as error:
        raise BadInput(f"{folder}: cannot be read: {error.strerror}") from None


def _require_torn(path: Path, file: BinaryIO, at: int, length: int, size: int, written: int) -> None:
    """A length that points past the end of the file, or is 0, is of a torn record, or was changed."""
    if size < at + 4 or written <= at + 4:
        return
    if not 0 < length <= _LONGEST or size > at + 4 + _LONGEST:
        raise Malformed(f"{path}: byte {at}: the record's length was changed")
    file.seek(at + 4)
    rest = file.read((written if _zeroed(at, written, size) else size) - at - 4)
    decompressor, size_read = zstandard.ZstdDecompressor().decompressobj(), 0
    try:
        for first in range(0, len(rest), _PIECE):
            size_read += len(decompressor.decompress(rest[first : first + _PIECE]))
            if size_read > MOST_BYTES:
                raise Malformed(f"{path}: byte {at}: the record unpacks to more than {MOST_BYTES} bytes")
            if decompressor.eof:  # a whole frame lies there, so nothing was torn off
                raise Malformed(f"{path}: byte {at}: the record's length was changed")
    except zstandard.ZstdError:
        raise Malformed(f"{path}: byte {at}: the record is damaged") from None


def _zeroed(at: int, written: int, size: int) -> bool:
    """True if the zeros after byte `written` are what a power loss leaves of a record that begins at byte `at`."""
    return written <= at + 4 < size or -(-written // _SECTOR) * _SECTOR < size


def _written(file: BinaryIO, size: int) -> int:
    """The file's size without the zeros at its end; at most as many zeros are read as a power loss can leave."""
    begin, step = size, 1
    while begin > max(0, size - _MOST_ZEROS):
        end, begin = begin, max(0, begin - step)
        file.seek(begin)
        if block := file.read(end - begin).rstrip(b"\0"):
            return begin + len(block)
        step = _BLOCK
    return begin
