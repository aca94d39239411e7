"""Public sets as tables of several parties, one Parquet file for each party and part; a seed draws the records.

Of images every party has a vertical piece, of tables some of the columns. Columns of text are one-hot.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.errors import BadInput
from treetap.models.arrays import read_arrays
from treetap.neural.inputs import Inputs, InputScaler
from treetap.tables.cells import tensor_column
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_classes
from treetap.tables.reading import Table, read_table

PARTS = ("train", "test")
LABEL, ID = "label", "id"
#: The share of a table's records that are trained on.
TRAINED = 0.8
Ints = npt.NDArray[np.int64]
#: By part the columns of each party, and the label.
Parts = dict[str, tuple[dict[str, dict[str, Any]], Any]]


@dataclass(frozen=True)
class Split:
    """All parties' records: by part, each party's table and inputs, and the class numbers (N,) of its records.

    `scalers`: of each party, fitted to its training records.
    """

    tables: Mapping[str, Mapping[str, Table]]
    inputs: Mapping[str, Mapping[str, Inputs]]
    labels: Mapping[str, Ints]
    classes: int
    scalers: Mapping[str, InputScaler]


def split_of_files(folder: Path, parties: Sequence[str]) -> Split:
    """The tables of a folder as the parties would read and scale them; the label holder is the first party."""
    tables: dict[str, dict[str, Table]] = {part: {} for part in PARTS}
    inputs: dict[str, dict[str, Inputs]] = {part: {} for part in PARTS}
    scalers = {}
    for party in parties:
        own = party == parties[0]
        train = read_table(config_of(folder, party, "train", labelled=own), with_label=own, missing=None)
        test = config_of(folder, party, "test", labelled=own)
        found = {"train": train, "test": read_table(test, with_label=own, missing=None, categories=train.categories)}
        scalers[party] = InputScaler.fit(train, np.arange(len(train.ids)))
        for part in PARTS:
            tables[part][party], inputs[part][party] = found[part], scalers[party].apply(found[part])
    read = {part: read_classes(tables[part][parties[0]], LABEL) for part in PARTS}
    place = {each: number for number, each in enumerate(read["train"].classes)}
    labels = {
        part: np.array([place[cls] for cls in each.classes], dtype=np.int64)[each.values] for part, each in read.items()
    }
    return Split(tables, inputs, labels, len(place), scalers)


def written(name: str, parts: Callable[[], Parts], most: int | None = None) -> Path:
    """A folder with a Parquet table of each party and part; it goes when the process ends.

    Args:
        name: of the folder; a folder that is there already is not written again.
        most: at most that many records of each part.
    """
    folder = Path(_folder().name) / name
    if folder.exists():
        return folder
    whole = parts()
    folder.mkdir()
    for part, (features, label) in whole.items():
        ids = pa.array([f"{part}-{number:06d}" for number in range(len(label))][:most])
        for number, (party, columns) in enumerate(features.items()):
            content = {ID: ids} | {key: each[:most] for key, each in columns.items()}
            content |= {} if number else {LABEL: label[:most]}
            pq.write_table(pa.table(content), _file(folder, party, part))
    return folder


def config_of(folder: Path, party: str, part: str, *, labelled: bool) -> TableConfig:
    """A party's table as its configuration names it."""
    path = _file(folder, party, part)
    columns = [each for each in pq.read_schema(path).names if each not in (ID, LABEL)]
    return TableConfig(path=path, id=ID, columns=columns, label=LABEL if labelled else None, encode="one-hot")


def image_parts(file: str, seed: int, trained: int, pieces: Mapping[str, str]) -> Parts:
    """Images in vertical pieces, from left to right, whose widths differ by one at most.

    Args:
        trained: images that are trained on; the test images are all.
        pieces: party → name of its column; the label holder is the first.
    """
    held = read_arrays(data_path(file))
    chosen = np.random.default_rng(seed).permutation(len(held["train_labels"]))[:trained]
    found: Parts = {}
    for part, places in (("train", chosen), ("test", np.arange(len(held["test_labels"])))):
        pixels = held[f"{part}_images"][places]
        cells = pixels.transpose(0, 3, 1, 2) if pixels.ndim == 4 else pixels
        cuts = [cells.shape[-1] * number // len(pieces) for number in range(len(pieces) + 1)]
        columns = {
            party: {name: tensor_column(cells[..., start:end])}
            for (party, name), start, end in zip(pieces.items(), cuts, cuts[1:], strict=False)
        }
        found[part] = columns, pa.array(held[f"{part}_labels"][places].astype(np.int32))
    return found


def column_parts(file: str, label: str, seed: int, owned: Callable[[list[str]], Mapping[str, list[str]]]) -> Parts:
    """A table's columns as parties own them, by a function of the names without the label's; the label holder first."""
    table = pq.read_table(data_path(file))
    order = np.random.default_rng(seed).permutation(table.num_rows)
    trained = round(TRAINED * table.num_rows)
    parties = owned([name for name in table.column_names if name != label])
    found: Parts = {}
    for part, places in (("train", order[:trained]), ("test", order[trained:])):
        chosen = table.take(pa.array(places))
        columns = {party: {name: chosen[name] for name in own} for party, own in parties.items()}
        found[part] = columns, chosen[label]
    return found


def data_path(file: str) -> Path:
    """A public set's file. Raises BadInput: TREETAP_DATA is not set, or has no such file."""
    folder = os.environ.get("TREETAP_DATA")
    if not folder:
        raise BadInput(f"TREETAP_DATA is not set: name the folder with {file}")
    path = Path(folder) / file
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file")
    return path


def _file(folder: Path, party: str, part: str) -> Path:
    return folder / f"{party}-{part}.parquet"


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="treetap-networks-")
