"""Messages about cells that a library knows and a table cannot hold: the place and what to do, in treetap's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from treetap.errors import DataError
from treetap.lab.api.frames import InvalidInput, arrow_of, column_in
from treetap.tables import streamed_reading
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table


def read(path: Path, **keys: Any) -> Table:
    """The column x."""
    config = TableConfig(path=path, id="id", columns=["x"], **keys)
    return read_table(config, with_label=False, missing=None, streams=True)


@pytest.mark.parametrize("number", [2**63, 12345678901234567890, -(10**20) + 1, 10**37 + 1])
def test_whole_numbers_of_json_lines_beyond_64_bits(number: int, tmp_path: Path) -> None:
    """Ids and named categories are as they are written, wherever they stand."""
    lines = [f'{{"id": {row}, "x": 5}}\n' for row in range(1, 4)]
    for place in (0, 3):
        path = tmp_path / f"{place}.jsonl"
        path.write_text("".join([*lines[:place], f'{{"id": {number}, "x": {number}}}\n', *lines[place:]]))
        table = read(path, encode={"x": "ordinal"})
        assert table.ids == sorted(map(str, [1, 2, 3, number]))
        assert set(table.categories["x"].values) == {"5", str(number)}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (r'{"id": "\ud800", "x": 1}', "column 'id': half of a pair of surrogates"),
        (r'{"id": "b", "x": "\udc00a"}', "column 'x': half of a pair of surrogates"),
        (r'{"id": "b", "\ud83d": 1}', r"column '\\ud83d': half of a pair of surrogates"),
        ('{"id": "b", "x": 1e400}', "column 'x': the number is beyond double precision"),
    ],
)
def test_cells_of_json_lines_that_no_column_has(line: str, said: str, tmp_path: Path) -> None:
    """By line and column."""
    (tmp_path / "t.jsonl").write_text(f'{{"id": "a"}}\n{line}\n')
    with pytest.raises(DataError, match=f"line 2, {said}"):
        read(tmp_path / "t.jsonl")


@pytest.mark.parametrize("kind", ["Int128", "UInt128"])
def test_numbers_of_polars_that_arrow_has_not(kind: str) -> None:
    """The column and its type, not Arrow's own name of it."""
    frame = pl.DataFrame({"id": ["a"], "n": pl.Series([1], dtype=getattr(pl, kind))})
    said = f"column 'n' holds {kind}: cast it to Int64"
    with pytest.raises(InvalidInput, match=said):
        arrow_of(frame)
    with pytest.raises(InvalidInput, match=said):
        column_in(frame, "n")


@pytest.mark.parametrize("streamed", [0, 1 << 27])
@pytest.mark.parametrize("encode", [None, "auto", "ordinal", "days", {"x": "one-hot"}])
@pytest.mark.parametrize("values", [pa.array([[1], [2, 3]]), pa.array([{"a": 1}, {"a": 2}])], ids=["lists", "structs"])
def test_dictionaries_of_what_is_no_cell(
    streamed: int, encode: Any, values: pa.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, in a table that is held and in one that is read in parts."""
    monkeypatch.setattr(streamed_reading, "STREAMED", streamed)
    table = pa.table({"id": ["a", "b"], "x": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), values)})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(DataError, match=r"column 'x' holds (list|struct), .*one in each cell, or leave the column out"):
        read(tmp_path / "t.arrow", encode=encode)
