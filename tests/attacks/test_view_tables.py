"""The attacker's own columns, the scorer's labels, and the findings that follow from a view without any attack."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from math import inf, log
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.attacks.recorded import train, transcript
from tests.worlds import PARTIES, world
from treetap.attacks.sections import bound_rows, signature, signatures, tree_rows
from treetap.attacks.view.known_trees import Ints, OwnSplit, TreeView, known_nodes
from treetap.attacks.view.own_table import load_labels, load_own_table
from treetap.attacks.view.view import View, read_view
from treetap.errors import DataError
from treetap.tables.cells import tensor_column
from treetap.tables.config import TableConfig
from treetap.tables.features import Held
from treetap.tables.labels import Labels, read_labels
from treetap.tables.reading import Table, read_table
from treetap.tables.record_ids import Ids
from treetap.trees.params import BoostingParams

PARAMS = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, missing=-999.0)
HERE = world(60, (1, 2, 2), missing=0.2, sentinel=-999.0, seed=5)
FEATURE = PARTIES[1]
pytestmark = [pytest.mark.filterwarnings("ignore:a 512-bit"), pytest.mark.xdist_group("tables")]


def _view(path: Path, rows: list[int] | None, trees: tuple[TreeView, ...] = (), **changes: object) -> View:
    """A view made by hand."""
    given: dict[str, object] = {
        "path": path,
        "party": "b",
        "job": "j",
        "protocol": "boosting",
        "label_holder": "a",
        "attempt": 1,
        "records": len(rows or []),
        "rows": None if rows is None else np.array(rows, dtype=np.int64),
        "own_digest": None,
        "trees": trees,
        "unfinished": (),
        "finished": True,
        "params": BoostingParams(),
        "max_depth": 3,
        "missing": None,
        "received": [],
        "sent": [],
        "faults": (),
    }
    return View(**(given | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[View, Path, Path]:
    """A view, its party's table and the label holder's."""
    states = train(tmp_path_factory.mktemp("tables") / "federation", HERE, PARAMS, "both")
    tables = [states[party].parent / "train.parquet" for party in (FEATURE, PARTIES[0])]
    return read_view(transcript(states, FEATURE)), tables[0], tables[1]


def test_own_columns_and_labels_stand_in_the_common_order(trained: tuple[View, Path, Path]) -> None:
    """Row i of all of them is record i of the view, whatever order the files have; -999 is missing, as in the job."""
    view, own_path, labels_path = trained
    own = load_own_table(own_path, view)
    assert own.ids == sorted(own.ids)
    assert own.columns == ["b0", "b1"]
    np.testing.assert_array_equal(own.features, HERE.blocks[1])
    assert np.isnan(own.features).any()
    labels = load_labels(labels_path, "y", own)
    assert labels.classes == ["0", "1"]
    assert labels.values.tolist() == HERE.y.tolist()
    assert load_own_table(own_path, view, columns=["b1"]).columns == ["b1"]


def test_another_table_is_noticed(trained: tuple[View, Path, Path], tmp_path: Path) -> None:
    """Too few rows, other ids, other rows and other values each give themselves away."""
    view, own_path, _ = trained
    table = pq.read_table(own_path)
    path = tmp_path / "other.parquet"

    def refused(content: pa.Table, fault: str, of: View = view) -> None:
        pq.write_table(content, path)
        with pytest.raises(DataError, match=fault):
            load_own_table(path, of)

    by_rows = replace(view, ids=None)
    refused(table.slice(0, 59), r"has 59 rows, but row 60 of feature-b's table took part in job 'job'", by_rows)
    refused(table.slice(0, 59), r"lacks 1 of the ids that took part in job 'job'")
    ids = ["x" + value for value in table.column("id").to_pylist()]
    refused(table.set_column(0, "id", pa.array(ids)), "column 'id' holds other ids than feature-b's table")
    split = next(node.split for tree in view.trees for node in tree.nodes.values() if node.split)
    turned = pa.array(-table.column(split.feature_name).to_numpy())
    place = table.column_names.index(split.feature_name)
    refused(
        table.set_column(place, split.feature_name, turned),
        rf"column '{split.feature_name}' is not what feature-b trained on: the split of node \d+ of tree \d",
    )
    rolled = table.take(pa.array(np.roll(np.arange(60), 1)))
    refused(rolled, "is not what feature-b trained on", by_rows)
    pq.write_table(rolled, path)
    assert load_own_table(path, view).ids == load_own_table(own_path, view).ids


def test_text_becomes_numbers_or_one_column_per_value(tmp_path: Path) -> None:
    """Numbers in text are numbers, other text is one column of 0 and 1 per value, an absent cell is in none of them.

    Dates are days.
    """
    path = tmp_path / "own.csv"
    rows = ["007, 41,red,true,1970-01-02", "7,,blue,false,1970-01-03", "x,3.5,,true,"]
    path.write_text("\n".join(['id,age,colour,"in , debt",opened', *rows]) + "\n")
    own = load_own_table(path, _view(path, [2, 0, 1]))
    assert own.ids == ["x", "007", "7"]
    assert own.columns == ["age", "colour=blue", "colour=red", "in , debt", "opened"]
    known = [[3.5, 0, 0, 1, np.nan], [41, 0, 1, 1, 1], [np.nan, 1, 0, 0, 2]]
    np.testing.assert_array_equal(own.features, known)
    assert own.made == {"colour=blue", "colour=red"}


def test_a_text_column_whose_name_holds_an_equals_sign_is_the_party_s_own(tmp_path: Path) -> None:
    """One-hot, such a column is split as name=value; a column that merely begins alike is another party's."""
    path = tmp_path / "own.csv"
    path.write_text("id,size=EU\n0,low=1\n1,high\n")

    def view(name: str) -> View:
        nodes = known_nodes(_rows(0, 1), {}, [(OwnSplit(1, 0, 0, name, 0, 0.5, False), _rows(0), _rows(1))])
        return _view(path, [0, 1], (TreeView(0, 1, True, 2, nodes, None),))

    own = load_own_table(path, view("size=EU=low=1"))
    assert own.columns == ["size=EU=high", "size=EU=low=1"]
    for name in ("size=US=low", "size=EUR", "size"):
        with pytest.raises(DataError, match=f"lacks column '{name}', at which b split: this is another party's table"):
            load_own_table(path, view(name))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("id,age\n1,2\n", "has 1 rows, but row 2"),
        ("key,age\n1,2\n3,4\n", r"has no column 'id'; it has: key, age"),
        ("id,id,age\n1,1,2\n3,3,4\n", "needs just one column 'id'"),
        ("id,age\n1,2\n1,4\n", "line 3, column 'id': the id is there already, at line 2"),
        ("id,age\n1,2\n,4\n", "line 3, column 'id': the id is missing"),
        ("id,age\n1,inf\n2,4\n", "line 2, column 'age': the cell is infinite"),
        ("id,age\n1,2\n3\n", "line 3: 2 cells expected, 1 found"),
    ],
)
def test_faults_of_the_own_table(content: str, fault: str, tmp_path: Path) -> None:
    """Each names the file, and the column or line."""
    path = tmp_path / "own.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=fault) as caught:
        load_own_table(path, _view(path, [0, 1]))
    assert str(caught.value).startswith(f"{path}: ")


def test_a_table_that_cannot_be_used(tmp_path: Path) -> None:
    """A file that is not there, a folder, a column with a name for everybody, one of times, a view without rows."""
    view = _view(tmp_path, list(range(300)))
    with pytest.raises(DataError, match="there is no such file"):
        load_own_table(tmp_path / "none.csv", view)
    with pytest.raises(DataError, match="is a folder without a file whose name ends with"):
        load_own_table(tmp_path, view)
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"id": range(600), "name": [f"n{i % 300}" for i in range(600)]}), path)
    with pytest.raises(DataError, match="column 'name' holds 300 different texts; leave it out"):
        load_own_table(path, view)
    assert load_own_table(path, view, columns=[]).features.shape == (300, 0)
    pq.write_table(pa.table({"id": range(300), "born": pa.array(range(300), pa.time32("ms"))}), path)
    with pytest.raises(DataError, match=r"column 'born' holds time32\[ms\], not numbers"):
        load_own_table(path, view)
    with pytest.raises(DataError, match="does not say which rows of b's table"):
        load_own_table(path, _view(tmp_path, None))


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        (["a", None, "b"], "the label at row 2 is missing"),
        ([1.0, float("nan"), 2.0], "the label at row 2 is missing or infinite"),
        ([[1], [2], [3]], "holds list; classes are numbers, text or booleans"),
    ],
)
def test_faults_of_labels(column: list[object], fault: str, tmp_path: Path) -> None:
    """By file, label column and row; the label itself is not told."""
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"id": ["p", "q", "r"], "y": column}), path)
    own = _own(tmp_path, ["q", "p"])
    with pytest.raises(DataError, match=f"{path}: label column 'y'.*{fault}"):
        load_labels(path, "y", own)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal("2.00"), Decimal("10.50"), Decimal("2.00")]),
        pa.array([2.0, 10.5, 2.0], pa.float32()),
        pa.array([2, 10, 2], pa.int8()),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.array([True, False, True]),
    ],
)
def test_classes_are_those_of_the_party(column: pa.Array, tmp_path: Path) -> None:
    """Whatever type the label column has, decimals too, the audit has the label holder's class numbers and names."""
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"id": ["p", "q", "r"], "y": column}), path)
    config = TableConfig(path=path, id="id", label="y")
    theirs = read_labels(read_table(config, with_label=True, missing=None), "y", "binary:logistic")
    ours = load_labels(path, "y", _own(tmp_path, ["p", "q", "r"]))
    assert ours.classes == theirs.classes
    assert ours.values.tolist() == theirs.values.tolist()
    if pa.types.is_decimal(column.type):
        assert ours.classes == ["2", "10.5"]


def test_images_are_beside_the_columns_that_an_attack_reads(tmp_path: Path) -> None:
    """A column of tensors is no feature, and is in the common order of the records like those."""
    cells = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    path = tmp_path / "own.parquet"
    pq.write_table(pa.table({"id": ["c", "a", "d", "b"], "image": tensor_column(cells), "n": [1, 2, 3, 4]}), path)
    own = load_own_table(path, _view(path, [1, 3, 0]))
    assert (own.ids, own.columns, own.features.tolist()) == (["a", "b", "c"], ["n"], [[2.0], [4.0], [1.0]])
    np.testing.assert_array_equal(own.tensors["image"], cells[[1, 3, 0]])


def test_text_for_which_ordinal_numbers_were_trained_on_may_share_a_name_with_a_column(tmp_path: Path) -> None:
    """Own splits are checked at the column of numbers, not at the 0 and 1 of the text that is called alike."""
    path = tmp_path / "own.csv"
    path.write_text("id,colour=red,colour\n0,1,red\n1,2,blue\n")
    nodes = known_nodes(_rows(0, 1), {}, [(OwnSplit(1, 0, 0, "colour=red", 0, 1.5, False), _rows(0), _rows(1))])
    own = load_own_table(path, _view(path, [0, 1], (TreeView(0, 1, True, 2, nodes, None),)))
    assert own.columns == ["colour=red", "colour=blue", "colour=red"]
    np.testing.assert_array_equal(own.features, [[1, 0, 1], [2, 1, 0]])


def test_labels_are_joined_by_id(tmp_path: Path) -> None:
    """More rows than needed do no harm; an id that is not there is counted; too many values are no classes."""
    path = tmp_path / "labels.csv"
    pacsv.write_csv(pa.table({"key": ["4", "1", "2", "3"], "y": ["d", "a", "b", "a"], "z": [2.0, 3.0, 2.0, 2.5]}), path)
    own = _own(tmp_path, ["3", "2", "1"])
    labels = load_labels(path, "y", own, "key")
    assert (labels.values.tolist(), labels.classes) == ([0, 1, 0], ["a", "b"])
    assert load_labels(path, "z", own, "key").classes == ["2", "2.5", "3"]
    own = _own(tmp_path, ["3", "5", "6"])
    with pytest.raises(DataError, match=r"column 'key' lacks 2 of the 3 ids of .*own\.csv"):
        load_labels(path, "y", own, "key")
    many = [str(i) for i in range(250)]
    pacsv.write_csv(pa.table({"id": many, "y": many}), path)
    own = _own(tmp_path, many[:210])
    with pytest.raises(DataError, match="holds 210 different values; a class label has few"):
        load_labels(path, "y", own)


def _own(folder: Path, ids: list[str]) -> Table:
    """A party's table without a column."""
    return Table(folder / "own.csv", Ids.of(ids), [], Held(np.empty((len(ids), 0))), None, np.arange(len(ids)))


def _rows(*records: int) -> Ints:
    return np.array(records, dtype=np.int64)


def _hand_made(path: Path) -> tuple[View, Labels]:
    """Eight records, two trees; the second one's set is exclusive-or with the first as far as the label goes."""
    everybody = np.arange(8, dtype=np.int64)
    split = OwnSplit(2, 4, 0, "age", 1, inf, True)
    first = known_nodes(everybody, {2: _rows(0, 1, 2, 3)}, [(split, _rows(0), _rows(1, 2, 3))])
    second = known_nodes(everybody, {3: _rows(2, 3, 6, 7)}, [])
    trees = (TreeView(0, 1, True, 8, first, None), TreeView(1, 1, True, 8, second, None))
    view = _view(path, list(range(8)), trees)
    return view, Labels(np.array([0, 0, 1, 1, 1, 1, 0, 0], dtype=np.int64), ["no", "yes"])


def test_findings_by_hand(tmp_path: Path) -> None:
    """Bounds, signatures and trees of eight records, worked out on paper; all of it goes into JSON."""
    view, labels = _hand_made(tmp_path)
    bounds = bound_rows(view, labels)
    assert [(row["tree"], row["node"], row["depth"], row["records"], row["source"]) for row in bounds] == [
        (0, 2, 1, 4, "received"),
        (0, 3, 1, 4, "difference"),
        (0, 4, 2, 1, "own"),
        (0, 5, 2, 3, "own"),
        (1, 2, 1, 4, "difference"),
        (1, 3, 1, 4, "received"),
    ]
    assert [row["nats"] for row in bounds if row["depth"] == 1] == [0.0] * 4
    assert bounds[2]["node_nats"] == bounds[2]["nats"] == pytest.approx(log(2))
    outside = 4 / 7 * log(8 / 7) + 3 / 7 * log(6 / 7)
    assert bounds[2]["complement_nats"] == pytest.approx(outside)
    found = signature(view, labels)
    assert found["label_entropy"] == pytest.approx(log(2))
    assert found["signatures"] == 5  # {0}, {1}, {2, 3}, {4, 5}, {6, 7}
    assert found["mutual_information"] == pytest.approx(log(2))
    first, second = found["by_tree"]
    entropy_of_three = 1 / 3 * log(3) + 2 / 3 * log(3 / 2)
    assert (first["tree"], first["signatures"], second["tree"], second["signatures"]) == (0, 3, 1, 5)
    assert first["mutual_information"] == pytest.approx(log(2) - 3 / 8 * entropy_of_three - 1 / 2 * log(2))
    *_, groups = signatures(view)
    assert len(set(groups[[0, 1, 2, 4, 6]].tolist())) == 5
    assert groups[[2, 4, 6]].tolist() == groups[[3, 5, 7]].tolist()
    trees = tree_rows(view, labels)
    assert trees[0]["nodes"][1] == {
        **{"node": 2, "depth": 1, "known": True, "source": "received", "records": 4, "leaf": False},
        **{"feature": "age", "threshold": None, "classes": [2, 2]},
    }
    assert [node["leaf"] for node in trees[0]["nodes"]] == [False, False, True, True, True]
    json.dumps([bounds, found, trees], allow_nan=False)


def test_findings_without_labels(tmp_path: Path) -> None:
    """Sets and signatures are there; whatever needs the label is empty or None."""
    view, _ = _hand_made(tmp_path)
    assert bound_rows(view, None) == []
    found = signature(view, None)
    assert (found["signatures"], found["label_entropy"], found["mutual_information"]) == (5, None, None)
    assert [row["mutual_information"] for row in [found, *found["by_tree"]]] == [None] * 3
    assert [row["by_chance"] for row in [found, *found["by_tree"]]] == [None] * 3
    assert {node["classes"] for tree in tree_rows(view, None) for node in tree["nodes"]} == {None}
    empty = signature(_view(tmp_path, [0, 1]), Labels(np.array([0, 1]), ["a", "b"]))
    assert (empty["signatures"], empty["mutual_information"], empty["by_chance"], empty["by_tree"]) == (1, 0.0, 0.0, [])


def test_a_hidden_node_is_in_the_tree_without_its_records(tmp_path: Path) -> None:
    """A node between two known ones must exist; only that is said of it."""
    tree = TreeView(0, 1, True, 4, known_nodes(np.arange(4), {4: _rows(0)}, []), None)
    rows = tree_rows(_view(tmp_path, [0, 1, 2, 3], (tree,)), None)[0]["nodes"]
    assert [(row["node"], row["known"]) for row in rows] == [(1, True), (2, False), (3, False), (4, True), (5, False)]
    assert {rows[1][key] for key in ("source", "records", "feature", "threshold", "classes")} == {None}
    assert rows[1]["leaf"] is False
