"""Values that are called missing, and ids that are repeated.

Texts and numbers that a table's settings call missing: in every way in as if the cells were empty, and counted.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.needs import needs_libraries
from treetap.errors import ConfigError, DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table as read_joined
from treetap.process.apart import ReadApart
from treetap.strict import load
from treetap.tables import streamed_reading
from treetap.tables.asked_columns import OF_EXPERIMENT
from treetap.tables.auto_encoding import Cells, Rules, settle
from treetap.tables.config import TableConfig
from treetap.tables.features import Streamed
from treetap.tables.opening import source_of
from treetap.tables.reading import Table, read_table
from treetap.tables.source import Source

ROWS = 24
GONE = ("-", " n/a ", "unbekannt")
#: Cells of Python's types; a text of `GONE` among them means a missing value, and so does -999.
CONTENT: dict[str, list[Any]] = {
    "id": [f"r{row:02d}" for row in range(ROWS)],
    "mixed": [GONE[row % 3] if row % 4 == 0 else row / 8 for row in range(ROWS)],
    "whole": [-999 if row % 5 == 0 else row for row in range(ROWS)],
    "word": [["red", "-", "green"][row % 3] for row in range(ROWS)],
    "day": ["-" if row % 6 == 0 else f"2024-01-{row + 1:02d}" for row in range(ROWS)],
    "flag": ["-" if row % 7 == 0 else row % 2 == 0 for row in range(ROWS)],
    "label": ["-" if row % 2 else "x" for row in range(ROWS)],
}
KEYS: dict[str, Any] = {
    "id": "id",
    "label": "label",
    "columns": ["mixed", "whole", "word", "day", "flag"],
    "encode": {"word": "categorical", "day": "days"},
}
SETTING = ["-", "n/a", "unbekannt", -999]


def _shown(cell: Any) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _csv(path: Path, content: dict[str, list[Any]], quote: str = "", delimiter: str = ",") -> Path:
    rows = zip(*content.values(), strict=True)
    lines = [delimiter.join(content), *(delimiter.join(f"{quote}{_shown(it)}{quote}" for it in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _german(path: Path) -> Path:
    numbers = [it if isinstance(it, str) else f"{it:.3f}".replace(".", ",") for it in CONTENT["mixed"]]
    return _csv(path, {**CONTENT, "mixed": numbers}, delimiter=";")


def _json_lines(path: Path, rows: slice = slice(None)) -> Path:
    lines = [json.dumps(dict(zip(CONTENT, row, strict=True))) + "\n" for row in zip(*CONTENT.values(), strict=True)]
    path.write_text("".join(lines[rows]), encoding="utf-8")
    return path


def _folder_of_lines(path: Path) -> Path:
    """The third file has no text among numbers."""
    path.mkdir()
    for part, rows in enumerate((slice(4), slice(4, 9), slice(9, 12), slice(12, None))):
        _json_lines(path / f"{part}.jsonl", rows)
    return path


def _typed(**kinds: pa.DataType) -> pa.Table:
    """Mixed columns as text, as typed formats have them; others of a type, or of the one that is given."""
    mixed = {name: any(isinstance(it, str) for it in cells) for name, cells in CONTENT.items()}
    arrays = {name: pa.array([_shown(it) for it in cells] if mixed[name] else cells) for name, cells in CONTENT.items()}
    return pa.table({name: it.cast(kinds[name]) if name in kinds else it for name, it in arrays.items()})


def _parquet(path: Path) -> Path:
    pq.write_table(_typed(word=pa.dictionary(pa.int8(), pa.string())), path, row_group_size=5)
    return path


def _feather(path: Path) -> Path:
    feather.write_feather(_typed(whole=pa.decimal128(23, 2), mixed=pa.large_string()), path)
    return path


def _folder(path: Path) -> Path:
    path.mkdir()
    for part in range(2):
        pq.write_table(_typed().slice(part * 7, 7 if part == 0 else None), path / f"{part}.parquet")
    return path


def _sqlite(path: Path) -> dict[str, Any]:
    needs_libraries("adbc_driver_sqlite", extra="sql")
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE t ({', '.join(CONTENT)})")
        rows = [
            [_shown(it) if isinstance(it, bool) else it for it in row] for row in zip(*CONTENT.values(), strict=True)
        ]
        database.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(CONTENT))})", rows)
    return {"uri": f"sqlite:{path}", "table": "t"}


WAYS: dict[str, Any] = {
    "csv": lambda at: _csv(at / "t.csv", CONTENT),
    "quoted": lambda at: _csv(at / "t.csv", CONTENT, '"'),
    "german": lambda at: _german(at / "t.csv"),
    "json lines": lambda at: _json_lines(at / "t.jsonl"),
    "folder of json lines": lambda at: _folder_of_lines(at / "t"),
    "parquet": lambda at: _parquet(at / "t.parquet"),
    "feather": lambda at: _feather(at / "t.feather"),
    "folder": lambda at: _folder(at / "t"),
    "sqlite": lambda at: _sqlite(at / "t.db"),
}


def _read(source: Any, **keys: Any) -> Table:
    given = source if isinstance(source, dict) else {"path": source}
    config = TableConfig(**{**KEYS, **given, **keys})
    return read_table(config, with_label=True, missing=None, streams=True, categorical=True)


def _as_if_empty() -> np.ndarray[Any, Any]:
    gone = {cell.strip() for cell in GONE}
    words = [None if it == "-" else float(it == "red") for it in CONTENT["word"]]
    columns = {
        "mixed": [np.nan if isinstance(it, str) and it.strip() in gone else it for it in CONTENT["mixed"]],
        "whole": [np.nan if it == -999 else it for it in CONTENT["whole"]],
        "word": [np.nan if it is None else it for it in words],
        "day": [np.nan if it == "-" else 19723.0 + row for row, it in enumerate(CONTENT["day"])],
        "flag": [np.nan if it == "-" else float(it) for it in CONTENT["flag"]],
    }
    return np.array([columns[name] for name in KEYS["columns"]]).T


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_listed_cells_are_missing(way: str, streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has them, in memory or in parts; labels of that text are classes, and the log counts what is gone."""
    monkeypatch.setattr(streamed_reading, "STREAMED", 0 if streamed else 1 << 27)
    table = _read(WAYS[way](tmp_path), missing=SETTING)
    np.testing.assert_array_equal(table.features, _as_if_empty())
    assert table.label is not None
    assert repr(table.label) == f"<LabelCells of {ROWS} records>"
    (said,) = [line for line in table.says if line.startswith("missing")]
    assert said == (
        'missing = ["-", "n/a", "unbekannt", -999]: 27 cells count as missing: '
        "'mixed' 6, 'whole' 5, 'word' 8, 'day' 4, 'flag' 4"
    )


def test_a_cleaned_source_answers_whatever_its_own_would(tmp_path: Path) -> None:
    """Order of categories, ends of files, notes: nothing that a source says of itself is hidden; numbers by style."""
    config = TableConfig(path=_csv(tmp_path / "t.csv", CONTENT), missing=SETTING, **KEYS)
    source = source_of(config)
    assert {name for name in vars(Source) if not name.startswith("_")} - {"number"} <= {
        *vars(type(source)),
        *vars(source),
    }


def test_a_reader_apart_gives_the_same(tmp_path: Path) -> None:
    """JSON lines, whose reader has to know of texts among numbers, in a folder that others write."""
    _json_lines(tmp_path / "t.jsonl")
    config = TableConfig(path=Path("t.jsonl"), missing=SETTING, **KEYS).kept_within(tmp_path, ReadApart)
    np.testing.assert_array_equal(read_table(config, with_label=True, missing=None).features, _as_if_empty())


@pytest.mark.parametrize(
    ("cells", "setting", "gone"),
    [
        (pa.array([-999.9, 1.0], pa.float32()), [-999.9], 1),
        (pa.array([Decimal("-999.9"), Decimal("1.0")]), [-999.9], 1),
        (pa.array([-999, 1], pa.int16()), ["-999"], 1),
        (pa.array([2**53 + 1, 1], pa.int64()), [-1], 0),
        (pa.array(["-999.0", "-999", "1"]), [-999], 2),
        (pa.array(["007", "7", "V7"]), [7], 1),
        (pa.array(["-999.0", "1"]), ["-999"], 0),
        (pa.array([True, False, None]), ["true", 0], 2),
        (pa.array([date(9999, 12, 31), date(2024, 1, 1)]), ["9999-12-31", "99999-01-01"], 1),
        (pa.array([date(2024, 1, 1)], pa.date64()), ["2024-01-01 12:00"], 0),
        (pa.array([datetime(1900, 1, 1), datetime(2024, 1, 1)], pa.timestamp("ns")), ["1900-01-01", "9999-12-31"], 1),
        (pa.array([datetime(1900, 1, 1)] * 2, pa.timestamp("s", "UTC")), ["1900-01-01T01:00+01:00"], 2),
        (pa.array(["\u00a0-", "x", "y"], pa.string_view()), ["-"], 1),
    ],
)
def test_cells_are_compared_in_the_columns_type_and_texts_as_they_are(
    cells: pa.Array, setting: list[Any], gone: int, tmp_path: Path
) -> None:
    """In numbers a text that is one is that number; in text a number is one however it is written, and no code."""
    feather.write_feather(pa.table({"id": list(range(len(cells))), "x": cells}), path := tmp_path / "t.arrow")
    config = TableConfig(path=path, id="id", columns=["x"], missing=setting)
    assert source_of(config).read(["x"], ()).column("x").null_count == gone


@pytest.mark.parametrize(
    ("setting", "left"),
    [("1.500", [1500.25, 1.5, 2.5, None]), ("1,5", [1500.25, None, 2.5, 1500]), ("1500", [1500.25, 1.5, 2.5, None])],
)
def test_a_text_is_the_number_that_its_table_writes_so(setting: str, left: list[float | None], tmp_path: Path) -> None:
    """With points between thousands 1.500 is no 1.5."""
    path = tmp_path / "t.csv"
    path.write_text("id;x\n1;1.500,25\n2;1,5\n3;2,5\n4;1.500\n")
    config = TableConfig(path=path, id="id", columns=["x"], missing=[setting])
    assert source_of(config).read(["x"], ()).column("x").to_pylist() == left


@pytest.mark.parametrize("given", ["[true]", "inf", '[["-"]]', "{ a = 1 }"])
def test_what_is_neither_text_nor_number_is_refused(given: str, tmp_path: Path) -> None:
    """One text or number alone is a list of one."""
    path = tmp_path / "t.toml"
    path.write_text(f'path = "t.csv"\nid = "id"\nmissing = {given}\n')
    with pytest.raises(ConfigError, match=r"missing.*lists texts and numbers"):
        load(path, TableConfig)
    path.write_text('path = "t.csv"\nid = "id"\nmissing = " - "\n')
    assert load(path, TableConfig).missing == ["-"]


def _refusal(columns: dict[str, list[str]], rules: Rules) -> str:
    rows = len(next(iter(columns.values())))
    with pytest.raises(DataError) as refused:
        settle("t", {name: Cells(Path("t"), pa.chunked_array([it]), rows) for name, it in columns.items()}, rules)
    return str(refused.value)


def test_one_message_proposes_the_setting_for_all_columns() -> None:
    """The text is shown to whoever has the table; a mark is no category, and what is listed already stays listed."""
    numbers = [str(row) for row in range(198)]
    columns = {f"Bank_{k}": ["-", *numbers[k:], *numbers[:k]] for k in range(4)}
    own = Rules("auto", None, None, True, writing=OF_EXPERIMENT, listed=[-1])
    said = _refusal(columns, own)
    assert "4 columns have one text among numbers or dates, the same in all: 'Bank_0' first in row 1" in said
    assert '\n  missing = [-1, "-"]  #' in said
    assert "categorical" not in said
    party = _refusal(columns, Rules("auto", None, None, True))
    assert '\n  missing = ["…"]' in party
    assert '"-"' not in party
    few = [str(row % 9) for row in range(198)]
    said = _refusal({"a": [*few, "x"], "b": [*few, "?"]}, own)
    assert '"x", "?"]' in said
    assert 'encode = { a = "categorical" }  # where these are categories' in said
    said = _refusal({"a": [*numbers, "1O0"]}, own)  # probably a slip of the hand
    assert "correct the cells, or list in missing" in said
    assert "\n" not in said


# ---- Several records with one id: refused with their number and examples, or one of them chosen, in every way in


IDS = ["a", "b", "c", "a", "d", " b", "e", "a", "f", "f", "g", "g"]
#: A category of row 4 alone, which `first` and `last` leave out.
TABLE = pa.table({"id": IDS, "x": list(range(12)), "t": ["u", "v", "u", "lost"] + ["u", "v"] * 4})
KEPT = {"first": [0, 1, 2, 4, 6, 8, 10], "last": [7, 5, 2, 4, 6, 9, 11]}


def _repeated_csv(path: Path, table: pa.Table = TABLE) -> None:
    rows = zip(*table.to_pydict().values(), strict=True)
    path.write_text("\n".join([",".join(table.column_names), *(",".join(map(str, row)) for row in rows)]) + "\n")


def _written(folder: Path, way: str) -> Path:
    path = folder / {"csv": "t.csv", "json lines": "t.jsonl", "parquet": "t.parquet"}.get(way, "t")
    if way == "csv":
        _repeated_csv(path)
    elif way == "json lines":
        path.write_text("".join(json.dumps(row) + "\n" for row in TABLE.to_pylist()))
    elif way == "parquet":
        pq.write_table(TABLE, path, row_group_size=3)
    else:
        path.mkdir()
        for part, first in enumerate((0, 5, 9)):
            rows = TABLE.slice(first, 4 if part else 5)
            if way == "folder of csv":
                _repeated_csv(path / f"{part}.csv", rows)
            else:
                pq.write_table(rows, path / f"{part}.parquet")
    return path


REPEATED = ("csv", "json lines", "parquet", "folder of csv", "folder of parquet")


def _read_repeated(path: Path, duplicates: str, apart: bool = False, **keys: Any) -> Table:
    given = {"id": "id", "columns": ["x", "t"], "encode": {"t": "categorical"}, "duplicates": duplicates, **keys}
    config = TableConfig(path=Path(path.name), **given)
    config = config.kept_within(path.parent, ReadApart) if apart else config.below(path.parent)
    return read_table(config, with_label=False, missing=None, streams=True)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", REPEATED)
@pytest.mark.parametrize("which", KEPT)
def test_one_record_of_each_id_counts(
    which: str, way: str, streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By order of files and rows. Encodings, extents and counts are of the records that are left; rows keep names."""
    monkeypatch.setattr(streamed_reading, "STREAMED", 0 if streamed else 1 << 27)
    table = _read_repeated(_written(tmp_path, way), which)
    assert isinstance(table.values, Streamed) == (streamed and "parquet" in way)
    assert list(table.ids) == ["a", "b", "c", "d", "e", "f", "g"]
    assert table.features[:, 0].tolist() == KEPT[which]
    assert table.categories["t"].values == ["u", "v"]
    assert table.seen["x"].present == 7
    assert table.values.extents(table.rows)[0].largest == max(KEPT[which])
    last = {"csv": "line {}", "json lines": "line {}", "parquet": "row {}"}.get(way)
    if last:
        assert table.where(0) == last.format(KEPT[which][0] + (2 if way == "csv" else 1))
    (said,) = table.path.says  # type: ignore[union-attr]
    assert "4 ids are there more than once" in said
    assert said.endswith(f'; duplicates = "{which}" leaves out 5 rows')


@pytest.mark.parametrize("way", REPEATED)
def test_the_refusal_counts_them(way: str, tmp_path: Path) -> None:
    """Rows of three, the number of all and the key."""
    with pytest.raises(DataError) as refused:
        _read_repeated(_written(tmp_path, way), "refuse")
    said = str(refused.value)
    assert ", column 'id': the id is there already, at " in said
    assert "; 4 ids are there more than once, also at " in said
    assert said.count(" as at ") == 2
    assert ', …; write duplicates = "first" or "last"' in said


def test_readers_apart_and_ids_of_several_columns(tmp_path: Path) -> None:
    """In a folder that others write, and where no column alone identifies a record."""
    table = TABLE.append_column("site", pa.array(["n"] * 7 + ["s"] * 5))
    pq.write_table(table, tmp_path / "t.parquet")
    np.testing.assert_array_equal(
        _read_repeated(tmp_path / "t.parquet", "last", apart=True).features[:, 0], KEPT["last"]
    )
    read = _read_repeated(tmp_path / "t.parquet", "first", id=["id", "site"])
    assert read.features[:, 0].tolist() == [0, 7, 1, 2, 4, 6, 8, 10]


def test_a_missing_id_is_none_of_several(tmp_path: Path) -> None:
    """It is refused as it is without them, and so is a choice where there is nothing to choose by."""
    pq.write_table(pa.table({"id": ["a", "", " ", "a"], "x": [1, 2, 3, 4]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="row 2, column 'id': the id is missing"):
        _read_repeated(tmp_path / "t.parquet", "first", columns=["x"], encode=None)
    path = tmp_path / "t.toml"
    path.write_text('uri = "sqlite:t.db"\ntable = "t"\nid = "id"\nduplicates = "last"\n')
    with pytest.raises(ConfigError, match="rows of a database have no order: have the query choose"):
        load(path, TableConfig)


def test_an_experiment_chooses_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With the label of the record that counts, and says what it leaves out; rows without ids have no choice."""
    rows = [f"c{k % 20},{k},{'ab'[k % 2 if k < 20 else 0]}" for k in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["who,x,y", *rows]) + "\n")
    parties = [{"name": "bank", "labels": True, "columns": ["x"]}, {"name": "shop", "columns": []}]
    content: dict[str, Any] = {"party": parties, "job": {}}
    for which, second in (("first", "b"), ("last", "a")):
        data = {"path": str(tmp_path / "t.csv"), "label": "y", "id": "who", "duplicates": which}
        table = read_joined(ExperimentFile.model_validate({**content, "data": data}), tmp_path)
        assert table.num_rows == 20
        labels = dict(zip(table.column("treetap_id").to_pylist(), table.column("y").to_pylist(), strict=True))
        assert (labels["c1"], labels["c11"]) == (second, "b")
        assert "10 ids are there more than once" in capfd.readouterr().err
    with pytest.raises(ValueError, match="duplicates is of ids, and rows are numbered"):
        ExperimentFile.model_validate({**content, "data": data | {"id": None}})
