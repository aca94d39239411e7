"""The label holder's labels: from the cells of a column to class numbers or target values."""

from __future__ import annotations

import decimal
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.numbers import kind_name
from treetap.tables.reading import Table
from treetap.trees.metrics import REGRESSIONS


@dataclass(frozen=True)
class Labels:
    """`values`: N class numbers (int64) or targets (float64); `classes`: their names, none for a regression."""

    values: np.ndarray[tuple[int], np.dtype[np.float64] | np.dtype[np.int64]]
    classes: list[str]

    def __repr__(self) -> str:
        return f"<Labels of {len(self.values)} records>"

    def take(self, records: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Labels:
        """The labels of the records at these places, in this order; classes that none of them has are left out."""
        if not self.classes:
            return Labels(self.values[records], [])
        present, numbers = np.unique(self.values[records], return_inverse=True)
        return Labels(numbers.astype(np.int64), [self.classes[number] for number in present.tolist()])


def read_labels(table: Table, column: str, objective: str) -> Labels:
    """Labels for an objective: numbers, and for classes also text and booleans.

    `DataError` names the fault, never a label: another type, missing, infinite, one class only, too many classes.
    """
    assert table.label is not None
    where = f"{table.path}: label column {column!r}"
    cells = table.label
    kind = cells.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if pa.types.is_floating(kind):
        values = np.asarray(cells.to_numpy(zero_copy_only=False), dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise DataError(f"{where}: the label at {table.where(int(bad[0]))} is missing or infinite")
    elif cells.null_count:
        index = int(np.flatnonzero(cells.is_null().to_numpy())[0])
        raise DataError(f"{where}: the label at {table.where(index)} is missing")
    if objective in REGRESSIONS:
        if not number:
            raise DataError(f"{where}: holds {kind_name(kind)}; {objective} needs numbers")
        targets = np.asarray(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
        return learnable(Labels(targets, []), table, column, objective)
    if not (number or text or pa.types.is_boolean(kind)):
        raise DataError(f"{where}: holds {kind_name(kind)}; classes are numbers, text or booleans")
    names, numbers = np.unique(np.asarray(cells.to_pylist()), return_inverse=True)
    return learnable(Labels(numbers.astype(np.int64), [class_name(name) for name in names]), table, column, objective)


def learnable(labels: Labels, table: Table, column: str, objective: str) -> Labels:
    """The labels of all or some records of a table's label column.

    Raises:
        DataError: all are the same, or there are too many classes.
    """
    where = f"{table.path}: label column {column!r}"
    if objective in REGRESSIONS:
        if np.ptp(labels.values) == 0:
            raise DataError(f"{where}: every record has the same target; there is nothing to learn")
        return labels
    count = len(labels.classes)
    if count < 2:
        raise DataError(f"{where}: holds one class only; there is nothing to learn")
    if objective == "binary:logistic" and count != 2:
        raise DataError(f"{where}: holds {count} classes; binary:logistic needs two (multi:softprob takes more)")
    if count > max(100, len(labels.values) // 2):
        raise DataError(f"{where}: holds {count} different values; a class label has few, or use reg:squarederror")
    return labels


def class_name(value: object) -> str:
    """A number's name is the same whatever type the column has: 2, 2.0 and the decimal 2.00 are class 2."""
    if isinstance(value, decimal.Decimal):
        digits = format(value, "f")
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    if isinstance(value, np.floating | float) and float(value).is_integer():
        return str(int(value))
    return str(value)
