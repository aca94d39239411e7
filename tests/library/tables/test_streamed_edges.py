"""Features that stay in their source: files written during a job, columns of folders alone, cells that are all null."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import parquet_file, read, refusal
from treetap.errors import DataError
from treetap.tables.binned import ColumnBins, bin_columns
from treetap.tables.opening import ParquetFile
from treetap.trees.binning import fit

N = 200


@pytest.fixture(autouse=True)
def _stream_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)


def content(seed: int = 1) -> pa.Table:
    draws = np.random.default_rng(seed)
    return pa.table({"id": draws.permutation(N), "x": draws.normal(size=N), "y": draws.normal(size=N)})


def _replace(path: Path) -> None:
    """A file of the same length and time in its place."""
    known = path.stat()
    other = path.with_suffix(".new")
    pq.write_table(content(2), other)
    os.utime(other, ns=(known.st_atime_ns, known.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: pq.write_table(content(2), path),
        _replace,
        lambda path: pq.write_table(content().select(["id", "x"]), path),
        Path.unlink,
    ],
)
def test_a_table_of_as_many_rows_written_during_a_job(change: Callable[[Path], None], tmp_path: Path) -> None:
    """Its records would have features of others: every further pass is refused, of some records and columns too."""
    path = parquet_file(tmp_path, content())
    table = read(path, "x", "y", streams=True)
    change(path)
    why = "there is no such file" if change is Path.unlink else "has been written again since the beginning of the job"
    for asked in (table, table.take(np.arange(7))):
        with pytest.raises(DataError, match=rf"t\.parquet: {why}"):
            bin_columns(asked, 8, None)


@pytest.mark.parametrize("number", [2, 3], ids=["ids", "features"])
def test_a_table_written_during_a_pass(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of one file and features of another are no table: noticed at the end of the pass at the latest."""
    path, passes = tmp_path / "t.parquet", 0
    pq.write_table(content(), path)
    batches = ParquetFile.batches

    def changing(self: ParquetFile, wanted: list[str], text: tuple[str, ...]) -> Iterator[pa.Table]:
        nonlocal passes
        passes += 1
        yield from batches(self, wanted, text)
        if passes == number:
            _replace(path)  # the first pass, for types, ends with its first batch

    monkeypatch.setattr(ParquetFile, "batches", changing)
    refusal(path, "x", "y", streams=True, match="has been written again")
    assert passes == number


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_a_folders_column_alone(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pass of its own: no column of a file is asked for, and the rows are still counted."""
    for year in (2023, 2024):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        part = content().set_column(0, "id", pa.array(np.arange(N) + year * N))
        if ending == "feather":
            feather.write_feather(part, folder / "t.feather")
        else:
            pq.write_table(part, folder / "t.parquet")
    monkeypatch.setattr("treetap.tables.binned._AT_ONCE", 1)
    found = bin_columns(read(tmp_path, "x", "year", streams=True), 8, None)
    assert found.features[1].cuts.tolist() == [2023.5]
    assert found.codes[:, 1].tolist() == [0] * N + [1] * N


def test_numbers_that_one_type_cannot_hold(tmp_path: Path) -> None:
    """Whole numbers above 2^53 in one file and fractions in another: refused, as in a table that is held."""
    for name, cells in (("a", pa.array([2**60 + 1, 3])), ("b", pa.array([0.5, 1.5]))):
        parquet_file(tmp_path, {"id": [f"{name}1", f"{name}2"], "x": cells}, f"{name}.parquet")
    for streams in (False, True):
        refusal(tmp_path, "x", streams=streams, match="a column has types in two files that are not one")


def test_a_disk_without_room_for_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error when the file is made, not a signal when its pages are written."""
    path = parquet_file(tmp_path, content())
    monkeypatch.setattr("treetap.tables.binned.MAPPED", 0)
    with (
        Path("/dev/full").open("r+b", buffering=0) as full,
        pytest.raises(OSError, match="No space left on device"),
    ):
        bin_columns(read(path, "x", streams=True), 8, None, scratch=lambda: full)


def test_a_column_with_one_value_in_most_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sketch keeps fewer different values than there may be bins, and still cuts on both sides of that one."""
    monkeypatch.setattr("treetap.tables.binned.BLOCK", 32)
    values = np.ones(5000)
    values[::125], values[-100:] = np.random.default_rng(1).normal(size=40), 5.0
    column = ColumnBins("x", 16, 0, 4, sketched=True)
    column.add(values)
    cuts = column.bins().cuts
    assert len(cuts) < len(fit(values, 16).cuts) == 15
    assert cuts[0] < cuts[-2] <= 1.0 < cuts[-1]
