"""Columns of text as numbers: the same at prediction as in training, and never by accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import read, refusal
from treetap.errors import DataError
from treetap.tables.config import Encode
from treetap.tables.reading import Table

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
    return read(path, "colour", "n", encode=encode, like=like)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("encode", "features", "codes", "later"),
    [
        # the place of a category in the order of their texts; one that training had not is missing
        ("ordinal", ["colour"], [[1], [0], [NAN], [1]], [[1], [NAN], [NAN], [0]]),
        # a feature of 0 and 1 for each; a missing cell is missing in all of them
        (
            "one-hot",
            ["colour=blue", "colour=red"],
            [[0, 1], [1, 0], [NAN, NAN], [0, 1]],
            [[0, 1], [NAN, NAN], [NAN, NAN], [1, 0]],
        ),
        # a category that training had not has a code of its own: it is not missing
        ("categorical", ["colour"], [[1], [0], [NAN], [1]], [[1], [2], [NAN], [0]]),
    ],
)
def test_encodings(encode: str, features: list[str], codes: Any, later: Any, kind: str, tmp_path: Path) -> None:
    """A prediction encodes as the training did, whatever its own table's categories and configuration are."""
    table = _read(_file(tmp_path, kind, TRAIN), encode)
    assert (table.columns, table.sources) == ([*features, "n"], ["colour", "n"])
    assert (table.made, table.category_counts) == (
        set(features) - {"colour"},
        {"colour": 2} if encode == "categorical" else {},
    )
    np.testing.assert_array_equal(table.features[:, :-1], codes)
    np.testing.assert_array_equal(table.take(np.array([2, 0])).features[:, -1], [3.0, 4.0])
    assert table.categories["colour"].values == ["blue", "red"]
    new = {"id": ["a", "b", "c", "d"], "colour": ["red", "azure", None, "blue"], "n": [1, 2, 3, 4]}
    again = _read(_file(tmp_path, kind, new), None, table)
    assert (again.columns, again.category_counts) == (table.columns, table.category_counts)
    np.testing.assert_array_equal(again.features[:, :-1], later)


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
    why = r"column 'colour' holds text; write in the.*\n.*\n  encode = { colour = .one-hot. }"
    assert "red" not in refusal(_file(tmp_path, "parquet", TRAIN), "colour", match=why)


def test_what_cannot_be_encoded(tmp_path: Path) -> None:
    """Texts that are no categories, names that clash, and numbers where training had text are told by column."""
    texts, numbers = [f"text {i}" for i in range(300)], [float(i) for i in range(300)]
    many = _file(tmp_path, "parquet", {"id": texts, "colour": texts, "n": numbers})
    refusal(many, "colour", encode="ordinal", match="column 'colour' holds 300 different texts")
    refusal(many, "n", encode={"n": "categorical"}, match="column 'n' holds 300 different numbers; a category has few")
    clash = _file(tmp_path, "parquet", {**TRAIN, "colour=red": [1.0, 2.0, 3.0, 4.0]})
    why = "column 'colour': a feature made of it would have the name of"
    assert "red" not in refusal(clash, "colour", "colour=red", encode="one-hot", match=why)
    trained = _read(_file(tmp_path, "parquet", TRAIN), "ordinal")
    other = _file(tmp_path, "parquet", {**TRAIN, "colour": [1.0, 2.0, 3.0, 4.0]})
    refusal(other, "colour", like=trained, match="column 'colour' holds double, and text when it was trained on")


@pytest.mark.parametrize("empty", [None, float("nan")])
@pytest.mark.parametrize(("encode", "cells"), [("ordinal", TRAIN["colour"]), ("days", ["2024-03-31"] * 4)])
def test_a_column_without_a_value_has_no_type(tmp_path: Path, encode: str, cells: list[str], empty: float) -> None:
    """Where all cells of text or dates are missing, libraries store numbers; they are missing, and counted so."""
    trained = _read(_file(tmp_path, "parquet", {**TRAIN, "colour": cells}), encode)
    gone = pa.array([empty] * 4, pa.float64())
    again = _read(_file(tmp_path, "parquet", {**TRAIN, "colour": gone}), None, trained)
    assert np.isnan(again.features[:, again.columns.index("colour")]).all()
    assert again.unlike.empty_columns == 1


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
    counts = _file(tmp_path, "parquet", {**TRAIN, "n": [3, 1, 1, 2]})
    marked = read(counts, "n", encode={"n": "categorical"}, missing=1.0)
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
