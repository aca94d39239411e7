"""Cells of any type of Arrow as one of few kinds, once, at reading: numbers, booleans, text, dates, images.

Whatever a format or a library stores a cell as, code behind this module meets the same types: categories are their
values, a UUID and bytes of UTF-8 are text, a boolean in a byte is one. What is left is refused by the column's name.

Columns whose cells are images: Arrow's `fixed_shape_tensor` of uint8, read as one array without a copy per cell.

A column is (height, width) or (channels, height, width). Where a type names its dimensions, these say which is which.
A type that permutes them is refused: Arrow's specification and its own conversion from numpy (pyarrow 26) read the same
permutation in opposite directions, so that a reader cannot know which one the writer meant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError, NotText, refuse
from treetap.tables.dates import is_date
from treetap.tables.source import Origin, as_doubles, is_number, is_text, kind_name, remedy_of, row_name

log = logging.getLogger(__name__)
#: Type for each kind of text in a file: views cannot be sorted.
_TEXT = {"string": pa.string(), "large_string": pa.large_string(), "string_view": pa.large_string()}
#: Digits of the longest decimals.
_MOST_DIGITS = 76
#: Views as dictionaries have them, which Arrow decodes as these alone.
_OF_VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
#: Types of a database's columns, and which plain types they hold.
_KEPT: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (is_text, pa.string()),
    (pa.types.is_boolean, pa.bool_()),
    (pa.types.is_floating, pa.float64()),
    (is_number, pa.int64()),  # whole ones, decimals too
    (pa.types.is_date, pa.date32()),
    (lambda kind: bool(pa.types.is_timestamp(kind)) and kind.tz is None, pa.timestamp("us")),
    (pa.types.is_timestamp, pa.timestamp("us", "UTC")),
)
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


def kept_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of a database's column for cells of this type, of which it holds each exactly or that one is refused.

    None: there is none for the type.
    """
    plain = plain_type(kind)
    return next((kept for holds, kept in _KEPT if holds(plain)), None)


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
        index = next(
            i for i, cell in enumerate(raw.to_pylist()) if cell and cell.decode(errors="ignore").encode() != cell
        )
        remedy = "" if isinstance(origin, Path) else origin.remedy("no text", ())
        raise NotText(
            f"{origin}: {row_name(origin, index)}, {place}: the cell is not UTF-8 text{remedy and '; '}{remedy}"
        ) from None


def _unknown(origin: Origin, place: str, kind: pa.DataType) -> DataError:
    return DataError(f"{origin}: {place} holds {kind_name(kind)}: {remedy_of(kind)}")


Tensor = npt.NDArray[np.uint8]
Shape = tuple[int, ...]
#: Names of dimensions that a type may give, in the order in which a table has them.
_DIMENSIONS = (("c", "channel", "channels"), ("h", "height"), ("w", "width"))
#: Channels that an image may have without names of its dimensions: grey, colours, colours and opacity.
_USUAL_CHANNELS = (1, 3, 4)
_REMEDY = "write it as fixed_shape_tensor of uint8, or leave the column out"


def is_tensor(kind: pa.DataType) -> bool:
    """True for columns of tensors of one shape, of any value type."""
    return isinstance(kind, pa.FixedShapeTensorType)


def shape_text(shape: Shape) -> str:
    """A shape in a message: "3 x 32 x 32"."""
    return " x ".join(map(str, shape))


def tensor_shape(path: Origin, name: str, kind: pa.FixedShapeTensorType) -> Shape:
    """The shape of a column's cells as a table has it: (height, width) or (channels, height, width).

    Raises:
        DataError: another value type or rank, a dimension of 0, a permutation, or names that are none of these.
    """
    physical = tuple(kind.shape)
    return tuple(physical[place] for place in _order(path, name, kind, physical))


def check_tensors(path: Origin, name: str, column: pa.ChunkedArray) -> None:
    """Raise `DataError` for a column of tensors that a party could not read: see `tensor_shape` and `tensor_of`."""
    tensor_shape(path, name, column.type)
    if any(chunk.null_count or chunk.storage.flatten().null_count for chunk in column.chunks):
        raise DataError(
            f"{path}: column {name!r}: an image, or a value in one, is missing; leave out the records without one"
        )


def tensor_of(path: Origin, name: str, column: pa.ChunkedArray, order: npt.NDArray[np.int64]) -> Tensor:
    """A column's cells (N, *shape) uint8, the records in this order of the file's rows.

    Raises:
        DataError: see `tensor_shape`; or a cell, or a value in one, is missing.
    """
    check_tensors(path, name, column)
    physical = tuple(column.type.shape)
    dimensions = _order(path, name, column.type, physical)
    cells: Tensor = np.empty((len(column), *physical), dtype=np.uint8)
    place = np.argsort(order)  # row in the file → record
    row = 0
    for chunk in column.chunks:
        block = chunk.storage.flatten().to_numpy(zero_copy_only=True).reshape(len(chunk), *physical)
        cells[place[row : row + len(chunk)]] = block
        row += len(chunk)
    return np.ascontiguousarray(cells.transpose(0, *(place + 1 for place in dimensions)))


def tensor_column(cells: Tensor) -> pa.Array:
    """A column for a Parquet table of images (N, height, width) or (N, channels, height, width)."""
    names = ["channels", "height", "width"][4 - cells.ndim :]
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(cells), dim_names=names)


def check_trained(path: Origin, now: Mapping[str, Shape], trained: Mapping[str, Shape], columns: list[str]) -> None:
    """Raise `DataError` where a column is another tensor than at the training, or is one now or was one then."""
    for name in columns:
        was, is_now = trained.get(name), now.get(name)
        if was != is_now:
            raise DataError(f"{path}: column {name!r} holds {_kind(is_now)}, and {_kind(was)} when it was trained on")


def _kind(shape: Shape | None) -> str:
    return "no tensors" if shape is None else f"tensors of shape {shape_text(shape)}"


def _order(path: Origin, name: str, kind: pa.FixedShapeTensorType, physical: Shape) -> list[int]:
    """The physical dimensions in the order (channels,) height, width."""
    place, shape = f"{path}: column {name!r} holds tensors", shape_text(physical)
    order = list(range(len(physical)))
    last = len(physical) == 3 and physical[0] not in _USUAL_CHANNELS and physical[-1] in _USUAL_CHANNELS
    rules = (
        (kind.value_type != pa.uint8(), f"of {kind.value_type}, not of uint8: {_REMEDY}"),
        (len(physical) not in (2, 3), f"of shape {shape}: (height, width) or (channels, height, width) is needed"),
        (0 in physical, f"of shape {shape}, without a value: leave the column out"),
        (
            list(kind.permutation or order) != order,
            "whose type permutes the dimensions: write them contiguously, as numpy.ascontiguousarray makes them",
        ),
        (
            last and not kind.dim_names,
            f"of shape {shape}: the channels seem to be last; name the dimensions of its type, as in dim_names = "
            '["height", "width", "channels"], or put the channels first',
        ),
    )
    refuse(*((wrong, f"{place} {what}") for wrong, what in rules), kind=DataError)
    return _by_name(place, list(kind.dim_names)) if kind.dim_names else order


def _by_name(place: str, names: list[str]) -> list[int]:
    """The order by the names of the dimensions."""
    wanted = _DIMENSIONS[-len(names) :]
    lower = [name.lower() for name in names]
    order = [next((k for k, name in enumerate(lower) if name in allowed), -1) for allowed in wanted]
    if sorted(order) != list(range(len(names))):
        asked = ", ".join(allowed[-1] for allowed in wanted)
        raise DataError(f"{place} whose dimensions are named {', '.join(map(repr, names))}; name them {asked}")
    return order
