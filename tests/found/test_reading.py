"""How tables are read: columns by pattern and by width, folders of partitions, and messages about cells.

Columns by pattern are those of the table that match, in its order; a column's own name is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest

from treetap import FederatedClassifier
from treetap.errors import BadInput, DataError
from treetap.lab.api.frames import InvalidInput, arrow_of, column_in
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table as read_joined
from treetap.lab.experiment.joined_table import split
from treetap.names import named_by
from treetap.tables import streamed_reading
from treetap.tables.binned import bin_columns
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.label_columns import classes_of
from treetap.tables.opening import columns_of, source_at
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
        (["T*"], ["Tel_9"], "bank and telco both name column 'Tel_9'"),
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


# ---- Numbers of the configuration are compared in a column's own width: cuts and the number for missing


CELLS, CUTS = [0.05, -0.3, 0.7, 0.9, 1e5 / 3, 0.2], [-0.3, 0.05, 0.2, 0.7, 0.9, 1e5 / 3]
BINS = [2, 1, 4, 5, 6, 3]
KINDS = {
    "half": pa.array(np.array(CELLS, np.float16)),
    "single": pa.array(CELLS, pa.float32()),
    "double": pa.array(CELLS),
    "text": pa.array([repr(cell) for cell in CELLS]),
    "decimal": pa.array([Decimal(repr(round(cell, 11))) for cell in CELLS], pa.decimal128(18, 11)),
    "dictionary": pa.array(CELLS, pa.float32()).dictionary_encode(),
}


def _read_by_cuts(
    folder: Path, cells: pa.Array, cuts: Sequence[float], missing: float | None = None, **keys: Any
) -> Table:
    path = folder / "t.parquet"
    pq.write_table(pa.table({"id": [str(row) for row in range(len(cells))], "x": cells}), path)
    config = TableConfig(path=path, id="id", columns=["x"], cuts={"x": list(cuts)} if cuts else {})
    return read_table(config, with_label=False, missing=missing, **keys)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_equal_to_a_cut_lies_above_it(
    kind: str, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the file has the numbers, and whether it is read whole or in batches."""
    monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    cuts = [round(cut, 11) for cut in CUTS] if kind == "decimal" else CUTS
    table = _read_by_cuts(tmp_path, KINDS[kind], cuts, streams=streams)
    assert bin_columns(table, 8, None).codes[:, 0].tolist() == BINS


@pytest.mark.parametrize(
    ("cells", "cuts", "bins"),
    [
        (pa.array(np.array([-6e4, 0.0, 6e4], np.float16)), [-1e6, 1.0, 1e6], [1, 1, 2]),
        (pa.array([-1.0, 3e38], pa.float32()), [-1e300, 0.5, 1e300], [1, 2]),
        (pa.array(np.array([0.7, 0.8], np.float16)), [0.7, 0.70001], [2, 2]),
        (pa.array([2, 3, 2**40], pa.int64()), [2.5, 3, 2.0**40], [0, 2, 3]),
        (pa.array([2, 3], pa.uint8()), [2.0, 2.9], [1, 2]),
        (pa.array([False, True]), [0.5, 1.0], [0, 2]),
    ],
)
def test_a_cut_that_a_width_does_not_have(cells: pa.Array, cuts: list[float], bins: list[int], tmp_path: Path) -> None:
    """Out of its range no value passes it; two that are one there leave an empty bin; whole numbers lie between."""
    assert bin_columns(_read_by_cuts(tmp_path, cells, cuts), 8, None).codes[:, 0].tolist() == bins


@pytest.mark.parametrize("kind", ["half", "single", "double"])
@pytest.mark.parametrize("missing", [0.7, -0.3, 0.05, -99999.9, 1e300])
def test_the_number_that_means_missing(kind: str, missing: float, tmp_path: Path) -> None:
    """Those cells alone, and none where the width has no such number."""
    table = _read_by_cuts(tmp_path, KINDS[kind], [], missing)
    assert np.isnan(table.features[:, 0]).tolist() == [cell == missing for cell in CELLS]


# ---- Folders of partitions, as Spark writes them: the columns that pyarrow's own data sets have


def folder(base: Path, *names: str) -> Path:
    """A file of two rows in each of these folders."""
    for place, name in enumerate(names):
        (base / name).mkdir(parents=True)
        pq.write_table(pa.table({"id": [f"{place}a", f"{place}b"], "x": [0.5, 1.0]}), base / name / "part-0.parquet")
    return base


def read(path: Any, *columns: str, **keys: Any) -> Table:
    """These columns, by default k."""
    config = TableConfig(path=path, id="id", columns=list(columns or ["k"]), **keys)
    return read_table(config, with_label=False, missing=None)


def column(path: Any) -> list[str | None]:
    """The texts of k by id."""
    table = read(path, encode={"k": "ordinal"})
    values = table.categories["k"].values if table.categories else []
    return [None if np.isnan(place) else values[int(place)] for place in table.features[:, 0]]


@pytest.mark.parametrize(
    "names",
    [
        ["k=1"],
        ["k=1", "k=2"],
        ["k=1", "k=__HIVE_DEFAULT_PARTITION__"],
        ["k=a", "k=__HIVE_DEFAULT_PARTITION__"],
        ["k=a%20b", "k=c%2Fd", "k=e%25"],
        ["k=%C3%A4", "k=ö"],
        ["k=-3", "k=10"],
        ["k=1/m=a", "k=2/m=b"],
        ["deep/k=1", "deep/k=x"],
    ],
)
def test_the_column_of_pyarrow(names: list[str], tmp_path: Path) -> None:
    """Numbers, text, missing values and names with percent signs."""
    base = folder(tmp_path, *names)
    theirs = dataset.dataset(base, partitioning="hive").to_table().sort_by("id").column("k").to_pylist()
    assert column(base) == [None if value is None else str(value) for value in theirs]


def test_a_file_by_itself(tmp_path: Path) -> None:
    """It has the columns of the folders right around it, alone and in a list."""
    base = folder(tmp_path / "run=7" / "tables", "k=1/m%20n=a%20b", "k=2/m%20n=c")
    files = [base / "k=1/m%20n=a%20b/part-0.parquet", base / "k=2/m%20n=c/part-0.parquet"]
    assert columns_of(source_at(files[0])) == ["id", "x", "k", "m n"]
    table = read(files[0], "x", "k", "m n", encode={"m n": "one-hot"})
    np.testing.assert_array_equal(table.features, [[0.5, 1, 1], [1.0, 1, 1]])
    assert table.where(1) == "k=1/m%20n=a%20b/part-0.parquet, row 2"
    assert read(files).features[:, 0].tolist() == [1, 1, 2, 2]
    with pytest.raises(DataError, match="has no column 'run'"):
        read(files[0], "run")


def lines(base: Path, *names: str) -> Path:
    """The same in CSV."""
    for place, name in enumerate(names):
        (base / name).mkdir(parents=True)
        (base / name / "part-0.csv").write_text(f"id,x\n{place}a,0.5\n{place}b,1\n")
    return base


@pytest.mark.parametrize("write", [folder, lines])
def test_a_label_and_an_id(write: Callable[..., Path], tmp_path: Path) -> None:
    """No column of the files themselves is read for them; ids keep their type."""
    base = write(tmp_path, "k=0", "k=1")
    config = TableConfig(path=base, id="id", columns=["x"], label="k", duplicates="first")
    table = read_table(config, with_label=True, missing=None)
    assert table.label is not None
    assert classes_of(base, table.label).to_pylist() == [0, 0, 1, 1]
    assert re.fullmatch(r"k=1/part-0\.(csv, line 3|parquet, row 2)", table.where(3))
    config = TableConfig(path=base, id="k", columns=["x"], duplicates="last")
    by_folder = read_table(config, with_label=False, missing=None)
    assert (list(by_folder.ids), by_folder.id_types["k"]) == (["0", "1"], pa.int64())
    assert by_folder.features.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("write", [folder, lines])
@pytest.mark.parametrize("names", [["k=01", "k=02", "k=12"], ["k=a", "k=1"], ["k=1", "k=2", "k=-1"]])
def test_one_folder_of_a_training(
    names: list[str], write: Callable[..., Path], streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is a whole number where it is alone is the training's category, also one of several files."""
    monkeypatch.setattr(streamed_reading, "STREAMED", 0 if streamed else 1 << 27)
    base = write(tmp_path, *names)
    config = TableConfig(path=base, id="id", columns=["x", "k"], encode={"k": "categorical"})
    known = read_table(config, with_label=False, missing=None, streams=True).categories
    assert set(known["k"].values) == {name.removeprefix("k=") for name in names}
    for part in ([names[-1]], names[1:]):
        own = config.model_copy(update={"path": [next((base / name).iterdir()) for name in part], "encode": None})
        table = read_table(own, with_label=False, missing=None, categories=known, streams=True)
        found = [known["k"].values[int(place)] for place in table.features[:, 1]]
        assert found == [name.removeprefix("k=") for name in part for _ in range(2)]


def test_all_values_missing_and_a_name_that_a_file_has(tmp_path: Path) -> None:
    """A column without a value, and one that is there twice."""
    base = folder(tmp_path / "empty", "k=__HIVE_DEFAULT_PARTITION__", "k=")
    assert np.isnan(read(base, "k", "x").features[:, 0]).all()
    with pytest.raises(DataError, match=r"column 'x' is in x=1/part-0\.parquet and in the name of a folder"):
        read(folder(tmp_path / "twice", "x=1"), "x")


# ---- Messages about cells that a library knows and a table cannot hold: the place and what to do


def _read_numbers(path: Path, **keys: Any) -> Table:
    """The column x."""
    config = TableConfig(path=path, id="id", columns=["x"], **keys)
    return read_table(config, with_label=False, missing=None, streams=True)


@pytest.mark.parametrize("number", [2**63, 12345678901234567890, -(10**20) + 1, 10**37 + 1])
def test_whole_numbers_of_json_lines_beyond_64_bits(number: int, tmp_path: Path) -> None:
    """Ids and named categories are as they are written, wherever they stand."""
    lines = [f'{{"id": {row}, "x": 5}}\n' for row in range(1, 4)]
    for place in (0, 3):
        path = tmp_path / f"{place}.jsonl"
        path.write_text("".join([*lines[:place], f'{{"id": {number}, "x": {number}}}\n', *lines[place:]]))
        table = _read_numbers(path, encode={"x": "ordinal"})
        assert table.ids == sorted(map(str, [1, 2, 3, number]))
        assert set(table.categories["x"].values) == {"5", str(number)}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (r'{"id": "\ud800", "x": 1}', "column 'id': half of a pair of surrogates"),
        (r'{"id": "b", "x": "\udc00a"}', "column 'x': half of a pair of surrogates"),
        (r'{"id": "b", "\ud83d": 1}', r"column '\\ud83d': half of a pair of surrogates"),
        ('{"id": "b", "x": 1e400}', "column 'x': the number is beyond double precision"),
    ],
)
def test_cells_of_json_lines_that_no_column_has(line: str, said: str, tmp_path: Path) -> None:
    """By line and column."""
    (tmp_path / "t.jsonl").write_text(f'{{"id": "a"}}\n{line}\n')
    with pytest.raises(DataError, match=f"line 2, {said}"):
        _read_numbers(tmp_path / "t.jsonl")


@pytest.mark.parametrize("kind", ["Int128", "UInt128"])
def test_numbers_of_polars_that_arrow_has_not(kind: str) -> None:
    """The column and its type, not Arrow's own name of it."""
    frame = pl.DataFrame({"id": ["a"], "n": pl.Series([1], dtype=getattr(pl, kind))})
    said = f"column 'n' holds {kind}: cast it to Int64"
    with pytest.raises(InvalidInput, match=said):
        arrow_of(frame)
    with pytest.raises(InvalidInput, match=said):
        column_in(frame, "n")


@pytest.mark.parametrize("streamed", [0, 1 << 27])
@pytest.mark.parametrize("encode", [None, "auto", "ordinal", "days", {"x": "one-hot"}])
@pytest.mark.parametrize("values", [pa.array([[1], [2, 3]]), pa.array([{"a": 1}, {"a": 2}])], ids=["lists", "structs"])
def test_dictionaries_of_what_is_no_cell(
    streamed: int, encode: Any, values: pa.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, in a table that is held and in one that is _read_numbers in parts."""
    monkeypatch.setattr(streamed_reading, "STREAMED", streamed)
    table = pa.table({"id": ["a", "b"], "x": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), values)})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(DataError, match=r"column 'x' holds (list|struct), .*one in each cell, or leave the column out"):
        _read_numbers(tmp_path / "t.arrow", encode=encode)
