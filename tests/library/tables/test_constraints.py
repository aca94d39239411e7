"""Monotone constraints of a table: what a configuration may say, and which features they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from treetap.errors import DataError
from treetap.tables.binned import bin_columns
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table


def _read(folder: Path, **settings: Any) -> Table:
    path = folder / "t.csv"
    path.write_text("id,a,b,c\n1,1,x,5\n2,2,y,5\n3,3,x,5\n")
    return read_table(TableConfig(path=path, id="id", **settings), with_label=False, missing=None)


def test_constraints_become_directions_of_features(tmp_path: Path) -> None:
    """By name, whatever their order; texts by the order of their codes; a column dropped as constant has none."""
    given = {"columns": ["a", "b", "c"], "encode": "ordinal", "drop_constant": True}
    table = _read(tmp_path, **given, monotone_constraints={"c": 1, "b": -1})
    assert table.columns == ["a", "b"]
    directions = bin_columns(table, 8, None).directions
    assert directions is not None
    assert directions.tolist() == [0, -1]
    assert bin_columns(_read(tmp_path, **given), 8, None).directions is None
    assert bin_columns(_read(tmp_path, **given, monotone_constraints={"c": 1}), 8, None).directions is None


def test_columns_of_several_features_have_no_direction(tmp_path: Path) -> None:
    """One category each has no order."""
    table = _read(tmp_path, columns=["a", "b"], encode="one-hot", monotone_constraints={"b": 1})
    with pytest.raises(DataError, match="names column 'b', whose categories have no order"):
        bin_columns(table, 8, None)


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        ({"A": 1}, "monotone_constraints names 'A', which is none of the table's columns; did you mean 'a'"),
        ({"a": 2}, "must be 1 (increasing) or -1 (decreasing), not 2; leave out a column without one"),
        ({"a": True}, "must be 1 (increasing) or -1 (decreasing), not True"),
    ],
)
def test_faults_are_named(constraints: dict[str, Any], said: str) -> None:
    """An unknown column, and what is no direction."""
    with pytest.raises(ValidationError) as raised:
        TableConfig(path=Path("t.csv"), id="id", columns=["a"], monotone_constraints=constraints)
    assert said in str(raised.value)
