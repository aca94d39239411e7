"""Public cuts and constraints of columns.

- Listed cuts of columns: what a configuration may say, and the bins, which follow from no cell.
- Monotone constraints of a table: what a configuration may say, and which features they become.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.library.tables.given import read, text_file
from treetap.errors import DataError
from treetap.tables.binned import bin_columns, refuse_columns
from treetap.tables.reading import Table
from treetap.trees.candidates import Shape
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

#: Cells of a column with the cuts 1 and 3: as they often are, constant, some missing, all missing.
CELLS = {"few": "0 1 2 3", "constant": "2 2 2 2", "missing": "0 . 2 .", "empty": ". . . .", "large": "9 8 7 6"}


def _read(folder: Path, cells: str, **settings: Any) -> Table:
    rows = [f"{row},{'' if cell == '.' else cell},{row % 3},{'xy'[row % 2]}" for row, cell in enumerate(cells.split())]
    path = text_file(folder, "\n".join(["id,a,b,t", *rows, ""]))
    return read(path, **{"columns": ["a"], "cuts": {"a": [1, 3]}, **settings})


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
    days = text_file(tmp_path, "id,d\n1,1970-01-02\n2,1970-01-11\n3,1970-03-01\n")
    table = read(days, "d", encode="days", cuts={"d": [10, 40]})  # cuts of dates are days since 1970-01-01
    assert bin_columns(table, 8, None).codes[:, 0].tolist() == [0, 1, 2]


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


@pytest.mark.parametrize("encode", ["ordinal", "one-hot", "categorical"])
def test_codes_of_texts_have_no_cuts(encode: str, tmp_path: Path) -> None:
    """Which code a text has follows from the texts that occur."""
    table = _read(tmp_path, "0 1 2 3", columns=["t"], cuts={"t": [1]}, encode=encode)
    for refuse in (lambda: refuse_columns(table, 4), lambda: bin_columns(table, 8, 4)):
        with pytest.raises(DataError, match=f"names column 't', which is encoded as '{encode}'.*leave it out there"):
            refuse()


def test_constraints_become_directions_of_features(tmp_path: Path) -> None:
    """By name, whatever their order; texts by the order of their codes; a column dropped as constant has none."""
    path = text_file(tmp_path, "id,a,b,c\n1,1,x,5\n2,2,y,5\n3,3,x,5\n")
    given = {"columns": ["a", "b", "c"], "encode": "ordinal", "drop_constant": True}
    for constraints, expected in (({"c": 1, "b": -1}, [0, -1]), ({}, None), ({"c": 1}, None)):
        table = read(path, **given, monotone_constraints=constraints)
        assert table.columns == ["a", "b"]
        directions = bin_columns(table, 8, None).directions
        assert (None if directions is None else directions.tolist()) == expected
    # one category each has no order
    table = read(path, "a", "b", encode="one-hot", monotone_constraints={"b": 1})
    with pytest.raises(DataError, match="names column 'b', whose categories have no order"):
        bin_columns(table, 8, None)
