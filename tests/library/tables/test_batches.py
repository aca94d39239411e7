"""Sources in batches: the same rows as when they are read whole, and damaged row groups named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import parquet_file, refusal
from treetap.errors import DataError
from treetap.tables.opening import ParquetFile, plain_batches, source_of
from treetap.tables.source_keys import SourceKeys

ROWS = 1000


def content(rows: int = ROWS, start: int = 0) -> pa.Table:
    numbers = np.arange(start, start + rows)
    return pa.table(
        {
            "id": [f"r{number}" for number in numbers],
            "x": pa.array(numbers / 3, mask=numbers % 7 == 0),
            "city": pa.array([f"c{number % 5}" for number in numbers]).dictionary_encode(),
            "whole": numbers,
        }
    )


def damage(path: Path, group: int, column: int) -> None:
    """Overwrite the beginning of a column's pages in one row group."""
    chunk = pq.read_metadata(path).row_group(group).column(column)
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    raw = bytearray(path.read_bytes())
    raw[start : start + 40] = b"\xff" * 40
    path.write_bytes(raw)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("source", "opening", "files"):
        monkeypatch.setattr(f"treetap.tables.{module}.BATCH_ROWS", 64)


WRITERS: dict[str, Any] = {
    "t.parquet": lambda table, path: pq.write_table(table, path, row_group_size=150),
    "t.feather": lambda table, path: feather.write_feather(table, path, chunksize=200),
    "t.csv": lambda table, path: pacsv.write_csv(table.set_column(2, "city", table["city"].cast("string")), path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_batches_are_the_rows_of_the_whole(name: str, tmp_path: Path) -> None:
    """In every format: few rows at a time, the columns that are asked for in that order, of one type."""
    WRITERS[name](content(), tmp_path / name)
    source = source_of(SourceKeys(path=tmp_path / name))
    wanted = ["whole", "id", "x", "city"]
    found = list(source.batches(wanted, {"id"}))
    assert {batch.num_rows <= 64 for batch in found} == {True}
    assert pa.concat_tables(found).to_pydict() == source.read(wanted, {"id"}).select(wanted).to_pydict()
    assert [batch.num_rows for batch in source.batches(["x"], ())] == [batch.num_rows for batch in found]
    assert source.count_rows() == (ROWS if source.streams else None)
    assert source.streams == (name != "t.csv")


def test_batches_of_several_files(tmp_path: Path) -> None:
    """Files whose numbers have different widths, and a folder's column: one type in all batches, rows by file."""
    other = content(100, ROWS)
    other = other.set_column(3, "whole", other["whole"].cast("int32")).set_column(1, "x", pa.nulls(100))
    for year, table in ((2024, content()), (2025, other)):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(table, tmp_path / f"year={year}" / "t.parquet", row_group_size=300)
    source = source_of(SourceKeys(path=tmp_path))
    wanted = ["year", "id", "x", "whole", "city"]
    found = list(source.batches(wanted, ()))
    assert len({batch.schema for batch in found}) == 1
    whole = source.read(wanted, ())
    assert pa.concat_tables(found).to_pydict() == whole.to_pydict()
    assert source.count_rows() == ROWS + 100
    assert source.row_name(ROWS + 4) == "year=2025/t.parquet, row 5"
    assert sum(len(columns["city"]) for _, columns in plain_batches(source, ["city"])) == ROWS + 100


@pytest.mark.parametrize("column", ["id", "x"])
def test_a_damaged_row_group_is_named(column: str, tmp_path: Path) -> None:
    """File, row group and column; what comes before it is there."""
    path = parquet_file(tmp_path, content(), row_group_size=150)
    damage(path, 4, ["id", "x"].index(column))
    batches = plain_batches(source_of(SourceKeys(path=path)), ["id", "x"])
    for first in (0, 64, 128, 150, 214, 278):  # of two groups
        assert next(batches)[0] == first
    with pytest.raises(DataError) as caught:
        list(batches)
    place = f"{path}: row group 5 of 7, column {column!r}"
    assert str(caught.value) == f"{place} cannot be decoded; is the Parquet file damaged? Write it again"
    assert refusal(path, "x") == str(caught.value)


def test_a_changed_byte_is_found_by_the_checksum(tmp_path: Path) -> None:
    """Numbers that are other numbers, of a file that was written with checksums of its pages."""
    path = tmp_path / "t.parquet"
    kept = {"write_page_checksum": True, "use_dictionary": False, "compression": "none"}
    pq.write_table(content().select(["x", "whole"]), path, row_group_size=500, **kept)
    chunk = pq.read_metadata(path).row_group(1).column(1)
    raw = bytearray(path.read_bytes())
    raw[chunk.data_page_offset + chunk.total_compressed_size - 8] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="row group 2 of 2, column 'whole' cannot be decoded"):
        source_of(SourceKeys(path=path)).read(["x", "whole"], ())


def test_a_row_of_long_texts_makes_a_small_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the longest text of a row group: a batch has no more bytes than the bound, or one row."""
    path = parquet_file(tmp_path, {"note": ["a" * 1000] * 100})
    source = source_of(SourceKeys(path=path))
    assert isinstance(source, ParquetFile)
    monkeypatch.setattr("treetap.tables.opening._BLOCK", 5000)
    assert {batch.num_rows for batch in source.batches(["note"], ())} == {5}
    monkeypatch.setattr("treetap.tables.opening._BLOCK", 10)
    assert {batch.num_rows for batch in source.batches(["note"], ())} == {1}
