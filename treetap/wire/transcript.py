"""The log of one party's messages, received, sent and own: records in files that show cuts and changes; their sums.

A folder holds ``000001.tap``, ``000002.tap``, …. Each record carries its number and
the SHA-256 of the record before it, uncompressed, across files and restarts. So a changed, removed or inserted record
shows, except that records missing at the very end cannot show, and that a chain can be computed anew. What is signed by
a head (see :mod:`treetap.wire.signatures`) can be changed only by the holder of the party's key.

A file is the line :data:`HEADER` and then records: a length (4 bytes, big-endian) and as many bytes, one zstd
frame with a checksum that holds a serialised ``TranscriptRecord``.

A process that is killed leaves at most one record cut short, at the end of its file: *torn*. After a power loss the
end may read as zeros as well, from where the last write began or from the begin of a sector of the disk.
Files may be of any origin: no record is read that would unpack to more than :data:`MOST_BYTES`.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import zstandard
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

import treetap.wire.v2
from treetap.errors import BadInput, Malformed, cannot
from treetap.wire.certificates import read_certificates, read_lists
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.signatures import Anchor, Heads
from treetap.wire.v2.growth_pb2 import Children, WonSplits
from treetap.wire.v2.transcript_pb2 import OwnAlignment, OwnSplit, OwnSums, OwnValues, TranscriptRecord

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
            if not size:  # zeros behind a header say this, and decompress to nothing without a fault
                raise Malformed(f"{self.path}: byte {self.offset}: the record is damaged")
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
    with cannot("be read", path):
        if not path.is_file():  # such as a pipe, whose opening would wait for its other end
            raise BadInput(f"{path}: is not a file")
        with path.open("rb") as file:
            yield file


def frames(path: Path, file: BinaryIO) -> Iterator[Frame]:
    """The records of one open file in order. Raises Malformed for damage other than a torn end."""
    size = os.fstat(file.fileno()).st_size
    begin = file.read(len(HEADER) + 3)
    header = begin[: len(HEADER)]
    written = _written(file, size)
    if header != HEADER:
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
    with cannot("be read", folder):
        return {int(match[1]): path for path in folder.iterdir() if (match := TAP.fullmatch(path.name))}


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


#: Type of a record of kind OWN → its step. Splits that other parties won are recorded as the label holder sent them.
OWN_STEPS: Mapping[type[Message], str] = {
    OwnAlignment: "own_alignment",
    OwnSplit: "own_split",
    OwnValues: "own_values",
    OwnSums: "own_sums",
    WonSplits: "own_won",
    Children: "own_left_sets",
}
_BELOW, _NAMED = 3, 10  # a state folder's parent has transcripts three levels below; how many of them are named


class TranscriptReader:
    """Iterates the records of one file, or of a folder in order, and verifies them and their heads on the way.

    Iteration raises Malformed, naming file and byte offset, for a changed or cut record, for a missing file, and for a
    signature that does not fit. Heads are verified and left out. A folder must begin with record 0; a single file may
    begin anywhere. `ca`: file of the federation's authority; without it a signature is verified against the certificate
    beside it alone. `revoked`: its list of revoked certificates, which may have ended; without it none is looked up.
    Raises BadInput for a path that is neither, and for a folder without a file of a transcript, naming
    folders below it that have some. While its writer is at work the last record may look torn.
    """

    def __init__(self, path: Path, ca: Path | None = None, revoked: Path | None = None) -> None:
        if revoked is not None and ca is None:
            raise BadInput(f"{revoked}: a list of revoked certificates is verified by its authority: give --ca too")
        self._authorities = None if ca is None else read_certificates(ca)
        self._lists = None if revoked is None or self._authorities is None else read_lists(revoked, self._authorities)
        self._heads = Heads(self._authorities, self._lists)
        self._whole = path.is_dir()
        self._files = files_of(path) if self._whole else {0: path}
        if not (self._whole or path.is_file()):
            raise BadInput(f"{path}: no such transcript")
        if not self._files:
            raise BadInput(f"{path}: holds no transcript{_elsewhere(path)}")

    @property
    def torn(self) -> bool:
        """True if a file ends in a record that was cut short, as when its writer was killed."""
        for path in self._files.values():
            with opened(path) as file:
                if any(not frame.whole for frame in frames(path, file)):
                    return True
        return False

    @property
    def anchor(self) -> Anchor:
        """Result of checking the heads, up to the record at which the last iteration has arrived."""
        return self._heads.anchor()

    def __iter__(self) -> Iterator[TranscriptRecord]:
        self._heads = heads = Heads(self._authorities, self._lists)
        expected = (0, ORIGIN) if self._whole else None
        for position, (number, path) in enumerate(sorted(self._files.items()), start=1):
            if self._whole and number != position:
                raise Malformed(f"{path}: byte 0: the file {position:06}.tap before it is missing")
            with opened(path) as file:
                for frame in frames(path, file):
                    if not frame.whole:
                        continue
                    record, digest = frame.open()
                    # A selection of files begins where its first record says; its predecessor is not known.
                    if expected is None:
                        expected = (record.sequence, record.previous if record.sequence else ORIGIN)
                    if (record.sequence, record.previous) != expected:
                        raise Malformed(
                            f"{path}: byte {frame.offset}: record {record.sequence} does not follow record "
                            f"{expected[0] - 1}: records were removed, inserted or changed"
                        )
                    expected = (record.sequence + 1, digest)
                    try:
                        if record.kind == TranscriptRecord.HEAD:
                            heads.head(record)
                            continue
                        if record.kind not in (TranscriptRecord.RECEIVED, TranscriptRecord.SENT, TranscriptRecord.OWN):
                            raise Malformed(f"its kind is {record.kind}, which is none")
                    except (Malformed, DecodeError) as fault:
                        raise Malformed(f"{path}: byte {frame.offset}: record {record.sequence}: {fault}") from None
                    heads.record(record.sequence)
                    yield record


def open_message(record: TranscriptRecord) -> Message:
    """The message that ``record`` holds, decoded. Raises Malformed for an unknown type or bytes that do not fit it."""
    try:
        return message_class(record.message_type).FromString(record.message)
    except KeyError:
        raise Malformed(f"record {record.sequence}: this version knows no type {record.message_type!r}") from None
    except DecodeError:
        raise Malformed(f"record {record.sequence}: its bytes are no {record.message_type}") from None


def counted(record: TranscriptRecord) -> dict[str, int]:
    """Bytes of the record's message, which can be opened, by disclosure class, from the message itself.

    Raises Malformed where the record says something else.
    """
    by_class = bytes_by_class_of(record.message, message_class(record.message_type))
    if by_class != dict(record.bytes_by_class):
        raise Malformed(f"record {record.sequence}: its bytes by class are not those of its message")
    return by_class


def _elsewhere(folder: Path) -> str:
    """The end of an error: the folders below that have transcripts, down to a few levels."""
    files = (path for depth in range(1, _BELOW + 1) for path in folder.glob("*/" * depth + "*.tap"))
    folders = sorted({str(path.parent) for path in files if TAP.fullmatch(path.name)})
    if not folders:
        return f", and no folder within {_BELOW} levels below it does"
    more = f" and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
    return f"; these do: {', '.join(folders[:_NAMED])}{more}"


def message_class(full_name: str) -> type[Message]:
    """The class of a message type; generated modules are imported for one that is not known yet.

    Raises:
        KeyError: there is no type of that name.
    """
    pool = descriptor_pool.Default()
    try:
        descriptor = pool.FindMessageTypeByName(full_name)
    except KeyError:
        _import_generated()
        descriptor = pool.FindMessageTypeByName(full_name)
    return message_factory.GetMessageClass(descriptor)


@cache
def _import_generated() -> None:
    """Register every message of the wire; generated service code, which needs gRPC, is left out."""
    for module in pkgutil.iter_modules(treetap.wire.v2.__path__):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"treetap.wire.v2.{module.name}")


def _own_rows(path: Path, chained: OwnAlignment) -> dict[str, Any]:
    """The state of the rows beside a transcript. Raises Malformed if they were changed."""
    from treetap.wire import own_rows  # with arrays, which no reader of records needs

    try:
        own = own_rows.kept(path if path.is_dir() else path.parent, chained)
    except BadInput as missing:
        return {"records": chained.records, "forgotten": 0, "missing": str(missing)}
    return {"records": chained.records, "forgotten": int((own.rows == own_rows.FORGOTTEN).sum()), "missing": ""}


def summarise(path: Path, ca: Path | None = None, revoked: Path | None = None) -> dict[str, Any]:
    """A transcript's summary, ready for JSON: ``records``, ``first_unix_nanos`` and ``last_unix_nanos`` (None
    if empty), ``torn``, ``signed`` (see :class:`Anchor`), ``own_rows``: of each alignment the number of ``records``, of
    those ``forgotten``, and the file that is ``missing``, and ``rows``: ``kind`` (received, sent, own), ``peer``,
    ``step``, ``class``, the number of ``messages`` that carried the class and the ``bytes`` of it.

    Raises BadInput and Malformed as :class:`TranscriptReader` does, and for messages that are not what a record says.
    """
    reader, alignments = TranscriptReader(path, ca, revoked), []
    counts: defaultdict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    records, first, last = 0, None, None
    for record in reader:
        records, last = records + 1, record.unix_nanos
        first = last if first is None else first
        try:
            open_message(record)
            classes = counted(record)
            if record.message_type == OwnAlignment.DESCRIPTOR.full_name:
                alignments.append(_own_rows(path, OwnAlignment.FromString(record.message)))
        except Malformed as fault:
            raise Malformed(f"{path}: {fault}") from None
        for disclosure, size in classes.items():
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
        "signed": reader.anchor.plain(),
        "own_rows": alignments,
        "rows": rows,
    }
