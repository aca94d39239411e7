"""Labels: from the cells of a column to class numbers or target values, of all records or of some.

Where several parties have labels, an empty cell means that another party labels the record. The classes are then those
that the job names, since no party sees all labels and could find them.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treetap.arrays import Bools
from treetap.errors import DataError
from treetap.tables.categories import most_categories
from treetap.tables.label_columns import STRING, cells_of, classes_of, upper_of
from treetap.tables.reading import Table
from treetap.tables.source import doubles, is_number, is_text, kind_name
from treetap.trees.job_params import AFT, BINARY, COX, REGRESSIONS
from treetap.trees.loss import UNFIT, unfit_targets


@dataclass(frozen=True)
class Labels:
    """`values`: N class numbers (int64) or targets (float64); `classes`: their names, none for a regression.

    `kind`: the type of the classes in their table. The values of survival:aft are bounds (N, 2).
    """

    values: np.ndarray[tuple[int], np.dtype[Any]]
    classes: list[str]
    kind: pa.DataType = STRING

    def __repr__(self) -> str:
        return f"<Labels of {len(self.values)} records>"

    def at(self, records: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Labels:
        """The labels of the records at these places, in this order, with all classes."""
        return replace(self, values=self.values[records])

    def named(self) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """The names of the classes, or the targets, (N,)."""
        return np.array(self.classes, dtype=object)[self.values] if self.classes else self.values

    def take(self, records: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Labels:
        """The labels of the records at these places, in this order; classes that none of them has are left out."""
        if not self.classes:
            return self.at(records)
        present, numbers = np.unique(self.values[records], return_inverse=True)
        return Labels(numbers.astype(np.int64), [self.classes[number] for number in present.tolist()], self.kind)


def read_labels(table: Table, column: str, objective: str) -> Labels:
    """Labels for an objective: numbers, and for classes also text and booleans.

    `DataError` names the fault, never a label: another type, missing, infinite, one class only, too many classes.
    """
    if table.label is not None and upper_of(table.label) is not None and objective != AFT:
        raise DataError(
            f"{label_column(table, column)}: has upper bounds in label_upper, which {objective} does not take: train "
            f"with objective = {AFT!r}, or on a table whose settings leave label_upper out"
        )
    labels = read_targets(table, column, objective) if objective in REGRESSIONS else read_classes(table, column)
    return learnable(labels, table, column, objective)


def learnable(labels: Labels, table: Table, column: str, objective: str) -> Labels:
    """The labels of all or some records of a table's label column.

    Raises:
        DataError: all are the same, or there are too many classes.
    """
    numbers, count = objective in REGRESSIONS, len(labels.classes)
    rules = (
        (
            numbers and (labels.values == labels.values[:1]).all(),
            "every record has the same target; there is nothing to learn",
        ),
        (
            objective == COX and (labels.values < 0).all(),
            "is negative in every record: all are censored, without event",
        ),
        (
            objective == AFT and np.isinf(labels.values).any(axis=-1).all(),
            "no record has an upper bound in label_upper: all are censored, without event",
        ),
        (not numbers and count < 2, "holds one class only; there is nothing to learn"),
        (
            not numbers and count > most_categories(len(labels.values)),
            f"holds {count} different values; a class label has few, or use reg:squarederror",
        ),
        (
            objective in BINARY and count != 2,
            f"holds {count} classes; {objective} needs two (multi:softprob takes more)",
        ),
    )
    if fault := next((fault for wrong, fault in rules if wrong), ""):
        raise DataError(f"{label_column(table, column)}: {fault}")
    return labels


def read_classes(table: Table, column: str, classes: Sequence[str] | None = None) -> Labels:
    """Classes in the order of their values, however many: numbers, text or booleans. `classes`: of the training.

    `DataError` names the fault, never a label: another type, missing, infinite, numbers where classes are codes.
    """
    _check_kind(label_column(table, column), complete(table, column).type)
    assert table.label is not None
    cells = classes_of(label_column(table, column), table.label, classes)
    # from Python's numbers numpy would make 64 bits without sign a fraction, and 32 bits other numbers
    own = pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type)
    # nor keep the zeros at the end of a text
    kind = object if is_text(cells.type) else None
    values = cells.to_numpy(zero_copy_only=False) if own else np.asarray(cells.to_pylist(), dtype=kind)
    names, numbers = np.unique(values, return_inverse=True)
    return Labels(numbers.astype(np.int64), [class_name(name) for name in names], cells.type)


def read_targets(table: Table, column: str, objective: str) -> Labels:
    """Targets of a regression; `DataError` names the fault, never a label: no numbers, missing, infinite."""
    cells = complete(table, column)
    _check_kind(label_column(table, column), cells.type, objective)
    return Labels(_fit(table, column, objective, doubles(cells)), [])


def label_column(table: Table, column: str) -> str:
    """The column for an error's text."""
    return f"{table.path}: label column {column!r}"


def _check_kind(where: str, kind: pa.DataType, regression: str = "") -> None:
    """Raise `DataError` for a column that holds no classes, or no numbers for an objective that is a regression."""
    if regression and not is_number(kind):
        raise DataError(f"{where}: holds {kind_name(kind)}; {regression} needs numbers, and classes binary:logistic")
    if not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{where}: holds {kind_name(kind)}; classes are numbers, text or booleans")


def complete(table: Table, column: str) -> pa.ChunkedArray:
    """The cells of a label column; `DataError` names the first that is missing or infinite."""
    assert table.label is not None
    cells = cells_of(table.label)
    if pa.types.is_floating(cells.type):
        values = np.asarray(cells.to_numpy(zero_copy_only=False), dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise DataError(
                f"{label_column(table, column)}: the label at {table.where(int(bad[0]))} is missing or infinite"
            )
    elif (absent := _absent(cells)).any():
        raise DataError(f"{label_column(table, column)}: the label at {table.where(int(np.argmax(absent)))} is missing")
    return cells


def _absent(cells: pa.ChunkedArray) -> Bools:
    """True of cells (n,) that are null, NaN or blank."""
    absent = pc.is_null(cells, nan_is_null=pa.types.is_floating(cells.type))
    if is_text(cells.type):
        absent = pc.or_(absent, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(cells), ""), True))
    return np.asarray(absent.to_numpy(), dtype=np.bool_)


def class_name(value: object) -> str:
    """A number's name is the same whatever type the column has: 2, 2.0 and the decimal 2.00 are class 2."""
    if isinstance(value, decimal.Decimal):
        digits = format(value, "f")
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    if isinstance(value, np.floating | float) and float(value).is_integer():
        return str(int(value))
    return str(value)


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
    rows = np.flatnonzero(~_absent(cells)).astype(np.int64)
    if not len(rows):
        return PartialLabels(rows, np.zeros(0, dtype=np.float64 if objective in REGRESSIONS else np.int64))
    if objective not in REGRESSIONS:
        cells = classes_of(label_column(table, column), table.label, classes)
    held = cells.take(pa.array(rows)).combine_chunks()
    if objective in REGRESSIONS:
        return PartialLabels(rows, _targets(table, column, objective, rows, held))
    return PartialLabels(rows, _class_numbers(table, column, rows, held, classes, public=public))


def _targets(
    table: Table, column: str, objective: str, rows: Rows, held: pa.Array
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    where = label_column(table, column)
    _check_kind(where, held.type, objective)
    targets = doubles(held)
    bad = np.flatnonzero(~np.isfinite(targets))
    if bad.size:
        raise DataError(f"{where}: the label at {table.where(int(rows[bad[0]]))} is infinite")
    return _fit(table, column, objective, targets, rows)


def _fit(
    table: Table, column: str, objective: str, targets: np.ndarray[Any, np.dtype[np.float64]], rows: Rows | None = None
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The targets (m,) of some rows, or of all, of survival:aft with their upper bounds (m, 2).

    `DataError` for such as the objective does not take.
    """
    if (unfit := unfit_targets(targets, objective)).any():
        first = int(np.argmax(unfit) if rows is None else rows[np.argmax(unfit)])
        raise DataError(
            f"{label_column(table, column)}: the label at {table.where(first)} does not fit {objective}: it is "
            f"{UNFIT[objective]}"
        )
    if objective != AFT:
        return targets
    if table.label is None or (bounds := upper_of(table.label)) is None:
        raise DataError(
            f"{table.path}: {AFT} needs label_upper, the column of upper bounds, in the settings of a party's table; "
            "experiments and estimators have no place for it"
        )
    places = np.arange(len(bounds)) if rows is None else rows
    upper = np.where(np.isnan(bounds), np.inf, bounds)[places]
    if (below := np.flatnonzero(upper < targets)).size:
        raise DataError(
            f"{label_column(table, column)}: the label at {table.where(int(places[below[0]]))} is above its upper "
            "bound in label_upper: write the same where the time is known, and leave the cell empty where the record "
            "was censored"
        )
    return np.stack([targets, upper], axis=1)


def _class_numbers(
    table: Table, column: str, rows: Rows, held: pa.Array, classes: Sequence[str], *, public: bool
) -> Rows:
    where = label_column(table, column)
    _check_kind(where, held.type)
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
