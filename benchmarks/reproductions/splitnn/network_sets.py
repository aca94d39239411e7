"""The sets of the reproduction as two parties' tables, in halves; a seed draws the records.

Of images the label holder has the left half and the feature party the right one, of tables the first half of the
columns in the file's order and the other one, or (`turns`) every second column. Columns of text are one-hot.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from network_catalogue import SETS, DataSet

from treetap.errors import BadInput
from treetap.models.arrays import read_arrays
from treetap.neural.inputs import Inputs, InputScaler
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_classes
from treetap.tables.reading import Table, read_table
from treetap.tables.tensors import tensor_column

HOLDER, FEATURE = "label-holder", "feature-b"
PARTIES = (HOLDER, FEATURE)
PARTS = ("train", "test")
LABEL, ID = "label", "id"
#: The share of a table's records that are trained on.
TRAINED = 0.8
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Both parties' records: by part, the inputs of each party and the class numbers (N,) of its records.

    `own`: the label holder's table of those that are trained on.
    """

    own: Table
    inputs: Mapping[str, Mapping[str, Inputs]]
    labels: Mapping[str, Ints]
    classes: int


@cache
def split_of(name: str, seed: int, most: int | None = None, *, turns: bool = False) -> Split:
    """A set as a seed divides it; `most`: at most that many records of each part.

    Raises:
        BadInput: TREETAP_DATA is not set, or has no such file.
    """
    folder = files_of(name, seed, most, turns=turns)
    inputs: dict[str, dict[str, Inputs]] = {part: {} for part in PARTS}
    labels: dict[str, Ints] = {}
    for party in PARTIES:
        tables = _tables(folder, party)
        scaler = InputScaler.fit(tables["train"], np.arange(len(tables["train"].ids)))
        for part in PARTS:
            inputs[part][party] = scaler.apply(tables[part])
        if party == HOLDER:
            own = tables["train"]
            found = {part: read_classes(tables[part], LABEL) for part in PARTS}
            classes = found["train"].classes
            place = {each: number for number, each in enumerate(classes)}
            for part, each in found.items():
                numbers = np.array([place[cls] for cls in each.classes], dtype=np.int64)
                labels[part] = numbers[each.values]
    return Split(own, inputs, labels, len(classes))


@cache
def files_of(name: str, seed: int, most: int | None = None, *, turns: bool = False) -> Path:
    """A folder with a Parquet table of each party and part, `PARTY-PART.parquet`; it goes when the process ends."""
    given = SETS[name]
    folder = Path(_folder().name) / f"{name}-{seed}-{most}-{turns}"
    folder.mkdir()
    whole = _images(given, seed) if given.images else _columns(given, seed, turns)
    for part, (features, label) in whole.items():
        ids = pa.array([f"{part}-{number:06d}" for number in range(len(label))][:most])
        for party in PARTIES:
            content = {ID: ids} | {key: each[:most] for key, each in features[party].items()}
            pq.write_table(
                pa.table(content | ({LABEL: label[:most]} if party == HOLDER else {})), _file(folder, party, part)
            )
    return folder


def config_of(folder: Path, party: str, part: str) -> TableConfig:
    """A party's table as its configuration names it."""
    path = _file(folder, party, part)
    columns = [each for each in pq.read_schema(path).names if each not in (ID, LABEL)]
    return TableConfig(path=path, id=ID, columns=columns, label=LABEL if party == HOLDER else None, encode="one-hot")


def _tables(folder: Path, party: str) -> dict[str, Table]:
    own = party == HOLDER
    train = read_table(config_of(folder, party, "train"), with_label=own, missing=None)
    test = config_of(folder, party, "test")
    return {"train": train, "test": read_table(test, with_label=own, missing=None, categories=train.categories)}


#: By part the columns of each party, and the label.
_Parts = dict[str, tuple[dict[str, dict[str, Any]], Any]]


def _images(given: DataSet, seed: int) -> _Parts:
    held = read_arrays(_path(given.file))
    chosen = np.random.default_rng(seed).permutation(len(held["train_labels"]))[: given.train]
    found: _Parts = {}
    for part, places in (("train", chosen), ("test", np.arange(len(held["test_labels"])))):
        pixels = held[f"{part}_images"][places]
        cells = pixels.transpose(0, 3, 1, 2) if pixels.ndim == 4 else pixels
        middle = cells.shape[-1] // 2
        halves = {
            HOLDER: {"left": tensor_column(cells[..., :middle])},
            FEATURE: {"right": tensor_column(cells[..., middle:])},
        }
        found[part] = halves, pa.array(held[f"{part}_labels"][places].astype(np.int32))
    return found


def _columns(given: DataSet, seed: int, turns: bool) -> _Parts:
    table = pq.read_table(_path(given.file))
    order = np.random.default_rng(seed).permutation(table.num_rows)
    trained = round(TRAINED * table.num_rows)
    names = [name for name in table.column_names if name != given.label]
    middle = len(names) // 2
    owned = (names[0::2], names[1::2]) if turns else (names[:middle], names[middle:])
    halves = dict(zip(PARTIES, owned, strict=True))
    found: _Parts = {}
    for part, places in (("train", order[:trained]), ("test", order[trained:])):
        chosen = table.take(pa.array(places))
        columns = {party: {name: chosen[name] for name in own} for party, own in halves.items()}
        found[part] = columns, chosen[given.label]
    return found


def _file(folder: Path, party: str, part: str) -> Path:
    return folder / f"{party}-{part}.parquet"


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="treetap-networks-")


def _path(file: str) -> Path:
    folder = os.environ.get("TREETAP_DATA")
    if not folder:
        raise BadInput(f"TREETAP_DATA is not set: name the folder with {file}")
    path = Path(folder) / file
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file")
    return path
