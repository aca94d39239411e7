"""`treetap model scorecard` and `stability` on the model of a federation: its parties' parts, files and refusals."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import treetap_here, write
from tests.simulator import Federation, run
from tests.worlds import PARTIES, spec, world
from treetap.arrays import Floats
from treetap.lab.experiment.xgboost_export import trained_table
from treetap.lab.scorecard.options import Frame
from treetap.lab.scorecard.parts import Part, read_records
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams

BANK, TELCO, SHOP = PARTIES
HERE = world(160, (2, 2, 1), missing=0.1, seed=4, levels=3)
#: Columns of text beside the world's numbers.
WORDS = {BANK: "purpose", TELCO: "tariff"}
Said = tuple[int, str, str]


def _tables() -> dict[str, tuple[list[str], dict[str, pa.Table]]]:
    """The world's tables, with a column of categories at two parties, some of them missing."""
    tables = dict(HERE.tables)
    for party, name in WORDS.items():
        columns, content = tables[party]
        words = ["house", "car's", 'a "b"', None]
        more = {
            table: rows.append_column(
                name, pa.array([words[(int(it[1:]) * 7 + (it[-1] in "135")) % 4] for it in rows["id"].to_pylist()])
            )
            for table, rows in content.items()
        }
        tables[party] = [*columns, name], more
    return tables


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the states of the parties, their configurations, and explained predictions of the training."""
    folder = tmp_path_factory.mktemp("federation")

    async def main() -> None:
        federation = Federation(folder, _tables(), encode="categorical")
        params = BoostingParams(n_estimators=12, max_depth=1, max_bin=8, learning_rate=0.5)
        for job, given in (("job", params), ("deep", BoostingParams(n_estimators=1, max_depth=2, max_bin=8))):
            assert (await federation.train(spec(given), job)).state == "finished"
        for protocol in ("interactive", "eini"):
            request = predict_request(model="job", table="train", protocol=protocol, explain=True)
            status = await federation.predict(request)
            assert status.state == "finished"
            shutil.copy(status.explanations, folder / f"{protocol}.explained.parquet")
            shutil.copy(status.predictions, folder / f"{protocol}.parquet")

    run(main())
    (folder / "ids.csv").write_text("id\nr00001\n")
    for party, (columns, tables) in _tables().items():
        named = {"id": "id", "columns": columns, "encode": {WORDS[party]: "categorical"} if party in WORDS else None}
        named |= {"label": "y"} if party == BANK else {}
        rows = tables["train"]
        one_class = (
            rows.filter(pa.array([True, *[value == 1 for value in rows["y"].to_pylist()[1:]]]))
            if party == BANK
            else rows
        )
        others = {"shifted": rows.slice(0, 40), "few": rows.slice(0, 1), "one": one_class.slice(1)}
        for name, table in others.items():
            pq.write_table(table, folder / party / f"{name}.parquet")
        paths = {name: {**named, "path": f"{party}/{name}.parquet"} for name in ("train", *others)}
        content = {"name": party, "state": f"{party}/state", "insecure": True, "policy": f"{party}.policy.toml"}
        clean = {name: {key: value for key, value in it.items() if value is not None} for name, it in paths.items()}
        write(folder / f"{party}.toml", {**content, "tables": clean})
        write(folder / f"{party}.policy.toml", {"people": {"label_holders": [BANK], "peers": [TELCO, SHOP]}})
    return folder


Ask = Callable[..., Said]


@pytest.fixture
def ask(trained: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A party's command on its part of a model: status, output, error."""

    def asked(command: str, party: str, *words: str | Path, model: str = "job") -> Said:
        status = treetap_here("model", command, model, "--config", str(trained / f"{party}.toml"), *map(str, words))
        return status, *capsys.readouterr()

    return asked


def _bins(ask: Ask, folder: Path, *parties: str) -> list[str]:
    """Have the partners write their bins; the label holder's options that read them."""
    for party in parties:
        status, _, error = ask("scorecard", party, "--send-bins", folder / f"{party}.json")
        assert (status, error) == (0, "")
    return [word for party in parties for word in ("--bins", str(folder / f"{party}.json"))]


def _told(folder: Path, policy: str) -> None:
    write(folder / f"{BANK}.policy.toml", {"people": {"peers": [TELCO, SHOP]}, "emits": json.loads(policy)})


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("parties", [(), (TELCO,), (TELCO, SHOP)])
def test_scores_are_those_of_predictions(
    parties: tuple[str, ...], bad: int, trained: Path, ask: Ask, tmp_path: Path
) -> None:
    """With others' columns by bins, or split by split: the sum of a record's points is its predicted score."""
    _bins(ask, tmp_path, *parties)
    part = Part.open(trained / BANK / "state" / "models" / "job")
    frame = Frame(base_points=500.0, odds=20.0, pdo=30.0)
    classes = part.two_classes(None, str(bad))
    card = part.card(frame, *classes, [tmp_path / f"{party}.json" for party in parties])
    table = trained_table(trained / f"{BANK}.toml", "train")
    assert table is not None
    records = read_records(part, table, classes, trained / "interactive.explained.parquet")
    assert {column.party for column in card.columns} == set(PARTIES)
    predicted = pq.read_table(trained / "interactive.parquet").sort_by("id")
    order = np.argsort(records.table.ids.array.to_pylist())
    margins = predicted["score"].to_numpy() * (1 if bad else -1)
    expected = np.array([frame.score(margin) for margin in margins])
    np.testing.assert_allclose(card.scores(records.cells(part, card))[order], expected, rtol=0, atol=1e-9)


def _by_sql(query: str, rows: pa.Table) -> Floats:
    """The scores of records in the order of ids, by SQLite."""
    with sqlite3.connect(":memory:") as base:
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in rows.column_names)
        base.execute(f"CREATE TABLE records ({names})")
        cells = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        marks = ", ".join("?" * rows.num_columns)
        base.executemany(
            f"INSERT INTO records VALUES ({marks})", ([None if v != v else v for v in row] for row in cells)
        )
        return np.array([row[0] for row in base.execute(f"SELECT score FROM ({query}) ORDER BY id")], dtype=np.float64)


def _by_pmml(text: str, rows: pa.Table) -> tuple[Floats, list[dict[str, float]]]:
    """Scores, and points lost by column, by the rules of PMML's `Scorecard`."""
    root = ET.fromstring(text)
    space = {"p": root.tag[1:].partition("}")[0]}
    model = root.find("p:Scorecard", space)
    assert model is not None

    def holds(test: ET.Element, row: dict[str, Any]) -> bool | None:
        kind, value = test.tag.partition("}")[2], row.get(test.get("field", ""))
        if kind in ("True", "CompoundPredicate"):
            parts = [holds(part, row) for part in test]
            if test.get("booleanOperator") == "and":
                return False if False in parts else None if None in parts else True
            return kind == "True" or (True if True in parts else None if None in parts else False)
        operator = test.get("operator")
        if operator in ("isMissing", "isNotMissing"):
            return (value is None) == (operator == "isMissing")
        if value is None:
            return None
        if kind == "SimpleSetPredicate":
            marked = re.findall(r'"((?:[^"\\]|\\.)*)"', test[0].text or "")
            return value in [re.sub(r"\\(.)", r"\1", it) for it in marked]
        bound = float(test.get("value", ""))
        return bool({"lessThan": value < bound, "greaterOrEqual": value >= bound}[str(operator)])

    scores, reasons = [], []
    for cells in rows.sort_by("id").to_pylist():
        row = {key: None if value != value else value for key, value in cells.items()}
        score, lost = float(model.get("initialScore", "")), {}
        for column in model.iterfind("p:Characteristics/p:Characteristic", space):
            first = next(it for it in column if holds(it[0], row))
            score += float(first.get("partialScore", ""))
            lost[column.get("reasonCode", "")] = float(column.get("baselineScore", "")) - float(
                first.get("partialScore", "")
            )
        scores.append(score)
        reasons.append(lost)
    return np.array(scores), reasons


MERGED = ("--min-records", "10", "--monotonic")


def _card(ask: Ask, trained: Path, folder: Path) -> dict[str, Any]:
    """The whole card as JSON, after partners were told their points; each party's files lie in the folder."""
    _told(trained, json.dumps({"LEAF_WEIGHT": [TELCO, SHOP]}))
    words = [*_bins(ask, folder, TELCO, SHOP), *MERGED, "--table", "train", "--cut-off", "400", "--json"]
    words += ["--explained", str(trained / "interactive.explained.parquet"), "--send-points", str(folder)]
    words += ["--reasons", str(folder / f"{BANK}.reasons.csv")]
    outs = [word for form in ("csv", "sql", "pmml") for word in ("--out", str(folder / f"{BANK}.{form}"))]
    status, out, error = ask("scorecard", BANK, *words, *outs)
    assert (status, error) == (0, "")
    for party in (TELCO, SHOP):
        outs = [word for form in ("csv", "sql", "pmml") for word in ("--out", str(folder / f"{party}.{form}"))]
        points = ["--points", str(folder / f"{party}.points.json"), "--table", "train"]
        points += ["--reasons", str(folder / f"{party}.reasons.csv")]
        status, said, error = ask("scorecard", party, *points, *outs)
        assert (status, error) == (0, ""), error
        assert "points" in said
    content: dict[str, Any] = json.loads(out)
    return content


def test_parts_add_up_to_the_whole_card(trained: Path, ask: Ask, tmp_path: Path) -> None:
    """Each party's SQL and PMML on its own table: their sum, of whole points, is the card's score.

    Its AUC and what it accepts are as printed, and each bin of which a partner is told has records of both classes.
    """
    content = _card(ask, trained, tmp_path)
    tables = {party: pq.read_table(trained / party / "train.parquet") for party in PARTIES}
    by_sql = sum(_by_sql((tmp_path / f"{party}.sql").read_text(), tables[party]) for party in PARTIES)
    by_pmml = [_by_pmml((tmp_path / f"{party}.pmml").read_text(), tables[party]) for party in PARTIES]
    np.testing.assert_array_equal(by_sql, sum(scores for scores, _ in by_pmml))
    for party, (scores, reasons) in zip((BANK, TELCO, SHOP), by_pmml, strict=True):
        written = sorted(csv.DictReader((tmp_path / f"{party}.reasons.csv").open()), key=lambda row: row["id"])
        expected = by_sql if party == BANK else scores
        assert [float(row["score"]) for row in written] == expected.tolist()
        for row, lost in zip(written, reasons, strict=True):
            told = {row[f"reason {rank}"]: float(row[f"lost {rank}"]) for rank in range(1, 5) if row[f"reason {rank}"]}
            of_party = {
                name.removeprefix(f"{party} "): points for name, points in told.items() if name.startswith(party)
            }
            assert of_party.items() <= {name: points for name, points in lost.items() if points}.items()
            assert list(told.values()) == sorted(told.values(), reverse=True)
            most = sorted((points for points in lost.values() if points), reverse=True)[:4]
            assert party == BANK or list(told.values()) == most
    good = tables[BANK].sort_by("id")["y"].to_numpy() == 0
    pairs = by_sql[good][:, None] - by_sql[~good][None, :]
    measured = content["measured"]
    assert measured["auc_whole_points"] == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    assert (measured["of"], measured["records"], measured["bad"]) == ("all columns", 160, int((~good).sum()))
    (cut,) = content["cut_offs"]
    assert cut["accepted"] == pytest.approx((by_sql >= 400).mean())
    assert cut["bad_rate"] == pytest.approx((~good)[by_sql >= 400].mean())
    for row in content["bins"]:
        bad = round(row["bad_rate"] * row["records"])
        alone = sum(it["column"] == row["column"] and it["party"] == row["party"] for it in content["bins"]) == 1
        assert alone or min(bad, row["records"] - bad) >= 10
    rows = list(csv.DictReader(io.StringIO((tmp_path / f"{BANK}.csv").read_text())))
    assert [(row["bin"], row["points"]) for row in rows[1:]] == [
        (it["bin"], str(it["points"])) for it in content["bins"]
    ]
    assert {row["party"] for row in rows} == set(PARTIES)


@pytest.mark.second_tier
def test_a_library_reads_the_scorecard_back(trained: Path, ask: Ask, tmp_path: Path) -> None:
    """Scores and the first reason, of records with and without missing cells."""
    library = pytest.importorskip("pypmml")
    if shutil.which("java") is None:
        pytest.skip("needs Java: apt-get install default-jre-headless")
    _card(ask, trained, tmp_path)
    for party in (BANK, TELCO):
        text = (tmp_path / f"{party}.pmml").read_text()
        rows = pq.read_table(trained / party / "train.parquet")
        expected, reasons = _by_pmml(text, rows)
        model = library.Model.fromString(text)
        for cells, score, lost in zip(rows.sort_by("id").to_pylist(), expected, reasons, strict=True):
            answer = model.predict({name: cell for name, cell in cells.items() if cell is not None and cell == cell})
            assert float(answer["score"]) == score
            assert lost.get(answer["reason 1"], 0.0) == max(lost.values())


def test_a_partner_sees_no_points_of_its_own_accord(trained: Path, ask: Ask, tmp_path: Path) -> None:
    """Its part has cuts and records, the file that it sends neither cuts nor names; points go if the policy says so."""
    status, out, _ = ask("scorecard", TELCO, "--table", "train", "--json", "--send-bins", tmp_path / "bins.json")
    rows = json.loads(out)["bins"]
    assert status == 0
    assert {key for row in rows for key in row} == {"party", "column", "bin", "records"}
    sent = (tmp_path / "bins.json").read_text()
    columns = {row["column"] for row in rows}
    assert columns
    assert not any(f'"{name}{end}' in sent for name in (*columns, "house", "car") for end in '"=:')
    cuts = [split["threshold"] for line in (trained / TELCO / "state/models/job/trees.jsonl").open()
            for split in json.loads(line)["splits"] if split["threshold"] is not None]  # fmt: skip
    assert cuts
    assert not any(str(cut) in sent for cut in cuts)
    _told(trained, "{}")
    words = [*("--bins", tmp_path / "bins.json"), *MERGED, *("--table", "train", "--send-points", tmp_path)]
    words += ["--explained", trained / "interactive.explained.parquet"]
    status, out, error = ask("scorecard", BANK, *words)
    assert (status, out) == (2, "")
    assert f'LEAF_WEIGHT = ["{TELCO}"]' in error
    assert not (tmp_path / f"{TELCO}.points.json").exists()


def test_labels_that_are_protected_tell_no_points(trained: Path, ask: Ask, tmp_path: Path) -> None:
    """Bins are merged by labels as they are, of which noise or a budget lets nothing go."""
    _told(trained, json.dumps({"LEAF_WEIGHT": [TELCO]}))
    words = [*_bins(ask, tmp_path, TELCO), *MERGED, "--table", "train", "--send-points", str(tmp_path)]
    words += ["--explained", str(trained / "interactive.explained.parquet")]
    config = trained / f"{BANK}.toml"
    kept = config.read_text()
    config.write_text(f"{kept}\n[defences.label_dp]\nepsilon = 1.0\n")
    try:
        status, _, error = ask("scorecard", BANK, *words)
    finally:
        config.write_text(kept)
    assert status == 2
    assert "protects its labels" in error
    assert not (tmp_path / f"{TELCO}.points.json").exists()


def _damaged(path: Path, seed: str = "", **changes: Any) -> Path:
    """The same file of a party, whole, with other entries; `seed`: of its checksum, else that of bins."""
    from treetap.lab.scorecard.parts import BINS_SEED
    from treetap.models.durable import document

    content = {key: value for key, value in json.loads(path.read_text()).items() if key != "sha256"}
    path.write_bytes(document(content | changes, seed or BINS_SEED))
    return path


WRONG: dict[str, tuple[str, str, list[str], str]] = {
    "deep": ("deep", BANK, [], "has trees of several levels: train with max_depth = 1"),
    "PDO": ("job", BANK, ["--pdo", "0"], "--pdo 0: must be a number above 0"),
    "a class": ("job", BANK, ["--bad", "maybe"], "--bad maybe: the model's classes are 0, 1"),
    "one class as two": ("job", BANK, ["--good", "1"], "--bad 1: the model's classes are 0, 1: name two of them"),
    "another good class": ("job", BANK, ["--good", "maybe"], "--good maybe: the model's classes are 0, 1"),
    "rates alone": ("job", BANK, ["--table", "train", "--send-rates"], "add --send-points"),
    "no table": ("job", BANK, ["--monotonic"], "records of bins are counted and merged by a table"),
    "another table": ("job", BANK, ["--table", "trian"], "has no table 'trian'"),
    "one class": ("job", BANK, ["--table", "one"], "column 'y': all records have one class"),
    "an empty bin": ("job", TELCO, ["--table", "few"], "no record of the table is in bin"),
    "ending": ("job", BANK, ["--out", "card.xls"], "--out card.xls: end the file's name with .csv, .sql, .pmml"),
    "holder's": ("job", TELCO, ["--cut-off", "500"], "--cut-off is not for feature-b"),
    "partner's": ("job", BANK, ["--points", "x"], "--points is not for label-holder"),
    "no points": ("job", TELCO, ["--out", "card.sql"], "--out and --reasons write points, which a partner has"),
    "reasons of nothing": ("job", BANK, ["--reasons", "x.csv"], "--reasons are of the records of a table"),
    "no reasons": ("job", TELCO, ["--table", "train", "--reasons", "x.csv"], "--out and --reasons write points"),
    "to whom": ("job", BANK, ["--table", "train", "--send-points", "."], "--send-points needs --bins, --explained"),
    "one round": ("job", BANK, ["--table", "train", "--explained", "{}/eini.explained.parquet"], "has candidates"),
    "not explained": ("job", BANK, ["--table", "train", "--explained", "{}/interactive.parquet"], "has no paths"),
    "not Parquet": ("job", BANK, ["--table", "train", "--explained", "{}/ids.csv"], "has no paths"),
    "other rows": (
        "job",
        BANK,
        ["--table", "few", "--explained", "{}/interactive.explained.parquet"],
        "name the table",
    ),
}


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_a_card(case: str, trained: Path, ask: Ask) -> None:
    """One message that names the file or the option and the cure, and status 2."""
    model, party, words, named = WRONG[case]
    status, out, error = ask("scorecard", party, *(word.format(trained) for word in words), model=model)
    assert (status, out) == (2, "")
    assert named in error


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "another model": ({"submission": "1"}, "submission is '1', not"),
    "another party": ({"to": SHOP}, f"to is '{SHOP}', not '{BANK}'"),
    "of nobody": ({"from": "clinic"}, "is of clinic, who has no split in trees of these classes"),
    "without columns": ({"columns": []}, "does not fit this model (it lacks splits, or has one twice)"),
    "of other content": ({"columns": [{"handles": "x"}]}, "does not fit this model"),
    "of an object": ({"columns": [{"handles": [0], "left": {}}]}, "does not fit this model (left: "),
    "of no number": ({"columns": [{"handles": [0.5], "left": [[]]}]}, "does not fit this model (handles."),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CHANGES)
def test_a_file_of_bins_that_does_not_fit(case: str, trained: Path, ask: Ask, tmp_path: Path) -> None:
    """It is refused by its name, whole as it is; so is a damaged one."""
    changes, named = CHANGES[case]
    _bins(ask, tmp_path, TELCO)
    path = _damaged(tmp_path / f"{TELCO}.json", **changes)
    status, out, error = ask("scorecard", BANK, "--bins", path)
    assert (status, out) == (2, "")
    assert str(path) in error
    assert named in error
    path.write_text(path.read_text().replace("handles", "handle"))
    assert "is damaged" in ask("scorecard", BANK, "--bins", path)[2] or case == "without columns"


@pytest.mark.second_tier
def test_a_file_of_points_that_does_not_fit(trained: Path, ask: Ask, tmp_path: Path) -> None:
    """Whatever the label holder has written, one message names the file."""
    from treetap.lab.scorecard.parts import POINTS_SEED

    _told(trained, json.dumps({"LEAF_WEIGHT": [TELCO]}))
    words = [*_bins(ask, tmp_path, TELCO), *MERGED, "--table", "train", "--send-points", str(tmp_path), "--send-rates"]
    assert ask("scorecard", BANK, *words, "--explained", trained / "interactive.explained.parquet")[0] == 0
    path = tmp_path / f"{TELCO}.points.json"
    first, *others = json.loads(path.read_text())["columns"]
    odd: list[tuple[str, Any]] = [(key, value) for key in ("handles", "bins", "points") for value in ([], {}, ["x"])]
    for key, value in (*odd, ("bins", [[7]]), ("handles", [10**30]), ("bad_rates", [])):
        _damaged(path, POINTS_SEED, columns=[{**first, key: value}, *others])
        status, out, error = ask("scorecard", TELCO, "--points", path, "--table", "train")
        assert (status, out) == (2, ""), (key, value)
        assert f"{path}: does not fit this model" in error


def test_bins_that_records_do_not_take(trained: Path, ask: Ask, tmp_path: Path) -> None:
    """A partner whose bins are not those of its splits is named."""
    _bins(ask, tmp_path, TELCO)
    path = tmp_path / f"{TELCO}.json"
    columns = json.loads(path.read_text())["columns"]
    columns[0]["left"] = columns[0]["left"][:1]
    _damaged(path, columns=columns)
    words = ["--table", "train", "--explained", trained / "interactive.explained.parquet"]
    status, _, error = ask("scorecard", BANK, "--bins", path, *words)
    assert status == 2
    assert f"{TELCO}, column 1: records go other ways than its bins" in error


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", [BANK, TELCO])
def test_stability_of_a_party(party: str, trained: Path, ask: Ask, tmp_path: Path) -> None:
    """A table beside itself is stable; a part of it moves, by the definition over the bins that are told."""
    more: list[Any] = []
    if party == BANK:
        more = [
            "--expected-scores",
            trained / "interactive.parquet",
            "--actual-scores",
            trained / "interactive.parquet",
        ]
    status, out, error = ask("stability", party, "--expected", "train", "--actual", "train", "--json", *more)
    assert (status, error) == (0, "")
    rows = json.loads(out)["stability"]
    assert all((row["index"], row["reads"], row.get("points", 0)) == (0, "stable", 0) for row in rows)
    assert ("score" in [row["of"] for row in rows], "points" in rows[-1]) == (party == BANK, party == BANK)
    status, out, _ = ask("stability", party, "--expected", "train", "--actual", "shifted", "--json")
    for row in json.loads(out)["stability"]:
        p, q = (np.array([it[key] for it in row["bins"]]) for key in ("expected", "actual"))
        assert row["index"] == pytest.approx(float(((q - p) * np.log(q / p)).sum()))
        assert (p.sum(), q.sum()) == (pytest.approx(1), pytest.approx(1))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "name two tables, --expected and --actual"),
        (["--expected", "train"], "name two tables"),
        (["--expected-scores", "{}/eini.explained.parquet", "--actual-scores", "x"], "has no column score"),
        (["--expected-scores", "nowhere.csv", "--actual-scores", "x"], "nowhere.csv: there is no such file"),
        (["--expected", "train", "--actual", "train", "--points", "x"], "--points is not for label-holder"),
    ],
)
def test_what_cannot_be_compared(words: list[str], named: str, trained: Path, ask: Ask) -> None:
    """One message, and status 2."""
    status, out, error = ask("stability", BANK, *(word.format(trained) for word in words))
    assert (status, out) == (2, "")
    assert named in error
