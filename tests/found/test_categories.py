"""Texts of one number are one category in a column of numbers alone, and whatever is taken for one is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import treetap
from treetap.errors import DataError, TreetapError
from treetap.lab.api.frames import arrow_of
from treetap.process.apart import ReadApart
from treetap.tables import streamed_reading
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_classes, read_partial_labels
from treetap.tables.opening import read_here
from treetap.tables.reading import Table, read_table

SMALL: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, "verbose": False, "min_child_weight": 0, "max_bin": 256}
ROWS = 60
#: Texts of which two are one number or boolean, or differ by blanks or case.
APART = {
    "zeros": ["345.1", "345.10"],
    "among words": ["345.1", "345.10", "V45.1", "250.0", "250.00", "250"],
    "in front": ["007", "7", "+7"],
    "exponents": ["1e5", "1E5", "100000"],
    "signs": ["-0", "0", "0.0"],
    "booleans": ["TRUE", "True", "false"],
    "case": ["ab", "AB", "Ab"],
    "blanks": ["x ", "x", " x", "y"],
}


def _csv(path: Path, cells: list[str], name: str = "x") -> None:
    path.write_text("".join([f"id,{name}\n", *(f"{row},{cell}\n" for row, cell in enumerate(cells))]))


def _written(folder: Path, kind: str, cells: list[Any], name: str = "x") -> Path:
    """A table of a column, below a folder, in a format; `csv` has the texts of the cells."""
    path = folder / f"{len(list(folder.iterdir()))}.{kind.removeprefix('coded ')}"
    table = pa.table({"id": range(len(cells)), name: cells})
    if kind == "csv":
        _csv(path, ["" if cell is None else str(cell) for cell in cells], name)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif kind == "feather":
        feather.write_feather(table, path)
    else:
        column = table.column(name).dictionary_encode() if kind.startswith("coded") else table.column(name)
        pq.write_table(table.set_column(1, name, column), path)
    return path


def _read(path: Path, encode: str | Mapping[str, str] | None = "categorical", like: Table | None = None) -> Table:
    own = {"x": encode} if isinstance(encode, str) else encode
    known = None if like is None else {name: Category.from_dict(it.to_dict()) for name, it in like.categories.items()}
    config = TableConfig(path=path, id="id", columns=["x"], encode=own)
    return read_table(config, with_label=False, missing=None, categories=known, streams=True)


def _codes(table: Table) -> list[float | None]:
    """The feature in the order of the rows; None where missing."""
    return [None if np.isnan(value) else value for value in table.features[np.argsort(table.rows), 0].tolist()]


@pytest.mark.parametrize(
    ("kind", "encode"),
    [
        *(("csv", encode) for encode in ("ordinal", "one-hot", "categorical")),
        *((kind, "categorical") for kind in ("jsonl", "feather", "parquet")),
        ("coded parquet", "auto"),  # other text of numbers that nobody calls categories is one of numbers
    ],
)
@pytest.mark.parametrize("texts", APART.values(), ids=APART)
def test_texts_are_categories_as_they_are_written(texts: list[str], encode: str, kind: str, tmp_path: Path) -> None:
    """Of a column of text in any format; a prediction knows each by its own text alone."""
    trained = _read(_written(tmp_path, kind, [texts[row % len(texts)] for row in range(ROWS)]), encode)
    assert sorted(trained.categories["x"].values) == sorted(texts)
    again = _read(_written(tmp_path, "parquet", [*texts, "345.100"]), None, trained)
    assert len(set(map(tuple, np.nan_to_num(again.features, nan=-1.0)))) == len(texts) + 1
    assert again.unlike.unknown_cells == 1


#: What a training held, what a table to predict holds, and the places that its cells have; a text: the refusal.
COMPARED: dict[str, tuple[tuple[str, list[Any]], tuple[str, list[Any]], list[float | None] | str]] = {
    "whole numbers by fractions": (("parquet", [1, 2, 10]), ("parquet", [10.0, 1.0, None]), [2, 0, None]),
    "numbers by text": (("parquet", [1.0, 2.5]), ("parquet", ["2.50", "1", "1,0"]), [1, 0, 2]),
    "numbers by csv": (("parquet", [1, 2]), ("csv", ["2.0", "1", "02"]), [1, 0, 2]),
    "csv by csv": (("csv", ["1", "2"]), ("csv", ["2.0", "1.0", " 1"]), [1, 0, 0]),
    "csv by numbers": (("csv", ["1.50", "2.00"]), ("parquet", [2.0, 1.5, 7.0]), [1, 0, 2]),
    "booleans by csv": (("parquet", [True, False]), ("csv", ["TRUE", "False", "yes"]), [1, 0, 2]),
    "text by numbers": (("parquet", ["1", "2"]), ("parquet", [2.0, 1.0, 3.0]), [1, 0, 2]),
    "text by json": (("jsonl", ["1", "2"]), ("jsonl", [2, 1]), [1, 0]),
    "text by other text": (("parquet", ["250", "345.1"]), ("parquet", ["345.1", "345.10", "250.0"]), [1, 2, 2]),
    "text by csv": (("parquet", ["250", "345.1"]), ("csv", ["345.1", "345.10", "250.0"]), [1, 2, 2]),
    "codes of csv by csv": (("csv", ["345.1", "345.10"]), ("csv", ["345.10", "345.10", "345.1"]), [1, 1, 0]),
    "text by whole numbers": (("parquet", ["1.0", "2.50"]), ("parquet", [1, 2]), [0, 2]),
    "codes by numbers": (("parquet", ["250.0", "250.00"]), ("parquet", [401.0, 250.0]), "text when it was trained on"),
    "padded text by numbers": (("parquet", ["007", "8"]), ("parquet", [7, 8]), "text when it was trained on"),
    "codes of csv by numbers": (("csv", ["1", "1.0"]), ("jsonl", [1, 2]), "text when it was trained on"),
    "words by booleans": (("parquet", ["True", "no"]), ("parquet", [True, False]), "text when it was trained on"),
}


@pytest.mark.parametrize(("trained", "predicted", "expected"), COMPARED.values(), ids=COMPARED)
def test_another_type_to_predict(
    trained: tuple[str, list[Any]], predicted: tuple[str, list[Any]], expected: Any, tmp_path: Path
) -> None:
    """Numbers are compared as such with what was trained on as numbers, or as text of which no two are one number."""
    like = _read(_written(tmp_path, *trained))
    path = _written(tmp_path, *predicted)
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            _read(path, None, like)
        return
    read = _read(path, None, like)
    assert _codes(read) == expected
    assert read.unlike.unknown_cells == expected.count(len(like.categories["x"].values))


@pytest.mark.parametrize("streamed", [0, streamed_reading.STREAMED])
def test_what_is_taken_for_one_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streamed: int) -> None:
    """Column, number of texts, what they became, and two of them; also where a file without types makes them codes."""
    monkeypatch.setattr(streamed_reading, "STREAMED", streamed)
    texts = _written(tmp_path, "parquet", ["345.1", "345.10", "7", "8"])
    said = "column 'x': 4 texts are taken for 3 numbers, such as '345.1' and '345.10'"
    assert _read(texts, None).says == [said]
    numbers = _read(_written(tmp_path, "parquet", [1, 2]))
    assert not numbers.says
    one = ["column 'x': 3 texts are taken for 2 categories, such as '1' and '1.0'"]
    for kind in ("csv", "parquet"):
        assert _read(_written(tmp_path, kind, ["1", "1.0", "2"]), None, numbers).says == one
    apart = _read(_written(tmp_path, "csv", ["1", "1.0", "2"]))
    assert apart.says == ["column 'x': 3 texts of 2 numbers stay apart, such as '1' and '1.0'"]


def test_frames_say_it_as_warnings() -> None:
    """Of text that is trained on as numbers, and of text that a model of numbers predicts."""
    frame = pd.DataFrame({"x": ["1", "1.0", "2", "3"] * 15, "z": np.arange(ROWS) % 7})
    y = np.arange(ROWS) % 4 > 1
    model = treetap.FederatedClassifier({"a": ["x"], "b": ["z"]}, simulate=True, **SMALL)
    with pytest.warns(UserWarning, match="column 'x': 4 texts are taken for 3 numbers, such as '1' and '1.0'"):
        model.fit(frame, y)
    model.set_params(encode={"x": "categorical"}).fit(frame.astype({"x": float}), y)
    with pytest.warns(UserWarning, match="a: column 'x': 4 texts are taken for 3 categories"):
        assert model.score(frame, y) == 1.0


@pytest.mark.parametrize("made", [pd.Categorical, lambda cells: pl.Series(cells, dtype=pl.Categorical)])
def test_codes_of_a_frame(made: Callable[[list[str]], Any]) -> None:
    """A column of two codes of one number is not constant."""
    library: Any = pd if made is pd.Categorical else pl
    frame = library.DataFrame({"code": made(["345.1", "345.10"] * 30), "z": [row // 2 % 7 for row in range(ROWS)]})
    y = np.arange(ROWS) % 2
    model = treetap.FederatedClassifier({"a": ["code"], "b": ["z"]}, simulate=True, **SMALL).fit(frame, y)
    assert (model.score(frame, y), model.constant_columns_["a"]) == (1.0, [])


LEVELS = ["low", "mid", "high"]


def _ordered(levels: list[Any], cells: list[Any]) -> pa.DictionaryArray:
    places = pa.array([None if cell is None else levels.index(cell) for cell in cells], pa.int8())
    return pa.DictionaryArray.from_arrays(places, pa.array(levels), ordered=True)


def _enums(cells: list[Any]) -> pl.DataFrame:
    return pl.DataFrame({"id": range(len(cells)), "x": pl.Series(cells, dtype=pl.Enum(["none", *LEVELS]))})


def _folder(path: Path, *parts: pa.DictionaryArray) -> None:
    path.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(
            pa.table({"id": [f"{number}-{row}" for row in range(len(part))], "x": part}), path / f"{number}.parquet"
        )


CELLS = ["high", "low", None, "mid"]
_CODED = pa.table({"id": range(4), "x": _ordered(["none", *LEVELS], CELLS)})
#: Writes the cells with their order.
ORDERED: dict[str, Callable[[Path], object]] = {
    "t.parquet": lambda path: pq.write_table(_CODED, path),
    "groups.parquet": lambda path: pq.write_table(_CODED, path, row_group_size=1),
    "t.feather": lambda path: feather.write_feather(_CODED, path),
    "pandas.parquet": lambda path: pd.DataFrame(
        {"id": range(4), "x": pd.Categorical(CELLS, ["none", *LEVELS], ordered=True)}
    ).to_parquet(path),
    "pandas.arrow.parquet": lambda path: pq.write_table(arrow_of(_CODED.to_pandas()), path),
    "polars.parquet": lambda path: pq.write_table(arrow_of(_enums(CELLS)), path),
    "folder": lambda path: _folder(path, _ordered(["low", "high"], CELLS[:2]), _ordered(LEVELS, CELLS[2:])),
}


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("streamed", [0, streamed_reading.STREAMED])
def test_an_order_is_kept(name: str, streamed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `ordinal`, and at a prediction, whatever order its table has; other encodings have that of the texts."""
    monkeypatch.setattr(streamed_reading, "STREAMED", streamed)
    ORDERED[name](tmp_path / name)
    trained = _read(tmp_path / name, "ordinal")
    assert (trained.categories["x"].values, _codes(trained)) == (LEVELS, [2, 0, None, 1])
    assert _codes(_read(_written(tmp_path, "csv", LEVELS[::-1]), None, trained)) == [2, 1, 0]
    assert _read(tmp_path / name, "categorical").categories["x"].values == sorted(LEVELS)


def test_an_order_of_numbers_and_one_that_parts_contradict(tmp_path: Path) -> None:
    """Sizes in descending order are such; two orders in one table are refused by the column."""
    frame = pd.DataFrame({"id": range(3), "x": pd.Categorical([1.0, 3.0, 2.0], [3.0, 2.0, 1.0], ordered=True)})
    pq.write_table(arrow_of(frame), tmp_path / "t.parquet")
    assert _read(tmp_path / "t.parquet", "ordinal").categories["x"].values == ["3", "2", "1"]
    _folder(tmp_path / "f", _ordered(LEVELS, LEVELS), _ordered(LEVELS[::-1], LEVELS))
    with pytest.raises(DataError, match="column 'x': parts of the table order its categories differently"):
        _read(tmp_path / "f", "ordinal")


@pytest.mark.parametrize("ordered", [["lo", "mid", "hi"], ["lo"]])
def test_an_order_that_lacks_categories_of_another_file(ordered: list[str], tmp_path: Path) -> None:
    """It says nothing of their places."""
    (folder := tmp_path / "t").mkdir()
    kind = pa.dictionary(pa.int32(), pa.string(), ordered=True)
    for part, cells in enumerate((pa.array(ordered).dictionary_encode().cast(kind), pa.array(["lo", "other"]))):
        feather.write_feather(
            pa.table({"id": [f"{part}-{row}" for row in range(len(cells))], "x": cells}), folder / f"{part}.arrow"
        )
    with pytest.raises(DataError, match=r"column 'x': some files order its categories, and others .* write one order"):
        _read(folder, "ordinal")


@pytest.mark.parametrize(("cells", "values"), [(["-0.0", "0.0", "1.5"], ["0", "1.5"]), (["-0", "0"], ["0"])])
def test_a_sign_of_zero_is_no_code(cells: list[str], values: list[str], tmp_path: Path) -> None:
    """Libraries write it so; a prediction knows zero however it is written."""
    trained = _read(_written(tmp_path, "csv", cells))
    assert (trained.categories["x"].values, trained.categories["x"].numeric) == (values, True)
    assert _codes(_read(_written(tmp_path, "parquet", [0.0, -0.0]), None, trained)) == [0, 0]


def test_a_reader_apart_has_the_order(tmp_path: Path) -> None:
    """A process that reads the tables of others tells it too."""
    pq.write_table(_CODED, tmp_path / "t.parquet")
    config = TableConfig(path=tmp_path / "t.parquet", id="id")
    told = ReadApart(config).orders("x"), read_here(config).orders("x")
    assert [each.to_pylist() for each in told[0]] == [each.to_pylist() for each in told[1]] == [["none", *LEVELS]]


@pytest.mark.parametrize("library", [pd, pl])
def test_one_split_of_ordered_categories(library: Any) -> None:
    """Low alone against the others is one split by the order, and none by that of code points."""
    cells = np.array(LEVELS)[np.arange(ROWS) % 3]
    levels = pd.Categorical(cells, LEVELS, ordered=True) if library is pd else pl.Series(cells, dtype=pl.Enum(LEVELS))
    frame = library.DataFrame({"k": levels, "z": np.arange(ROWS) // 3 % 5})
    once = {**SMALL, "n_estimators": 1, "max_depth": 1}
    model = treetap.FederatedClassifier({"a": ["k"], "b": ["z"]}, encode={"k": "ordinal"}, simulate=True, **once)
    assert model.fit(frame, cells != "low").score(frame, cells != "low") == 1.0


def _labelled(path: Path) -> Table:
    return read_table(TableConfig(path=path, id="id", label="y"), with_label=True, missing=None)


@pytest.mark.parametrize(
    ("kind", "cells", "classes"),
    [
        ("csv", ["345.1", "345.10", "250"], ["250", "345.1", "345.10"]),
        ("csv", ["007", "7"], ["007", "7"]),
        ("csv", ["TRUE", "True"], ["TRUE", "True"]),
        ("csv", ["1.0", "2.0", "10.0"], ["1", "2", "10"]),
        ("csv", ["1", " 1", "2"], ["1", "2"]),
        ("parquet", ["345.1", "345.10"], ["345.1", "345.10"]),
        ("parquet", [1.0, 2.5], ["1", "2.5"]),
    ],
)
def test_classes_by_the_same_rule(kind: str, cells: list[Any], classes: list[str], tmp_path: Path) -> None:
    """Codes are classes of their own; further labels are compared with those of the training by the same rule."""
    path = _written(tmp_path, kind, cells, "y")
    labels = read_classes(_labelled(path), "y")
    assert labels.classes == classes
    for number, cell in enumerate(cells):
        some = read_partial_labels(_labelled(_written(tmp_path, kind, [cell], "y")), "y", "multi:softprob", classes)
        assert some.values.tolist() == [labels.values[number]]
        assert read_classes(_labelled(_written(tmp_path, kind, [cell], "y")), "y", classes).classes == [
            classes[labels.values[number]]
        ]


def test_numbers_do_not_tell_codes(tmp_path: Path) -> None:
    """A column of numbers where the classes are codes is refused, and names no label."""
    table = _labelled(_written(tmp_path, "parquet", [345.1, 250.0], "y"))
    for read in (
        lambda: read_classes(table, "y", ["345.1", "345.10"]),
        lambda: read_partial_labels(table, "y", "multi:softprob", ["345.1", "345.10"]),
    ):
        with pytest.raises(DataError, match=r"label column 'y': holds double, and the classes are codes") as refused:
            read()
        assert "345" not in str(refused.value)


def test_a_regression_takes_numbers_however_they_are_written(tmp_path: Path) -> None:
    """1 and 1.0 are one target."""
    table = _labelled(_written(tmp_path, "csv", ["1", "1.0", "2"], "y"))
    assert sorted(read_partial_labels(table, "y", "reg:squarederror", []).values.tolist()) == [1.0, 1.0, 2.0]


FRAME = pd.DataFrame({"a": np.arange(ROWS) % 6, "b": np.arange(ROWS) % 5})
CLASSES: dict[str, Any] = {
    "uint64": np.array([2**63, 2**63 + 1, 7], dtype=np.uint64),
    "uint8": np.array([3, 200, 7], dtype=np.uint8),
    "float": np.array([1.0, 2.0, 2.0**60], dtype=np.float32),
    "bool": np.array([True, False]),
    "text": np.array(["x", "y", "345.10"]),
    "NUL": np.array(["a", "a\0", "b"], dtype=object),
    "days": np.array(["2024-01-01", "2024-02-01", "1969-12-31"], dtype="datetime64[D]"),
    "nanoseconds": np.array(["2024-01-01", "2024-02-01"], dtype="datetime64[ns]"),
}


@pytest.mark.parametrize("values", CLASSES.values(), ids=CLASSES)
def test_classes_of_a_loaded_model_are_the_estimators(values: Any, tmp_path: Path) -> None:
    """In their values, and in their type where numpy has one; predictions too."""
    y = values[np.arange(ROWS) % 6 % len(values)]
    model = treetap.FederatedClassifier({"p": ["a"], "q": ["b"]}, simulate=True, **SMALL).fit(FRAME, y)
    assert model.classes_.tolist() == np.unique(values).tolist()
    loaded = treetap.load_model(model.save(tmp_path / "m"))
    for ours, own in ((loaded.classes_, model.classes_), (loaded.predict(FRAME), model.predict(FRAME))):
        assert (ours.tolist(), ours.dtype) == (own.tolist(), own.dtype)
    assert loaded.predict_proba(FRAME).tolist() == model.predict_proba(FRAME).tolist()
    (tmp_path / "m" / "classes.npy").write_bytes(b"nothing")
    with pytest.raises(TreetapError, match=r"classes\.npy: cannot be read"):
        treetap.load_model(tmp_path / "m")


DATES = pd.Series(pd.date_range("2020-01-01", periods=ROWS))


@pytest.mark.parametrize(
    "y",
    [
        DATES,
        DATES.diff().fillna(pd.Timedelta(0)),
        DATES.dt.date,
        DATES.dt.tz_localize("UTC"),
        np.array([*DATES.to_numpy()], dtype=object),
        pa.chunked_array([pa.array(DATES)]),
    ],
)
def test_dates_are_no_targets_of_a_regression(y: Any) -> None:
    """Of whichever type; in an eval set neither."""
    model = treetap.FederatedRegressor(parties=2, simulate=True, **SMALL)
    with pytest.raises(
        ValueError, match=r"y holds (dates or times, and a regression needs|targets that are no) numbers"
    ):
        model.fit(FRAME, y)
    with pytest.raises(ValueError, match="eval_set: y holds"):
        model.fit(FRAME, np.arange(ROWS), eval_set=[(FRAME, y)])


def test_lists_keep_what_numpy_would_merge() -> None:
    """Texts that differ by a NUL at their end are two classes; whole numbers that no type holds are refused."""
    model = treetap.FederatedClassifier(parties=2, simulate=True, **SMALL)
    assert model.fit(FRAME, ["a", "a\0", "b"] * 20).classes_.tolist() == ["a", "a\0", "b"]
    with pytest.raises(ValueError, match="label type"):
        model.fit(FRAME, [2**63 + 1, 2**63 + 2, -1] * 20)


def test_a_date_that_is_missing_is_no_class() -> None:
    """NaT is refused as NaN is."""
    with pytest.raises(ValueError, match="y has no label for 1 of 60 records"):
        treetap.FederatedClassifier(parties=2, simulate=True, **SMALL).fit(FRAME, DATES.where(DATES.index > 0))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.array([2**63 + 1] * ROWS, np.uint64), np.array([-1] * ROWS)),
        (np.array(["a"] * ROWS), np.array([1] * ROWS)),
        (np.array(["2024-01-01"] * ROWS, "datetime64[D]"), np.array([1] * ROWS)),
    ],
)
def test_spread_labels_of_two_types(first: Any, second: Any) -> None:
    """Labels of several parties that no type holds are refused, and not made one."""
    model = treetap.FederatedClassifier(protocol="pivodl", simulate=True, **SMALL)
    with pytest.raises(ValueError, match="y: the parties' labels have types that are not one"):
        model.fit({"p": FRAME[["a"]], "q": FRAME[["b"]]}, {"p": first, "q": second})
