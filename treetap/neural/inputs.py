"""A party's inputs: scalers fitted on the aligned training records by their owner, and records as tensors.

A number is standardised, and a missing one is 0 beside an indicator of its column. A column without a missing cell in
the records that are trained on has no indicator: a later missing cell counts as its mean. A feature that is one
category of a column of text stays 0 or 1. Pixels are standardised per channel. What is constant has deviation 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from treetap.arrays import Array, Ints
from treetap.errors import DataError
from treetap.neural.architectures import InputShape
from treetap.tables.binned import refuse_categories
from treetap.tables.reading import Table

_PIXEL = 255.0
#: Images whose pixels are counted at once.
_PIECE = 1024


def mean_and_deviation(values: Array, what: str) -> tuple[float, float]:
    """Mean and deviation of numbers (n,), n > 0; `what` names them in an error.

    Of equal numbers, which rounding would give a tiny deviation, it is 1.

    Raises:
        DataError: they are so large that there is none.
    """
    if values.min() == values.max():
        return float(values[0]), 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not (math.isfinite(mean) and math.isfinite(deviation)):
        raise DataError(f"{what}: the numbers are too large to standardise; rescale them")
    return mean, deviation if deviation > 0 else 1.0


@dataclass(frozen=True)
class ImageScaler:
    """Mean and deviation of the pixels of each channel, in [0, 1]; `shape`: channels, height, width."""

    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class InputScaler:
    """The change of a party's columns into inputs.

    Attributes:
        columns: names of the features.
        mean, deviation: of each; 0 and 1 where it stays as it is.
        indicated: places of the features with an indicator of missing cells, ascending; of those that are made of
            one column of text, the first.
        images: scaler of each column of images, by name.
    """

    columns: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    indicated: tuple[int, ...]
    images: Mapping[str, ImageScaler]

    @classmethod
    def fit(cls, table: Table, records: Ints) -> InputScaler:
        """The scaler of a table by the records at these places, those that are trained on.

        Raises:
            DataError: the numbers of a column are too large for a mean and a deviation, or a column has categories.
        """
        refuse_categories(table, "boosting")
        mean, deviation, indicated = list[float](), list[float](), list[int]()
        categories = table.made
        # features that are missing with another one: all but the first of a column of text
        repeated = {name for encoding in table.categories.values() for name in encoding.features[1:]}
        for place, name in enumerate(table.columns):
            cells = table.features[records, place]
            known = cells[~np.isnan(cells)]
            if len(known) < len(cells) and name not in repeated:
                indicated.append(place)
            scaled = len(known) > 0 and name not in categories
            where = f"{table.path}: column {name!r}"
            centre, spread = mean_and_deviation(known, where) if scaled else (0.0, 1.0)
            mean.append(centre)
            deviation.append(spread)
        images = {name: _fit_images(pixels, records) for name, pixels in table.tensors.items()}
        return cls(tuple(table.columns), tuple(mean), tuple(deviation), tuple(indicated), images)

    @property
    def shape(self) -> InputShape:
        """The shape of a record's inputs."""
        return InputShape(
            len(self.columns) + len(self.indicated), tuple(scaler.shape for scaler in self.images.values())
        )

    def apply(self, table: Table) -> Inputs:
        """A table's records as inputs.

        Raises:
            DataError: its columns are others, its images have another shape, or a number is far too large.
        """
        if tuple(table.columns) != self.columns or list(table.tensors) != list(self.images):
            raise DataError(f"{table.path}: has other columns than the table on which the model was trained")
        for name, pixels in table.tensors.items():
            if _channels_first(pixels).shape[1:] != self.images[name].shape:
                raise DataError(
                    f"{table.path}: column {name!r} has images of {_sizes(_channels_first(pixels).shape[1:])}, and "
                    f"those of the training have {_sizes(self.images[name].shape)}"
                )
        images = [_channels_first(tensor) for tensor in table.tensors.values()]
        return Inputs(self._standardised(table), images, list(self.images.values()), self.shape)

    def _standardised(self, table: Table) -> npt.NDArray[np.float32]:
        """The numbers (N, columns) of a table, then the indicators."""
        values = np.empty((len(table.ids), len(self.columns) + len(self.indicated)), dtype=np.float32)
        for place, name in enumerate(self.columns):  # one after the other: a copy of all would take as much again
            cells = table.features[:, place]
            with np.errstate(over="ignore"):
                values[:, place] = np.where(np.isnan(cells), 0.0, (cells - self.mean[place]) / self.deviation[place])
            if not np.isfinite(values[:, place]).all():
                raise DataError(f"{table.path}: column {name!r} has a number too far from those of the training")
        for place, column in enumerate(self.indicated, start=len(self.columns)):
            values[:, place] = np.isnan(table.features[:, column])
        return values

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, for the manifest."""
        images = {
            name: {"shape": list(scaler.shape), "mean": list(scaler.mean), "deviation": list(scaler.deviation)}
            for name, scaler in self.images.items()
        }
        return {
            "columns": list(self.columns),
            "mean": list(self.mean),
            "deviation": list(self.deviation),
            "indicated": list(self.indicated),
            "images": images,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> InputScaler:
        """The scaler of a manifest; `KeyError`, `TypeError`, `ValueError` or `AttributeError` where it is none."""
        images = {str(name): _image_scaler(written) for name, written in content["images"].items()}
        columns, indicated = tuple(map(str, content["columns"])), tuple(map(int, content["indicated"]))
        mean, deviation = (tuple(map(float, content[name])) for name in ("mean", "deviation"))
        if not len(columns) == len(mean) == len(deviation) or not set(indicated) <= set(range(len(columns))):
            raise ValueError("means, deviations or indicators are not those of the columns")
        return cls(columns, mean, deviation, indicated, images)


def _image_scaler(entry: Mapping[str, Any]) -> ImageScaler:
    """That of a manifest; raises as `InputScaler.from_dict`."""
    channels, height, width = map(int, entry["shape"])
    mean, deviation = (tuple(map(float, entry[name])) for name in ("mean", "deviation"))
    if not len(mean) == len(deviation) == channels:
        raise ValueError("means or deviations are not those of the channels")
    return ImageScaler((channels, height, width), mean, deviation)


def has_inputs(table: Table) -> bool:
    """True if a table has a column of features or of images."""
    return bool(table.columns or table.tensors)


class Inputs:
    """Records as tensors; pixels stay bytes until a batch needs them."""

    def __init__(
        self,
        values: npt.NDArray[np.float32],
        images: Sequence[npt.NDArray[np.uint8]],
        scalers: Sequence[ImageScaler],
        shape: InputShape,
    ) -> None:
        """`values`: (N, columns). `images`: of each column (N, channels, height, width)."""
        self._values, self._images, self.shape = values, images, shape
        self._scales = [(_per_channel(scaler.mean), _per_channel(scaler.deviation)) for scaler in scalers]

    @classmethod
    def without_columns(cls, records: int) -> Inputs:
        """Records of a party that has no column: each is no number."""
        return cls(np.zeros((records, 0), dtype=np.float32), [], [], InputShape(0))

    def __repr__(self) -> str:
        return f"<Inputs of {len(self)} records>"

    def __len__(self) -> int:
        return len(self._values)

    def batch(self, rows: Ints) -> torch.Tensor:
        """The records at these places: (n, numbers), or of one column of images (n, channels, height, width)."""
        images = [
            torch.from_numpy(pixels[rows]).to(torch.float32).sub_(mean).div_(deviation)
            for pixels, (mean, deviation) in zip(self._images, self._scales, strict=True)
        ]
        if len(images) == 1 and not self._values.shape[1]:
            return images[0]
        values = torch.from_numpy(self._values[rows])
        return torch.cat([values, *(image.flatten(1) for image in images)], dim=1) if images else values


def _per_channel(numbers: Sequence[float]) -> torch.Tensor:
    """Numbers of channels as they apply to bytes of pixels (channels, height, width)."""
    return torch.tensor(numbers, dtype=torch.float32).reshape(-1, 1, 1) * _PIXEL


def _fit_images(pixels: npt.NDArray[np.uint8], records: Ints) -> ImageScaler:
    images = _channels_first(pixels)
    _, channels, height, width = images.shape
    mean, deviation = [], []
    for channel in range(channels):
        counts = np.zeros(256, dtype=np.int64)
        for start in range(0, len(records), _PIECE):  # counting takes eight bytes a pixel
            counts += np.bincount(images[records[start : start + _PIECE], channel].reshape(-1), minlength=256)
        levels = np.arange(256) / _PIXEL
        centre = float((counts * levels).sum() / counts.sum())
        spread = float(np.sqrt((counts * (levels - centre) ** 2).sum() / counts.sum()))
        mean.append(centre)
        deviation.append(spread if np.count_nonzero(counts) > 1 else 1.0)
    return ImageScaler((channels, height, width), tuple(mean), tuple(deviation))


def _channels_first(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """(N, channels, height, width) of images with or without channels."""
    return pixels[:, None] if pixels.ndim == 3 else pixels


def _sizes(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
