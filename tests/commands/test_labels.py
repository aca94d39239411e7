"""`treetap labels`: a party reads its ledger of label differential privacy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.commands.command import treetap, treetap_here, write
from treetap.party.defences.noisy_labels import NoisyLabels
from treetap.party.defences.settings import LabelDp
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.protocols.own_priors import by_own_trees
from treetap.tables.features import Held
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

JOB = Occasion("loans", ("shop",), "coordinator", "credit", 1)
TABLE = Table(Path("own.csv"), Ids.of(f"r{i}" for i in range(20)), ["a"], Held(np.zeros((20, 1))), None, np.arange(20))


def configuration(folder: Path, policy: dict[str, Any] | None = None) -> Path:
    """A bank's files, and two draws in its state folder, of which one has lost its labels."""
    for epsilon, values in ((1.0, [0, 1] * 10), (0.5, [0, 1, 2, 0] * 5)):
        drawn = NoisyLabels("bank", folder / "state", LabelDp(epsilon=epsilon), None, by_own_trees)
        drawn.of(TABLE, Labels(np.array(values), ["a", "b", "c"][: max(values) + 1]), "y", JOB)
    (folder / "state" / "noisy_labels" / "1.npz").rename(folder / "0.npz")
    content = {"name": "bank", "state": "state", "insecure": True}
    if policy is not None:
        write(folder / "policy.toml", policy)
        content["policy"] = "policy.toml"
    return write(folder / "bank.toml", content)


def test_the_ledger_as_json(tmp_path: Path) -> None:
    """Every draw with what it was of, whether its labels are there, what is spent and what is left."""
    ended = treetap("labels", "--config", configuration(tmp_path, {"labels": {"label_budget": 4.0}}), "--json")
    assert (ended.status, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert (found["party"], found["budget"], found["spent"], found["left"]) == ("bank", 4.0, 1.5, 2.5)
    shown = ("table", "column", "records", "classes", "epsilon", "stages", "mechanism", "stored")
    assert [tuple(draw[key] for key in shown) for draw in found["draws"]] == [
        ("loans", "y", 20, 2, 1.0, 1, "RRWithPrior/1", True),
        ("loans", "y", 20, 3, 0.5, 1, "RRWithPrior/1", False),
    ]


def test_the_ledger_as_a_table(tmp_path: Path, capsys: Any) -> None:
    """A line a draw, and the sum."""
    assert treetap_here("labels", "--config", str(configuration(tmp_path))) == 0
    out = capsys.readouterr().out
    assert "bank: ε 1.5 spent, its policy has no label_budget" in out
    first, second = [line.split() for line in out.splitlines() if "loans" in line]
    assert first[first.index("loans") :] == ["loans", "y", "20", "2", "1.0", "1", "RRWithPrior/1", "yes"]
    assert second[-1] == "no"


def test_without_draws_nothing_is_spent(tmp_path: Path, capsys: Any) -> None:
    """Neither state folder nor ledger needs to be there, and none is made."""
    config = write(tmp_path / "bank.toml", {"name": "bank", "state": "state", "insecure": True})
    assert treetap_here("labels", "--config", str(config), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        **{"party": "bank", "budget": None, "spent": 0.0, "left": None},
        "draws": [],
        "releases": [],
    }
    assert not (tmp_path / "state").exists()


def test_releases_by_labels_as_they_are_are_listed(tmp_path: Path, capsys: Any) -> None:
    """With their measures, the number of labels and the table; no label is kept."""
    config = write(tmp_path / "bank.toml", {"name": "bank", "state": "state", "insecure": True})
    measures = {"model": "first", "measures": ["auc", "logloss"]}
    occasion = Occasion("loans", ("shop",), "coordinator", "new", 1)
    release = Charge(Kind.CLEAN_LABELS, occasion, 240, measures)
    ledger_of(tmp_path / "state").enter(release)
    assert treetap_here("labels", "--config", str(config), "--json") == 0
    assert json.loads(capsys.readouterr().out)["releases"] == [
        {"at": release.at, "job": "new", "table": "loans", "records": 240, **measures}
    ]
    assert treetap_here("labels", "--config", str(config)) == 0
    assert "new released auc, logloss by 240 labels as they are, of table loans" in capsys.readouterr().out
