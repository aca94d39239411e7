"""The label holder of an experiment on trees with [audit]: when it records its sums, and whom the audit file names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import treetap
from treetap.attacks import audit_file
from treetap.attacks.label_holder_audit import label_holder, read_holder
from treetap.attacks.report.verdict import lines
from treetap.attacks.verdict import Compared, judged
from treetap.lab.experiment.audited import _explained
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.party_tables import ID, Split, write_tables
from treetap.lab.local_federation import to_toml
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table

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
    more = 'record = "received" in the [[party]] of clinic lets it read all, which takes longer'
    assert _explained(floor, experiment, "").floor == f"a floor; {more}"
    (line,) = lines([_explained(floor, experiment, "")])
    assert line.beside == f"a floor; {more}"
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
