"""Reading is linear in the columns: counted are comparisons of their names, and what Arrow is asked."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import parquet_file, read
from treetap.lab.api.frames import arrow_of
from treetap.lab.experiment import joined_table
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table

WIDTHS = (40, 160)


class Name(str):
    """A column's name that counts how often it is compared with another one."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def _table(width: int) -> pa.Table:
    cells = {f"f{place}": [0.5 * place, 1.0, None, 2.0] for place in range(width)}
    return pa.table({"id": ["a", "b", "c", "d"], "y": [0, 1, 1, 0], **cells})


def _comparisons(work: Callable[[], object]) -> int:
    Name.compared = 0
    work()
    return Name.compared


def _halves(table: pa.Table, place: Path) -> None:
    place.mkdir()
    pq.write_table(table.slice(0, 2), place / "a.parquet")
    pq.write_table(table.slice(2), place / "b.parquet")


@pytest.mark.parametrize(
    ("ending", "write", "streamed"),
    [
        (".csv", pacsv.write_csv, False),
        (".feather", feather.write_feather, False),
        ("", _halves, False),
        (".parquet", pq.write_table, False),
        (".parquet", pq.write_table, True),
    ],
    ids=["csv", "feather", "folder", "parquet", "streamed"],
)
def test_comparisons_of_names_grow_with_the_columns(
    ending: str,
    write: Callable[[pa.Table, Path], object],
    streamed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the source, encoded columns and all included."""
    if streamed:
        monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    found = {}
    for width in WIDTHS:
        place = tmp_path / f"{width}{ending}"
        write(_table(width), place)
        names = [Name(f"f{number}") for number in range(width)]
        config = TableConfig(path=place, id="id", label="y").model_copy(
            update={"columns": names, "encode": dict.fromkeys(names[::2], "categorical")}
        )
        found[width] = _comparisons(partial(read_table, config, with_label=True, missing=None, streams=True))
    few, many = WIDTHS
    assert found[many] <= 1.1 * many / few * found[few] + 50, found


def test_arrow_is_asked_for_a_schema_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property makes it anew each time."""
    made = Counter[str]()
    real = pq.ParquetFile.schema_arrow.fget

    def counted(file: pq.ParquetFile) -> pa.Schema:
        made["schema"] += 1
        return real(file)

    monkeypatch.setattr(pq.ParquetFile, "schema_arrow", property(counted))
    path = parquet_file(tmp_path, _table(100))
    read(path, *(f"f{place}" for place in range(100)))
    assert 0 < made["schema"] < 5


def test_a_frame_is_not_searched_for_each_name() -> None:
    """Neither by counting a name in the list of all, nor by making that list again."""
    calls = Counter[str]()

    def seen(frame: Any, event: str, called: Any) -> None:
        del frame
        if event == "c_call":
            calls[called.__name__] += 1

    table = _table(100)
    sys.setprofile(seen)
    try:
        arrow_of(table)
    finally:
        sys.setprofile(None)
    assert calls["count"] == 0
    assert calls["index"] == 0


def test_the_table_of_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names, claims and shares."""
    found = {}
    for width in WIDTHS:
        names = [Name(name) for name in _table(width).column_names]
        pq.write_table(_table(width), tmp_path / "t.parquet")
        monkeypatch.setattr(joined_table, "columns_of", lambda _, names=names: names)
        parties = [{"name": "a", "labels": True, "columns": ["f0"]}, {"name": "b", "share": 1.0}]
        content = {"data": {"path": "t.parquet", "id": "id", "label": "y"}, "party": parties, "job": {}}
        experiment = ExperimentFile.model_validate(content)
        found[width] = _comparisons(partial(joined_table.read_table, experiment, tmp_path))
    few, many = WIDTHS
    assert found[many] <= 1.1 * many / few * found[few] + 50, found
