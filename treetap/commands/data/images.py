"""A set of images as a Parquet table that parties read: one column of tensors, or one for each half of the images.

The catalogue's sets of images are `.npz` files with uint8 arrays: `train_images` and `test_images` (N, height, width)
or (N, height, width, channels), and a class number per image in `train_labels` and `test_labels`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.commands.data.sources import CATALOGUE
from treetap.errors import BadInput, DataError
from treetap.models.durable import write_whole
from treetap.names import did_you_mean
from treetap.tables.tensors import Tensor, tensor_column

PARTS = ("train", "test")


def image_sets() -> list[str]:
    """Names of the catalogue's sets of images."""
    return [name for name, entry in CATALOGUE.items() if entry.file.endswith(".npz")]


def write_images(name: str, folder: Path, part: str, rows: int | None, out: Path, *, halves: bool) -> int:
    """Write the first `rows` images of a part of a set, by default all; the number of those written.

    Raises:
        BadInput: there is no such set of images, part or file, or the file to write cannot be.
        DataError: the set's file does not have the arrays of one, or fewer images than asked for.
    """
    if name not in image_sets():
        raise BadInput(
            f"{name}: no such set of images; there are {', '.join(image_sets())}{did_you_mean(name, image_sets())}"
        )
    if part not in PARTS:
        raise BadInput(f"--part {part}: must be one of {', '.join(PARTS)}")
    if out.suffix != ".parquet":
        raise BadInput(f"{out}: tensors are kept in Parquet; end the name with .parquet")
    table = image_table(folder / CATALOGUE[name].file, part, rows, halves=halves)
    content = pa.BufferOutputStream()
    pq.write_table(table, content, compression="zstd")
    try:
        write_whole(out, content.getvalue(), 0o644)
    except OSError as failure:
        raise BadInput(f"{out}: cannot be written: {failure.strerror}") from None
    return int(table.num_rows)


def image_table(path: Path, part: str, rows: int | None = None, *, halves: bool = False) -> pa.Table:
    """Columns `id`, `image` (or `left` and `right`, split in the middle of the width) and `label`, a class number.

    Raises:
        DataError: see `write_images`.
    """
    images, labels = _arrays(path, part)
    if rows is not None and not 0 < rows <= len(images):
        raise DataError(f"{path}: --rows {rows}: the {part} part has {len(images)} images")
    images, labels = images[:rows], labels[:rows]
    cells = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images
    middle = cells.shape[-1] // 2
    columns = {"left": cells[..., :middle], "right": cells[..., middle:]} if halves else {"image": cells}
    return pa.table(
        {
            "id": [f"{part}-{number:05d}" for number in range(len(cells))],
            **{name: tensor_column(stack) for name, stack in columns.items()},
            "label": pa.array(labels.astype(np.int32)),
        }
    )


def _arrays(path: Path, part: str) -> tuple[Tensor, npt.NDArray[np.integer[Any]]]:
    """Images and labels of a part, whose kinds and sizes fit."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels = file[f"{part}_images"], file[f"{part}_labels"]
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file; `treetap data list` says how to get it") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as failure:
        raise DataError(f"{path}: has no readable arrays {part}_images and {part}_labels: {failure}") from None
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise DataError(f"{path}: {part}_images is not uint8 of (N, height, width) or (N, height, width, channels)")
    if labels.shape != images.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: {part}_labels is not a class number for each of {len(images)} images")
    return images, labels
