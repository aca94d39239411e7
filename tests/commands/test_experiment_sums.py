"""The label holder of an experiment on trees with [audit]: when it records its sums, and whom the audit file names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attacks import audit_file
from attacks.label_holder_audit import label_holder, read_holder
from tests.commands.command import treetap
from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.joined_table import ID, Split
from treetap.commands.experiment.party_tables import write_tables
from treetap.commands.local_federation import to_toml
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table

ROWS = 40
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
        (_experiment(None), False),
        (_experiment("received", audit=False), False),
        pytest.param(_experiment("received", "splitnn"), False, marks=pytest.mark.second_tier),
        (_experiment("received", "pivodl"), False),
    ],
)
def test_who_records_sums(given: dict[str, Any], recorded: bool, tmp_path: Path) -> None:
    """A label holder of trees that records under audit; no feature party."""
    experiment = ExperimentFile.model_validate(given)
    columns = {party.name: party.columns or [] for party in experiment.party}
    labels = {name: np.arange(ROWS)[place::3] for place, name in enumerate(columns)} if experiment.spread else {}
    drawn = Split(train=np.arange(30), test=np.arange(30, ROWS), columns=columns, labels=labels)
    settings = write_tables(experiment, TABLE, drawn, tmp_path)
    assert {name: party["policy"]["record_sums"] for name, party in settings.items()} == {
        "clinic": recorded,
        "lab": False,
        "shop": False,
    }


@pytest.mark.second_tier
def test_the_audit_file_names_the_victims(tmp_path: Path) -> None:
    """All feature parties, each with its table; the label holder's transcript has the sums over their columns."""
    pq.write_table(TABLE.drop_columns(ID), tmp_path / "data.parquet")
    (tmp_path / "exp.toml").write_text(to_toml(_experiment("received")))
    done = treetap("experiment", tmp_path / "exp.toml", "--json", "--workdir", tmp_path / "work")
    assert done.status == 0, done.err
    (found,) = json.loads(done.out)["runs"]
    assert set(found["audit"]) == {"clinic", "lab", "shop"}
    assert set(found["audit"]["clinic"]) == {"columns_read"}
    assert set(found["audit"]["clinic"]["columns_read"]) == {"lab", "shop"}
    page = next((tmp_path / "work").glob("*.html")).read_text(encoding="utf-8")
    assert "placed " in page
    assert "of lab&#39;s cells" in page
    file = audit_file.read(tmp_path / "work" / "seed-0")
    assert [victim.name for victim in file.victim] == ["lab", "shop"]
    assert label_holder(file) == "clinic"
    opened = read_holder(file, next(party for party in file.party if party.name == "clinic")).opened
    assert opened is not None
    assert (len(opened.trees), opened.parties) == (2, ("lab", "shop"))
    for victim in file.victim:
        assert victim.truth is not None
        truth = read_table(TableConfig(path=victim.truth, id=victim.id), with_label=False, missing=None)
        assert len(truth.ids) == opened.records
