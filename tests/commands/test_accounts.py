"""What a party reads of its own accounts: `treetap ledger`, `treetap leakage` and `treetap labels`.

`treetap ledger`: a party reads what its data were charged for, and what its limits leave.
"""

from __future__ import annotations

import csv
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.commands.command import refused, treetap, treetap_here, write
from treetap.models.store import LEAKAGE, MODEL_FORMAT, TREES, read_leakage
from treetap.party.defences.noisy_labels import NoisyLabels
from treetap.party.defences.settings import LabelDp
from treetap.party.prediction.query_counts import counts_of
from treetap.party.runtime.job_store import JobStore
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.protocols.own_priors import by_own_trees
from treetap.tables.features import Held
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

POLICY: dict[str, Any] = {
    "people": {"peers": ["shop", "telco"]},
    "partners": {
        "shop": {"jobs_per_day": 3, "records_per_day": 500, "queries_per_record": 4},
        "*": {"predictions_per_day": 2},
        "coordinator": {"jobs_per_day": 10},
    },
}
CREDIT = Occasion("loans", ("shop",), "coordinator", "credit", 1)
NEW = Occasion("new", ("telco", "shop"), "coordinator", "scores", 2)


def configuration(folder: Path, policy: dict[str, Any]) -> Path:
    """A bank's files, with charges of today and one of long ago."""
    ledger, now = ledger_of(folder / "state"), time.time()
    ledger.enter(Charge(Kind.TRAINING, CREDIT, 1, {}, 1e9))
    ledger.enter(Charge(Kind.TRAINING, CREDIT, 1, {}, now))
    ledger.enter(Charge(Kind.RECORDS, CREDIT, 450, {}, now))
    ledger.enter(Charge(Kind.PREDICTION, NEW, 1, {}, now))
    ledger.enter(Charge(Kind.ANSWER, NEW, 0, {"of": 0, "told": "12"}, now))
    counts_of(folder / "state", "shop").enter("bank", Ids.of(["r1", "r2"]).take(np.array([0, 1])), 4)
    write(folder / "policy.toml", policy)
    return write(folder / "bank.toml", {"name": "bank", "state": "state", "insecure": True, "policy": "policy.toml"})


def test_the_ledger_as_json(tmp_path: Path) -> None:
    """Every charge; sums by table, partner and kind; and the limits of each partner with what the day leaves."""
    ended = treetap("ledger", "--config", configuration(tmp_path, POLICY), "--json")
    assert (ended.status, ended.err) == (0, "")
    document = json.loads(ended.out)
    assert [(row["kind"], row["job"], row["attempt"], row["amount"]) for row in document["charges"]] == [
        ("training", "credit", 1, 1),
        ("training", "credit", 1, 1),
        ("records", "credit", 1, 450),
        ("prediction", "scores", 2, 1),
        ("preview's answer", "scores", 2, 0),
    ]
    assert [(row["table"], row["partner"], row["kind"], row["charges"], row["sum"]) for row in document["sums"]] == [
        ("loans", "coordinator", "records", 1, 450),
        ("loans", "coordinator", "training", 2, 2),
        ("loans", "shop", "records", 1, 450),
        ("loans", "shop", "training", 2, 2),
        ("new", "coordinator", "prediction", 1, 1),
        ("new", "shop", "prediction", 1, 1),
        ("new", "telco", "prediction", 1, 1),
    ]
    assert {(row["limit"], row["of"]): (row["most"], row["spent"], row["left"]) for row in document["left"]} == {
        ("jobs_per_day", "shop"): (3, 1, 2),
        ("records_per_day", "shop"): (500, 450, 50),
        ("previews_per_day", "shop"): (5, 0, 5),
        ("queries_per_record", "shop"): (4, 1, 3),
        ("predictions_per_day", "telco"): (2, 1, 1),
        ("jobs_per_day", "coordinator"): (10, 1, 9),
    }


def test_the_ledger_as_a_table_and_a_csv_file(tmp_path: Path) -> None:
    """The same sums for people, and each charge for a spreadsheet."""
    file = tmp_path / "ledger.csv"
    ended = treetap("ledger", "--config", configuration(tmp_path, POLICY), "--csv", file)
    assert ended.status == 0
    assert "bank: shop: 450 spent, 50 left (records_per_day)" in ended.out
    assert [line.split()[1:5] for line in ended.out.splitlines() if "450" in line and "loans" in line] == [
        ["coordinator", "records", "1", "450"],
        ["shop", "records", "1", "450"],
    ]
    with file.open(newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    assert [row["parties"] for row in rows] == ["shop", "shop", "shop", "telco shop", "telco shop"]
    assert rows[0] == {
        **{"at": "2001-09-09 01:46:40 UTC", "kind": "training", "amount": "1", "table": "loans", "parties": "shop"},
        **{"coordinator": "coordinator", "job": "credit", "attempt": "1", "details": "{}"},
    }


def test_without_a_ledger_there_is_nothing(tmp_path: Path) -> None:
    """And no folder is made."""
    config = write(tmp_path / "bank.toml", {"name": "bank", "state": "state", "insecure": True})
    document = json.loads(treetap("ledger", "--config", config, "--json").out)
    assert document == {"party": "bank", "charges": [], "sums": [], "left": []}
    assert not (tmp_path / "state").exists()


def test_a_damaged_ledger_is_bad_input(tmp_path: Path) -> None:
    """The file is named, that of queries too."""
    config = configuration(tmp_path, POLICY)
    queries = tmp_path / "state" / "queries" / "shop.jsonl"
    held = queries.read_bytes()
    queries.write_bytes(held.replace(b'"key":"', b'"key":"0'))
    assert f"{queries}: line 1 is damaged" in refused(treetap("ledger", "--config", config))
    queries.write_bytes(held)
    ledger = tmp_path / "state" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"amount":450', b'"amount":4'))
    assert refused(treetap("ledger", "--config", config)).startswith(f"{ledger}: line 3 is damaged")


# ---- `treetap leakage`: the label holder's own account, of jobs, models and previews


MODEL = Path(__file__).parent.parent / "library" / "models" / f"v{MODEL_FORMAT}" / "bank"
CONFIG = """
name = "bank"
state = "state"

[tls]
ca = "ca.crt"
certificate = "bank.crt"
key = "bank.key"
"""


def _party(folder: Path) -> Path:
    (folder / "bank.toml").write_text(CONFIG)
    shutil.copytree(MODEL, folder / "state" / "models" / "experiment")
    return folder / "bank.toml"


def test_a_published_model_has_its_account(tmp_path: Path) -> None:
    """All trees as JSON; for people the largest bound of all trees and the signature after the last."""
    config = _party(tmp_path)
    found = json.loads(treetap("leakage", "experiment", "--config", config, "--json").out)
    assert found == {"job": "experiment", "published": True, "trees": read_leakage(MODEL)}
    bounds = [tree["parties"]["telco"]["bound_nats"] for tree in found["trees"]]
    shown = treetap("leakage", "experiment", "--config", config).out
    assert f"{max(bounds):.4f}" in shown
    assert f"{100 * found['trees'][-1]['parties']['telco']['excess_share']:.1f} % of H(Y)" in shown
    assert "per node, not joint" in shown


def test_a_job_that_trains_has_its_trees_so_far(tmp_path: Path) -> None:
    """The lines that are stored, before the model is published."""
    config = _party(tmp_path)
    store = JobStore(tmp_path / "state" / "jobs" / "new", tmp_path / "state" / "models" / "new")
    store.claim("nonce", "d")
    store.lines(TREES).put({LEAKAGE: read_leakage(MODEL)[0]}, 0)
    found = json.loads(treetap("leakage", "new", "--config", config, "--json").out)
    assert (found["published"], len(found["trees"])) == (False, 1)


def test_a_job_without_an_account_is_refused(tmp_path: Path) -> None:
    """Exit status 2 and the folder that has none."""
    said = refused(treetap("leakage", "other", "--config", _party(tmp_path)))
    assert "there is no account of a job 'other'" in said


def test_a_party_has_the_account_of_its_previews(tmp_path: Path) -> None:
    """All of them, or the one of a name: with whom, and what it told; one that broke down has no answer."""
    config, ledger = _party(tmp_path), ledger_of(tmp_path / "state")
    assert "there is no account of previews" in refused(treetap("leakage", "--config", config))
    for name, told in (("align-1", "fewer than 30"), ("align-2", "")):
        occasion = Occasion("train", ("shop", "telco"), "coordinator", name, 1)
        number = ledger.enter(Charge(Kind.PREVIEW, occasion, details={"answer": "count"}))
        if told:
            ledger.enter(Charge(Kind.ANSWER, occasion, 0, {"of": number, "told": told}))
    found = json.loads(treetap("leakage", "--config", config, "--json").out)["previews"]
    assert [(row["job"], row["partners"], row["told"]) for row in found] == [
        ("align-1", ["shop", "telco"], "fewer than 30"),
        ("align-2", ["shop", "telco"], ""),
    ]
    shown = treetap("leakage", "align-1", "--config", config).out
    for text in ("align-1", "shop, telco", "fewer than 30", "previews_per_day = 5"):
        assert text in shown
    assert "align-2" not in shown
    assert "no answer" in treetap("leakage", "align-2", "--config", config).out
    ledger.path.write_text(ledger.path.read_text().replace("shop", "shot"))
    assert "ledger.jsonl" in refused(treetap("leakage", "--config", config))


# ---- `treetap labels`: a party reads its ledger of label differential privacy


JOB = Occasion("loans", ("shop",), "coordinator", "credit", 1)
TABLE = Table(Path("own.csv"), Ids.of(f"r{i}" for i in range(20)), ["a"], Held(np.zeros((20, 1))), None, np.arange(20))


def labelled(folder: Path, policy: dict[str, Any] | None = None) -> Path:
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


def test_the_labels_ledger_as_json(tmp_path: Path) -> None:
    """Every draw with what it was of, whether its labels are there, what is spent and what is left."""
    ended = treetap("labels", "--config", labelled(tmp_path, {"labels": {"label_budget": 4.0}}), "--json")
    assert (ended.status, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert (found["party"], found["budget"], found["spent"], found["left"]) == ("bank", 4.0, 1.5, 2.5)
    shown = ("table", "column", "records", "classes", "epsilon", "stages", "mechanism", "stored")
    assert [tuple(draw[key] for key in shown) for draw in found["draws"]] == [
        ("loans", "y", 20, 2, 1.0, 1, "RRWithPrior/1", True),
        ("loans", "y", 20, 3, 0.5, 1, "RRWithPrior/1", False),
    ]


def test_the_labels_ledger_as_a_table(tmp_path: Path, capsys: Any) -> None:
    """A line a draw, and the sum."""
    assert treetap_here("labels", "--config", str(labelled(tmp_path))) == 0
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


def test_a_damaged_ledger_of_labels_is_bad_input(tmp_path: Path) -> None:
    """The file is named."""
    config = labelled(tmp_path)
    ledger = tmp_path / "state" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"epsilon":1.0', b'"epsilon":0.1'))
    assert refused(treetap("labels", "--config", config)).startswith(f"{ledger}: line 1 is damaged")
