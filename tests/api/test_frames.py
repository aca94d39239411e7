"""Tables of the caller: the three libraries, one frame split by columns, a frame of each party."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from treetap.lab.api.frames import ID, InvalidInput, arrow_of, column_of, library_of, like
from treetap.lab.api.party_tables import are_frames, of_one, of_several, split

COLUMNS: dict[str, list[Any]] = {
    "whole": [1, 2, None],
    "real": [0.5, None, 2.0],
    "text": ["a", None, "b"],
    "truth": [True, False, None],
    "day": [datetime.date(2024, 1, 2), None, datetime.date(2024, 3, 4)],
}
TABLE = pa.table(COLUMNS)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_table_goes_through_each_library_and_back(library: Any) -> None:
    """Numbers, text, booleans and dates with missing cells; pandas makes fractions of whole numbers with gaps."""
    frame = like(TABLE, library)
    assert library_of(frame) == library
    back = arrow_of(frame)
    assert back.column_names == TABLE.column_names
    for name, cells in COLUMNS.items():
        assert back.column(name).to_pylist() == cells, name


def test_other_types_of_pandas_are_read() -> None:
    """Categories, nullable numbers, and an index that is no column."""
    frame = pd.DataFrame(
        {"kind": pd.Categorical(["x", "y", "x"]), "count": pd.array([1, None, 3], dtype="Int64")}, index=[7, 8, 9]
    )
    table = arrow_of(frame)
    assert table.column_names == ["kind", "count"]
    assert table.column("kind").to_pylist() == ["x", "y", "x"]
    assert table.column("count").to_pylist() == [1, None, 3]


def test_columns_as_labels() -> None:
    """A label may be a column of any of the libraries."""
    for column in (pl.Series([1, 2]), pa.chunked_array([[1, 2]]), pa.array([1, 2]), [1, 2], np.array([1, 2])):
        assert np.asarray(column_of(column)).tolist() == [1, 2]


def test_what_is_no_table_is_refused() -> None:
    """Mixed objects, and a query without records."""
    with pytest.raises(InvalidInput, match=r"no table of typed columns: .*column mixed .*: give it one type"):
        arrow_of(pd.DataFrame({"mixed": [1, "a", b"b"]}))
    with pytest.raises(InvalidInput, match="collect"):
        library_of(pl.DataFrame({"x": [1]}).lazy())


def test_columns_are_split_by_name_by_place_or_evenly() -> None:
    """As `parties` says, in the order of the columns."""
    table = pa.table({name: [1, 2] for name in "abcde"})
    assert split("abcde", 2, ["one", "two"]) == {"one": ["a", "b", "c"], "two": ["d", "e"]}
    assert split("abcde", {"one": ["e"], "two": ["a", "b", "c", "d"]}) == {"one": ["e"], "two": ["a", "b", "c", "d"]}
    assert split("abcde", {"one": [4], "two": [0, 1, 2, 3]}, by_place=True)["one"] == ["e"]
    assert split("3210", {"one": [0, np.int64(1)], "two": ["2", 3]}) == {"one": ["0", "1"], "two": ["2", "3"]}
    data = of_one(table, table, {"one": ["e"], "two": ["a"]})
    assert data.columns == {"one": ["e"], "two": ["a"]}
    assert list(data.rows.ids) == data.tables["two"].column(ID).to_pylist() == ["0", "1"]


@pytest.mark.parametrize(
    ("parties", "fault"),
    [
        ({"one": ["a"], "two": ["z"]}, "two has column 'z', which the table lacks"),
        ({"one": ["a"], "two": ["B"]}, "two has column 'B', which the table lacks; did you mean 'b'\\?"),
        ({"one": ["a"], "two": [9]}, "two has column 9, which the table lacks"),
        ({"one": ["a"], "two": [1]}, "two has column 1, which the table lacks"),
        ({"one": ["a"], "two": "b"}, "two has 'b': give its columns as a list"),
        ({"one": ["a", "b"], "two": ["a"]}, "column 'a' is of one and of two"),
        ({"one": ["a", "a"], "two": ["b"]}, "column 'a' is twice"),
        ({"one": ["a"], "two": []}, "column 'b' is of no party"),
        (1, "a number of parties from 2"),
        (True, "a number of parties from 2"),
        (3, "n_features = 2: 3 parties need at least 3 features"),
    ],
)
def test_splits_that_cannot_be(parties: Any, fault: str) -> None:
    """Unknown columns, columns of two parties or of none, more parties than columns."""
    with pytest.raises(InvalidInput, match=fault):
        split(["a", "b"], parties, ["x"] * 3)


def test_an_array_has_no_names_of_columns() -> None:
    """As a step of a pipeline gives it to an estimator that has names."""
    with pytest.raises(
        InvalidInput, match=r"column 'a', which the table lacks; X names .*set_output\(transform=\"pandas"
    ):
        split(["0", "1"], {"one": ["a"], "two": ["b"]}, by_place=True)


def test_frames_of_parties_are_joined_by_their_ids() -> None:
    """By a column, by the index of pandas, or by their place; the label's column is no feature."""
    bank = pd.DataFrame({"key": [3, 1, 2], "x": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
    telco = pd.DataFrame({"key": [1, 2, 4], "z": [5.0, 6.0, 7.0]})
    frames = {"bank": bank, "telco": telco}
    data = of_several(frames, "bank", "key", leave_out="y")
    assert data.columns == {"bank": ["x"], "telco": ["z"]}
    assert (data.rows.ids, data.tables["telco"].column(ID).to_pylist()) == (["3", "1", "2"], ["1", "2", "4"])
    indexed = of_several({name: frame.set_index("key") for name, frame in frames.items()}, "bank", None)
    assert indexed.rows.ids == ["3", "1", "2"]
    placed = of_several({"bank": pl.DataFrame({"x": [1, 2]}), "telco": pa.table({"z": [3, 4]})}, "bank", None)
    assert placed.rows.ids == ["0", "1"]
    arrays = of_several({"bank": np.zeros((2, 1)), "telco": np.ones((2, 2))}, "bank", None)
    assert arrays.columns == {"bank": ["x0"], "telco": ["x0", "x1"]}


TWO, THREE = pl.DataFrame({"x": [1, 2]}), pl.DataFrame({"z": [1, 2, 3]})


@pytest.mark.parametrize(
    ("other", "id_column", "columns", "fault"),
    [
        (THREE, "key", None, "the frame of a, b has no such column"),
        (THREE, None, None, r"a has 2, b has 3: set id_column"),
        (TWO, None, {"a": ["x"], "b": ["w"]}, "the frame of b lacks column 'w'"),
        (TWO.rename({"x": "treetap_label"}), None, None, "'treetap_label' has a name of the parties' own columns"),
    ],
)
def test_frames_that_cannot_be_joined(other: Any, id_column: Any, columns: Any, fault: str) -> None:
    """No such id column, other lengths without ids, columns that a model needs, names of the parties' own columns."""
    with pytest.raises(InvalidInput, match=fault):
        of_several({"a": TWO, "b": other}, "a", id_column, columns=columns)


def test_ids_of_frames_are_normalised() -> None:
    """Of a column and of an index; the caller's own forms stay in what comes back."""
    bank = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["Ann", "BOB"], name="key"))
    telco = pd.DataFrame({"z": [3.0, 4.0]}, index=pd.Index([" bob", "ＡＮＮ"], name="key"))
    rules = ["casefold", "nfkc"]
    for frames, id_column in (
        ({"bank": bank, "telco": telco}, None),
        ({"bank": bank.reset_index(), "telco": pl.from_pandas(telco.reset_index())}, "key"),
    ):
        data = of_several(frames, "bank", id_column, rules)
        assert (data.rows.ids, data.tables["telco"].column(ID).to_pylist()) == (["ann", "bob"], ["bob", "ann"])
        assert data.rows.names() == ["Ann", "BOB"]
    with pytest.raises(InvalidInput, match=r"normalise = \['case'\]: 'case' is no rule"):
        of_several(frames, "bank", "key", ["case"])
    with pytest.raises(InvalidInput, match=r"a: row 2, the index \(.*\): the id is there already, at row 1"):
        of_several({"a": bank.rename({"BOB": "ann"}), "b": telco}, "a", None, rules)


def test_what_counts_as_a_frame_of_each_party() -> None:
    """A mapping by party or a list of frames; nested lists of numbers are one array, as scikit-learn has it."""
    assert are_frames({"a": 1, "b": 2})
    assert are_frames([pd.DataFrame(), pa.table({})])
    assert are_frames([np.zeros((2, 2)), np.zeros((2, 3))])
    for one in ([[1.0, 2.0], [3.0, 4.0]], np.zeros((2, 2)), pd.DataFrame(), [np.zeros(2)], [], {(0, 1): 2.0}):
        assert not are_frames(one)
