"""Rows that an experiment holds out: folds, and the last rows by a time column."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import TimeSeriesSplit

from treetap.errors import DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_encodings import time_ranks
from treetap.lab.experiment.joined_table import read_table, split


def experiment(
    folder: Path, content: dict[str, Any], columns: list[str] | None = None, job: str = "binary:logistic", **data: Any
) -> ExperimentFile:
    """An experiment on a table with columns a, b and y beside those of `content`."""
    count = len(next(iter(content.values())))
    base = {"a": np.arange(count), "b": np.arange(count), "y": np.arange(count) % 2}
    pq.write_table(pa.table(base | content), folder / "t.parquet")
    other = {"name": "lab", "share": 1.0} if columns is None else {"name": "lab", "columns": columns}
    parties = [{"name": "clinic", "labels": True, "columns": ["a"]}, other]
    names = {"stop": "early_stopping_rounds", "protocol": "protocol"}
    more = {names[key]: data.pop(key) for key in names if key in data}
    given = {"path": str(folder / "t.parquet"), "label": "y", **data}
    return ExperimentFile.model_validate({"data": given, "party": parties, "job": {"objective": job, **more}})


def runs(given: ExperimentFile) -> list[Any]:
    """The rows and columns of each run."""
    table = read_table(given, Path())
    return [split(given, table, run.seed, run.fold) for run in given.runs]


@pytest.mark.parametrize("folds", [2, 5, 7])
def test_folds_hold_every_row_out_once_and_keep_the_classes(folds: int, tmp_path: Path) -> None:
    """Sizes of folds, and of each class in them, differ by one at most; another seed draws other folds."""
    labels = np.repeat(["x", "y", "z"], [23, 11, 7])
    given = experiment(tmp_path, {"y": labels}, job="multi:softprob", cv=folds, seed=[1, 2])
    found = runs(given)
    for of_seed in (found[:folds], found[folds:]):
        assert sorted(np.concatenate([each.test for each in of_seed]).tolist()) == list(range(41))
        for each in of_seed:
            assert sorted([*each.train, *each.test]) == list(range(41))
        for name in ("x", "y", "z"):
            sizes = [int((labels[each.test] == name).sum()) for each in of_seed]
            assert max(sizes) - min(sizes) <= 1
        sizes = [len(each.test) for each in of_seed]
        assert max(sizes) - min(sizes) <= 1
    assert any(a.test.tolist() != b.test.tolist() for a, b in zip(found[:folds], found[folds:], strict=True))
    assert [each.test.tolist() for each in runs(given)] == [each.test.tolist() for each in found]


def test_the_last_rows_by_time_are_held_out(tmp_path: Path) -> None:
    """Whatever the seed; the time column is no feature unless a party names it."""
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=(7 * i) % 20) for i in range(20)]
    given = experiment(tmp_path, {"day": days}, time="day", test_share=0.25, seed=[0, 1])
    for drawn in runs(given):
        assert {days[row] for row in drawn.test} == {dt.date(2026, 1, day) for day in range(16, 21)}
        assert sorted([*drawn.train, *drawn.test]) == list(range(20))
        assert drawn.columns == {"clinic": ["a"], "lab": ["b"]}
    when = np.argsort([(7 * i) % 20 for i in range(20)]).astype(float)
    named = experiment(tmp_path, {"day": when}, ["b", "day"], time="day", test_share=0.25)
    assert runs(named)[0].columns["lab"] == ["b", "day"]


@pytest.mark.parametrize(("count", "folds"), [(24, 5), (23, 3), (40, 2)])
def test_folds_by_time_are_those_of_scikit_learn(count: int, folds: int, tmp_path: Path) -> None:
    """The expanding window of `TimeSeriesSplit` over the rows by time."""
    times = np.random.default_rng(count).permutation(count)
    order = np.argsort(times)
    wanted = list(TimeSeriesSplit(folds).split(order))
    for drawn, (train, test) in zip(
        runs(experiment(tmp_path, {"when": times}, time="when", cv=folds)), wanted, strict=True
    ):
        assert drawn.train.tolist() == sorted(order[train].tolist())
        assert drawn.test.tolist() == sorted(order[test].tolist())


@pytest.mark.parametrize(
    "cells",
    [
        [3, 1, 2, 1],
        [3.5, -1.0, 2.0, -1.0],
        ["30", "4", "5", "4"],
        ["2026-03-01", "2025-12-31", "2026-02-01", "2025-12-31"],
        ["2026-03-01T10:00:00", "2026-03-01T09:00:00", "2026-03-01T09:30:00", "2026-03-01T09:00:00"],
        ["2026-03-01T10:00:00Z", "2026-03-01T11:00:00+02:00", "2026-03-01T09:30:00Z", "2026-03-01T09:00:00Z"],
        [dt.datetime(2026, 3, 1, hour, minute) for hour, minute in ((10, 0), (9, 0), (9, 30), (9, 0))],
        [dt.date(2026, 3, 1), dt.date(1969, 1, 1), dt.date(2026, 2, 1), dt.date(1969, 1, 1)],
    ],
)
def test_times_of_every_type(cells: list[Any]) -> None:
    """Numbers, dates, times and their text are ordered by time; equal ones as they stand in the table."""
    assert time_ranks(Path("t.parquet"), "when", pa.chunked_array([cells])).tolist() == [3, 0, 2, 1]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([1, None], "row 2, time column 'when': the cell is missing"),
        ([1.0, float("nan")], "row 2, time column 'when': the cell is missing"),
        (["1", "x"], "row 2, column 'when': the cell is not a number"),
        (["2026-01-01", "2026-13-01"], "row 2, column 'when': the cell is not a date"),
        (["2026-01-01", None], "row 2, time column 'when': the cell is missing"),
        ([True, False], "time column 'when' holds bool"),
        ([b"\xff", b"2"], "column 'when' holds binary"),
    ],
)
def test_cells_that_are_no_time(cells: list[Any], says: str) -> None:
    """A missing cell and one that is no time are named by their place."""
    with pytest.raises(DataError) as raised:
        time_ranks(Path("t.parquet"), "when", pa.chunked_array([cells]))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("content", "data", "says"),
    [
        ({"y": [0] * 10 + [1] * 10}, {"time": "a"}, "class '1' begins too late by column 'a', with its rows, 10"),
        ({"y": [0] * 19 + [1]}, {"cv": 5}, "class '1' has too few rows, 1: with cv = 5 no row remains to train on"),
        ({"y": [0, 1, 0, 1]}, {"cv": 9}, "4 rows are too few for cv = 9"),
        ({"y": [0, 1] * 9}, {"time": "z"}, "has no column 'z'"),
        ({"y": [0, 1] * 9, "treetap_time": [1] * 18}, {"time": "a"}, "column 'treetap_time' has the name of an"),
    ],
)
def test_rows_that_cannot_be_held_out(content: dict[str, Any], data: dict[str, Any], says: str, tmp_path: Path) -> None:
    """A class that only held-out rows have, too few rows, and a column that is not there: by file and reason."""
    cuts = {"test_share": 0.6} if "time" in data else {}
    with pytest.raises(DataError) as raised:
        runs(experiment(tmp_path, content, **data, **cuts))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"cv": 5, "test_share": 0.2}, "test_share and cv exclude each other"),
        ({"cv": 1}, "greater than or equal to 2"),
        ({"evaluate_rounds": True, "stop": 3}, "evaluate_rounds and early_stopping_rounds do not go together"),
        pytest.param(
            {"evaluate_rounds": True, "protocol": "splitnn"},
            "protocol 'splitnn' do not go together: an embedding of each of its records",
            marks=pytest.mark.second_tier,
        ),
        ({"time": "y"}, "time column 'y' is the label, the id or dropped"),
        ({"time": "q", "drop": ["q"]}, "time column 'q' is the label, the id or dropped"),
    ],
)
def test_keys_that_contradict_each_other(data: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Faults of the file are told by key."""
    with pytest.raises(ValueError, match=says):
        experiment(tmp_path, {"y": [0, 1] * 9}, **data)
