"""One table, several ways in: a party's own file, an experiment, Python and a served model say the same of it."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import treetap
from treetap.errors import DataError, TreetapError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_encodings import codes_in
from treetap.lab.experiment.joined_table import labels_of, split
from treetap.lab.experiment.joined_table import read_table as read_joined
from treetap.lab.experiment.party_tables import read_as_party, write_tables
from treetap.party.prediction.applicants import encode
from treetap.tables import streamed_reading
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_labels
from treetap.tables.reading import Table, read_table
from treetap.wire.v2.serving_pb2 import NewRecord, OwnField

ROWS = 40
LEVELS = ["low", "mid", "high"]
BIG = 2**53


def _csv(folder: Path, x: Sequence[Any], y: Sequence[Any] = (0, 1), encoding: str = "utf-8") -> Path:
    path = folder / "t.csv"
    rows = [f"r{k:02d},{x[k % len(x)]},{k % 7},{y[k % len(y)]}" for k in range(ROWS)]
    path.write_text("\n".join(["id,x,z,y", *rows, ""]), encoding)
    return path


def _own(path: Path, **keys: Any) -> Table:
    config = TableConfig(path=path, id="id", columns=["x"], label="y", **keys)
    return read_table(config, with_label=True, missing=None, streams=True)


def _experiment(path: Path, objective: str = "binary:logistic", data: str = "") -> ExperimentFile:
    text = f'[data]\npath = "{path}"\nid = "id"\nlabel = "y"\n{data}\n[job]\nobjective = "{objective}"\n'
    parties = '[[party]]\nname = "a"\nlabels = true\ncolumns = ["x"]\n[[party]]\nname = "b"\ncolumns = ["z"]\n'
    return ExperimentFile.model_validate(tomllib.loads(text + parties))


@pytest.mark.parametrize("write", [pq.write_table, feather.write_feather])
@pytest.mark.parametrize("levels", [LEVELS, [30, 10, 20]])
def test_ordered_categories(write: Any, levels: list[Any], tmp_path: Path) -> None:
    """An experiment's parties have the order that a party's own table has, in training and in prediction."""
    k = pa.DictionaryArray.from_arrays(pa.array(np.arange(ROWS) % 3, pa.int8()), pa.array(levels), ordered=True)
    table = pa.table({"id": [f"r{k:02d}" for k in range(ROWS)], "x": k, "z": range(ROWS), "y": np.arange(ROWS) % 2})
    write(table, tmp_path / "t.feather" if write is feather.write_feather else tmp_path / "t.parquet")
    (path,) = tmp_path.iterdir()
    own = _own(path, encode={"x": "ordinal"})
    places = dict(zip(own.ids, own.features[:, 0], strict=True))
    experiment = _experiment(path, data='encode = { x = "ordinal" }')
    joined = read_joined(experiment, tmp_path)
    given = write_tables(experiment, joined, split(experiment, joined, 0), tmp_path / "run")["a"]["tables"]
    train = read_as_party(given["train"], np.nan)
    for read in (train, read_as_party(given["predict"], np.nan, train)):
        assert [places[name] for name in read.ids] == read.features[:, 0].tolist()
    ordered = levels == LEVELS or write is feather.write_feather  # Arrow gives Parquet's numbers no order back
    assert own.categories["x"].values == (list(map(str, levels)) if ordered else ["10", "20", "30"])


@pytest.mark.parametrize(
    ("cells", "objective", "classes"),
    [
        (["-0", "0", "1"], "binary:logistic", ["0", "1"]),
        (["-0.0", "0.0", "1.5"], "binary:logistic", ["0", "1.5"]),
        (["1", "1.0", "01"], "multi:softprob", ["01", "1", "1.0"]),
        (["12.5", "12.50", "7"], "reg:squarederror", []),
    ],
)
def test_labels_of_csv(cells: list[str], objective: str, classes: list[str], tmp_path: Path) -> None:
    """Zero has no sign among classes; the targets of a regression are numbers, however they are written."""
    path = _csv(tmp_path, ["1", "2"], cells)
    experiment = _experiment(path, objective)
    found = read_labels(_own(path), "y", objective), labels_of(experiment, read_joined(experiment, tmp_path))
    assert [it.classes for it in found] == [classes, classes]
    assert np.array_equal(*(it.values for it in found))


def test_blank_labels(tmp_path: Path) -> None:
    """A blank text is a missing label, as a blank cell of a feature is a missing one."""
    path = _csv(tmp_path, ["1", "2"], ["a", "b", '" "'])
    with pytest.raises(DataError, match="line 4 is missing"):
        read_labels(_own(path), "y", "multi:softprob")
    with pytest.raises(DataError, match="line 4 is missing"):
        read_joined(_experiment(path, "multi:softprob"), tmp_path)
    X, y = pd.DataFrame({"x": np.arange(6), "z": np.arange(6)}), np.array(["a", "b", ""] * 2)
    for labels in (y, y.astype(object)):
        with pytest.raises(ValueError, match="no label for 2 of 6 records"):
            treetap.FederatedClassifier(simulate=True).fit(X, labels)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["007", "012", "345"], "as codes do"),
        ([BIG, BIG + 1, 5], f"3 numbers of more digits than a double has are taken for 2 numbers, such as '{BIG}'"),
        ([7, 12, 345], ""),
        ([BIG, BIG + 2, 5], ""),
    ],
)
def test_what_is_said(cells: list[Any], said: str, tmp_path: Path) -> None:
    """Codes that become numbers, and numbers that become one, are said by each way in."""
    path = _csv(tmp_path, cells)
    frame = pd.read_csv(path, dtype={"x": str} if isinstance(cells[0], str) else None)
    ways = [_own(path).says, codes_in(read_joined(_experiment(path), tmp_path))]
    model = treetap.FederatedClassifier({"a": ["x"], "b": ["z"]}, simulate=True, n_estimators=1, verbose=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(frame[["x", "z"]], frame["y"])
    ways.append([str(warning.message) for warning in caught if "column 'x'" in str(warning.message)])
    assert all(any(said in sentence for sentence in way) if said else not way for way in ways), ways


@pytest.mark.parametrize(
    ("missing", "cell", "gone"),
    [
        ([-999], -999, True),
        ([-999], -999.0, True),
        (["-999"], -999, True),
        ([-999], 5, False),
        (["k.A."], "k.A.", True),
    ],
)
def test_missing_of_new_records(missing: list[Any], cell: Any, gone: bool) -> None:
    """A client's field that the served table's settings call missing is so, as in the table."""
    kind = {int: "whole", float: "number", str: "text"}[type(cell)]
    manifest = {"source_columns": ["x"], "columns": ["x"], "categories": {}, "missing": None}
    made = encode(manifest, NewRecord(id="a", fields=[OwnField(column="x", **{kind: cell})]), missing)
    assert np.isnan(made[0]) if gone else made.tolist() == [cell]


@pytest.mark.parametrize("streamed", [False, True])
def test_all_faults(streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, columns that need a word and the text's encoding are mended at once, at a party as in an experiment."""
    path = _csv(tmp_path, ["1", "2", "3", "ö"], ["1", "0", ""], "windows-1252")
    path.write_bytes(path.read_bytes().replace(b"r05", b"r04"))
    wanted = ["windows-1252", "'x' holds numbers, but not in 1", "'id': the id is there already"]
    if streamed:
        monkeypatch.setattr(streamed_reading, "STREAMED", 0)
        table = pd.read_csv(path, encoding="windows-1252")
        path, wanted = tmp_path / "t.parquet", wanted[1:]
        table.to_parquet(path)
    with pytest.raises(DataError) as fault:
        _own(path, encode="auto")
    with pytest.raises(TreetapError) as joint:
        read_joined(_experiment(path), tmp_path)
    assert all(word in str(fault.value) and word in str(joint.value) for word in wanted), fault.value
    assert "is missing" in str(joint.value)


def test_all_faults_of_frames() -> None:
    """Python names the ids of all parties that are wrong, and all columns of a type that no table has."""
    odd = pd.DataFrame({"id": [1, 1, 2], "x": [0, 1, 2]})
    with pytest.raises(ValueError, match=r"(?s)frame of a.*already.*\n.*frame of b.*already"):
        treetap.FederatedClassifier(id_column="id", simulate=True).fit({"a": odd, "b": odd}, [0, 1, 0])
    periods = pd.period_range("2024", periods=3, freq="D")
    with pytest.raises(ValueError, match=r"(?s)'p'.*\n.*'q'"):
        treetap.FederatedClassifier(simulate=True).fit(pd.DataFrame({"p": periods, "q": periods}), [0, 1, 0])
