"""Tables as the content of a file."""

from __future__ import annotations

import decimal
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from treetap.tables.written import content_of, table_writer, written

TABLE = pa.table(
    {
        "id": pa.array(["007", "NA", "", None, 'a,"b"\n'], pa.string()),
        "view": pa.array(["x", None, "", "ä", "true"], pa.string_view()),
        "third": pa.array([1 / 3, math.nan, -0.0, None, 1e300]),
        "single": pa.array([0.1, None, 2**-149, 1.0, -5.5], pa.float32()),
        "large": pa.array([2**64 - 1, 0, None, 1, 2], pa.uint64()),
        "flag": pa.array([True, False, None, True, True]),
        "price": pa.array(
            [decimal.Decimal("1.50"), None, decimal.Decimal("-0.01")] * 1 + [None] * 2, pa.decimal128(5, 2)
        ),
    }
)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_table_reads_back_as_it_was(form: str, tmp_path: Path) -> None:
    """Values and missing cells, of every type that ids and classes can have, by the types alone."""
    path = tmp_path / f"t.{form}"
    path.write_bytes(content_of(TABLE, form))
    if form == "parquet":
        assert str(pq.read_table(path).to_pydict()) == str(TABLE.to_pydict())
        return
    types = {field.name: field.type if field.name != "view" else pa.string() for field in TABLE.schema}
    options = pacsv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parsing = pacsv.ParseOptions(newlines_in_values=True)
    back = pacsv.read_csv(path, parse_options=parsing, convert_options=options)
    assert str(back.to_pydict()) == str(TABLE.to_pydict())


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_text_stays_text_where_all_of_it_are_numbers(form: str, tmp_path: Path) -> None:
    """Read without the types of the columns, 007 is no 7, and missing cells are told from empty texts."""
    table = TABLE.select(["id", "view", "flag"]).append_column("zip", pa.array([None, "01", "1", "007", "9"]))
    path = tmp_path / f"t.{form}"
    path.write_bytes(content_of(table, form))
    assert written(path).to_pydict() == table.to_pydict()
    path.write_bytes(content_of(pa.table({"id": ["007", "8"], "n": [7, None], "x": [0.1, 2.0]}), form))
    assert written(path).to_pydict() == {"id": ["007", "8"], "n": [7, None], "x": [0.1, 2.0]}


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_table_written_in_parts(form: str, tmp_path: Path) -> None:
    """Parts of any size make the file of the whole table: in CSV to the byte."""
    path = tmp_path / f"t.{form}"
    with path.open("wb") as file, table_writer(file, TABLE.schema, form) as write:
        for part in (TABLE[:0], TABLE[:2], TABLE[2:]):
            write(part)
    if form == "parquet":
        assert str(pq.read_table(path).to_pydict()) == str(TABLE.to_pydict())
    else:
        assert path.read_bytes() == content_of(TABLE, form).to_pybytes()
