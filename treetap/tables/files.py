"""Files of tables: opened as they lie or unpacked, on this host's disk or in an object store."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.faults import missing
from treetap.tables.source import Source
from treetap.usage import half_of_memory

#: Ending of a compressed file's name → Arrow's name of the codec.
CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}

#: What to do with a large table of a format that is read whole.
IN_PARTS = "write it as Parquet, which is read in parts"


@dataclass(frozen=True)
class TableFile:
    """One file. `name`: for messages. `opener`: opens it at its start, with random access. `stamper`: see `stamp`."""

    name: str
    opener: Callable[[], pa.NativeFile] = field(repr=False)
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

    def open(self) -> pa.NativeFile:
        """The file as it lies; `OSError` if it cannot be opened."""
        return self.opener()

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
        return io.TextIOWrapper(io.BufferedReader(_Raw(self.unpacked())), without_mark, "replace", newline="")

    def head(self, size: int) -> bytes:
        """The first bytes of the content, unpacked; `OSError` if they cannot be read."""
        with self.unpacked() as file:
            return bytes(file.read(size))


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


class _Raw(io.RawIOBase):
    """A file of Arrow's for Python's decoders."""

    def __init__(self, file: pa.NativeFile) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


class FileSource(Source):
    """A table that is one file, whose name begins messages about faults."""

    def __init__(self, file: TableFile) -> None:
        self.file = file

    def __str__(self) -> str:
        return str(self.file)

    def stamp(self) -> object:
        return self.file.stamp()
