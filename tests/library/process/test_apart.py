"""Tables that others may write are read by another process: as here, and with its end as the worst that can happen."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.campaign import hostile_tables
from treetap.errors import DataError
from treetap.process import apart
from treetap.process.apart import ReadApart
from treetap.tables import streamed_reading
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_labels
from treetap.tables.opening import read_here, source_of
from treetap.tables.reading import read_table

_CSV = 'id;amount;colour;opened;y\np2;"1.234,5";red;2020-01-02;1\np1;7,25;blue;2021-05-06;0\np3;;red;2022-01-01;1\n'
KEYS: dict[str, Any] = {
    "id": "id",
    "columns": ["amount", "colour", "opened"],
    "label": "y",
    "encode": {"colour": "one-hot", "opened": "days"},
}


def _written(folder: Path, name: str) -> None:
    table = pa.table(
        {
            "id": ["p2", "p1", "p3"],
            "amount": [1234.5, 7.25, None],
            "colour": pa.array(["red", "blue", "red"]).dictionary_encode(),
            "opened": pa.array(["2020-01-02", "2021-05-06", "2022-01-01"]).cast(pa.timestamp("s")),
            "y": [1, 0, 1],
        }
    )
    if name == "parts":
        (folder / name).mkdir()
        pq.write_table(table.slice(0, 2), folder / name / "1.parquet")
        pq.write_table(table.slice(2), folder / name / "2.parquet")
    elif name.endswith("csv"):
        (folder / name).write_text(_CSV)
    else:
        (pq.write_table if name.endswith("parquet") else feather.write_feather)(table, folder / name)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.feather", "parts"])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_table_is_the_same_wherever_it_is_read(
    name: str, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features, categories, labels, types, and the detections that the log has."""
    _written(tmp_path, name)
    monkeypatch.setattr(streamed_reading, "STREAMED", 0)
    given = TableConfig(path=Path(name), **KEYS)
    here, there = (
        read_table(config, with_label=True, missing=None, streams=streams)
        for config in (given.below(tmp_path), given.kept_within(tmp_path, ReadApart))
    )
    assert isinstance(there.path, ReadApart)
    assert str(there.path) == str(here.path)
    assert there.path.says == here.path.says  # type: ignore[union-attr]
    assert np.array_equal(there.features, here.features, equal_nan=True)
    assert (there.categories, there.columns, there.id_types) == (here.categories, here.columns, here.id_types)
    labels = [read_labels(table, "y", "binary:logistic").values.tolist() for table in (here, there)]
    assert labels == [[0, 1, 1]] * 2
    assert there.where(1) == here.where(1)
    assert there.ids.digest == here.ids.digest


@pytest.mark.parametrize(
    ("content", "column"),
    [
        ("id,x\np1,1\np2,one\n", "x"),
        ("id,x\np1,1\n", "z"),
        ("id,x\np1,1\np1,2\n", "x"),
        ("id;x\np1;1.5\np2;2,5\n", "x"),
        ("", "x"),
    ],
)
def test_errors_are_those_of_a_table_that_is_read_here(content: str, column: str, tmp_path: Path) -> None:
    """With the lines of rows, and the settings that would help."""
    (tmp_path / "t.csv").write_text(content)
    given, said = TableConfig(path=Path("t.csv"), id="id", columns=[column]), []
    for config in (given.below(tmp_path), given.kept_within(tmp_path, ReadApart)):
        with pytest.raises(DataError) as failure:
            read_table(config, with_label=False, missing=None)
        said.append(str(failure.value))
    assert said[0] == said[1]


def _source(folder: Path) -> ReadApart:
    feather.write_feather(pa.table({"id": ["a"], "x": [1.0]}), folder / "t.feather")
    found = source_of(TableConfig(path=Path("t.feather"), id="id").kept_within(folder, ReadApart))
    assert isinstance(found, ReadApart)
    return found


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGSEGV, "t.feather: the reader of this table ended by signal 11: the file is damaged"),
        (signal.SIGKILL, "t.feather: the reader of this table ended by signal 9: was there too little memory?"),
    ],
)
def test_the_end_of_a_reader_is_an_error_of_the_table(number: int, says: str, tmp_path: Path) -> None:
    """And the next table is read."""
    source = _source(tmp_path)
    with source.opened():
        reader = source._kept
        assert reader is not None
        source.fields()
        assert reader._process.answered
        os.kill(reader._process.pid, number)
        with pytest.raises(DataError, match=says):
            source.fields()
    assert [name for name, _ in source.fields()] == ["id", "x"]
    assert source.read(["x"], ()).column("x").to_pylist() == [1.0]


def test_a_reader_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here at a pipe in the place of a file, which nobody writes to."""
    monkeypatch.setattr(apart, "ANSWER_S", 0.2)
    os.mkfifo(tmp_path / "t.csv")
    config = TableConfig(path=Path("t.csv"), id="id").kept_within(tmp_path, ReadApart)
    with pytest.raises(DataError, match=r"t\.csv: the reader of this table was ended: no answer in 0\.2 s"):
        read_table(config, with_label=False, missing=None)


def test_no_reader_is_left(tmp_path: Path) -> None:
    """Neither after a table, nor after batches that nobody takes."""
    _written(tmp_path, "t.parquet")
    source = source_of(TableConfig(path=Path("t.parquet"), **KEYS).kept_within(tmp_path, ReadApart))
    assert isinstance(source, ReadApart)
    with source.opened():
        kept = source._kept
        batches = source.batches(["amount"], ())
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert kept is not None
    assert kept._process.exitcode == -signal.SIGKILL
    assert source._kept is None


@pytest.mark.parametrize(
    "answer",
    [b"c", b"c" + b"\xff" * 64, b"v{", b"vnull", b"", b"?", b".", b"v[1]"],
    ids=["no columns", "noise", "no JSON", "null", "nothing", "unknown", "an end", "a list"],
)
def test_a_reader_is_not_believed(answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that takes a reader over decides what it sends."""
    source = _source(tmp_path)
    monkeypatch.setattr(apart._Reader, "asked", lambda *_: (answer[:1], answer[1:]))
    asked = [
        lambda: source.read(["x"], ()),
        lambda: source.says,
        lambda: source.row_name(0),
        lambda: source.number("1"),
    ]
    if answer != b".":  # a table without columns, or rows
        asked += [source.fields, lambda: list(source.batches(["x"], ()))]
    for ask in asked:
        with pytest.raises(DataError, match="sent what is no answer"):
            ask()


def test_columns_of_a_reader_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that point beyond their buffers end here as those of a file would."""
    from tests.library.tables.test_hostile import beyond

    content = b"c" + beyond(tmp_path / "sent", "text", stream=True).read_bytes()
    source = _source(tmp_path)
    monkeypatch.setattr(apart._Reader, "asked", lambda *_: (content[:1], content[1:]))
    with pytest.raises(DataError, match="sent what is no answer"):
        source.read(["x"], ())


def test_a_sample_of_damaged_tables_is_read_apart(tmp_path: Path) -> None:
    """Each with the fate that it has here."""
    from random import Random

    for kind in hostile_tables.FORMATS:
        random = Random(kind)
        (tmp_path / "t").write_bytes(hostile_tables.damaged(hostile_tables.sound(kind, random), random))
        keys = TableConfig(path=Path("t"), id="id", columns=["a"], format="feather" if kind == "stream" else kind)
        fates = []
        for config in (keys.below(tmp_path), keys.kept_within(tmp_path, ReadApart)):
            try:
                fates.append(str(read_table(config, with_label=False, missing=None).features.tolist()))
            except DataError as failure:
                fates.append(str(failure))
        assert fates[0] == fates[1]


def test_links_are_followed_within_the_folder_only(tmp_path: Path) -> None:
    """Files, folders and patterns; `..data` is how Kubernetes mounts a ConfigMap."""
    folder, outside = tmp_path / "tables", tmp_path / "elsewhere"
    (folder / "..2026").mkdir(parents=True)
    outside.mkdir()
    for place in (folder / "..2026", outside):
        (place / "s.csv").write_text("id,x\np1,1\np2,2\n")
    (folder / "..data").symlink_to("..2026")
    (folder / "s.csv").symlink_to("..data/s.csv")
    (folder / "out.csv").symlink_to(outside / "s.csv")
    (folder / "sub").symlink_to(outside)
    (folder / "circle.csv").symlink_to("circle.csv")
    (folder / "mixed").mkdir()
    (folder / "mixed" / "a.csv").symlink_to(folder / "s.csv")
    (folder / "mixed" / "b.csv").symlink_to(outside / "s.csv")

    def read(path: str) -> list[float]:
        keys = TableConfig(path=Path(path), id="id", columns=["x"]).kept_within(folder, ReadApart)
        found: list[float] = read_table(keys, with_label=False, missing=None).features.ravel().tolist()
        return found

    assert read("s.csv") == read("mixed/a.csv") == [1.0, 2.0]
    for path in ("out.csv", "sub", "sub/s.csv", "sub/*.csv", "*/s.csv", "mixed", "mixed/*.csv", "o*.csv"):
        with pytest.raises(DataError, match="leads out of the folder of tables"):
            read(path)
    with pytest.raises(DataError, match=r"circle\.csv"):
        read("circle.csv")


def test_a_link_is_followed_anew_whenever_a_file_is_opened(tmp_path: Path) -> None:
    """A link that leads out by then is found by the reader, not by a look before."""
    folder = tmp_path / "tables"
    folder.mkdir()
    for place in (folder, tmp_path):
        (place / "s.csv").write_text("id,x\np1,1\n")
    (folder / "t.csv").symlink_to(folder / "s.csv")
    source = read_here(TableConfig(path=Path("t.csv"), id="id").kept_within(folder, ReadApart))
    assert source.read(["x"], ()).num_rows == 1
    (folder / "t.csv").unlink()
    (folder / "t.csv").symlink_to(tmp_path / "s.csv")
    for ask in (source.fields, source.stamp, lambda: source.read(["x"], ())):
        with pytest.raises(DataError, match="leads out of the folder of tables"):
            ask()
