"""Columns by pattern: those of the table that match, in its order; a column's own name is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap import FederatedClassifier
from treetap.errors import BadInput, DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table as read_joined
from treetap.lab.experiment.joined_table import split
from treetap.names import named_by
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table

NAMES = ["Tel_9", "Tarif", "Tel_10", "Tel_id", "Alter", "ja*nein", "ja und nein", "Tel_y"]
ROWS = 40


def _table(folder: Path) -> Path:
    columns = {name: [float(row * (place + 1) % 7) for row in range(ROWS)] for place, name in enumerate(NAMES)}
    columns |= {"Tel_id": list(range(ROWS)), "Tel_y": [row % 2 for row in range(ROWS)]}
    pq.write_table(pa.table(columns), path := folder / "t.parquet")
    return path


def _read(path: Path, columns: list[str], known: dict[str, Category] | None = None, **keys: Any) -> Table:
    config = TableConfig(path=path, id="Tel_id", label="Tel_y", columns=columns, **keys)
    return read_table(config, with_label=True, missing=None, categories=known)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["Tel_*", "Tarif"], ["Tel_9", "Tel_10", "Tarif"]),
        (["Tarif", "T*"], ["Tarif", "Tel_9", "Tel_10"]),
        (["*e*n"], ["ja*nein", "ja und nein"]),
        (["ja*nein"], ["ja*nein"]),
        (["*"], ["Tel_9", "Tarif", "Tel_10", "Alter", "ja*nein", "ja und nein"]),
    ],
)
def test_a_pattern_has_columns_in_the_order_of_the_table(given: list[str], meant: list[str], tmp_path: Path) -> None:
    """Without ids and labels, each once, for every key that names columns."""
    keys: dict[str, Any] = {"monotone_constraints": {meant[0]: 1}, "cuts": {meant[-1]: [3.0]}}
    table = _read(_table(tmp_path), given, **keys)
    assert table.columns == table.sources == meant
    assert (dict(table.directions), list(table.cuts)) == ({meant[0]: 1}, [meant[-1]])


def test_what_a_pattern_lacks_is_refused_by_name(tmp_path: Path) -> None:
    """One that matches nothing, or ids alone; a key that names what only other tables have; and a model's columns."""
    path = _table(tmp_path)
    for pattern in ("Fax_*", "Tel_i*"):
        with pytest.raises(DataError, match=f"has no column that '{pattern[:-1]}\\*' matches"):
            _read(path, ["Tarif", pattern])
    for key, value in (("monotone_constraints", 1), ("cuts", [1.0]), ("encode", "ordinal"), ("date_format", "%Y%m%d")):
        with pytest.raises(DataError, match=f"{key} names 'Tel_99', which is none of the"):
            _read(path, ["Tel_*"], **{key: {"Tel_99": value}})
    with pytest.raises(DataError, match="has no column that 'Tel_\\*' matches"):
        _read(path, ["Tel_*"], {})  # of a training whose column had that name
    assert (named_by(["Tel_*"], "Tel_99"), named_by(["Tel_*"], "tel_9")) == (True, False)


def _experiment(path: Path, bank: list[str], telco: list[str] | None, **keys: Any) -> ExperimentFile:
    parties = [
        {"name": "bank", "labels": True, "columns": bank},
        {"name": "telco", **({"share": 1.0} if telco is None else {"columns": telco})},
    ]
    data = {"path": str(path), "id": "Tel_id", "label": "Tel_y", **keys}
    return ExperimentFile.model_validate({"data": data, "party": parties, "job": {}})


def test_parties_of_an_experiment_have_patterns(tmp_path: Path) -> None:
    """What is dropped is nobody's; a column that two claim is refused, whichever of them has a pattern."""
    path = _table(tmp_path)
    for telco in (["Tel_*"], None):
        experiment = _experiment(path, ["T*f", "ja*nein"], telco, drop=["Tel_10", "Alter", "ja und nein"])
        columns = split(experiment, read_joined(experiment, tmp_path), 0).columns
        assert columns == {"bank": ["Tarif", "ja*nein"], "telco": ["Tel_9"]}
    for bank, telco, says in (
        (["T*"], ["Tel_9"], "column 'Tel_9' is claimed by bank and by telco"),
        (["Alter"], ["Fax_*"], r"has no column that 'Fax_\*' matches"),
    ):
        with pytest.raises(BadInput, match=says):
            read_joined(_experiment(path, bank, telco), tmp_path)


def test_a_column_called_by_the_mark_is_a_column(tmp_path: Path) -> None:
    """Also where another party has it, and the label holder's constraints are of one estimator."""
    X = {"bank": {"*": [1.0, 2, 3, 4] * 10, "x": [4.0, 1, 2, 3] * 10}, "shop": {"z": [1.0, 3, 3, 1] * 10}}
    y = [0, 0, 1, 1] * 10
    frames = {party: pa.table(columns) for party, columns in X.items()}
    for constraints in ({"*": 1}, {"*": 1, "z": -1}):
        model = FederatedClassifier(
            parties=["bank", "shop"], n_estimators=1, max_depth=2, monotone_constraints=constraints, simulate=True
        )
        assert model.fit(frames, y).score(frames, y) == 1.0
