"""Arrays from an `.npz` file of any origin: the sizes that its headers state are checked, not trusted."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from treetap.usage import half_of_memory

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, SyntaxError, RecursionError, TypeError),
    *(tokenize.TokenError, MemoryError),  # of a header, which is Python's text
    *(NotImplementedError, RuntimeError),  # other compressions and encryption
)


def read_arrays(file: Path | BinaryIO) -> dict[str, Array]:
    """The arrays of a file by name.

    `numpy.load` allocates memory for the shape in a header, terabytes if it says so. Here the shape must fit the bytes
    of the file.

    Raises:
        ValueError: the file is no such archive, is damaged, or holds objects, or more than half of the memory.
        OSError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > half_of_memory():
                raise ValueError("larger than half of the memory")
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}
    except _DAMAGED as damage:
        raise ValueError(f"damaged ({type(damage).__name__})") from None


def content_of(arrays: Arrays) -> bytes:
    """The content of a file of arrays by name, the same for the same arrays."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    with archive.open(entry) as member:
        read_header = _HEADERS.get(np.lib.format.read_magic(member))
        if read_header is None:
            raise ValueError("an array of another version of the format")
        shape, fortran, kind = read_header(member)
        size = math.prod(shape) * kind.itemsize
        if kind.hasobject or kind.itemsize == 0 or min(shape, default=0) < 0 or member.tell() + size != entry.file_size:
            raise ValueError("an array whose header does not fit its content")
        content = bytearray(member.read())  # to the end, where its checksum is compared
    if len(content) != size:
        raise ValueError("an array that is cut short")
    return np.frombuffer(content, dtype=kind).reshape(shape, order="F" if fortran else "C")
