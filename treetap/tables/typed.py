"""Ids and classes in the type that they had in their table. Between and inside parties both are text."""

from __future__ import annotations

import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.record_ids import Ids, Rows

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
        """The ids at these places as the columns of a file have them."""
        columns = self.ids.take(places).columns(len(self.types))
        return [texts.array.cast(kind) for texts, kind in zip(columns, self.types.values(), strict=True)]


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
