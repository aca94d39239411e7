"""Columns of text as numbers: the same at prediction as in training, and never by accident."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables.categories import Category
from treetap.tables.config import Encode, TableConfig
from treetap.tables.reading import Table, read_table

NAN = float("nan")
TRAIN = {"id": ["d", "b", "c", "a"], "colour": ["red", "blue", None, "red"], "n": [1.0, 2.0, 3.0, 4.0]}


def _file(folder: Path, kind: str, content: dict[str, list[object]]) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(content), path)
    else:
        rows = zip(*content.values(), strict=True)
        lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
        path.write_text("\n".join([",".join(content), *lines]) + "\n")
    return path


def _read(path: Path, encode: Encode | None = None, like: Table | None = None) -> Table:
    config = TableConfig(path=path, id="id", columns=["colour", "n"], encode=encode)
    stored = None if like is None else json.loads(json.dumps(like.described()["categories"]))
    known = None if stored is None else {name: Category.from_dict(each) for name, each in stored.items()}
    return read_table(config, with_label=False, missing=None, categories=known)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ordinal(kind: str, tmp_path: Path) -> None:
    """The place of a category in the order of their texts; missing stays missing."""
    table = _read(_file(tmp_path, kind, TRAIN), "ordinal")
    assert (table.columns, table.made) == (["colour", "n"], set())
    np.testing.assert_array_equal(table.features[:, 0], [1.0, 0.0, NAN, 1.0])
    assert table.categories["colour"].values == ["blue", "red"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_one_hot(kind: str, tmp_path: Path) -> None:
    """A feature of 0 and 1 per category, named after both; a missing cell is missing in all of them."""
    table = _read(_file(tmp_path, kind, TRAIN), "one-hot")
    assert table.columns == ["colour=blue", "colour=red", "n"]
    assert table.made == {"colour=blue", "colour=red"}
    assert table.sources == ["colour", "n"]
    np.testing.assert_array_equal(table.features[:, 0], [0.0, 1.0, NAN, 0.0])
    np.testing.assert_array_equal(table.features[:, 1], [1.0, 0.0, NAN, 1.0])
    np.testing.assert_array_equal(table.take(np.array([2, 0])).features[:, 2], [3.0, 4.0])


@pytest.mark.parametrize("encode", ["ordinal", "one-hot"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_prediction_encodes_as_the_training_did(encode: Encode, kind: str, tmp_path: Path) -> None:
    """Whatever the new table's own categories and configuration are; one that training had not is missing."""
    trained = _read(_file(tmp_path, kind, TRAIN), encode)
    new = {"id": ["x", "y", "z"], "colour": ["red", "azure", "blue"], "n": [1.0, 2.0, 3.0]}
    table = _read(_file(tmp_path, kind, new), None, trained)
    assert table.columns == trained.columns
    np.testing.assert_array_equal(table.features[:, -2], [1.0, NAN, 0.0])


def test_numbers_written_as_text_stay_numbers(tmp_path: Path) -> None:
    """A text column of nothing but numbers is one of numbers, also where text may be encoded."""
    path = _file(tmp_path, "parquet", {**TRAIN, "colour": ["1", "2.5", None, "-3"]})
    table = _read(path, "one-hot")
    assert (table.columns, dict(table.categories)) == (["colour", "n"], {})
    np.testing.assert_array_equal(table.features[:, 0], [-3.0, 2.5, NAN, 1.0])


def test_categories_that_look_like_numbers_keep_their_text(tmp_path: Path) -> None:
    """Among other texts 7 and 007 are two categories, also where a new CSV file holds nothing but such numbers."""
    trained = _read(_file(tmp_path, "csv", {**TRAIN, "colour": ["7", "007", "x", "7"]}), "ordinal")
    assert trained.categories["colour"].values == ["007", "7", "x"]
    table = _read(_file(tmp_path, "csv", {"id": ["a", "b"], "colour": ["007", "7"], "n": [1, 2]}), None, trained)
    np.testing.assert_array_equal(table.features[:, 0], [0.0, 1.0])


def test_text_is_refused_where_nobody_says_how_to_encode_it(tmp_path: Path) -> None:
    """The message has the line to paste, and not the cell."""
    with pytest.raises(
        DataError, match=r"column 'colour' holds text; write in the.*\n.*\n  encode = { colour = .one-hot. }"
    ) as failure:
        _read(_file(tmp_path, "parquet", TRAIN))
    assert "red" not in str(failure.value)


def test_what_cannot_be_encoded(tmp_path: Path) -> None:
    """Texts and numbers that are no categories, clashing names, and numbers where training had text, by column."""
    many = {"id": [f"{i}" for i in range(300)], "colour": [f"text {i}" for i in range(300)], "n": [1.0] * 300}
    with pytest.raises(DataError, match="column 'colour' holds 300 different texts"):
        _read(_file(tmp_path, "parquet", many), "ordinal")
    many |= {"colour": ["x", "y"] * 150, "n": [float(i) for i in range(300)]}
    with pytest.raises(DataError, match="column 'n' holds 300 different numbers; a category has few"):
        _read(_file(tmp_path, "parquet", many), {"n": "categorical", "*": "ordinal"})
    clash = {**TRAIN, "colour=red": [1.0, 2.0, 3.0, 4.0]}
    config = TableConfig(
        path=_file(tmp_path, "parquet", clash), id="id", columns=["colour", "colour=red"], encode="one-hot"
    )
    with pytest.raises(DataError, match="column 'colour': a feature made of it would have the name of") as failure:
        read_table(config, with_label=False, missing=None)
    assert "red" not in str(failure.value)
    trained = _read(_file(tmp_path, "parquet", TRAIN), "ordinal")
    with pytest.raises(DataError, match="column 'colour' holds double, and text when it was trained on"):
        _read(_file(tmp_path, "parquet", {**TRAIN, "colour": [1.0, 2.0, 3.0, 4.0]}), None, trained)


@pytest.mark.parametrize("empty", [None, float("nan")])
@pytest.mark.parametrize(("encode", "cells"), [("ordinal", TRAIN["colour"]), ("days", ["2024-03-31"] * 4)])
def test_a_column_without_a_value_has_no_type(tmp_path: Path, encode: str, cells: list[str], empty: float) -> None:
    """Where all cells of text or dates are missing, libraries store numbers; they are missing, and counted so."""
    trained = _read(_file(tmp_path, "parquet", {**TRAIN, "colour": cells}), encode)
    gone = pa.array([empty] * 4, pa.float64())
    read = _read(_file(tmp_path, "parquet", {**TRAIN, "colour": gone}), None, trained)
    assert np.isnan(read.features[:, read.columns.index("colour")]).all()
    assert read.unlike.empty_columns == 1


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_categorical(kind: str, tmp_path: Path) -> None:
    """Codes as with ordinal, but a category that training had not has a code of its own: it is not missing."""
    table = _read(_file(tmp_path, kind, TRAIN), "categorical")
    assert (table.columns, table.made, table.category_counts) == (["colour", "n"], set(), {"colour": 2})
    np.testing.assert_array_equal(table.features[:, 0], [1.0, 0.0, NAN, 1.0])
    new = {"id": ["a", "b", "c"], "colour": ["green", None, "blue"], "n": [1, 2, 3]}
    again = _read(_file(tmp_path, kind, new), None, table)
    np.testing.assert_array_equal(again.features[:, 0], [2.0, NAN, 0.0])
    assert again.category_counts == {"colour": 2}


def test_numbers_are_categories_if_their_column_is_named(tmp_path: Path) -> None:
    """Their different numbers, ascending, whole ones without a point; elsewhere numbers stay numbers."""
    encode: Encode = {"n": "categorical", "*": "categorical"}
    content = {**TRAIN, "n": [10.0, 2.5, None, 2.5]}
    table = _read(_file(tmp_path, "parquet", content), encode)
    assert table.categories["n"].values == ["2.5", "10"]
    np.testing.assert_array_equal(table.features[:, 1], [0.0, 0.0, NAN, 1.0])
    new = _file(tmp_path, "csv", {"id": ["a", "b", "c"], "colour": ["red"] * 3, "n": ["2.50", "3", ""]})
    np.testing.assert_array_equal(_read(new, None, table).features[:, 1], [0.0, 2.0, NAN])
    assert _read(_file(tmp_path, "parquet", content), "categorical").category_counts == {"colour": 2}
    counts = {**TRAIN, "n": [3, 1, 1, 2]}
    config = TableConfig(path=_file(tmp_path, "parquet", counts), id="id", columns=["n"], encode={"n": "categorical"})
    marked = read_table(config, with_label=False, missing=1.0)
    assert marked.categories["n"].values == ["2", "3"]
    np.testing.assert_array_equal(marked.features[:, 0], [0.0, NAN, NAN, 1.0])


@pytest.mark.second_tier
def test_networks_do_not_take_codes_for_numbers(tmp_path: Path) -> None:
    """A split network refuses a column of categories by name, with the encodings that it takes."""
    pytest.importorskip("torch")
    from treetap.neural.inputs import InputScaler

    table = _read(_file(tmp_path, "parquet", TRAIN), "categorical")
    with pytest.raises(DataError, match=r"column 'colour' is encoded as 'categorical', .*\"ordinal\" or \"one-hot\""):
        InputScaler.fit(table, np.arange(4))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_booleans_written_as_text_are_numbers(kind: str, tmp_path: Path) -> None:
    """As in CSV, where they are no text; with another text beside them they are categories."""
    table = _read(_file(tmp_path, kind, {**TRAIN, "colour": ["true", "False", None, " TRUE "]}), "one-hot")
    assert (table.columns, dict(table.categories)) == (["colour", "n"], {})
    np.testing.assert_array_equal(table.features[:, 0], [1.0, 0.0, NAN, 1.0])
    table = _read(_file(tmp_path, kind, {**TRAIN, "colour": ["true", "False", None, "maybe"]}), "ordinal")
    assert table.categories["colour"].values == ["False", "maybe", "true"]
