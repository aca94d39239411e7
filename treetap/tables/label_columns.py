"""The label holder's own columns: labels as they were read, and sample weights.

Labels are closed: a party's code opens them in one place, `treetap.party.defences.clean_labels`.

Ids and classes in the type that they had in their table. Between and inside parties both are text.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treetap.arrays import Rows
from treetap.errors import DataError
from treetap.names import EXPOSURE, LABEL_UPPER
from treetap.tables.categories import is_code
from treetap.tables.record_ids import Ids
from treetap.tables.source import Origin, is_number, kind_name, numbers_of, row_name
from treetap.trees.offsets import Offsets

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


class LabelCells:
    """The N cells of a label column; `cells_of` opens them. `texts`: as a file without types writes them.

    `upper`: upper bounds of the labels (N,), NaN where there is none; the labels are lower ones then.
    """

    def __init__(
        self, cells: pa.ChunkedArray, texts: pa.ChunkedArray | None = None, upper: Floats | None = None
    ) -> None:
        self._cells, self._texts, self._upper = cells, texts, upper

    def __repr__(self) -> str:
        return f"<LabelCells of {len(self._cells)} records>"

    def take(self, records: np.ndarray[tuple[int], np.dtype[np.int64]]) -> LabelCells:
        """Those of the records at these places, in this order."""
        texts = None if self._texts is None else self._texts.take(pa.array(records))
        upper = None if self._upper is None else self._upper[records]
        return LabelCells(self._cells.take(pa.array(records)), texts, upper)

    def digest_part(self) -> bytes:
        """The content as bytes to be hashed; types that differ differ."""
        sink = pa.BufferOutputStream()
        column = pa.table({"label": self._cells.combine_chunks()})
        if self._texts is not None:
            column = column.append_column("text", self._texts.combine_chunks())
        if self._upper is not None:
            column = column.append_column(LABEL_UPPER, pa.array(self._upper))
        with pa.ipc.new_stream(sink, column.schema) as stream:
            stream.write_table(column)
        return bytes(sink.getvalue())


def cells_of(label: LabelCells) -> pa.ChunkedArray:
    """The cells themselves. Lint refuses it, and all that reads labels, to the code of parties."""
    return label._cells


def upper_of(label: LabelCells) -> Floats | None:
    """The upper bounds (N,) of the labels, NaN where there is none, closed as those are; None of other labels."""
    return label._upper


def classes_of(where: str, label: LabelCells, classes: Sequence[str] | None = None) -> pa.ChunkedArray:
    """The cells as classes: numbers, or as a file without types writes them where that makes them codes.

    They are codes where the known `classes` are, else where two texts are one value (`is_numeric`). `where`: the
    column, for messages.

    Raises:
        DataError: the column holds numbers, and the known classes are codes, which numbers do not tell apart.
    """
    cells, texts = label._cells, label._texts
    codes = any(map(is_code, classes or ()))
    if codes and texts is None and is_number(cells.type):
        raise DataError(f"{where}: holds {kind_name(cells.type)}, and the classes are codes, such as 007: write text")
    if texts is not None and classes is None:
        written = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^-(0+\.?0*)$", r"\1")  # zero has no sign
        codes = pc.count_distinct(written).as_py() > len(set(cells.unique().drop_null().to_pylist()))
    return texts if codes and texts is not None else cells


def weights_of(path: Origin, name: str, column: pa.ChunkedArray) -> Floats:
    """The weights (n,) of a file's rows, in its order.

    Raises:
        DataError: a cell is missing, infinite, negative or no number; the message names its place.
    """
    values = numbers_of(path, name, column, advice="a sample weight is one")
    wrong = np.flatnonzero(~(values >= 0))
    if wrong.size:
        index = int(wrong[0])
        fault = "is missing" if np.isnan(values[index]) else "is negative"
        raise DataError(f"{path}: {row_name(path, index)}, weight column {name!r}: the weight {fault}")
    return values


def offsets_of(path: Origin, named: Mapping[str, str], columns: Mapping[str, pa.ChunkedArray]) -> Offsets:
    """What the scores of a file's rows begin with (n,), in its order; `named`: see `Offsets`.

    Raises:
        DataError: a cell is missing, infinite or no number, or an exposure is not above 0; the message names its place.
    """
    total = np.zeros(1)
    for key, name in named.items():
        values = numbers_of(path, name, columns[name], advice=f"{key} is one")
        wrong = np.flatnonzero(~(values > 0) if key == EXPOSURE else np.isnan(values))
        if wrong.size:
            index = int(wrong[0])
            fault = "is missing" if np.isnan(values[index]) else "is not above 0: leave such records out"
            raise DataError(f"{path}: {row_name(path, index)}, {key} column {name!r}: the number {fault}")
        total = total + (np.log(values) if key == EXPOSURE else values)
    return Offsets(total, dict(named))


def check_weight_bound(path: Origin, name: str, weights: Floats, rows: Rows, most: float) -> None:
    """Check that a job with the bound `most` can have the weights (N,) of records in these rows (N,) of a file.

    Raises:
        DataError: it cannot; the message names a place, and no weight.
    """
    beyond = np.flatnonzero(weights > most)
    if beyond.size:
        place = row_name(path, int(rows[beyond[0]]))
        raise DataError(
            f"{path}: {place}, weight column {name!r}: the weight is above max_sample_weight = {most:g} of the job: "
            "give the job a bound that no weight exceeds"
        )


STRING: pa.DataType = pa.string()
#: A whole number as it is written in CSV: `007`, `+7` and `-0` are text.
_WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"
_DECIMAL = re.compile(r"decimal(?P<bits>\d+)\((?P<precision>\d+), (?P<scale>-?\d+)\)")


def id_type(ids: Ids, column: pa.DataType, *, in_csv: bool) -> pa.DataType:
    """The type of a column of ids, which are given as text.

    CSV has no types: there ids are 64-bit whole numbers if all of them are written as such.
    """
    if not in_csv:
        return column
    if not pc.all(pc.match_substring_regex(ids.array, _WHOLE)).as_py():
        return pa.string()
    try:
        ids.array.cast(pa.int64())
    except pa.ArrowInvalid:  # one is larger
        return pa.string()
    return pa.int64()


@dataclass(frozen=True)
class IdColumns:
    """The ids of a table, and the names and types of their columns there; mostly it is one."""

    ids: Ids
    types: Mapping[str, pa.DataType]

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of a file."""
        return [pa.field(name, kind) for name, kind in self.types.items()]

    def at(self, places: Rows) -> list[pa.Array]:
        """The ids at these places as the columns of a file have them; null where a record has none of a key."""
        columns = self.ids.take(places).columns(len(self.types))
        cells = (
            pc.if_else(pc.equal(texts.array, ""), pa.scalar(None, pa.large_string()), texts.array) for texts in columns
        )
        return [texts.cast(kind) for texts, kind in zip(cells, self.types.values(), strict=True)]


def typed(texts: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Values of a type from their texts; a class's text is that of `treetap.tables.labels.class_name`."""
    return pa.array([value_of(text, kind) for text in texts], kind)


def value_of(text: str, kind: pa.DataType) -> bool | int | float | decimal.Decimal | str:
    """A value as a Python object."""
    if pa.types.is_boolean(kind):
        return text == "True"
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    return decimal.Decimal(text) if pa.types.is_decimal(kind) else text


def named_type(name: str) -> pa.DataType:
    """The type that `str` gave this name, as a manifest has it; `DataError` for another name."""
    if decimal := _DECIMAL.fullmatch(name):
        made = pa.decimal256 if decimal["bits"] == "256" else pa.decimal128
        return made(int(decimal["precision"]), int(decimal["scale"]))
    try:
        return pa.type_for_alias(name)
    except ValueError:
        raise DataError(f"{name!r} is no type of a column") from None
