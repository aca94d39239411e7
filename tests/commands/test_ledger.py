"""`treetap ledger`: a party reads what its data were charged for, and what its limits leave."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.commands.command import refused, treetap, write
from treetap.party.prediction.query_counts import counts_of
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
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
