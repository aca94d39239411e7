"""Files of tables: opened as they lie or unpacked, on this host's disk or in an object store.

A file's name says its format, its first bytes may say another one, and the error of one that cannot be read has none of
its content.

Feather of version 2, which is Arrow's file format; and Arrow's stream format under the same endings.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from treetap.errors import DataError, TreetapError, refuse
from treetap.tables.source import BATCH_ROWS, Source, within_memory
from treetap.usage import half_of_memory

#: Most files of a table.
MOST_FILES = 10_000
_ERROR = re.compile(r"AWS Error ([A-Z_]+)")
_CAUSES = {
    "ACCESS_DENIED": "access is denied: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may read",
    "INVALID_ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID is none of the store's",
    "INVALID_SIGNATURE": "AWS_SECRET_ACCESS_KEY does not fit AWS_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH": "AWS_SECRET_ACCESS_KEY does not fit AWS_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID": "AWS_SESSION_TOKEN does not fit AWS_ACCESS_KEY_ID",
    "NO_SUCH_BUCKET": "there is no such bucket",
    "NO_SUCH_KEY": "there is no such file",
    "RESOURCE_NOT_FOUND": "there is no such file",
    "NETWORK_CONNECTION": "the store cannot be reached; check endpoint_override, AWS_REGION and the network",
    "SLOW_DOWN": "the store is overloaded: try again later",
}
UNKNOWN_CAUSE = "the store cannot answer; check endpoint_override and AWS_REGION"
log = logging.getLogger(__name__)


@contextmanager
def decoding(place: object, what: str, fault: Callable[[], DataError] | None = None) -> Iterator[None]:
    """Have whatever a library raises at a file that is not of its format, `what`, become one error that names the file.

    Arrow raises errors of Python as well: `UnicodeDecodeError` for the name of a column, `SystemError` for metadata.
    `fault`: the error for its content, where the format has a closer one.
    """
    try:
        yield
    except TreetapError:
        raise
    except Exception as failure:  # noqa: BLE001 - of a library, at content that anyone may have written
        if isinstance(failure, UnicodeError):
            raise DataError(f"{place}: the name of a column is not UTF-8 text; write the {what} file again") from None
        raise missing(place, failure) or (fault or partial(DataError, f"{place}: is not readable {what}"))() from None


def missing(place: object, failure: Exception) -> DataError | None:
    """The error for a file that is not there or may not be read; None where the fault is in its content."""
    log.debug("%s: reading it raised %s", place, type(failure).__name__)
    if cause := stored_cause(failure):
        return DataError(f"{place}: {cause}")
    if isinstance(failure, FileNotFoundError):
        return DataError(f"{place}: there is no such file")
    if isinstance(failure, OSError) and failure.errno:
        return DataError(f"{place}: cannot be read: {os.strerror(failure.errno)}")
    if isinstance(failure, OSError) and str(failure).startswith("Truncated compressed"):
        return DataError(f"{place}: is cut off: its compressed content has no end; write or copy it again")
    if isinstance(failure, IsADirectoryError) or (isinstance(failure, OSError) and "is a directory" in str(failure)):
        return DataError(f"{place}: is a folder, not a file")
    return None


def stored_cause(failure: Exception) -> str:
    """The cause of an object store's error; empty for another error."""
    code = _ERROR.search(str(failure))
    return _CAUSES.get(code[1], UNKNOWN_CAUSE) if code else ""


#: Ending of a file's name → format.
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
NAMES = {"csv": "CSV", "parquet": "Parquet", "feather": "Feather", "jsonl": "JSON lines"}
#: Bytes of a file by which its content is recognised.
HEAD = 4096


class Content(NamedTuple):
    """The kind of a file. `format`: the format that reads it; empty if none does. `remedy`: a clause."""

    what: str
    remedy: str
    format: str = ""


_EXPORT = "export the table as CSV or Parquet from the program that wrote it"
_CORRECT = "correct the path"
_SPREADSHEET = "save the sheet as CSV (UTF-8) from the spreadsheet program"
_OFFICE = re.compile(rb"\[Content_Types\]\.xml|xl/|mimetypeapplication/vnd\.oasis")
_MAGIC: tuple[tuple[bytes, Content], ...] = (
    (b"PAR1", Content("Parquet", 'write format = "parquet"', "parquet")),
    (b"ARROW1", Content("an Arrow file (Feather)", 'write format = "feather"', "feather")),
    (b"\xff\xff\xff\xff", Content("a stream of Arrow", 'write format = "feather"', "feather")),
    (b"FEA1", Content("Feather of version 1", "write it again with a present pyarrow, as version 2")),
    (b"\xd0\xcf\x11\xe0", Content("an old Excel workbook", _SPREADSHEET)),
    (b"\x1f\x8b", Content("gzip", 'end its name with ".gz", as in table.csv.gz')),
    (b"\x28\xb5\x2f\xfd", Content("zstd", 'end its name with ".zst", as in table.csv.zst')),
    (b"BZh", Content("bzip2", 'end its name with ".bz2", as in table.csv.bz2')),
    (b"\xfd7zXZ\x00", Content("xz", "unpack it")),
    (b"7z\xbc\xaf", Content("a 7-Zip archive", "unpack it")),
    (b"SQLite format 3\x00", Content("a SQLite database", 'write uri = "sqlite:FILE" and table = "NAME" for path')),
    (b"\x89PNG", Content("a PNG image", _CORRECT)),
    (b"\xff\xd8\xff", Content("a JPEG image", _CORRECT)),
    (b"GIF8", Content("a GIF image", _CORRECT)),
    (b"%PDF", Content("a PDF document", _EXPORT)),
    (b"\x89HDF", Content("HDF5", _EXPORT)),
    (b"\x93NUMPY", Content("a NumPy array", _EXPORT)),
    (b"ORC", Content("ORC", _EXPORT)),
    (b"Obj\x01", Content("Avro", _EXPORT)),
    (b"$FL2", Content("an SPSS file", _EXPORT)),
    (b"<stata_dta>", Content("a Stata file", _EXPORT)),
    (b"\x80\x04\x95", Content("a Python pickle", _EXPORT)),
    (b"\x80\x05\x95", Content("a Python pickle", _EXPORT)),
    (b"RDX", Content("an R file", _EXPORT)),
)
_TEXT: tuple[tuple[re.Pattern[bytes], Content], ...] = (
    (
        re.compile(rb"(<!doctype html|<html)[\s>]", re.IGNORECASE),
        Content("an HTML page, such as a server sends for a login or an error", "fetch the table again"),
    ),
    (re.compile(rb"<\?xml"), Content("XML", _EXPORT)),
    (re.compile(rb'\{\s*"'), Content("JSON", 'write format = "jsonl" if each line is one object', "jsonl")),
    (re.compile(rb'\[\s*(\{\s*"|\[)'), Content("a JSON array", "write it with one object a line (jq -c '.[]')")),
)


_LINES = re.compile(rb"[\t -~]*\r?\n[\t\r\n -~]*")


def content_of(head: bytes) -> Content | None:
    """The kind of a file by its first bytes; None where they may be text of a table."""
    printed = _LINES.fullmatch(head)  # a header may begin with ORC
    for magic, content in _MAGIC:
        if head.startswith(magic) and not printed:
            return content
    if head.startswith(b"PK\x03\x04"):
        office = _OFFICE.search(head) is not None
        return Content("a workbook of a spreadsheet", _SPREADSHEET) if office else Content("a ZIP archive", "unpack it")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for pattern, content in _TEXT:
        if pattern.match(start):
            return content
    return _nul(head)


#: Text that is damaged, or padded by what wrote it.
NUL = Content("text with a byte of value 0", "remove it, as tr -d '\\0' does")
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")


def _nul(head: bytes) -> Content | None:
    """Text has no bytes of value 0, unless it is UTF-16 or UTF-32, which are read by their byte order mark."""
    if b"\0" not in head or head[:2] in (b"\xff\xfe", b"\xfe\xff") or head[:4] == b"\0\0\xfe\xff":
        return None
    places: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
        ("utf-16-le", lambda raw: raw[1::2]),
        ("utf-16-be", lambda raw: raw[::2]),
    )
    for name, zeros in places:
        if len(head) > 3 and zeros(head).count(0) > 0.6 * len(zeros(head)):
            return Content(f"text in {name.upper()}", f'write encoding = "{name}"')
    if _CONTROL.search(head) or 4 * head.count(0) > len(head):
        return Content("binary data", _CORRECT)
    line = head[: head.index(0)].count(b"\n") + 1
    return NUL._replace(what=f"{NUL.what} in line {line}")


#: Ending of a compressed file's name → Arrow's name of the codec.
CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}

#: What to do with a large table of a format that is read whole.
IN_PARTS = "write it as Parquet, which is read in parts"


@dataclass(frozen=True)
class TableFile:
    """One file. `name`: for messages. `open`: opens it as it lies, with random access. `stamper`: see `stamp`."""

    name: str
    open: Callable[[], pa.NativeFile] = field(repr=False)
    stamper: Callable[[], object] = field(repr=False)

    def __str__(self) -> str:
        return self.name

    @classmethod
    def local(cls, path: Path | str, allowed: Callable[[Path], Path] = Path) -> TableFile:
        """A file of this host. `allowed`: the file in its place, by any links; `DataError` where it may not be read."""
        return cls(
            str(path),
            lambda: pa.OSFile(str(allowed(Path(path))), "rb"),
            lambda: _local_stamp(allowed(Path(path))),
        )

    @property
    def suffix(self) -> str:
        """The ending of the name below that of a compression: ".csv" of `a.csv.gz`, in lower case."""
        path = PurePosixPath(self.name)
        return (path.with_suffix("") if self.codec else path).suffix.lower()

    @property
    def codec(self) -> str | None:
        """The compression that the name's ending says."""
        return CODECS.get(PurePosixPath(self.name).suffix.lower())

    def stamp(self) -> object:
        """A value that differs once the file has been written again or replaced; `DataError` if it is not there."""
        try:
            return self.stamper()
        except OSError as failure:
            raise missing(self, failure) or DataError(f"{self}: cannot be read") from None

    def unpacked(self) -> pa.NativeFile:
        """The content from the start on, of which no more is unpacked than half of the memory."""
        if self.codec is None:
            return self.open()
        return pa.PythonFile(_Bounded(self, pa.CompressedInputStream(self.open(), self.codec)), mode="r")

    def whole(self) -> pa.NativeFile:
        """The content of a file that is read whole; `DataError` if it is more than half of the memory."""
        if self.codec is None:
            with self.open() as file:
                if file.size() > half_of_memory():
                    raise DataError(f"{self}: is larger than half of this machine's memory; {IN_PARTS}")
        return self.unpacked()

    def text(self, encoding: str) -> IO[str]:
        """The content as text; bytes that are none in this encoding are replaced."""
        without_mark = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
        return io.TextIOWrapper(io.BufferedReader(self.unpacked()), without_mark, "replace", newline="")

    def head(self, size: int) -> bytes:
        """The first bytes of the content, unpacked; `OSError` if they cannot be read."""
        with self.unpacked() as file:
            return bytes(file.read(size))


def check_number(place: object, files: Collection[object], lacks: str) -> None:
    """Raise `DataError` if no file of a place is a table's, which is said by `lacks`, or too many are."""
    refuse(
        (not files, f"{place}: {lacks} file whose name ends with {', '.join(SUFFIXES)}"),
        (len(files) > MOST_FILES, f"{place}: has {len(files)} files, and a table at most {MOST_FILES}"),
        kind=DataError,
    )


def of_table(name: str, any_name: bool) -> bool:
    """True for the name of a file below a folder that is one of the folder's table.

    Hidden files, and those below folders that begin with `.` or `_`, are none. `any_name`: also files whose name says
    no format.
    """
    hidden = any(part.startswith((".", "_")) for part in name.split("/"))
    return not hidden and (any_name or TableFile.local(name).suffix in SUFFIXES)


def _local_stamp(path: Path) -> object:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class _Bounded:
    """A stream that raises `DataError` when more than half of the memory has come out of a compressed file."""

    def __init__(self, file: TableFile, stream: pa.NativeFile) -> None:
        self._file, self._stream, self._left = file, stream, half_of_memory()
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        content = bytes(self._stream.read(size if size >= 0 else None))
        self._left -= len(content)
        if self._left < 0:
            raise DataError(f"{self._file}: unpacks to more than half of this machine's memory; {IN_PARTS}")
        return content

    def close(self) -> None:
        self.closed = True
        self._stream.close()

    def readable(self) -> bool:
        return True


class FileSource(Source):
    """A table that is one file, whose name begins messages about faults."""

    def __init__(self, file: TableFile) -> None:
        self.file = file

    def __str__(self) -> str:
        return str(self.file)

    def stamp(self) -> object:
        return self.file.stamp()


_NAME = "Feather"
#: Type of text → the type that has the same buffers and takes any bytes.
_RAW = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}
_VIEW = 16  # bytes of a cell of views
_STREAM = b"\xff\xff\xff\xff"


class ArrowFile(FileSource):
    """A file whose columns have types, compressed or not, read by record batch."""

    streams = True

    def fields(self) -> list[tuple[str, pa.DataType]]:
        with decoding(self, _NAME), self.file.open() as raw, self._reader(raw) as reader:
            return [(field.name, field.type) for field in reader.schema]

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        parts = within_memory(self, self.batches(wanted, text))
        kinds = dict(self.fields())
        return pa.concat_tables(parts) if parts else pa.schema([(name, kinds[name]) for name in wanted]).empty_table()

    def batches(self, wanted: list[str], _text: Collection[str]) -> Iterator[pa.Table]:
        for batch in self._batches(wanted):
            whole = pa.Table.from_batches([batch]).select(wanted)
            yield from (whole.slice(first, BATCH_ROWS) for first in range(0, whole.num_rows, BATCH_ROWS))

    def count_rows(self) -> int:
        """That of the first column, since the format counts the rows of each batch alone."""
        return sum(batch.num_rows for batch in self._batches([name for name, _ in self.fields()][:1]))

    def _batches(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        """The file's record batches with these columns, in the file's order, if they are some."""
        named = set(wanted)
        places = [place for place, (name, _) in enumerate(self.fields()) if name in named]
        options = pa.ipc.IpcReadOptions(included_fields=places)
        with decoding(self, _NAME), self.file.open() as raw, self._reader(raw, options) as reader:
            for number, batch in enumerate(_batches(reader), start=1):
                yield checked(batch, partial(self._damaged, number))

    def _damaged(self, number: int, name: str) -> DataError:
        place = f"{self}: record batch {number}, column {name!r}"
        return DataError(f"{place} cannot be decoded; is the {_NAME} file damaged? Write it again")

    def _reader(self, raw: pa.NativeFile, options: pa.ipc.IpcReadOptions | None = None) -> AbstractContextManager[Any]:
        stream = raw.read(len(_STREAM)) == _STREAM
        raw.seek(0)
        made: AbstractContextManager[Any] = (pa.ipc.open_stream if stream else pa.ipc.open_file)(raw, options=options)
        return made


def checked(batch: pa.RecordBatch, fault: Callable[[str], DataError]) -> pa.RecordBatch:
    """A batch of any origin that can be read: all buffers hold what the types of the columns say.

    Arrow takes lengths, offsets and places in dictionaries from a file as they are, and reads beyond its buffers where
    they are wrong. Text that is not UTF-8 is memory all the same: `plain_column` names its row.

    Raises:
        DataError: `fault`, given the name of the first column that cannot be read.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if len(column) != batch.num_rows or not _sound(column):
            raise fault(name)
    return pa.record_batch([_readable(column) for column in batch.columns], batch.schema)


def _readable(column: pa.Array) -> pa.Array:
    """A column that was checked, without what no check looks at: views of missing cells, which a cast follows."""
    if isinstance(column, pa.DictionaryArray):
        values = _readable(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values, ordered=column.type.ordered)
    if str(column.type) not in ("string_view", "binary_view") or not column.null_count:
        return column
    valid, views, *data = column.buffers()
    plain = np.frombuffer(views, np.uint8)[: _VIEW * len(column)].reshape(-1, _VIEW).copy()
    plain[np.asarray(column.is_null())] = 0
    return pa.Array.from_buffers(column.type, len(column), [valid, pa.py_buffer(plain), *data])


def _sound(column: pa.Array) -> bool:
    """True if a column can be read, which may hold text that is none."""
    raw = _RAW.get(str(column.type))
    try:
        if raw is not None:
            column = pa.Array.from_buffers(raw, len(column), column.buffers(), column.null_count, column.offset)
        column.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def _batches(reader: Any) -> Any:
    if isinstance(reader, pa.ipc.RecordBatchStreamReader):
        return reader
    return (reader.get_batch(number) for number in range(reader.num_record_batches))
