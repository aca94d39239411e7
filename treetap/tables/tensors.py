"""Columns whose cells are images: Arrow's `fixed_shape_tensor` of uint8, read as one array without a copy per cell.

A column is (height, width) or (channels, height, width). Where a type names its dimensions, these say which is which.
A type that permutes them is refused: Arrow's specification and its own conversion from numpy (pyarrow 26) read the same
permutation in opposite directions, so that a reader cannot know which one the writer meant.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.source import Origin

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
    place = f"{path}: column {name!r}"
    if kind.value_type != pa.uint8():
        raise DataError(f"{place} holds tensors of {kind.value_type}, not of uint8: {_REMEDY}")
    if len(physical) not in (2, 3):
        raise DataError(
            f"{place} holds tensors of shape {shape_text(physical)}: (height, width) or (channels, height, width) is "
            "needed"
        )
    if 0 in physical:
        raise DataError(f"{place} holds tensors of shape {shape_text(physical)}, without a value: leave the column out")
    if list(kind.permutation or range(len(physical))) != list(range(len(physical))):
        raise DataError(
            f"{place} holds tensors whose type permutes the dimensions: write them contiguously, as "
            "numpy.ascontiguousarray makes them"
        )
    if kind.dim_names:
        return _by_name(place, list(kind.dim_names))
    if len(physical) == 3 and physical[0] not in _USUAL_CHANNELS and physical[-1] in _USUAL_CHANNELS:
        raise DataError(
            f"{place} holds tensors of shape {shape_text(physical)}: the channels seem to be last; name the "
            'dimensions of its type, as in dim_names = ["height", "width", "channels"], or put the channels first'
        )
    return list(range(len(physical)))


def _by_name(place: str, names: list[str]) -> list[int]:
    """The order by the names of the dimensions."""
    wanted = _DIMENSIONS[-len(names) :]
    lower = [name.lower() for name in names]
    order = [next((k for k, name in enumerate(lower) if name in allowed), -1) for allowed in wanted]
    if sorted(order) != list(range(len(names))):
        asked = ", ".join(allowed[-1] for allowed in wanted)
        raise DataError(
            f"{place} holds tensors whose dimensions are named {', '.join(map(repr, names))}; name them {asked}"
        )
    return order
