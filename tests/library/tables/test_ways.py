"""The same content through every way in: the same ids, features and categories, or a refusal that names a column."""

from __future__ import annotations

import datetime
import itertools
import random
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.library.tables.given import parquet_file, read, text_file
from tests.library.tables.ways import WAYS, Column, Content, drawn, faults_of, outcome
from tests.needs import needs_libraries

DAY = datetime.date(2024, 2, 28)
IDS: dict[str, Column] = {
    "whole": Column([7, 12, 3, 2**60 + 1], pa.int64()),
    "decimal": Column([Decimal(each) for each in (7, 12, 3, 2**60)], pa.decimal128(38, 0)),
    "text": Column(["007", "7", "a", "b"], pa.string()),
    "uuid": Column([uuid.UUID(int=each << 100) for each in (5, 3, 9, 1)], pa.uuid()),
}
COLUMNS: dict[str, Column] = {
    "decimal": Column([Decimal("-999.9"), Decimal("3.3"), None, Decimal("0.1")], pa.decimal128(10, 1)),
    "wide decimal": Column([Decimal("-999.90"), Decimal("3.30"), None, Decimal("0.01")], pa.decimal256(60, 2)),
    "decimal categories": Column(
        [Decimal("3.30"), Decimal("1.00"), None, Decimal("-999.90")], pa.decimal128(9, 2), "one-hot"
    ),
    "64 bits": Column([2**60 + 1, 2**60, None, -3], pa.int64()),
    "64 bits as categories": Column([2**60 + 1, 2**60, None, 10], pa.int64(), "categorical"),
    "whole categories": Column([10, 9, None, 10], pa.int64(), "ordinal"),
    "uuid": Column([uuid.UUID(int=1), uuid.UUID(int=2), None, uuid.UUID(int=1)], pa.uuid(), "ordinal"),
    "days": Column([DAY, None, datetime.date(1969, 12, 31), DAY], pa.date32(), "days"),
    "text": Column(["blue", "red", None, " blue "], pa.string(), "categorical"),
    "codes": Column(["007", "7", "-999.9", "7.0"], pa.string(), "categorical"),
    "truth": Column([True, False, None, True], pa.bool_()),
    "singles": Column([0.5, -999.9, None, 2.0], pa.float32(), "ordinal"),
    "nothing": Column([None] * 4, pa.null()),
}


@pytest.fixture(autouse=True)
def _sqlite() -> None:
    needs_libraries("adbc_driver_sqlite", extra="sql")


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("ids", "column"), [*itertools.product(["whole"], COLUMNS), *itertools.product(list(IDS)[1:], ["decimal", "text"])]
)
def test_every_way_is_the_same(ids: str, column: str, tmp_path: Path) -> None:
    """Training, and prediction by the categories of every other way."""
    content = Content({"id": IDS[ids], "x": COLUMNS[column], "y": Column([0.5, 1.5, 2.5, 3.5], pa.float64())}, -999.9)
    found = {way: outcome(content, way, tmp_path / f"{number}") for number, way in enumerate(WAYS)}
    read = {way: each for way, each in found.items() if not each.refused}
    assert {way: said for way, each in found.items() if (said := faults_of(content, each))} == {}
    assert len(read) >= len(WAYS) - 1  # an array holds numbers alone
    first = read["parquet"]
    assert {way: said for way, each in read.items() if (said := first.differs(each))} == {}
    for number, way in enumerate(read):
        again = outcome(content, way, tmp_path / f"again-{number}", first)
        assert (again.refused, first.differs(again)) == ("", ""), way


def test_a_folders_name_is_a_column(tmp_path: Path) -> None:
    """Partitions by whole numbers and by text give the categories that the same cells in a file give."""
    for name, values in (("n", (10, 9)), ("s", ("red", "blue"))):
        for value in values:
            (place := tmp_path / name / f"{name}={value}").mkdir(parents=True)
            parquet_file(place, {"id": [f"{value}1", f"{value}2"]})
        table = read(tmp_path / name, name, encode={name: "ordinal"})
        lines = "".join(f"{value}{row},{value}\n" for value in values for row in (1, 2))
        whole = text_file(tmp_path, f"id,{name}\n{lines}", f"{name}.csv")
        assert read(whole, name, encode={name: "ordinal"}).categories == table.categories
        np.testing.assert_array_equal(read(whole, name, like=table).features, table.features)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (Column([datetime.time(10, 30), None], pa.time32("s")), "write it as text, or as seconds since midnight"),
        (Column([datetime.timedelta(1), None], pa.duration("s")), "write it in seconds, as numbers"),
        (Column([[1], None], pa.list_(pa.int64())), "write it as numbers or as text, one in each cell"),
        (Column([b"\xff\x00", None], pa.binary()), "write it as numbers or as text"),
    ],
)
@pytest.mark.parametrize("way", ["parquet", "feather", "batch", "folder"])
@pytest.mark.parametrize("encode", [None, "categorical"])
def test_what_no_table_holds_is_refused_with_a_remedy(
    column: Column, said: str, way: str, encode: str | None, tmp_path: Path
) -> None:
    """As a feature by its name; as an id too."""
    ids = Column([1, 2], pa.int64())
    found = outcome(Content({"id": ids, "x": Column(column.cells, column.kind, encode)}), way, tmp_path / "x")
    assert "column 'x' holds" in found.refused
    assert said in found.refused
    whole = Column([cell if cell is not None else column.cells[0] for cell in column.cells], column.kind)
    found = outcome(Content({"id": whole, "x": ids}), way, tmp_path / "id")
    assert "column 'id' holds" in found.refused


def pair(seed: int, folder: Path) -> str:
    """A drawn content through two drawn ways; what is wrong with them, empty if nothing."""
    content, draw = drawn(seed), random.Random(seed)
    one, two = draw.sample(sorted(WAYS), 2)
    first = outcome(content, one, folder / f"{seed}-1")
    second = outcome(content, two, folder / f"{seed}-2")
    said = faults_of(content, first) or faults_of(content, second) or first.differs(second)
    if not said and not first.refused:
        again = outcome(content, two, folder / f"{seed}-3", first)
        said = faults_of(content, again) or first.differs(again)
    return f"seed {seed}, {one} and {two}: {said}" if said else ""


@pytest.mark.second_tier
def test_drawn_contents_through_two_ways(tmp_path: Path) -> None:
    """A sample of the campaign's."""
    assert [said for seed in range(60) if (said := pair(seed, tmp_path))] == []


@pytest.mark.campaign
def test_many_drawn_contents_through_two_ways(tmp_path: Path) -> None:
    """No difference, no exception but a refusal, in 5,000 pairs."""
    assert [said for seed in range(1000, 6000) if (said := pair(seed, tmp_path))] == []
