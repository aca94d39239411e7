"""Labels of some records, where several parties have labels: an empty cell means that another party labels the record.

The classes are those that the job names, since no party sees all labels and could find them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.label_cells import cells_of
from treetap.tables.labels import class_name, label_column
from treetap.tables.numbers import doubles, is_number, is_text, kind_name
from treetap.tables.reading import Table
from treetap.trees.job_params import REGRESSIONS

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
#: Names of classes that an error lists before it says how many there are.
_LISTED = 8


@dataclass(frozen=True)
class PartialLabels:
    """Labels of m of a table's records.

    `rows`: (m,) places of the labelled records, ascending. `values`: (m,) their class numbers (int64) or targets
    (float64).
    """

    rows: Rows
    values: np.ndarray[tuple[int], np.dtype[Any]]

    def __repr__(self) -> str:
        return f"<PartialLabels of {len(self.rows)} records>"

    def take(self, records: Rows) -> PartialLabels:
        """The labels of the records at these places; `rows` of the result are places in `records`."""
        places = np.searchsorted(self.rows, records)
        labelled = places < len(self.rows)
        labelled[labelled] = self.rows[places[labelled]] == records[labelled]
        return PartialLabels(np.flatnonzero(labelled).astype(np.int64), self.values[places[labelled]])


def read_partial_labels(
    table: Table, column: str, objective: str, classes: Sequence[str], *, public: bool = True
) -> PartialLabels:
    """The labels that a table has; a cell that is empty, null or NaN has none.

    Args:
        table: read with its label.
        column: the name of the label column, for errors.
        classes: names of the job's classes in order; of a regression none.
        public: the job names its classes, so that an error may name them too.

    Raises:
        DataError: a cell is no number (regression), infinite, or none of the classes. The error names its row, never
            the label.
    """
    assert table.label is not None
    cells = cells_of(table.label)
    rows = _filled(cells)
    held = cells.take(pa.array(rows)).combine_chunks()
    if not len(rows):
        return PartialLabels(rows, np.zeros(0, dtype=np.float64 if objective in REGRESSIONS else np.int64))
    if objective in REGRESSIONS:
        return PartialLabels(rows, _targets(table, column, objective, rows, held))
    return PartialLabels(rows, _class_numbers(table, column, rows, held, classes, public=public))


def _filled(cells: pa.ChunkedArray) -> Rows:
    """Places of the cells with content."""
    empty = pc.is_null(cells, nan_is_null=pa.types.is_floating(cells.type))
    if is_text(cells.type):
        empty = pc.or_(empty, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(cells), ""), True))
    return np.flatnonzero(~np.asarray(empty.to_numpy(), dtype=np.bool_)).astype(np.int64)


def _targets(
    table: Table, column: str, objective: str, rows: Rows, held: pa.Array
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    where = label_column(table, column)
    if not is_number(held.type):
        raise DataError(f"{where}: holds {kind_name(held.type)}; {objective} needs numbers")
    targets = doubles(held)
    bad = np.flatnonzero(~np.isfinite(targets))
    if bad.size:
        raise DataError(f"{where}: the label at {table.where(int(rows[bad[0]]))} is infinite")
    return targets


def _class_numbers(
    table: Table, column: str, rows: Rows, held: pa.Array, classes: Sequence[str], *, public: bool
) -> Rows:
    where = label_column(table, column)
    if not (is_number(held.type) or is_text(held.type) or pa.types.is_boolean(held.type)):
        raise DataError(f"{where}: holds {kind_name(held.type)}; classes are numbers, text or booleans")
    coded, known = held.dictionary_encode(), {name: number for number, name in enumerate(classes)}
    values = coded.dictionary
    own = values.to_numpy(zero_copy_only=False) if pa.types.is_floating(values.type) else values.to_pylist()
    numbers = np.array([known.get(class_name(value), -1) for value in own], dtype=np.int64)
    of_rows: Rows = numbers[coded.indices.to_numpy(zero_copy_only=False)]
    strange = np.flatnonzero(of_rows < 0)
    if strange.size and not public:
        raise DataError(f"{where}: the label at {table.where(int(rows[strange[0]]))} is none of the model's classes")
    if strange.size:
        more = f" and {len(classes) - _LISTED} more" if len(classes) > _LISTED else ""
        raise DataError(
            f"{where}: the label at {table.where(int(rows[strange[0]]))} is none of the job's classes "
            f"({', '.join(map(repr, classes[:_LISTED]))}{more}); correct the cell, empty it where another party labels "
            "the record, or name the class under `classes` in the job"
        )
    return of_rows
