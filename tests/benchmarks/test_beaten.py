"""The benchmark of easy attacks beside the audit's: rows, what is skipped or kept, and the status if one is beaten."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def beaten(benchmark: Any) -> Any:
    """Its module."""
    return benchmark("beaten")


def _run(beaten: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["beaten.py", *words])
    status: int = beaten.main()
    return status


def _ask(beaten: Any, monkeypatch: pytest.MonkeyPatch, allowed: float) -> list[str]:
    """One row in the place of all kinds: .8 beside the audit's .7; the tables that it is asked of."""
    asked = list[str]()
    best = importlib.import_module("beaten_tables").Best

    def rows(name: str, *_: object) -> Any:
        asked.append(name)
        yield beaten.Row("way", "first half", "x", "AUC", allowed, best.of({"easy": 0.8}), best.of({"audit": 0.7}))

    monkeypatch.setattr(beaten, "KINDS", {"kind": (rows, "records")})
    return asked


def test_rows_and_status(beaten: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each question; 1 where an easy attack is better by more than is allowed."""
    _ask(beaten, monkeypatch, 0.15)
    assert _run(beaten, monkeypatch, "--sets", "breast_cancer", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["holder"], row["question"]) == ("first half", "kind, x, AUC")
    assert row["difference"] == pytest.approx(0.1)
    _ask(beaten, monkeypatch, 0.05)
    assert _run(beaten, monkeypatch, "--sets", "breast_cancer") == 1
    assert "easy beats the audit" in capsys.readouterr().err


def test_finished_tables_are_kept(
    beaten: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The same options go on with the tables that are missing; others begin anew."""
    asked = _ask(beaten, monkeypatch, 0.15)
    given = ("--workdir", str(tmp_path), "--json", "--sets")
    assert _run(beaten, monkeypatch, *given, "breast_cancer") == 0
    first = json.loads(capsys.readouterr().out)
    assert _run(beaten, monkeypatch, *given, "loans", "breast_cancer") == 0
    assert json.loads(capsys.readouterr().out)[1:] == first
    assert asked == ["breast_cancer", "loans"]
    assert _run(beaten, monkeypatch, *given, "breast_cancer", "--depth", "3") == 0
    assert asked == ["breast_cancer", "loans", "breast_cancer"]


def test_a_table_that_is_not_at_hand_is_skipped_with_the_reason(
    beaten: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without the folder, and with one that lacks it."""
    monkeypatch.delenv("TREETAP_DATA", raising=False)
    assert _run(beaten, monkeypatch, "--sets", "bank", "--json") == 0
    assert "bank: skipped: set TREETAP_DATA" in capsys.readouterr().err
    monkeypatch.setenv("TREETAP_DATA", str(tmp_path))
    assert beaten.absent("bank") == "TREETAP_DATA has no bank_marketing.parquet"


@pytest.mark.usefixtures("beaten")
def test_easy_attacks_find_what_is_planted() -> None:
    """A class that a column follows is found by its components, with or without a missing cell; either side counts."""
    labels_of = importlib.import_module("beaten_labels")
    draw = np.random.default_rng(0)
    labels = (draw.random(400) < 0.3).astype(np.int64)
    columns = np.stack([labels * 2 + draw.normal(size=400) for _ in range(3)], axis=1)
    columns[0, 0] = np.nan
    ways = dict(labels_of.by_columns(labels_of.Trained(columns, labels, ())))
    assert labels_of.either_side(ways["component 1 of columns"], labels) > 0.95
    assert labels_of.either_side(-ways["vote of columns"], labels) > 0.95
    assert labels_of.regressed(labels_of.standardised(columns), labels, [np.arange(40)]) > 0.9


@pytest.mark.usefixtures("beaten")
def test_groups_by_an_order() -> None:
    """A class of a fifth is the upper end of a column that it follows, where k-means divides otherwise."""
    groups_of, labels_of = importlib.import_module("beaten_groups"), importlib.import_module("beaten_labels")
    labels = (np.arange(300) % 5 == 0).astype(np.int64)
    column = np.random.default_rng(0).random(300) + labels
    it = labels_of.Trained(column[:, None], labels, ())
    ways = dict(groups_of.grouped(it, "a column", column))
    assert (ways["upper end of a column"] == labels).all()
    assert (ways["lower end of a column"].sum(), len(set(ways["k-means on a column"]))) == (60, 2)
    assert "k-means on columns" in dict(groups_of.own(it))


@pytest.mark.usefixtures("beaten")
def test_sums_tell_columns_that_the_label_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three columns two are numbers: with little noise most cells are named, and places follow merged bins."""
    columns_of, tables = importlib.import_module("beaten_columns"), importlib.import_module("beaten_tables")
    draw = np.random.default_rng(0)
    labels = (draw.random(120) < 0.5).astype(np.int64)
    columns = np.round(labels[:, None] * [0, 0, 0, 1, 1, 1] + draw.normal(size=(120, 6)))
    numbers = np.array([True] * 4 + [False, True])
    given = Namespace(cell_trees=12, depth=3, sweeps=10, order_depths=[3])
    monkeypatch.setattr(columns_of, "EPSILONS", (100_000.0,))
    monkeypatch.setattr(columns_of, "SECONDS", 2.0)
    rows = list(columns_of.columns_rows("bank", tables.Table(columns, numbers, labels), given))
    assert [row.holder for row in rows] == ["first 3 columns"] * 2
    assert rows[0].easy.figure > 0.6 < rows[0].audit.figure
    assert rows[1].easy.every["a line through means of nodes"] > 0.1
    assert rows[1].easy.figure <= rows[1].audit.figure + 0.02


@pytest.mark.second_tier
def test_the_audit_is_not_beaten_on_a_small_table(
    beaten: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Breast cancer, spaces withheld, few trees: both questions are answered by the audit's own attacks."""
    given = ("--sets", "breast_cancer", "--kinds", "labels", "--ways", "withheld", "--trees", "3", "--json")
    assert _run(beaten, monkeypatch, *given) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["question"] for row in found] == ["labels, with the training, AUC", "labels, before it, AUC"] * 2
    assert all(0.8 < row["audit_figure"] <= 1 for row in found)


@pytest.mark.second_tier
def test_a_recorded_transcript(
    beaten: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small federation: its files give the easy attacks what they give the audit, and the verdict has a row."""
    given = ("--sets", "breast_cancer", "--kinds", "recorded", "--trees", "2", "--depth", "2", "--json")
    assert _run(beaten, monkeypatch, *given) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["measure"] for row in found] == ["AUC", "V-measure", "accuracy"]
    assert all(0.4 < row["audit_figure"] <= 1 for row in found)
