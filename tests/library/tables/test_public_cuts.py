"""Public cuts and constraints of columns.

- Listed cuts of columns: what a configuration may say, and the bins, which follow from no cell.
- Monotone constraints of a table: what a configuration may say, and which features they become.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from treetap.errors import DataError
from treetap.tables.binned import bin_columns, refuse_columns
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table
from treetap.trees.candidates import Shape
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

#: Cells of a column with the cuts 1 and 3: as they often are, constant, some missing, all missing.
CELLS = {"few": "0 1 2 3", "constant": "2 2 2 2", "missing": "0 . 2 .", "empty": ". . . .", "large": "9 8 7 6"}


def _read(folder: Path, cells: str, *, streams: bool = False, **settings: Any) -> Table:
    path = folder / "t.csv"
    rows = [f"{row},{'' if cell == '.' else cell},{row % 3},{'xy'[row % 2]}" for row, cell in enumerate(cells.split())]
    path.write_text("\n".join(["id,a,b,t", *rows, ""]))
    config = TableConfig(path=path, id="id", **{"columns": ["a"], "cuts": {"a": [1, 3]}, **settings})
    return read_table(config, with_label=False, missing=None, streams=streams)


@pytest.mark.parametrize("exact", [10, 0])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("cells", CELLS)
def test_bins_follow_from_no_cell(cells: str, dropped: bool, exact: int, tmp_path: Path) -> None:
    """Number, cuts, and the bin of missing values; a constant column is neither refused nor dropped, at any size."""
    table = _read(tmp_path, CELLS[cells], drop_constant=dropped)
    refuse_columns(table, None)
    binned = bin_columns(table, 8, None, missing_bins=True, exact=exact)
    assert binned.shapes == [Shape(3, True)]
    assert binned.features[0].cuts.tolist() == [1.0, 3.0]
    assert bin_columns(table, 8, None).features[0].has_missing == ("." in CELLS[cells])


def test_a_value_equal_to_a_cut_lies_above_it(tmp_path: Path) -> None:
    """So does a record at the threshold of a split; further columns keep their quantiles."""
    binned = bin_columns(_read(tmp_path, "0 1 2 3", columns=["a", "b"]), 8, None)
    assert binned.codes[:, 0].tolist() == [0, 1, 1, 2]
    assert binned.features[1].cuts.tolist() == [0.5, 1.5]


def test_a_bin_for_missing_values_that_no_record_has_changes_no_tree() -> None:
    """So a model without noise is the same with and without `column_privacy`."""
    here = np.random.default_rng(0).normal(size=(60, 2))
    labels = (here @ [1, -1] > 0).astype(np.int64)
    models = []
    for missing in (False, True):
        from treetap.trees.binning import FeatureBins, encode

        table = encode(here, [FeatureBins(np.array([-0.5, 0.1, 1.0]), missing)] * 2)
        models.append(train([("a", table)], labels, BoostingParams(n_estimators=3, min_child_weight=0.0, max_bin=8)))
    first, second = ([tree.splits for tree in model.ensemble.trees] for model in models)
    assert first == second
    assert models[0].splits == models[1].splits
    assert any(first)


@pytest.mark.parametrize(
    ("key", "given", "said"),
    [
        ("monotone_constraints", {"A": 1}, "names 'A', which is none of the table's columns; did you mean 'a'"),
        ("monotone_constraints", {"a": 2}, "must be 1 (increasing) or -1 (decreasing), not 2; leave out a column wi"),
        ("monotone_constraints", {"a": True}, "must be 1 (increasing) or -1 (decreasing), not True"),
        ("cuts", {"A": [1]}, "cuts names 'A', which is none of the feature columns; did you mean 'a'"),
        ("cuts", {"id": [1]}, "cuts names 'id', which is none of the feature columns"),
        ("cuts", {"a": [2, 1]}, "has the cut 1 behind 2: list each once, in increasing order"),
        ("cuts", {"a": [1, 1]}, "has the cut 1 behind 1"),
        ("cuts", {"a": [1, math.inf]}, "has the cut inf: write finite numbers"),
        ("cuts", {"a": [math.nan]}, "has the cut nan: write finite numbers"),
        ("cuts", {"a": []}, "at least 1 item"),
        ("cuts", {"a": ["x"]}, "valid number"),
    ],
)
def test_faults_of_a_configuration_are_named(key: str, given: dict[str, Any], said: str) -> None:
    """Unknown columns and ids, what is no list of increasing numbers, and what is no direction."""
    with pytest.raises(ValidationError) as raised:
        TableConfig(path=Path("t.csv"), id="id", columns=["a"], **{key: given})
    assert said in str(raised.value)


@pytest.mark.parametrize("encode", ["ordinal", "one-hot", "categorical"])
def test_codes_of_texts_have_no_cuts(encode: str, tmp_path: Path) -> None:
    """Which code a text has follows from the texts that occur."""
    table = _read(tmp_path, "0 1 2 3", columns=["t"], cuts={"t": [1]}, encode=encode)
    for refuse in (lambda: refuse_columns(table, 4), lambda: bin_columns(table, 8, 4)):
        with pytest.raises(DataError, match=f"names column 't', which is encoded as '{encode}'.*leave it out there"):
            refuse()


def test_cuts_of_dates_are_days(tmp_path: Path) -> None:
    """Since 1970-01-01."""
    path = tmp_path / "t.csv"
    path.write_text("id,d\n1,1970-01-02\n2,1970-01-11\n3,1970-03-01\n")
    config = TableConfig(path=path, id="id", columns=["d"], encode="days", cuts={"d": [10, 40]})
    binned = bin_columns(read_table(config, with_label=False, missing=None), 8, None)
    assert binned.codes[:, 0].tolist() == [0, 1, 2]


def _constrained(folder: Path, **settings: Any) -> Table:
    path = folder / "t.csv"
    path.write_text("id,a,b,c\n1,1,x,5\n2,2,y,5\n3,3,x,5\n")
    return read_table(TableConfig(path=path, id="id", **settings), with_label=False, missing=None)


def test_constraints_become_directions_of_features(tmp_path: Path) -> None:
    """By name, whatever their order; texts by the order of their codes; a column dropped as constant has none."""
    given = {"columns": ["a", "b", "c"], "encode": "ordinal", "drop_constant": True}
    table = _constrained(tmp_path, **given, monotone_constraints={"c": 1, "b": -1})
    assert table.columns == ["a", "b"]
    directions = bin_columns(table, 8, None).directions
    assert directions is not None
    assert directions.tolist() == [0, -1]
    assert bin_columns(_constrained(tmp_path, **given), 8, None).directions is None
    assert bin_columns(_constrained(tmp_path, **given, monotone_constraints={"c": 1}), 8, None).directions is None


def test_columns_of_several_features_have_no_direction(tmp_path: Path) -> None:
    """One category each has no order."""
    table = _constrained(tmp_path, columns=["a", "b"], encode="one-hot", monotone_constraints={"b": 1})
    with pytest.raises(DataError, match="names column 'b', whose categories have no order"):
        bin_columns(table, 8, None)
