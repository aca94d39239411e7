"""Features that stay in their source: the same table, bins and faults as of one that is read whole."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import read, refusal
from treetap.errors import DataError
from treetap.tables.binned import JobRecords, bin_columns
from treetap.tables.categories import most_categories
from treetap.tables.features import Held, Joined, Streamed
from treetap.tables.label_columns import cells_of
from treetap.tables.reading import Table

N = 500
RNG = np.random.default_rng(3)
NUMBERS = {"x": RNG.normal(size=N), "few": RNG.integers(0, 4, N) * 1.0, "wide": RNG.lognormal(size=N) * 1e9}


def columns(**changed: Any) -> dict[str, Any]:
    """A column of each kind that a table can have."""
    numbers = RNG.permutation(N)
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=int(each) % 90) for each in numbers]
    found = {
        "id": [f"r{number:04d}" for number in numbers],
        **NUMBERS,
        "gaps": pa.array(numbers / 3, mask=numbers % 7 == 0),
        "flag": pa.array(numbers % 3 == 0),
        "minus": np.where(numbers % 11 == 0, -999.0, numbers % 17),
        "city": pa.array([f"c{number % 5}" if number % 9 else None for number in numbers]),
        "grade": pa.array([f"g{number % 3}" for number in numbers]).dictionary_encode(),
        "code": numbers % 6,
        "day": pa.array(days),
        "written": [day.isoformat() for day in days],
        "money": pa.array([None if number % 5 == 0 else number for number in numbers]).cast(pa.decimal128(30, 2)),
        "digits": [str(number / 4) for number in numbers],
        "label": numbers % 2,
        "weight": (numbers % 4) * 0.5,
    }
    return {**found, **changed}


ENCODE = {"city": "one-hot", "grade": "ordinal", "code": "categorical", "day": "days", "written": "days"}
GIVEN: dict[str, Any] = {"label": "label", "weight": "weight", "encode": ENCODE, "missing": -999.0}
FEATURES = [name for name in columns() if name not in ("id", "label", "weight")]


@pytest.fixture(autouse=True)
def _stream_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    for module in ("source", "opening", "files"):
        monkeypatch.setattr(f"treetap.tables.{module}.BATCH_ROWS", 64)
    monkeypatch.setattr("treetap.tables.binned.BLOCK", 32)


def write(path: Path, content: dict[str, Any]) -> Path:
    pq.write_table(pa.table(content), path, row_group_size=150)
    return path


def _read(path: Path, *, streams: bool, names: Sequence[str] = FEATURES, **keys: Any) -> Table:
    return read(path, *names, streams=streams, **GIVEN | keys)


def both(path: Path, **keys: Any) -> tuple[Table, Table]:
    """The table read whole, and streamed."""
    whole, streamed = (_read(path, streams=streams, **keys) for streams in (False, True))
    assert isinstance(whole.values, Held)
    assert isinstance(streamed.values, Streamed)
    return whole, streamed


def assert_same(whole: Table, streamed: Table) -> None:
    for name in ("ids", "columns", "sources", "categories", "dropped", "id_types", "directions"):
        assert getattr(whole, name) == getattr(streamed, name), name
    np.testing.assert_array_equal(whole.rows, streamed.rows)
    np.testing.assert_array_equal(whole.features, streamed.features)
    assert whole.label is not None
    assert streamed.label is not None
    assert cells_of(whole.label).to_pylist() == cells_of(streamed.label).to_pylist()
    np.testing.assert_array_equal(whole.weights, streamed.weights)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_every_kind_of_column(name: str, tmp_path: Path) -> None:
    """Numbers, text, dates, categories, missing cells: the same features, of all records and of some."""
    path = tmp_path / name
    if name.endswith("feather"):
        feather.write_feather(pa.table(columns()), path, chunksize=90)
    else:
        write(path, columns())
    whole, streamed = both(path, monotone_constraints={"x": 1})
    assert_same(whole, streamed)
    assert whole.constant() == streamed.constant() == {}
    some = RNG.permutation(N)[:123]
    assert_same(whole.take(some), streamed.take(some))


def test_several_files(tmp_path: Path) -> None:
    """Files with other types of one column, and a folder's: as when they are read whole."""
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        content = columns(id=[f"{year}-{number:03d}" for number in range(N)])
        content["code"] = pa.array(content["code"], pa.int64() if year == 2023 else pa.int16())
        content["gaps"] = content["gaps"] if year == 2023 else pa.nulls(N)
        write(tmp_path / f"year={year}" / "t.parquet", content)
    whole, streamed = both(tmp_path, names=[*FEATURES, "year"])
    assert_same(whole, streamed)
    assert whole.where(N + 3) == streamed.where(N + 3)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("exact", [10**6, 0], ids=["exact", "sketched"])
def test_bins_and_codes(exact: int, tmp_path: Path) -> None:
    """Of a table that is held and one that is streamed, and of its first records with those of an eval table."""
    whole, streamed = both(write(tmp_path / "t.parquet", columns()))
    some = np.sort(RNG.permutation(N)[:400])
    further = RNG.permutation(N)[:70]
    jobs = [JobRecords.of(each.take(some), each.take(further)).table for each in (whole, streamed)]
    assert isinstance(jobs[0].values, Held)
    assert isinstance(jobs[1].values, Joined)
    for one, other, training in ((whole, streamed, None), (*jobs, 400)):
        first, second = (bin_columns(each, 16, 5, training, exact=exact) for each in (one, other))
        for bins, same in zip(first.features, second.features, strict=True):
            np.testing.assert_array_equal(bins.cuts, same.cuts)
            assert (bins.has_missing, bins.categories, bins.kind) == (same.has_missing, same.categories, same.kind)
        np.testing.assert_array_equal(first.codes, second.codes)
        assert first.codes.dtype == second.codes.dtype == np.uint8
        assert first.codes.flags.f_contiguous
        assert second.codes.flags.f_contiguous
    cuts = [bin_columns(whole, 16, 5, exact=limit).features[0].cuts.tolist() for limit in (N, N - 1)]
    assert cuts[0] != cuts[1]  # the limit is the number of records
    kept = JobRecords(jobs[1], 400).take(np.array([3, 399, 400, 469]))
    assert kept.training == 2
    np.testing.assert_array_equal(kept.table.features, jobs[0].features[[3, 399, 400, 469]])


def test_columns_of_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few at a time, or all at once: the same bins; and codes in a file are the same codes."""
    _, streamed = both(write(tmp_path / "t.parquet", columns()))
    found = bin_columns(streamed, 300, 5)
    assert found.codes.dtype == np.uint16
    monkeypatch.setattr("treetap.tables.binned._AT_ONCE", 2 * 8 * N)
    monkeypatch.setattr("treetap.tables.binned.MAPPED", 0)
    again = bin_columns(streamed, 300, 5)
    assert [each.cuts.tolist() for each in found.features] == [each.cuts.tolist() for each in again.features]
    np.testing.assert_array_equal(found.codes, again.codes)


def test_few_distinct_values_of_many_records_have_exact_cuts(tmp_path: Path) -> None:
    """Also where the column is sketched."""
    _, streamed = both(write(tmp_path / "t.parquet", columns()), names=["few", "x"], encode=None)
    few = bin_columns(streamed, 16, 5, exact=0).features[0]
    assert few.cuts.tolist() == [0.5, 1.5, 2.5]


def test_constant_columns(tmp_path: Path) -> None:
    """Dropped where the table says so; else refused with the same words, also of the common records alone."""
    flat = {"one": np.ones(N), "none": pa.nulls(N, pa.float64()), "same": ["a"] * N}
    path = write(tmp_path / "t.parquet", columns(**flat))
    names = [*FEATURES, *flat]
    whole, streamed = both(path, names=names, encode={**ENCODE, "same": "one-hot"}, drop_constant=True)
    assert_same(whole, streamed)
    assert streamed.dropped == ["one", "none", "same"]
    for encode in (None, {"none": "categorical"}):
        whole, streamed = both(path, names=["x", "one", "none"], encode=encode)
        assert whole.constant() == streamed.constant() == {"one": "is constant", "none": "has no value at all"}
    few = np.flatnonzero(whole.features[:, 0] > whole.features[:, 0].max() - 1e-9)
    for one, other in ((whole, streamed), (whole.take(few), streamed.take(few))):
        assert one.constant() == other.constant() != {}
        with pytest.raises(DataError) as first:
            bin_columns(one, 8, None)
        with pytest.raises(DataError, match=re.escape(str(first.value))):
            bin_columns(other, 8, None)


@pytest.mark.parametrize(
    "changed",
    [
        {"x": pa.array(["1"] * 340 + ["oak"] + ["2"] * 159)},
        {"x": pa.array([np.inf if number == 401 else 1.0 * number for number in range(N)])},
        {"written": ["2024-01-01"] * 300 + ["yesterday"] * 200},
        {"written": ["2024-01-01T08:00"] * 300 + ["2024-01-01T08:00Z"] * 200},
        {"id": [str(number % 480) for number in range(N)]},
        {"id": pa.array([None if number == 222 else str(number) for number in range(N)])},
        {"city": [f"c{number}" for number in range(N)]},
        {"weight": [-1.0 if number == 317 else 1.0 for number in range(N)]},
        {"x": pa.array([[1.0]] * N)},
        {"x": pa.array([datetime.date(2024, 1, 1)] * N)},
        {"city": pa.array([b"a"] * 444 + [b"\xff"] * 56).cast(pa.string(), safe=False).view(pa.string())},
    ],
    ids=["text", "infinite", "date", "offset", "twice", "absent", "many", "weight", "nested", "undated", "encoding"],
)
def test_faults_have_the_same_words(changed: dict[str, Any], tmp_path: Path) -> None:
    """File, row and column of the first fault, as when the table is read whole."""
    path = write(tmp_path / "t.parquet", columns(**changed))
    names = [name for name in FEATURES if name != "gaps"]
    assert refusal(path, *names, **GIVEN) == refusal(path, *names, streams=True, **GIVEN)


def test_a_model_that_is_there_decides_the_encoding(tmp_path: Path) -> None:
    """Categories of a training, in a table with others: the same features."""
    known = _read(write(tmp_path / "t.parquet", columns()), streams=True)
    other = write(tmp_path / "o.parquet", columns(city=["c1", "x", "y", "c3"] * (N // 4), code=np.arange(N) % 9))
    assert_same(*both(other, like=known, encode=None))


def test_a_table_that_changes_during_a_job(tmp_path: Path) -> None:
    """Written again, with more rows, fewer, or as many, or replaced or gone, it is refused by name."""
    path = write(tmp_path / "t.parquet", columns())
    streamed = _read(path, streams=True)
    for rows in (N - 1, 300):
        pq.write_table(pa.table(columns()).slice(0, rows), path, row_group_size=150)
        with pytest.raises(DataError, match="has been written again since the beginning of the job"):
            bin_columns(streamed, 8, 5)
    more = columns()
    pq.write_table(pa.concat_tables([pa.table(more), pa.table(more)]), path)
    with pytest.raises(DataError, match="has been written again"):
        bin_columns(streamed, 8, 5)


def test_features_that_are_needed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than half of the memory is refused with what to do."""
    streamed = _read(write(tmp_path / "t.parquet", columns()), streams=True)
    monkeypatch.setattr("treetap.tables.features.half_of_memory", lambda: 8 * N)
    with pytest.raises(DataError, match="this step needs them at once: train by boosting"):
        _ = streamed.features


def test_too_many_different_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a column that may be categories are held; more than half of the memory of them is refused."""
    assert most_categories(N) == 250
    path = write(tmp_path / "t.parquet", columns(city=[f"{number}" * 50 for number in range(N)]))
    monkeypatch.setattr("treetap.tables.streamed_reading.half_of_memory", lambda: 20_000)
    why = "the different cells of column 'city' take up more than half"
    refusal(path, "city", encode="one-hot", streams=True, match=why)


def test_formats_that_are_read_whole(tmp_path: Path) -> None:
    """CSV has no types: they follow from all rows."""
    path = tmp_path / "t.csv"
    pacsv.write_csv(pa.table({"id": np.arange(N), **NUMBERS, "label": np.arange(N) % 2}), path)
    table = _read(path, streams=True, names=list(NUMBERS), weight=None, encode=None)
    assert isinstance(table.values, Held)


@pytest.mark.parametrize(("name", "line"), [("t.csv", "1,2\n"), ("t.jsonl", '{"id": "1", "x": 2}\n')])
def test_a_large_file_of_text_is_refused(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are read whole are bounded, and the message names the format that is not."""
    (tmp_path / name).write_text("id,x\n" * name.endswith("csv") + line)
    monkeypatch.setattr("treetap.tables.files.half_of_memory", lambda: 5)
    why = "is larger than half of this machine's memory; write it as Parquet, which is"
    refusal(tmp_path / name, "x", streams=True, match=why)
