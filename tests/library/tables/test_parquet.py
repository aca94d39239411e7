"""Parquet tables that were made to harm their reader, and those of any other form.

Columns of images in Parquet tables: what is read, and how each fault is reported.
"""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import parquet_file, read, refusal
from treetap.errors import DataError
from treetap.party.setup.steps import fingerprint
from treetap.tables.binned import bin_columns
from treetap.tables.cells import Shape
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
    for reader in (read_ids, lambda file: read_columns(source_at(file), ["id"], {"id"})):
        with pytest.raises(
            DataError, match=r"ids\.parquet: the columns take up more than half of this machine's memory"
        ):
            reader(path)
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


#: Records as they stand in the file; sorted by id they are b, c, d.
IDS = ["d", "b", "c"]
GREY = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
COLOUR = np.arange(3 * 3 * 4 * 5, dtype=np.uint8).reshape(3, 3, 4, 5)


def _column(cells: npt.NDArray[Any], **of_type: Any) -> pa.Array:
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(cells.dtype), cells.shape[1:], **of_type)
    values = pa.array(cells.ravel())
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(values, cells[0].size))


def _write(folder: Path, name: str = "t.parquet", rows: int = 1 << 20, **columns: Any) -> Path:
    return parquet_file(folder, columns, name, row_group_size=rows)


@pytest.mark.parametrize("rows", [1 << 20, 2], ids=["one chunk", "chunks"])
def test_tensors_come_in_the_order_of_ids_beside_the_features(rows: int, tmp_path: Path) -> None:
    """Numeric columns alone are features; `take` takes the cells of the records that it names."""
    path = _write(tmp_path, rows=rows, x=[1.0, 2.0, 3.0], grey=_column(GREY), id=IDS, colour=_column(COLOUR))
    table = read(path, "grey", "x", "colour")
    assert (table.columns, table.sources) == (["x"], ["grey", "x", "colour"])
    assert table.features.tolist() == [[2.0], [3.0], [1.0]]
    assert list(table.tensors) == ["grey", "colour"]
    for name, cells in (("grey", GREY), ("colour", COLOUR)):
        assert table.tensors[name].dtype == np.uint8
        np.testing.assert_array_equal(table.tensors[name], cells[[1, 2, 0]])
    part = table.take(np.array([2, 0]))
    assert part.ids == ["d", "b"]
    np.testing.assert_array_equal(part.tensors["colour"], COLOUR[[0, 1]])
    assert table.described()["tensors"] == {"grey": {"shape": [4, 5]}, "colour": {"shape": [3, 4, 5]}}


def test_dimensions_are_read_by_their_names(tmp_path: Path) -> None:
    """A cell comes as (channels, height, width) in whatever order its type stores the dimensions that it names."""
    last = np.ascontiguousarray(COLOUR.transpose(0, 2, 3, 1))
    named = _column(last, dim_names=["Height", "width", "channels"])
    short = _column(last, dim_names=["H", "W", "C"], permutation=[0, 1, 2])
    by_arrow = pa.FixedShapeTensorArray.from_numpy_ndarray(COLOUR)
    columns = {"named": named, "short": short, "by_arrow": by_arrow}
    table = read(_write(tmp_path, id=IDS, **columns), *columns)
    for name in columns:
        np.testing.assert_array_equal(table.tensors[name], COLOUR[[1, 2, 0]], err_msg=name)
        assert table.tensors[name].flags.c_contiguous
    upright = _column(GREY, dim_names=["w", "h"])
    table = read(_write(tmp_path, id=IDS, upright=upright), "upright")
    np.testing.assert_array_equal(table.tensors["upright"], GREY[[1, 2, 0]].transpose(0, 2, 1))


def _with_gap(place: int | None) -> pa.Array:
    """Three images of which the second is missing, or a value in it."""
    cells = [row.ravel().tolist() for row in GREY]
    cells[1] = None if place is None else [None if k == place else value for k, value in enumerate(cells[1])]
    return pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.uint8(), (4, 5)), pa.array(cells, pa.list_(pa.uint8(), 20))
    )


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (_column(GREY.astype(np.float32)), "holds tensors of float, not of uint8: write it as fixed_shape_tensor"),
        (_column(GREY.reshape(3, 20)), r"tensors of shape 20: \(height, width\) or \(channels, height, width\) is"),
        (_column(COLOUR.reshape(3, 3, 4, 5, 1)), "tensors of shape 3 x 4 x 5 x 1: "),
        (_column(COLOUR.reshape(3, 5, 4, 3)), "tensors of shape 5 x 4 x 3: the channels seem to be last; name"),
        (_column(COLOUR, dim_names=["C", "H", "depth"]), "named 'C', 'H', 'depth'; name them channels, height, width"),
        (_column(GREY, dim_names=["H", "height"]), "named 'H', 'height'; name them height, width"),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(COLOUR.transpose(0, 3, 1, 2)), "permutes the dimensions: write"),
        (_column(COLOUR, dim_names=["C", "H", "W"], permutation=[2, 0, 1]), "permutes the dimensions"),
        (_with_gap(None), "an image, or a value in one, is missing; leave out the records without one"),
        (_with_gap(7), "an image, or a value in one, is missing"),
        (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.uint8(), 2)), "holds fixed_size_list, not numbers"),
    ],
    ids=["type", "flat", "four", "last", "names", "doubled", "view", "permuted", "missing", "value", "lists"],
)
def test_faults_of_a_column(column: pa.Array, expected: str, tmp_path: Path) -> None:
    """Each is reported by file and column, with what to do."""
    path = _write(tmp_path, id=IDS, image=column)
    assert refusal(path, "image", match=expected).startswith(f"{path}: column 'image'")


@pytest.mark.parametrize(
    ("column", "trained", "expected"),
    [
        (_column(GREY), (4, 6), "tensors of shape 4 x 5, and tensors of shape 4 x 6 when it was trained on"),
        (_column(COLOUR), (4, 5), "tensors of shape 3 x 4 x 5, and tensors of shape 4 x 5 when"),
        (_column(GREY), None, "tensors of shape 4 x 5, and no tensors when"),
        (pa.array([1, 2, 3]), (4, 5), "no tensors, and tensors of shape 4 x 5 when"),
    ],
)
def test_a_later_table_has_the_shapes_of_the_training(
    column: pa.Array, trained: Shape | None, expected: str, tmp_path: Path
) -> None:
    """The error names both; the same shape is taken."""
    path = _write(tmp_path, id=IDS, image=column)
    shapes = {} if trained is None else {"image": trained}
    refusal(path, "image", shapes=shapes, match=f"column 'image' holds {expected}")
    same = _write(tmp_path, "same.parquet", id=IDS, image=_column(GREY))
    assert read(same, "image", shapes={"image": (4, 5)}).shapes == {"image": (4, 5)}


def test_no_tree_takes_tensors(tmp_path: Path) -> None:
    """The column is named; without it the same table is binned."""
    path = _write(tmp_path, id=IDS, x=[1.0, 2.0, 3.0], image=_column(GREY))
    with pytest.raises(DataError, match=r"t\.parquet: column 'image' holds tensors of shape 4 x 5, and trees split"):
        bin_columns(read(path, "x", "image"), 4, None)
    assert bin_columns(read(path, "x"), 4, None).codes[:, 0].tolist() == [1, 2, 0]


def test_neither_ids_nor_labels_are_tensors(tmp_path: Path) -> None:
    """An id column of images is refused by what it holds."""
    path = _write(tmp_path, id=_column(GREY))
    refusal(path, match="column 'id' holds tensors; ids are whole numbers or text")


def test_the_fingerprint_covers_every_value(tmp_path: Path) -> None:
    """One value, the name or the shape of a column of tensors makes another table; the same cells do not."""
    table = read(_write(tmp_path, id=IDS, image=_column(GREY)), "image")
    changed = table.tensors["image"].copy()
    assert fingerprint(replace(table, tensors={"image": changed})) == fingerprint(table)
    changed[2, 3, 4] += 1
    others = ({"image": changed}, {"picture": table.tensors["image"]}, {"image": changed.reshape(3, 5, 4)}, {})
    assert len({fingerprint(table), *(fingerprint(replace(table, tensors=other)) for other in others)}) == 5


def test_images_that_are_many_are_refused_before_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells that are all alike take hardly any bytes in the file; their size follows from the type of the column."""
    rows, side = 500, 100
    path = _write(tmp_path, id=list(range(rows)), image=_column(np.zeros((rows, side, side), dtype=np.uint8)))
    assert path.stat().st_size < 100_000
    monkeypatch.setattr("treetap.tables.opening.half_of_memory", lambda: rows * side * side)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("the file is decoded"))
    with pytest.raises(DataError, match="more than half of this machine's memory"):
        ParquetFile(TableFile.local(path)).read(["image"], ())


def test_large_images_are_decoded_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has as many rows as fit, at least one; the table is the same."""
    cells = np.random.default_rng(1).integers(0, 256, (50, 30, 20), dtype=np.uint8)
    path = _write(tmp_path, id=list(range(50)), image=_column(cells))
    for block, batches in ((7 * 600, 8), (1, 50)):
        monkeypatch.setattr("treetap.tables.opening._BLOCK", block)
        found = ParquetFile(TableFile.local(path)).read(["image"], ()).column("image")
        assert found.num_chunks == batches
        np.testing.assert_array_equal(np.concatenate([each.to_numpy_ndarray() for each in found.chunks]), cells)
