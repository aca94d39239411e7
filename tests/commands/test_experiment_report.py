"""The first lines and the first screen of an experiment: what it is worth, and what each side learned by it.

The label holder of an experiment on trees with [audit]: when it records its sums, and whom the audit file names.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import screen, treetap
from tests.commands.experiment_documents import REGRESSION, experiment, run
from treetap.attacks import audit_file
from treetap.attacks.label_holder_audit import label_holder, read_holder
from treetap.attacks.report.verdict import Verdicts, lines
from treetap.attacks.verdict import Compared, Verdict, Word, judged
from treetap.lab.experiment.audited import _explained
from treetap.lab.experiment.command import print_report
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.page import beside, html, learned
from treetap.lab.experiment.party_tables import ID, Split, write_tables
from treetap.lab.experiment.results import RunResult, to_lower, worst_verdicts
from treetap.lab.local_federation import to_toml
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table

GAIN = {"measure": "auc", "together": 0.73, "alone": {"clinic": 0.66}, "low": 0.05, "high": 0.09}


def _verdict(word: Word, share: float, learned: Literal["labels", "columns"] = "labels", **more: Any) -> Verdict:
    party, of = ("lab", "clinic") if learned == "labels" else ("clinic", "lab")
    figures = {"measure": "accuracy", "before": 0.6, "before_how": "own columns", "after": 0.6 + 0.4 * share}
    figures |= {"gain": 0.4 * share, "low": 0.0, "high": 0.8 * share, "share": share}
    return Verdict.model_validate(
        {"party": party, "learned": learned, "of": of, "word": word, "details": "attacks", **figures, **more}
    )


def _runs() -> list[RunResult]:
    """Two seeds: the second one is worse for labels, the first one for columns."""
    verdicts = [
        [_verdict("little", 0.04), _verdict("severe", 0.5, "columns")],
        [_verdict("notable", 0.1), _verdict("severe", 0.3, "columns")],
    ]
    return [
        run(
            seed,
            gain=GAIN,
            verdicts=own,
            to_do={"columns": f"columns {seed}"} | ({"labels": f"labels {seed}"} if seed else {}),
            audit_report=f"runs/exp/seed-{seed}/audit.html",
            audit={},
        )
        for seed, own in enumerate(verdicts)
    ]


def test_the_worst_run_of_each_direction_counts() -> None:
    """By word, then by share; and each direction's cure is the one of its worst."""
    runs = _runs()
    worst = worst_verdicts(runs)
    assert [(it.learned, it.word, it.share, of.seed) for it, of in worst] == [
        ("labels", "notable", 0.1, 1),
        ("columns", "severe", 0.5, 0),
    ]
    assert [(cure, of.audit_report) for cure, of in to_lower(worst)] == [
        ("labels 1", "runs/exp/seed-1/audit.html"),
        ("columns 0", "runs/exp/seed-0/audit.html"),
    ]
    assert worst_verdicts([run()]) == []
    assert to_lower([]) == []
    section = learned(worst, 2)
    shown = [part for part in section.parts if isinstance(part, Verdicts)]
    addresses = [(part.page, [line.word for line in part.lines]) for part in shown]
    assert addresses == [("seed-1/audit.html", ["notable"]), ("seed-0/audit.html", ["severe"])]


def test_the_terminal_begins_with_the_two_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together and alone, what each side learned, then tables of all runs, once; costs on request."""
    text = screen(monkeypatch, "out", 80)
    print_report(_runs(), details=False)
    printed = text.getvalue()
    lines = printed.replace("\n  tell more;", " tell more;").splitlines()
    assert lines[0].startswith("The measures below rest on few held-out rows of class 'no': 30. ")
    assert lines[1] == "    cv = 5  # in [data]"
    assert lines[2:6] == [
        "Federating pays here: chance does not explain the gain.",
        "  together     0.730 AUC",
        "  clinic alone 0.660 AUC",
        "What each side learned, the worst of 2 runs:",
    ]
    assert lines[6] == "lab, of clinic's labels: notable"
    assert lines[7].endswith(" 60.0 % of labels right")
    assert lines[8].endswith(" 64.0 % of labels right")
    assert printed.index(lines[6]) < printed.index("of lab's columns: severe") < printed.index("labels 1\ncolumns 0")
    assert printed.count("Mean ± standard deviation of 2 runs") == 1
    assert "CIPHERTEXT" not in printed
    assert len(printed.splitlines()) <= 30
    text.truncate(0)
    print_report(_runs(), details=True)
    printed = text.getvalue()
    assert printed.count("Who received what") == 1
    assert "30.0 kB" in printed, "the mean of the runs"
    assert "(gain +0.070, +0.050 to +0.090)" in printed
    left_out = ["Not audited: the table is large."]
    print_report([run(left_out=left_out)], details=False)
    assert left_out[0] in text.getvalue().splitlines()


def test_the_first_screen_is_the_verdict() -> None:
    """The line, bars of together and alone, a sentence on the gain, and the verdicts with their addresses."""
    page = html(experiment(), "loans", _runs())
    assert page.index("Federating pays here") < page.index('id="verdict"') < page.index("(gain +0.070, +0.050 to")
    assert page.index("(gain +0.070, +0.050 to") < page.index('id="learned"') < page.index('id="metrics"')
    assert "60.0&#160;% of labels right (own columns)" in page
    assert "\\x" not in page, "nothing that a reader sees is escaped as a control character"
    assert "The worst of 2 runs." in page
    assert 'href="seed-1/audit.html#attacks"' in page
    assert "100 trees of depth 6, learning rate 0.3" not in page, "trees that are used, not those that are planned"
    assert "4 trees of depth" in page
    unsure = run(gain=GAIN | {"low": -0.01})
    assert "do not tell the federation from clinic alone" in html(experiment(), "loans", [unsure])
    worse = run(gain=GAIN | {"together": 0.6, "low": -0.09, "high": -0.03})
    assert "predicts worse than clinic alone" in html(experiment(), "loans", [worse])
    assert 'id="verdict"' not in html(experiment(), "loans", [run()])


def test_bars_are_of_what_there_is_to_reach() -> None:
    """An AUC of ½ is chance and has no length; of errors the largest one has the whole."""
    runs = [run(gain=GAIN)]
    shown = beside([it.gain for it in runs])
    assert [(bar.name, bar.figures, bar.percent) for bar in shown.rows] == [
        ("together", ["0.730 AUC"], "46.00"),
        ("clinic alone", ["0.660 AUC"], "32.00"),
    ]
    errors = {"measure": "rmse", "together": 3.0, "alone": {"clinic": 4.0}, "low": 0.5, "high": 1.5}
    shown = beside([run(objective=REGRESSION, gain=errors).gain])
    assert [bar.percent for bar in shown.rows] == ["75.00", "100.00"]
    assert beside([None]) is None


@pytest.mark.second_tier
def test_an_experiment_says_both_by_itself(tmp_path: Path) -> None:
    """Without a word about it in the file: compared, audited, and the document, the page and the terminal agree."""
    draw = random.Random(8)
    lines = ["a,b,y"]
    for _ in range(300):
        a, b = draw.gauss(0, 1), draw.gauss(0, 1)
        lines.append(f"{a:.4f},{b:.4f},{int(a + 2 * b + draw.gauss(0, 1) > 0)}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    parties = '[[party]]\nname = "bank"\nlabels = true\ncolumns = ["a"]\n[[party]]\nname = "telco"\ncolumns = ["b"]\n'
    job = "[job]\nkey_bits = 1024\nn_estimators = 3\nmax_depth = 3\n"
    (tmp_path / "exp.toml").write_text(f'[data]\npath = "t.csv"\nlabel = "y"\n{parties}{job}')
    outcome = treetap("experiment", "exp.toml", folder=tmp_path)
    assert outcome.status == 0, outcome.err
    document = json.loads((tmp_path / "runs" / "exp" / "results.json").read_text())
    (found,) = document["runs"]
    warned = document["warnings"]
    assert [line["says"].split(",")[0] for line in warned] == [
        "column 'b' of telco ranks the label by itself",
        "The measures below rest on few held-out rows of class '0': 30. More rows would tell more; so would each row "
        "held out once:",
    ]
    assert [line["paste"] for line in warned] == [['drop = ["b"]  # in [data]'], ["cv = 5  # in [data]"]]
    again = treetap("experiment", "exp.toml", "--resume", "runs/exp", "--details", folder=tmp_path)
    assert again.out.startswith(outcome.out.partition("\nBy privacy")[0]), "as it was kept"
    assert again.out.count("of telco's columns: severe, +") == 1, "each gain with its interval once"
    assert found["to_do"]["columns"]["paste"][0] == "[defences]"
    lines = outcome.out.splitlines()
    assert (
        lines[lines.index("Federating pays here: chance does not explain the gain.") - 1] == "    cv = 5  # in [data]"
    )
    assert lines.index("What each side learned:") < 12
    assert found["gain"]["together"] == found["metrics"]["test"]["auc"]
    assert found["gain"]["alone"] == {"bank": found["metrics"]["label holder alone, test"]["auc"]}
    assert found["gain"]["low"] > 0, "b tells twice as much as a"
    by_party = {(it["party"], it["learned"]): it for it in found["verdicts"]}
    assert by_party["telco", "labels"]["word"] == "nothing found", "its one column ranked them before"
    assert by_party["bank", "columns"]["floor"].endswith('\n    record = "received"  # in the [[party]] of bank')
    page = (tmp_path / "runs" / "exp" / "report.html").read_text()
    assert document["headline"] in page
    audit = (tmp_path / "runs" / "exp" / "seed-0" / "audit.html").read_text()
    assert "<title>Audit of exp, seed 0</title>" in audit
    published, private = found["by_privacy"]
    assert (published["privacy"], private["privacy"]) == ("published", "private")
    assert published["test"] == found["metrics"]["test"]
    assert private["test"]["auc"] == published["test"]["auc"], "no accuracy is lost"
    assert {it["learned"] for it in private["verdicts"]} == {"labels", "columns"}
    assert "private" in next(line for line in outcome.out.splitlines() if "0." in line and line.startswith(" private"))
    beside = tmp_path / "runs" / "exp" / "private" / "seed-0"
    assert "A private job: bank learned each winner" in (beside / "audit.html").read_text()
    assert "A private job" not in audit
    assert list(beside.glob("certs/*.key")) == []


ROWS = 40
COMPARED = Compared(
    measure="accuracy",
    before=0.2,
    before_how="the most frequent bin",
    reached=0.6,
    reached_how="all that it read",
    error=0.01,
    tries=2,
    details="columns",
    floor="a floor",
)
TABLE = pa.table(
    {ID: [f"r{row:02d}" for row in range(ROWS)], "y": [row % 2 for row in range(ROWS)]}
    | {name: np.random.default_rng(place).normal(size=ROWS) for place, name in enumerate("abc")}
)


def _experiment(record: str | None, protocol: str = "boosting", audit: bool = True) -> dict[str, Any]:
    """The label holder clinic, and the feature parties lab and shop; of PIVODL all label records."""
    spread = protocol == "pivodl"
    clinic: dict[str, Any] = {"name": "clinic", "columns": ["a"]} | ({"record": record} if record else {})
    others = [{"name": "lab", "columns": ["b"]}, {"name": "shop", "columns": ["c"]}]
    parties = [clinic | ({} if spread else {"labels": True}), *others]
    trees = {} if protocol == "splitnn" else {"n_estimators": 2, "max_depth": 2, "max_bin": 4, "key_bits": 1024}
    given: dict[str, Any] = {
        "data": {"path": "data.parquet", "label": "y"},
        "job": {"protocol": protocol, **trees},
        "party": [party | ({"label_share": 1 / 3} if spread else {}) for party in parties],
    }
    return given | (
        {"audit": {"attacks": ["uni"]}} if audit and protocol != "splitnn" else {"audit": {}} if audit else {}
    )


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        (_experiment("received"), True),
        (_experiment("both", "forest"), True),
        (_experiment(None), True),
        (_experiment("off"), False),
        (_experiment(None, "pivodl"), False),
        pytest.param(_experiment(None, "splitnn"), False, marks=pytest.mark.second_tier),
        (_experiment("received", audit=False), False),
        pytest.param(_experiment("received", "splitnn"), False, marks=pytest.mark.second_tier),
        (_experiment("received", "pivodl"), False),
    ],
)
def test_who_records_sums(given: dict[str, Any], recorded: bool, tmp_path: Path) -> None:
    """A label holder of trees under audit unless its record is "off"; no feature party."""
    experiment = ExperimentFile.model_validate(given)
    columns = {party.name: party.columns or [] for party in experiment.party}
    labels = {name: np.arange(ROWS)[place::3] for place, name in enumerate(columns)} if experiment.spread else {}
    drawn = Split(train=np.arange(30), test=np.arange(30, ROWS), columns=columns, labels=labels)
    settings = write_tables(experiment, TABLE, drawn, tmp_path)
    assert {name: party["policy"]["people"]["record_sums"] for name, party in settings.items()} == {
        "clinic": recorded,
        "lab": False,
        "shop": False,
    }


def test_who_reads_briefly() -> None:
    """A label holder whose file says neither what it records nor how it attacks."""
    brief = {record: ExperimentFile.model_validate(_experiment(record)).reads_briefly for record in (None, "received")}
    assert brief == {None: True, "received": False}
    given = _experiment(None)
    given["audit"]["sums"] = {"steps": 600}
    assert not ExperimentFile.model_validate(given).reads_briefly


def test_a_floor_says_what_reads_more() -> None:
    """By the line of the experiment's file; where the attack could not run the reason is its fault."""
    experiment = ExperimentFile.model_validate(_experiment(None))
    floor = judged("clinic", "columns", "lab", [COMPARED], reason="", details="columns")
    paste = '    record = "received"  # in the [[party]] of clinic'
    assert _explained(floor, experiment, "").floor == f"a floor; to read all, which takes longer:\n{paste}"
    (line,) = lines([_explained(floor, experiment, "")])
    assert (line.notes, line.paste) == (["at least so much: the attack stopped early; to read all:"], [paste])
    unread = judged("clinic", "columns", "lab", [], reason="no [[victim]]", details="columns")
    assert _explained(unread, experiment, "the table lacks a column").reason == "the table lacks a column"
    asked = ExperimentFile.model_validate(_experiment("received"))
    assert _explained(floor, asked, "").floor == "a floor"


@pytest.mark.second_tier
@pytest.mark.parametrize("record", ["received", None])
def test_the_audit_file_names_the_victims(record: str | None, tmp_path: Path) -> None:
    """All feature parties, each with its table; the label holder's transcript has the sums over their columns.

    A constant column that the training left out counts in no figure. Listed cuts are the centralised model's too, and
    those by which cells are scored.
    """
    table = TABLE.drop_columns(ID).append_column("same", pa.array([7] * ROWS))
    pq.write_table(table, tmp_path / "data.parquet")
    given = _experiment(record)
    given["data"]["drop_constant"] = True
    given["party"][1]["columns"] = ["b", "same"]
    given["party"][2]["cuts"] = {"c": [-0.5, 0.5]}
    (tmp_path / "exp.toml").write_text(to_toml(given))
    done = treetap("experiment", tmp_path / "exp.toml", "--json", "--workdir", tmp_path / "work")
    assert done.status == 0, done.err
    (found,) = json.loads(done.out)["runs"]
    assert set(found["audit"]) == {"clinic", "lab", "shop"}
    assert set(found["audit"]["clinic"]) == {"columns_read"}
    assert set(found["audit"]["clinic"]["columns_read"]) == {"lab", "shop"}
    page = (tmp_path / "work" / "seed-0" / "audit.html").read_text(encoding="utf-8")
    assert "placed " in page
    assert "of lab&#39;s cells" in page
    file = audit_file.read(tmp_path / "work" / "seed-0")
    assert file.sums.get("steps") == (None if record else 0)
    floors = [it["floor"] for it in found["verdicts"] if it["learned"] == "columns" and it["before"] is not None]
    assert all(floor.startswith("a floor") != bool(record) for floor in floors)
    assert {victim.name: victim.columns for victim in file.victim} == {"lab": ["b"], "shop": None}
    assert {victim.name: victim.cuts for victim in file.victim} == {"lab": {}, "shop": {"c": [-0.5, 0.5]}}
    assert found["audit"]["clinic"]["columns_read"]["shop"]["left_sets"]["wrong"] == 0
    assert found["metrics"]["test"] == pytest.approx(found["metrics"]["centralised, test"])
    assert found["audit"]["clinic"]["columns_read"]["lab"]["columns"] == 1
    assert label_holder(file) == "clinic"
    opened = read_holder(file, next(party for party in file.party if party.name == "clinic")).opened
    assert (len(opened.trees), opened.parties) == (2, ("lab", "shop"))
    for victim in file.victim:
        assert victim.truth is not None
        truth = read_table(TableConfig(path=victim.truth, id=victim.id), with_label=False, missing=None)
        assert len(truth.ids) == opened.records
