"""The data sets of the ID2Graph paper that are at hand, what its Table 2 reports of them, and one set more.

Takahashi, Liu and Liu, "Eliminating Label Leakage in Tree-based Vertical Federated Learning": two parties with half of
the columns each, 80 % of the records for training.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.errors import BadInput
from treetap.models.arrays import read_arrays

MODELS = ("forest", "boosting")
SIDE = 28  # pixels of a Fashion-MNIST image, each way
#: Mean and standard deviation of the V-measure over five seeds.
Figure = tuple[float, float]


@dataclass(frozen=True)
class DataSet:
    """One set: its file below TREETAP_DATA (None: comes with scikit-learn), what the paper does with it and finds.

    `chunked`: the paper cuts this set's leaves into chunks. `over`: how the model is trained unless the person says.
    `remark`: how the file differs from what the paper used. `paper`: model → attack → figure, nothing for a set
    that the paper has not; clustering does not depend on the model.
    """

    title: str
    file: str | None
    label: str
    classes: int
    over: str
    chunked: bool
    remark: str
    paper: dict[str, dict[str, Figure]]

    @property
    def images(self) -> bool:
        """Whether columns are pixels, which the paper parts into a left and a right half instead of by lot."""
        return self.file is not None and self.file.endswith(".npz")


def _paper(
    cl: Figure, forest: tuple[Figure, Figure, Figure], boosting: tuple[Figure, Figure, Figure]
) -> dict[str, dict[str, Figure]]:
    rows = {"forest": forest, "boosting": boosting}
    return {
        model: {"cl": cl, **dict(zip(("uni", "uni+cl", "id2graph"), row, strict=True))} for model, row in rows.items()
    }


SETS = {
    "breastcancer": DataSet(
        "Breast cancer",
        None,
        "target",
        2,
        "wire",
        False,
        "",
        _paper(
            (0.554, 0.084),
            ((0.000, 0.000), (0.554, 0.084), (0.751, 0.106)),
            ((0.000, 0.000), (0.554, 0.084), (0.736, 0.133)),
        ),
    ),
    "obesity": DataSet(
        "Obesity",
        "obesity.parquet",
        "NObeyesdad",
        7,
        "wire",
        False,
        "",
        _paper(
            (0.254, 0.029),
            ((0.000, 0.000), (0.254, 0.029), (0.610, 0.079)),
            ((0.000, 0.000), (0.254, 0.029), (0.549, 0.114)),
        ),
    ),
    "drive": DataSet(
        "Drive",
        "sensorless_drive_subset.parquet",
        "class",
        11,
        "centralised",
        True,
        "subset: 2,200 of 58,509 records",
        _paper(
            (0.283, 0.042),
            ((0.181, 0.101), (0.302, 0.034), (0.729, 0.032)),
            ((0.000, 0.000), (0.283, 0.042), (0.660, 0.045)),
        ),
    ),
    "fars": DataSet(
        "Fars",
        "fars.parquet",
        "target",
        8,
        "centralised",
        True,
        "",
        _paper(
            (0.187, 0.081),
            ((0.506, 0.287), (0.454, 0.131), (0.564, 0.056)),
            ((0.224, 0.311), (0.308, 0.158), (0.568, 0.060)),
        ),
    ),
    "pucrio": DataSet(
        "Pucrio",
        "pucrio_har_partial.parquet",
        "class",
        5,
        "centralised",
        True,
        "partial: 152,064 of 165,633 records",
        _paper(
            (0.075, 0.025),
            ((0.238, 0.217), (0.217, 0.105), (0.555, 0.035)),
            ((0.159, 0.217), (0.170, 0.114), (0.470, 0.073)),
        ),
    ),
    "fmnist": DataSet(
        "Fmnist",
        "fashion_mnist.npz",
        "label",
        10,
        "centralised",
        True,
        "",
        _paper(
            (0.431, 0.002),
            ((0.133, 0.182), (0.432, 0.002), (0.525, 0.013)),
            ((0.000, 0.000), (0.431, 0.002), (0.513, 0.025)),
        ),
    ),
    "credit_default": DataSet(
        "Credit default",
        "credit_default.parquet",
        "default.payment.next.month",
        2,
        "centralised",
        False,
        "not in the paper",
        {},
    ),
}
#: Those that the paper has.
PAPER_SETS = tuple(name for name, it in SETS.items() if it.paper)


@cache
def table_of(name: str) -> pa.Table:
    """The whole set as numbers, label column included; columns with one value only are left out.

    Records are shuffled, since some files are in order of classes and chunks of consecutive records would tell them.
    Columns of text become the number of their text in alphabetical order: the paper counts them as one feature each.

    Raises:
        BadInput: TREETAP_DATA is not set, or has no such file.
    """
    table = _read(SETS[name])
    return table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))


def _read(given: DataSet) -> pa.Table:
    if given.file is None:
        return _breast_cancer()
    path = _path(given.file)
    if given.images:
        held = read_arrays(path)
        pixels = held["train_images"].reshape(-1, SIDE * SIDE)
        columns = {f"p{j:03d}": pa.array(pixels[:, j]) for j in range(pixels.shape[1])}
        return pa.table(columns | {given.label: pa.array(held["train_labels"])})
    table = pq.read_table(path)
    content = {}
    for column in table.column_names:
        cells = table.column(column)
        if column != given.label and pa.types.is_large_string(cells.type):
            cells = pa.array(np.unique(np.asarray(cells.to_pylist()), return_inverse=True)[1])
        if len(cells.unique()) > 1:
            content[column] = cells
    return pa.table(content)


def left_share(columns: list[str], percent: int) -> list[str]:
    """The pixels in the left so many percent of an image, at least one column of it and not all."""
    width = min(SIDE - 1, max(1, round(SIDE * percent / 100)))
    return [name for name in columns if int(name[1:]) % SIDE < width]


@cache
def stored(name: str) -> Path:
    """The set as a Parquet file, as an experiment reads it; it goes when the process ends."""
    path = Path(_folder().name) / f"{name}.parquet"
    pq.write_table(table_of(name), path)
    return path


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="treetap-sets-")


def _breast_cancer() -> pa.Table:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    return pa.table({name: data.data[:, j] for j, name in enumerate(names)} | {"target": data.target})


def _path(file: str) -> Path:
    folder = os.environ.get("TREETAP_DATA")
    if not folder:
        raise BadInput(f"set TREETAP_DATA to the folder with {file}")
    path = Path(folder) / file
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; leave the set out with --sets")
    return path
