"""Cells of any type of Arrow as one of few kinds, once, at reading: numbers, booleans, text, dates, images.

Whatever a format or a library stores a cell as, code behind this module meets the same types: categories are their
values, a UUID and bytes of UTF-8 are text, a boolean in a byte is one. What is left is refused by the column's name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.dates import is_date
from treetap.tables.source import Origin, as_doubles, is_number, is_text, kind_name, remedy_of, row_name

log = logging.getLogger(__name__)
#: Type for each kind of text in a file: views cannot be sorted.
_TEXT = {"string": pa.string(), "large_string": pa.large_string(), "string_view": pa.large_string()}
#: Digits of the longest decimals.
_MOST_DIGITS = 76
#: Views as dictionaries have them, which Arrow decodes as these alone.
_OF_VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
#: Places of the hexadecimal digits in the text of a UUID.
_DIGITS = np.delete(np.arange(36), (8, 13, 18, 23))


def plain_column(origin: Origin, place: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of one of these types: see above. `place`: the column, for messages.

    Raises:
        DataError: a cell of text is not UTF-8, or the column has a type of which no cell can be made.
    """
    try:
        return _text(origin, place, _decoded(origin, place, column))
    except pa.ArrowException as failure:
        log.debug("%s: %s: decoding it raised %s", origin, place, type(failure).__name__)
        raise _unknown(origin, place, column.type) from None


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column of this type has as a plain one; that of one that is refused as it is."""
    try:
        return plain_column(Path(), "", pa.chunked_array([], kind)).type
    except DataError:
        return kind


def common_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """The type that holds the cells of plain columns of all these types: whole numbers as they are.

    Raises:
        pa.ArrowException: there is none.
    """
    held = {kind for kind in kinds if not pa.types.is_null(kind)}
    if len(held) < 2:
        return next(iter(held), pa.null())
    if all(map(is_number, held)):
        return _common_number(held)
    if all(map(is_text, held)):
        return pa.large_string()
    # times of a zone and others would be two different numbers for one text, and have no common type
    if all(is_date(kind) and getattr(kind, "tz", None) is None for kind in held):
        return pa.timestamp("ns" if pa.timestamp("ns") in held else "us")
    return pa.unify_schemas([pa.schema([("cell", kind)]) for kind in held], promote_options="permissive")[0].type


def _common_number(kinds: Collection[pa.DataType]) -> pa.DataType:
    decimals = [kind for kind in kinds if pa.types.is_decimal(kind)]
    whole = [kind for kind in kinds if pa.types.is_integer(kind)]
    scale = max((kind.scale for kind in decimals), default=0)
    # a whole number of 64 bits has up to 20 digits
    digits = scale + max([kind.precision - kind.scale for kind in decimals] + [20 for _ in whole], default=0)
    if len(decimals) + len(whole) < len(kinds) or digits > _MOST_DIGITS:
        return pa.float64()
    if not decimals and pa.uint64() not in whole:
        return pa.int64()
    if not decimals and not any(map(pa.types.is_signed_integer, whole)):
        return pa.uint64()
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)


def cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A plain column in a common type; raises what Arrow does."""
    return as_doubles(column) if pa.types.is_float64(kind) and pa.types.is_decimal(column.type) else column.cast(kind)


def _decoded(origin: Origin, place: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values in the place of runs, dictionaries and Arrow's extensions."""
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        return _decoded(origin, place, _of_chunks(map(pc.run_end_decode, column.chunks), kind.value_type))
    if pa.types.is_dictionary(kind):
        values = _OF_VIEWS.get(str(kind.value_type), kind.value_type)
        chunks = (_values(chunk, values) for chunk in column.chunks)
        return _decoded(origin, place, _of_chunks(chunks, values))
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType):
        return _extended(origin, place, column)
    if str(kind).startswith(("decimal32", "decimal64")):  # for which Arrow has few functions
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column


def _extended(origin: Origin, place: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values in the place of those of an extension."""
    kind = column.type
    stored = _of_chunks((chunk.storage for chunk in column.chunks), kind.storage_type)
    if isinstance(kind, pa.UuidType):
        return _of_chunks(map(_uuids, stored.chunks), pa.large_string())
    if isinstance(kind, pa.Bool8Type):
        return stored.cast(pa.bool_())
    if isinstance(kind, pa.JsonType):
        return stored
    raise _unknown(origin, place, kind)


def _values(chunk: pa.DictionaryArray, kind: pa.DataType) -> pa.Array:
    if chunk.dictionary.type != kind:
        chunk = pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind))
    return chunk.dictionary_decode()


def _of_chunks(chunks: Iterable[pa.Array], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array(list(chunks), kind)


def _uuids(stored: pa.FixedSizeBinaryArray) -> pa.LargeStringArray:
    """UUIDs (n,) in their usual text of 36 characters."""
    held = stored.fill_null(bytes(16))
    raw = np.frombuffer(held.buffers()[1] or b"", dtype=np.uint8)[16 * held.offset : 16 * (held.offset + len(held))]
    raw = raw.reshape(len(stored), 16)
    text = np.full((len(stored), 36), ord("-"), dtype=np.uint8)
    text[:, _DIGITS] = _HEXADECIMAL[np.stack([raw >> 4, raw & 15], axis=2).reshape(len(stored), 32)]
    ends = np.arange(0, 36 * len(stored) + 1, 36, dtype=np.int64)
    texts = pa.LargeStringArray.from_buffers(len(stored), pa.py_buffer(ends), pa.py_buffer(text.tobytes()))
    return pc.if_else(stored.is_valid(), texts, pa.scalar(None, pa.large_string()))


def _text(origin: Origin, place: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text, and bytes that are some, as UTF-8 text; other bytes as they are."""
    kind = column.type
    held = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or str(kind) == "binary_view"
    if held or pa.types.is_fixed_size_binary(kind):
        if not isinstance(origin, Path) and not origin.typed:
            return _utf8(origin, place, column, pa.string())  # a text file holds text
        plain = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else column
        raw = plain.cast(pa.large_binary())
        try:
            text = raw.cast(pa.large_string())
        except pa.ArrowInvalid:
            return column
        return column if pc.any(pc.match_substring(raw, b"\0")).as_py() else text
    text = _TEXT.get(str(kind))
    return column if text is None else _utf8(origin, place, column, text)


def _utf8(origin: Origin, place: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    raw = column.cast(pa.large_binary())
    try:
        return raw.cast(kind)
    except pa.ArrowInvalid:
        index = next(i for i, cell in enumerate(raw.to_pylist()) if not _is_utf8(cell))
        remedy = "" if isinstance(origin, Path) else origin.remedy("no text", ())
        raise DataError(
            f"{origin}: {row_name(origin, index)}, {place}: the cell is not UTF-8 text{remedy and '; '}{remedy}"
        ) from None


def _is_utf8(cell: bytes | None) -> bool:
    try:
        (cell or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _unknown(origin: Origin, place: str, kind: pa.DataType) -> DataError:
    return DataError(f"{origin}: {place} holds {kind_name(kind)}: {remedy_of(kind)}")
