"""Vertically divided tables of any size from a seed, written part by part: no process holds a whole table.

Columns of all records are drawn in parts of `PART` records, each by a generator of its own, so that a table's first
parts are those of a longer one. Of eight columns four are continuous, one of them with 5 % missing; two are counts, one
has ten categories, one is rounded to 32 different values. The label of a record is drawn by a logistic model of the
columns, of which every party has some that matter, one in four of them; with more than two classes by as many models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

#: Records of a part, which is a row group of the file.
PART = 65_536
ID, LABEL = "record", "label"
LABEL_HOLDER = "label-holder"
_MISSING, _CATEGORIES, _FEW = 0.05, 10, 32

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """A table of `records` records, whose `columns` columns are spread evenly over `parties` parties.

    The label holder comes first; where the division leaves a rest, the first parties have one column more.
    """

    records: int
    columns: int
    parties: int = 2
    seed: int = 0
    classes: int = 2

    @property
    def names(self) -> list[str]:
        """The parties."""
        return [LABEL_HOLDER, *(f"feature-{number}" for number in range(1, self.parties))]

    def columns_of(self) -> dict[str, list[str]]:
        """Each party's columns."""
        shares = np.array_split(np.arange(self.columns), self.parties)
        return {name: [f"x{column}" for column in share] for name, share in zip(self.names, shares, strict=True)}


def write(plan: Plan, folder: Path) -> dict[str, Path]:
    """Write each party's Parquet file, `folder/PARTY.parquet`; the label holder's has the column `LABEL` too.

    A party's parts, and the records of a part, are in an order of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, plan.records, PART)
    paths = {}
    for number, (name, columns) in enumerate(plan.columns_of().items()):
        order = np.random.default_rng([plan.seed, 1, number]).permutation(len(starts))
        paths[name] = folder / f"{name}.parquet"
        schema = _schema(columns, labelled=name == LABEL_HOLDER)
        with pq.ParquetWriter(paths[name], schema, compression="zstd") as file:
            for part in order.tolist():
                file.write_table(_part(plan, part, number, columns, schema))
    return paths


def _schema(columns: Sequence[str], *, labelled: bool) -> pa.Schema:
    fields = [(ID, pa.int64()), *((name, pa.float64()) for name in columns)]
    return pa.schema(fields + ([(LABEL, pa.int64())] if labelled else []))


def _part(plan: Plan, part: int, number: int, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The party's columns of one part, in its own order of records."""
    first = part * PART
    count = min(PART, plan.records - first)
    drawn, label = _drawn(plan, part, count)
    content = {ID: np.arange(first, first + count), LABEL: label} | {name: drawn[:, int(name[1:])] for name in columns}
    rows = np.random.default_rng([plan.seed, 2, number, part]).permutation(count)
    return pa.table({name: content[name][rows] for name in schema.names}, schema=schema)


def _drawn(plan: Plan, part: int, count: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """All columns of a part, (count, columns), and its labels."""
    rng = np.random.default_rng([plan.seed, 0, part])
    drawn = rng.normal(size=(PART, plan.columns))[:count]
    weights = np.random.default_rng(plan.seed).normal(size=plan.columns)
    weights[np.arange(plan.columns) % 4 != 0] = 0
    margin = drawn @ weights / math.sqrt(np.count_nonzero(weights))
    label = rng.random(PART)[:count] < 1 / (1 + np.exp(-2 * margin))
    if plan.classes > 2:
        of_classes = np.random.default_rng([plan.seed, 3]).normal(size=(plan.columns, plan.classes))
        margins = drawn @ (of_classes * (weights != 0)[:, None]) / math.sqrt(np.count_nonzero(weights))
        label = np.argmax(2 * margins + rng.gumbel(size=(PART, plan.classes))[:count], axis=1)
    for column in range(plan.columns):
        drawn[:, column] = _shaped(drawn[:, column], column % 8, rng)
    return drawn, label.astype(np.int64)


def _shaped(values: Floats, kind: int, rng: np.random.Generator) -> Floats:
    """Normal values as a column of this kind."""
    if kind == 3:
        return np.where(rng.random(PART)[: len(values)] < _MISSING, np.nan, values)
    if kind in (4, 5):
        return np.floor(np.exp(values))
    if kind == 6:
        return np.floor((np.tanh(values) + 1) / 2 * _CATEGORIES)
    if kind == 7:
        bounded: Floats = np.clip(values, -3, 3)
        return np.round(bounded * (_FEW / 6))
    return values
