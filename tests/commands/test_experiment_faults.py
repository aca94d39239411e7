"""Faults of an experiment's file and table: told before any process starts, by file, line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treetap
from treetap.errors import BadInput
from treetap.lab import demo
from treetap.lab.experiment.command import run_file
from treetap.lab.experiment.joined_table import content_digest
from treetap.native import library

PARTIES = '[[party]]\nname = "clinic"\nlabels = true\ncolumns = ["a"]\n[[party]]\nname = "lab"\ncolumns = ["b"]\n'
#: Label, id and two columns of 20 rows: ids and columns have no fault.
ROWS = [(f"r{i}", str(i), str(i % 3), str(i % 2)) for i in range(20)]
Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """The message with which a file is refused; a federation that starts, or a folder that is made, fails the test."""
    monkeypatch.setattr("treetap.lab.experiment.run.LocalFederation", lambda *_: pytest.fail("processes were started"))

    def run(
        data: str = "", parties: str = PARTIES, job: str = "", workdir: Path | None = None, table: str = "t.csv"
    ) -> str:
        file = tmp_path / "exp.toml"
        file.write_text(f'[data]\npath = "{table}"\nlabel = "y"\n{data}\n{parties}[job]\n{job}', encoding="utf-8")
        with pytest.raises(BadInput) as raised:
            run_file(file, as_json=True, workdir=workdir or tmp_path / "work")
        assert not (tmp_path / "work").exists()
        return str(raised.value)

    return run


def table(folder: Path, rows: list[tuple[str, ...]] = ROWS, header: str = "who,a,b,y") -> None:
    """A CSV file."""
    (folder / "t.csv").write_bytes("\n".join([header, *map(",".join, rows)]).encode("latin-1") + b"\n")


def changed(row: int, column: int, cell: str) -> list[tuple[str, ...]]:
    """The rows with one cell another."""
    rows = [list(each) for each in ROWS]
    rows[row][column] = cell
    return [tuple(each) for each in rows]


def test_a_table_that_is_not_there(refused: Refused, tmp_path: Path) -> None:
    """It is named with the key and the file in which its path is written; of a dictionary with the key alone."""
    fault = f"data.path: {tmp_path / 'absent.csv'}: there is no such file"
    assert refused(table="absent.csv") == f"{tmp_path / 'exp.toml'}: {fault}"
    with pytest.raises(ValueError, match=re.escape(fault)) as failure:
        treetap.experiment(tmp_path / "exp.toml", workdir=tmp_path / "work")
    assert str(failure.value).startswith(f"{tmp_path / 'exp.toml'}: ")
    content = {"data": {"path": str(tmp_path / "absent.csv"), "label": "y"}, "job": {}}
    parties = [{"name": "clinic", "labels": True, "columns": ["a"]}, {"name": "lab", "columns": ["b"]}]
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}"):
        treetap.experiment({**content, "party": parties}, workdir=tmp_path / "work")


@pytest.mark.parametrize("where", ["a name", "a cell"])
def test_all_that_a_table_lacks_is_told_at_once(where: str, refused: Refused, tmp_path: Path) -> None:
    """Text of another encoding, words that columns need and ids that are there twice; with them it is read."""
    name, cell = ("größe", "x") if where == "a name" else ("a", "größe")
    rows = [(f"r{i % 19}", "-" if i % 5 == 0 else f"{i},5", f"{i + 1}.12.31", cell * (i % 2)) for i in range(20)]
    table(tmp_path, [tuple(";".join(row).split(",")) for row in rows], f"who;{name};b;y")
    parties = PARTIES.replace('"a"', f'"{name}"')
    keys = [
        'encoding = "windows-1252"',
        'date_format = { b = "%d.%m.%y" }',
        'missing = ["-"]',
        'duplicates = "first"',
    ]
    said = refused('id = "who"', parties)
    assert [said.index(key) for key in keys] == sorted(said.index(key) for key in keys)
    for left in range(1, len(keys)):  # those that are given are not told again
        said = refused("\n".join(['id = "who"', *keys[:left]]), parties)
        assert [key in said for key in keys] == [place >= left for place in range(len(keys))]


@pytest.mark.parametrize(("cell", "data"), [("ü", 'encoding = "utf-8"'), ("\x81", "")])
def test_nothing_is_read_by_an_encoding_that_cannot_be(cell: str, data: str, refused: Refused, tmp_path: Path) -> None:
    """Where the settings name one that the text is not of, or it is none that is likely, no other fault is told."""
    rows = [(row[0], cell, "-" if i == 3 else row[2], row[3]) for i, row in enumerate(ROWS)]
    table(tmp_path, rows)
    said = refused(f'id = "who"\n{data}')
    assert "not UTF-8 text" in said
    assert "\n" not in said


def spread(north: str = "label_share = 0.5", south: str = "label_share = 0.5", east: str = "") -> str:
    """Three parties with a column each, whose labels are spread."""
    given = (("north", "a", north), ("south", "b", south), ("east", "c", east))
    return "".join(f'[[party]]\nname = "{name}"\ncolumns = ["{column}"]\n{rest}\n' for name, column, rest in given)


def own(lines: str) -> dict[str, str]:
    """The parties, of whom the last has further lines."""
    return {"parties": PARTIES.replace('["b"]', f'["b"]\n{lines}')}


def numbers(*cells: str) -> dict[str, str]:
    """A regression by cells."""
    return {"data": "\n".join(cells), "job": 'objective = "reg:squarederror"'}


SPREAD = 'protocol = "pivodl"\n'
WITHHELD = 'scheme = "lattice"\ninstance_spaces = "withheld"\n'
TEXT_IN_A, TEXT_IN_B = changed(0, 1, "x"), changed(0, 2, "x")
WIDE = [("who", "a", "b", "c", "y"), *((*row[:3], "1", row[3]) for row in ROWS)]
ALIKE = [(*row[:3], "7" if i else "8") for i, row in enumerate(ROWS)]
DATES = [(row[0], "2024-01-01", "2024-01-02", row[3]) for row in ROWS]
CONSTANT = [(row[0], row[1], "7", row[3]) for row in ROWS]
DRAWN = [(*row, f"text {row[0]}", row[1]) for row in ROWS]
#: Rows, the file's parts, and what the refusal says.
FAULTS: list[tuple[list[tuple[str, ...]], dict[str, str], str]] = [
    (ROWS, {"parties": PARTIES.replace('["b"]', '["b", "a"]')}, "clinic and lab both name column 'a': leave it to one"),
    (ROWS, {"parties": PARTIES.replace('["b"]', '["z"]')}, "t.csv: has no column 'z'"),
    ([("who", "a", "b", "z"), *ROWS], {}, "t.csv: has no column 'y'"),
    *((ROWS, {"data": key}, "t.csv: has no column 'z'") for key in ('id = "z"', 'drop = ["z"]', 'weight = "z"')),
    (ROWS, {"parties": PARTIES.replace('["b"]', '["y"]')}, "'y' is named by label of [data], and no feature"),
    (ROWS, {"data": 'id = "y"'}, "column 'y' is the label, and is the id or dropped"),
    (ROWS, {"data": 'weight = "y"'}, "column 'y' is the weight, and is the label"),
    (ROWS, {"data": 'drop = ["b"]'}, "columns of [[party]] lab: 'b' is named by drop of [data]"),
    (ROWS, {"data": 'exposure = "b"'}, "data.exposure: unknown key; it has another place: the label holder's table"),
    (ROWS, {"data": 'weight = "b"'}, "columns of [[party]] lab: 'b' is named by weight of [data]"),
    (
        ROWS,
        {"data": 'weight = "a"', "parties": PARTIES.replace('columns = ["a"]', "share = 0.0")},
        "line 4, weight column 'a': the",
    ),
    (ROWS, {"parties": PARTIES.replace('"lab"', '"clinic"')}, "two parties have one name"),
    (ROWS, {"parties": PARTIES.replace("labels = true\n", "")}, "exactly one [[party]] has labels = true"),
    (ROWS, {"parties": PARTIES[: PARTIES.rindex("[[party]]")]}, "party: "),
    (
        ROWS,
        {"parties": PARTIES.replace('columns = ["b"]', 'share = 0.7\n[[party]]\nname = "more"\nshare = 0.7')},
        "add up to more than 1",
    ),
    (ROWS, {"parties": PARTIES.replace('columns = ["b"]\n', "")}, "give either columns = [...] or share = 0.x"),
    (
        ROWS,
        {"parties": f"{PARTIES}[defences]\nid_lmid = {{xi = -1}}\n"},
        "defences.id_lmid.xi: Input should be greater",
    ),
    (
        ROWS,
        {"parties": f"{PARTIES}[defences]\nreduced_leakage = {{trees = 9}}\n", "job": "n_estimators = 3"},
        "the job has 3 trees",
    ),
    (ROWS, {"table": "$NOT_SET/t.csv"}, "the environment variable is not set"),
    (ROWS, {"job": 'base_model = "first"'}, "parties of an experiment start without models"),
    ([("who", "a", "b", "b", "y"), *WIDE[1:]], {}, "has column 'b' more than once"),
    (ROWS[:2], {}, "2 rows are too few"),
    ([("größe", "a", "b", "y"), *ROWS], {}, "the names of its columns are not UTF-8 text"),
    ([(*row[:3], "1") for row in ROWS], {}, "t.csv: label column 'y': holds"),
    ([("who", "a", "b", "y")], {}, "t.csv: has no rows"),
    (
        changed(2, 3, "größe"),
        {},
        "t.csv: line 4, column 'y': the cell is not UTF-8 text; write encoding = \"windows-1252\"",
    ),
    # told by the file, as of a job file, not by a coordinator once all processes run
    (
        ROWS,
        {"job": f"{WITHHELD}pad_trees = true\nearly_stopping_rounds = 2\n"},
        "pad_trees = true and early_stopping_rounds do not go together",
    ),
    (ROWS, {"job": 'instance_spaces = "withheld"\n'}, "instance_spaces = 'withheld' and a scheme with keys"),
    (
        ROWS,
        {"job": f"{WITHHELD}[predict]\nprotocols = ['interactive']\n"},
        "interactive: does not predict by models of protocol 'boosting' with instance_spaces = 'withheld'",
    ),
    (ROWS, {"data": 'positive = "yes"'}, "t.csv: label column 'y' has no class 'yes', which positive of [data] names"),
    (ROWS, {"data": "positive = true"}, "has no class 'True'"),
    (ROWS, numbers("positive = 1"), "a regression has none ('y')"),
    (
        changed(5, 3, "rare"),
        {"data": "test_share = 0.6", "job": 'objective = "multi:softprob"'},
        "t.csv: label column 'y': class 'rare' has too few rows, 1: with test_share = 0.6 no row remains to train on",
    ),
    # the last seed's draw, too, is looked at before the first seed's run
    (ALIKE, numbers("test_share = 0.5", f"seed = {list(range(20))}"), "draws training rows of one target only"),
    (ROWS, {"data": "seed = -1"}, "data.seed: a seed is a whole number from 0 (it is -1)"),
    (ROWS, {"data": "seed = [0, -1]"}, "data.seed: a seed is a whole number from 0"),
    (ROWS, {"data": "seed = []"}, "data.seed: names no seed"),
    (ROWS, {"data": "seed = [1, 2, 1]"}, "data.seed: names a seed twice"),
    (ROWS, {"data": f"seed = {2**63 - 1}", "job": "seed = 1"}, "data.seed and job.seed add up to more than 2^63 - 1"),
    *(
        (ROWS, {"parties": PARTIES.replace("lab", name)}, "party.[2].name: another part of the experiment has this")
        for name in ("coordinator", "operator", "certs", "ca")
    ),
    (ROWS, {"parties": PARTIES.replace('["b"]', '["b", "b"]')}, "party.[2]: names a column twice"),
    (TEXT_IN_A, {"data": 'encode = { c = "days" }'}, "t.csv: has no column 'c'"),
    (TEXT_IN_A, {"data": 'encode = { AA = "days" }'}, "t.csv: has no column 'AA'; did you mean 'a'?"),
    (TEXT_IN_A, {"data": 'encode = { y = "days" }'}, "encode of [data] names column 'y', which is the label"),
    (TEXT_IN_A, {"data": 'encode = { a = "day" }'}, "data.encode: 'day' is no encoding"),
    (TEXT_IN_A, {"data": 'encode = { a = "days" }'}, "t.csv: line 2, column 'a': the cell is not a date"),
    (TEXT_IN_B, own('encode = { a = "days" }'), "party.[2]: encode names 'a', which is none of the party's columns"),
    (TEXT_IN_B, own('encode = { b = "days" }'), "t.csv: line 2, column 'b': the cell is not a date"),
    # a party's own `encode` takes the place of that of [data]
    (
        DATES,
        {"data": 'encode = "ordinal"', **own('encode = "days"')},
        "t.csv: column 'a' holds date32[day], not numbers",
    ),
    (TEXT_IN_A, {"data": "monotone_constraints = { c = 1 }"}, "t.csv: has no column 'c'"),
    (TEXT_IN_A, {"data": "monotone_constraints = { y = 1 }"}, "monotone_constraints of [data] names column 'y'"),
    (TEXT_IN_A, {"data": "monotone_constraints = { a = 0 }"}, "must be 1 (increasing) or -1 (decreasing), not 0"),
    (TEXT_IN_B, own("monotone_constraints = { a = 1 }"), "party.[2]: monotone_constraints names 'a'"),
    *(
        (TEXT_IN_B, parts, "t.csv: monotone_constraints names column 'b', whose categories have no order")
        for encode in ("categorical", "one-hot")
        for parts in (
            {"data": f'encode = "{encode}"\nmonotone_constraints = {{ b = 1 }}'},
            {"data": f'encode = "{encode}"', **own("monotone_constraints = { b = -1 }")},
        )
    ),
    (TEXT_IN_B, own("cuts = { a = [1] }"), "party.[2]: cuts names 'a', which is none of the feature columns"),
    (TEXT_IN_B, own("cuts = { b = [2, 1] }"), "has the cut 1 behind 2"),
    (TEXT_IN_B, own(f"cuts = {{ b = {list(range(40))} }}"), "[[party]] lab: cuts of column 'b' make 41 bins"),
    (TEXT_IN_B, {"data": 'encode = "ordinal"', **own("cuts = { b = [1] }")}, "t.csv: cuts names column 'b', which is"),
    # where each party needs a column, dropping the last one is refused too
    (
        CONSTANT,
        {
            "data": "drop_constant = true",
            "parties": PARTIES.replace("labels = true", "label_share = 1.0"),
            "job": f"{SPREAD}instance_threshold = 1\n",
        },
        "these columns hold no two values: of lab column 'b' is constant: give it another",
    ),
    # of columns drawn at random, those of every seed are looked at
    (
        [("who", "a", "b", "y", "c", "d"), *DRAWN],
        {
            "data": f'id = "who"\nseed = {list(range(12))}',
            "parties": PARTIES.replace('columns = ["b"]', "share = 0.5"),
        },
        "t.csv: column 'c' holds another text in each record",
    ),
    # ... and one that nobody gets may hold text
    (
        [("who", "a", "b", "y", "c", "d"), *DRAWN],
        {"data": 'id = "who"\ntest_share = 0.001'},
        "too few for a test share",
    ),
    ([("treetap_id", "a", "b", "y"), *ROWS], {}, "t.csv: column 'treetap_id' has the name of an experiment's own ids"),
    *(
        ([("treetap_id", "a", "b", "y"), *ROWS], {"data": f"{data}\ntest_share = 0.001"}, "too few for a test share")
        for data in ('id = "treetap_id"', 'drop = ["treetap_id"]')
    ),
    *(
        (ROWS, {"parties": parties, "job": SPREAD + job}, says)
        for parties, job, says in (
            (spread(north="label_share = 0.4"), "", "label_share of all parties add up to 0.9, not 1"),
            (spread(east="label_share = 0.1"), "", "label_share of all parties add up to 1.1, not 1"),
            (spread(north="", south=""), "", "no party has labels: give label_share or label_rows"),
            (spread(east="labels = true"), "", "labels = true is not for protocol 'pivodl'"),
            (spread(east='label_share = 0.5\nlabel_rows = "e.txt"'), "", "give either label_share = 0.x or label_rows"),
            (spread(north='label_rows = "n.txt"', south=""), "", "files of ids: name the id column in [data]"),
            (spread(), "epsilon = 0\n", "epsilon must be a number"),
            (spread(), "[predict]\nprotocols = ['eini']\n", "eini: does not predict by models of protocol 'pivodl'"),
            (spread().replace('["c"]', "[]"), "", "east: a party of protocol 'pivodl' has at least one column"),
        )
    ),
    (
        WIDE,
        {"data": 'id = "who"', "parties": spread(), "job": SPREAD + 'classes = ["0", "yes"]'},
        "label column 'y' has a class '1' that is none of job.classes (0, yes)",
    ),
    *(
        (ROWS, {"parties": parties, "job": job}, says)
        for parties, job, says in (
            (
                PARTIES.replace("labels = true", "labels = true\nlacks = 0.1"),
                "",
                "lacks of clinic: the label holder has",
            ),
            (own("lacks = 0.1")["parties"], 'alignment = "sorted-ids"', "needs the same ids, and lab lacks some"),
            (spread(east="lacks = 0.1"), SPREAD, "lacks is not for protocol 'pivodl': east"),
            (own("lacks = 0.99")["parties"], "", "too few for a test share of 0.2 of those that all parties have"),
            (
                own("lacks = 0.1")["parties"],
                "[[defence]]\nid_lmid = { xi = 0.5 }",
                "lacks in [[party]]: not for a frontier",
            ),
        )
    ),
    (
        ROWS,
        {"parties": PARTIES.replace("labels = true", "labels = true\nlabel_share = 1")},
        "are not for protocol 'boosting'",
    ),
]


@pytest.mark.parametrize(("rows", "parts", "says"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_refused_by_key_or_column(
    rows: list[tuple[str, ...]], parts: dict[str, str], says: str, refused: Refused, tmp_path: Path
) -> None:
    """Of the file, or of its table, before a process starts."""
    header, content = (",".join(rows[0]), rows[1:]) if rows[0][1] == "a" else ("who,a,b,y", rows)
    table(tmp_path, content, header)
    assert says in refused(**parts)


def test_a_protocol_whose_library_is_not_there(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lattice predictions without compiled kernels are refused before anything starts, with the remedy."""
    table(tmp_path)
    monkeypatch.setattr(library, "PATH", tmp_path / "kernels.so")
    message = refused(job='[predict]\nprotocols = ["eini", "eini-lattice"]')
    assert "predict.protocols: protocol eini-lattice needs native kernels" in message
    assert "TREETAP_NATIVE=1" in message


def test_constant_columns_are_told_all_at_once(refused: Refused, tmp_path: Path) -> None:
    """Those of all parties, as each would find them among its training rows; one value beside missing ones is none."""
    rows = [(row[0], "7", row[2], "", "5" if i else "", row[3]) for i, row in enumerate(ROWS)]
    table(tmp_path, rows, "who,a,b,c,d,y")
    parties = PARTIES.replace('["b"]', '["b", "c", "d"]')
    message = refused('id = "who"\nseed = [3, 4]', parties)
    assert message.startswith("t.csv: among the training rows of seed 3; seed 4 these columns hold no two values: ")
    assert "of clinic column 'a' is constant; of lab " in message
    assert "column 'c' has no value at all" in message
    assert message.endswith(": set drop_constant = true in [data], or drop them")


def tensors(cells: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Columns of which one holds images."""
    return {"a": range(20), "b": pa.FixedShapeTensorArray.from_numpy_ndarray(cells), "y": [0, 1] * 10}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"a": pa.array([], pa.int64()), "b": [], "y": []}, "has no rows"),
        ({"a": [1, 2], "b": [1, 2], "y": [b"\xff", b"b"]}, "label column 'y': holds binary; classes are"),
        (
            tensors(np.zeros((20, 3, 4), dtype=np.uint8)),
            "column 'b' holds tensors of shape 3 x 4, and trees split at numbers",
        ),
        (tensors(np.zeros((20, 3, 4), dtype=np.int16)), "column 'b' holds tensors of int16, not of uint8"),
    ],
)
def test_faults_of_columns_of_other_types(columns: dict[str, Any], says: str, refused: Refused, tmp_path: Path) -> None:
    """The joined table is named, not a party's copy of it; a fault of tensors themselves comes first."""
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    said = refused(table="t.parquet")
    assert f"{tmp_path / 't.parquet'}: " in said
    assert says in said


@pytest.mark.parametrize("row", range(0, 20, 3))
def test_every_cell_of_every_row_is_looked_at(row: int, refused: Refused, tmp_path: Path) -> None:
    """A fault has the file's own line wherever the row goes, to training or to the held-out rows."""
    for column, cell, says in (
        (2, "inf", "column 'b': the cell is infinite"),
        (0, " ", "column 'who': the id is missing"),
        (0, "  r1" if row > 1 else "r19  ", "column 'who': the id is there already"),
    ):
        table(tmp_path, changed(row, column, cell))
        message = refused('id = "who"\ntest_share = 0.5')
        assert says in message
        assert message.startswith(f"{tmp_path / 't.csv'}: line ")
        if row > 1:
            assert f"line {row + 2}, " in message
    table(tmp_path, changed(row, 1, "x"))
    assert f"column 'a' holds numbers, but not in 1 of its 20 different texts, first in line {row + 2}: " in refused()
    table(tmp_path, changed(row, 3, ""))
    assert f"t.csv: label column 'y': the label at line {row + 2} is missing" in refused()


def test_folders_that_cannot_be_the_working_folder(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a path below a file, a name too long and a folder in use are refused and left as they are."""
    table(tmp_path)
    used = tmp_path / "used"
    (used / "seed-0").mkdir(parents=True)
    before = (tmp_path / "t.csv").read_bytes()
    monkeypatch.setattr(demo, "run_seed", lambda *_: pytest.fail("processes were started"))
    for folder, says in (
        (tmp_path / "t.csv", "is a file"),
        (tmp_path / "t.csv" / "below", "cannot be made: Not a directory"),
        (tmp_path / ("x" * 300), "cannot be made: File name too long"),
        (used, "is not empty"),
    ):
        expected = f"--workdir {folder}: {says}; name another folder"
        assert refused(workdir=folder) == expected
        with pytest.raises(BadInput) as raised:
            demo.run(as_json=True, workdir=folder, key_bits=1024)
        assert str(raised.value) == expected
    assert (tmp_path / "t.csv").read_bytes() == before
    assert list(used.rglob("*")) == [used / "seed-0"]


def test_a_wrong_key_size_leaves_no_folder(tmp_path: Path) -> None:
    """The demo looks at its options before it writes."""
    with pytest.raises(BadInput, match="--key-bits 99: must be 1024"):
        demo.run(as_json=True, workdir=tmp_path / "work", key_bits=99)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("north", "south", "fault"),
    [
        (range(12), range(11, 20), "south.txt: id number 1 is in label_rows of north too; one party labels a row"),
        (range(12), range(13, 20), "t.csv: 1 of 20 rows are in no file of label_rows; name each in one"),
        (range(12), range(12, 21), "south.txt: id number 9 is none of the table's"),
    ],
)
def test_files_of_label_owners(refused: Refused, tmp_path: Path, north: range, south: range, fault: str) -> None:
    """Overlapping and incomplete files are refused, by their names and places, and no id is shown."""
    table(tmp_path, WIDE[1:], "who,a,b,c,y")
    for name, rows in (("north", north), ("south", south)):
        (tmp_path / f"{name}.txt").write_text("".join(f"r{i}\n" for i in rows))
    parties = spread('label_rows = "north.txt"', 'label_rows = "south.txt"')
    said = refused('id = "who"', parties=parties, job=SPREAD)
    assert fault in said
    assert "r11" not in said


def test_the_digest_of_a_table_covers_its_tensors() -> None:
    """Of two tables that differ in one pixel, and of one whose other columns are the same."""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    other = pixels + (pixels == 23)

    def digest(cells: np.ndarray[Any, Any] | None) -> str:
        image = {} if cells is None else {"b": pa.FixedShapeTensorArray.from_numpy_ndarray(cells)}
        return content_digest(pa.table({"a": [1, 2], **image, "c": ["x", "y"]}))

    assert digest(pixels) == digest(pixels.copy())
    assert len({digest(pixels), digest(other), digest(None)}) == 3


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.list_(pa.int64()), [1], [2]),
        (pa.struct([("a", pa.int8())]), {"a": 1}, {"a": 2}),
        (pa.string_view(), "a", "b"),
        (pa.float16(), np.float16(1), np.float16(2)),
        (pa.uuid(), bytes(16), b"x" * 16),
        (pa.month_day_nano_interval(), (1, 2, 3), (1, 2, 4)),
        (pa.duration("s"), 1, 2),
        (pa.time32("s"), 1, 2),
    ],
)
def test_a_column_of_nobody_may_hold_anything(kind: pa.DataType, one: Any, other: Any) -> None:
    """Only the digest of the joined table looks at it, and another cell gives another one."""
    tables = [pa.table({"y": [0], "z": pa.array([cell], kind)}) for cell in (one, other, one)]
    digests = list(map(content_digest, tables))
    assert digests[0] == digests[2] != digests[1]
