"""Rows that leave a file: to a table of a database, or with all of the file to an object store; all of them or none.

A file has types (Parquet), or is an audit's document, whose verdicts are the rows. A database's column gets
one of few types, which every value fits exactly, or the file is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal, Self

import pyarrow as pa
from pydantic import model_validator

from treetap.errors import DataError, refuse
from treetap.tables.cells import kept_type
from treetap.tables.files import SUFFIXES, decoding
from treetap.tables.opening import check_columns, plain_batches, source_at
from treetap.tables.several import SCHEME, store_whole
from treetap.tables.source import Source, kind_name
from treetap.tables.source_keys import SourceKeys
from treetap.tables.written import content_of

#: Columns of text, and of numbers, of a verdict, as an audit's document names them.
_TEXTS, _NUMBERS = ("party", "learned", "of", "word", "measure"), ("before", "after", "gain", "low", "high")
VERDICTS = pa.schema([*((name, pa.string()) for name in _TEXTS), *((name, pa.float64()) for name in _NUMBERS)])


class Target(SourceKeys):
    """A table of a database, or an object, that rows are sent to: `existing` says what becomes of one that is there.

    Nothing; its rows stay, before the new ones; or they go.
    """

    existing: Literal["refuse", "append", "replace"] = "refuse"

    @model_validator(mode="after")
    def _takes_rows(self) -> Self:
        place = str(self.path)
        parquet = place.startswith(SCHEME) and SUFFIXES.get(Path(place).suffix) == "parquet"
        refuse(
            (self.query, "query is read: rows are sent to a table"),
            (self.uri is None and not parquet, f"path: rows are sent to one object, {SCHEME}BUCKET/KEY.parquet"),
            (
                self.uri is None and self.existing == "append",
                "existing = append is of tables, and an object is written at once: name another, or say replace",
            ),
        )
        return self


def send(file: Path, target: Target) -> int:
    """Send the rows of a file; returns how many these are.

    Raises:
        DataError: the file has no rows that can be sent, or the target refuses them. Nothing of them is there then, or
            the message says that this is not known.
    """
    if file.suffix == ".json":
        with decoding(file, "JSON of an audit"):
            verdicts = pa.Table.from_pylist(json.loads(file.read_bytes())["verdicts"], VERDICTS)
        with NamedTemporaryFile(suffix=".parquet") as made:
            made.write(content_of(verdicts, "parquet"))
            made.flush()
            return send(Path(made.name), target)
    if SUFFIXES.get(file.suffix) != "parquet":
        raise DataError(
            f"{file}: only Parquet is sent, as predictions are by default, or an audit.json: CSV has no types"
        )
    source = source_at(file)
    count = source.count_rows() or 0
    if target.uri is None:
        with decoding(file, "Parquet"), pa.OSFile(str(file)) as content:
            store_whole(str(target.path), target.endpoint_override, content, replace=target.existing == "replace")
        return count
    from treetap.tables.sql import Query  # with a driver

    schema = pa.schema([(name, kept_type(kind) or pa.null()) for name, kind in source.fields()])
    check_columns(source, schema.names)
    if pa.null() in schema.types:
        name = schema.names[schema.types.index(pa.null())]
        raise DataError(f"{source}: column {name!r} has a type for which a table has no column: leave it out")
    Query(target).write(schema, _parts(source, schema), target.existing)
    return count


def _parts(source: Source, schema: pa.Schema) -> Iterator[pa.Table]:
    for _, columns in plain_batches(source, schema.names):
        for name, column in columns.items():
            try:
                columns[name] = column.cast(schema.field(name).type)
            except pa.ArrowException:
                kind = f"{kind_name(column.type)} of which not all fit {schema.field(name).type}"
                raise DataError(f"{source}: column {name!r} holds {kind}: write it as text") from None
        yield pa.table(columns)
