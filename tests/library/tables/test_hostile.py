"""Files of tables that anyone may have written: what is damaged ends in one error that names the file."""

import struct
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.campaign import hostile_tables
from tests.library.tables.given import read, refusal
from treetap.errors import DataError
from treetap.tables import streamed_reading
from treetap.tables.reading import read_ids


@pytest.mark.second_tier
def test_damaged_tables_of_every_format_are_named() -> None:
    """A sample of the campaign; each case is a file of a seed."""
    found = hostile_tables.conduct(100, 1)
    assert found["cases"] == 100 * len(hostile_tables.FORMATS)
    assert not found["findings"], found["failing"]


def _written(path: Path, batch: pa.RecordBatch, *, stream: bool) -> Path:
    """A file whose writer did not look at what the arrays hold."""
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), batch.schema) as writer:
        writer.write_batch(batch)
    return path


_SOUND, _FAR = struct.pack("<3i", 0, 100, 177), struct.pack("<3i", 0, 1 << 24, 1 << 28)


def beyond(path: Path, kind: str, *, stream: bool = False, name: str = "x") -> Path:
    """A file with a column of two cells whose buffers say that they lie beyond the end."""
    texts = pa.array(["a" * 100, "b" * 77])
    sound, far = _SOUND, _FAR
    if kind == "categories":
        sound, far = struct.pack("<2i", 7, 11), struct.pack("<2i", 1 << 24, 1 << 28)
        column = pa.DictionaryArray.from_arrays(pa.array([7, 11], pa.int32()), pa.array(list("abcdefghijkl")))
    elif kind == "lists":
        column = pa.array([[1] * 100, [2] * 77], pa.list_(pa.int8()))
    else:
        column = texts if kind == "text" else pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), texts)
    _written(path, pa.record_batch({name: column, "id": pa.array(["p1", "p2"])}), stream=stream)
    content = path.read_bytes()
    assert content.count(sound) == 1
    path.write_bytes(content.replace(sound, far))
    return path


@pytest.mark.parametrize("kind", ["text", "categories", "values of categories", "lists"])
@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
def test_lengths_and_places_of_arrow_are_not_believed(kind: str, stream: bool, tmp_path: Path) -> None:
    """Arrow itself takes them as they are, and would read other memory of the process."""
    path = beyond(tmp_path / "t.feather", kind, stream=stream)
    why = r"t\.feather: record batch 1, column 'x' cannot be decoded; is the Feather"
    refusal(path, "x", encode="ordinal", match=why)
    both = tmp_path / "both"
    both.mkdir()
    feather.write_feather(pa.table({"id": ["a", "b"], "x": ["u", "v"]}), both / "1.feather")
    (both / "2.feather").write_bytes(path.read_bytes())
    refusal(both, "x", encode="ordinal", match=r"2\.feather")


def test_ids_of_a_file_are_checked_as_those_of_a_table(tmp_path: Path) -> None:
    """`--records FILE` takes the first column."""
    with pytest.raises(DataError, match=r"ids\.arrow: record batch 1, column 'who' cannot be decoded"):
        read_ids(beyond(tmp_path / "ids.arrow", "text", name="who"))


def test_views_of_missing_cells_lead_nowhere(tmp_path: Path) -> None:
    """Arrow does not check them, and its casts follow them: the column of a damaged file is read without."""
    cells = pa.array(["a text that is longer than a view", None], pa.string_view())
    path = _written(tmp_path / "t.feather", pa.record_batch({"id": ["p1", "p2"], "x": cells}), stream=False)
    content, here = path.read_bytes(), bytes(cells.buffers()[1])[:16]
    assert content.count(here + bytes(16)) == 1
    nowhere = struct.pack("<i4sii", 1 << 20, b"text", 1 << 20, 1 << 20)
    path.write_bytes(content.replace(here + bytes(16), here + nowhere))
    assert read(path, "x", encode="ordinal").features.tolist()[0] == [0.0]


def test_a_cell_that_is_no_text_is_named_by_its_row(tmp_path: Path) -> None:
    """The buffers are sound: only the bytes are no UTF-8."""
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        raw = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}[str(kind)]
        bytes_ = pa.array([b"fine", b"a cell that is none \xff"], raw)
        bad = pa.Array.from_buffers(kind, 2, bytes_.buffers())
        path = _written(tmp_path / "t.feather", pa.record_batch({"id": ["p1", "p2"], "x": bad}), stream=False)
        refusal(path, "x", encode="ordinal", match="row 2, column 'x': the cell is not UTF-8 text")


def test_names_of_columns_that_are_no_text_are_one_error(tmp_path: Path) -> None:
    """Arrow decodes them when they are asked for, outside of its own errors."""
    table = pa.table({"id": ["a", "b"], "xyzzy": [1.0, 2.0]})
    for name, write in (("t.feather", feather.write_feather), ("t.parquet", pq.write_table)):
        write(table, tmp_path / name)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content.replace(b"xyzzy", b"xy\xffzy"))
    (tmp_path / "t.jsonl").write_bytes(b'{"id": "a", "xy\xffzy": 1}\n{"id": "b", "xy\xffzy": 2}\n')
    for name in ("t.feather", "t.parquet", "t.jsonl"):
        refusal(tmp_path / name, "x", match=rf"{name}: .*(is not UTF-8 text|is not readable)")


def _kinds() -> list[pa.Array]:
    """Columns of types that no format of text has."""
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])], ["a"])
    plain = [
        pa.array([1, 2], pa.decimal32(5, 1)),
        pa.array([[1], [2]], pa.list_(pa.int8())),
        pa.array([{"a": 1}] * 2, pa.struct([("a", pa.int8())])),
        pa.array([b"a", b"b"], pa.binary_view()),
        pa.array(["a", "b"], pa.string_view()),
        pa.array([1, 2], pa.duration("s")),
        union,
    ]
    places = pa.array([0, 1], pa.int8())
    return [*plain, *(pa.DictionaryArray.from_arrays(places, each) for each in plain)]


@pytest.mark.parametrize("column", _kinds(), ids=lambda column: str(column.type))
def test_columns_of_any_type_are_read_or_named(
    column: pa.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a feature, a category and an id, whole, streamed and in two files."""
    batch = pa.record_batch({"id": pa.array(["p1", "p2"]), "x": column})
    one = _written(tmp_path / "t.feather", batch, stream=False)
    both = tmp_path / "both"
    both.mkdir()
    (both / "1.feather").write_bytes(one.read_bytes())
    (both / "2.feather").write_bytes(one.read_bytes())
    monkeypatch.setattr(streamed_reading, "STREAMED", 0)
    for path in (one, both):
        for encode in (None, {"x": "categorical"}, {"x": "days"}):
            for streams in (False, True):
                with suppress(DataError):
                    read(path, "x", encode=encode, streams=streams)
        with suppress(DataError):
            read_ids(one)
