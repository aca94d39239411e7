"""Parquet tables that were made to harm their reader, and those of any other form."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables.files import TableFile
from treetap.tables.opening import ParquetFile, read_columns, source_at
from treetap.tables.reading import read_ids


def _repeated(rows: int, text: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array([text]))


def test_any_table_comes_back(tmp_path: Path) -> None:
    """Of all kinds of columns, in several groups of rows, and without a row."""
    rows = 20_000
    content = {
        "id": [f"r{number}" for number in range(rows)],
        "few": _repeated(rows, "a"),
        "number": np.arange(rows, dtype=np.float64),
        "none": pa.nulls(rows),
        "gaps": [None if number % 3 else f"{number}" for number in range(rows)],
        "nobody": pa.nulls(rows, pa.string()),
    }
    table = pa.table(content)
    path = tmp_path / "t.parquet"
    for made, size in ((table, rows), (table, 1_500), (table.slice(0, 0), rows)):
        pq.write_table(made, path, row_group_size=size)
        found = ParquetFile(TableFile.local(path)).read(["number", "id", "few", "gaps", "none", "nobody"], ())
        for name in found.column_names:
            assert found.column(name).to_pylist() == made.column(name).to_pylist()


@pytest.mark.second_tier
@pytest.mark.parametrize(
    "column",
    [_repeated(200_000, "a" * (20 << 20)), _repeated(1_000_000, "a" * 100_000)],
    ids=["long", "many"],
)
def test_a_dictionary_of_long_texts_is_refused(column: pa.Array, tmp_path: Path) -> None:
    """A few kilobytes whose cells are terabytes of text: an error names the file, and nothing of it is unpacked."""
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"id": column}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (read_ids, lambda file: read_columns(source_at(file), ["id"], {"id"})):
        with pytest.raises(
            DataError, match=r"ids\.parquet: the columns take up more than half of this machine's memory"
        ):
            read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # kB


def test_runs_of_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that repeats one number takes hardly any bytes in the file; and what metadata do not show is counted."""
    path = tmp_path / "t.parquet"
    rows = 100_000
    pq.write_table(pa.table({"x": np.zeros(rows), "y": pa.array([b"a" * 100] * rows)}), path)
    assert path.stat().st_size < 10_000
    for module in ("opening", "source"):
        monkeypatch.setattr(f"treetap.tables.{module}.half_of_memory", lambda: 8 * rows - 1)
    for name in ("x", "y"):
        with pytest.raises(DataError, match="more than half of this machine's memory"):
            ParquetFile(TableFile.local(path)).read([name], ())
    for module in ("opening", "source"):
        monkeypatch.setattr(f"treetap.tables.{module}.half_of_memory", lambda: 9 * rows)
    assert ParquetFile(TableFile.local(path)).read(["x"], ()).num_rows == rows
    with pytest.raises(DataError, match="more than half of this machine's memory"):
        ParquetFile(TableFile.local(path)).read(["y"], ())
