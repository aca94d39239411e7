"""The benchmark of easy attacks beside the audit's: rows, what is skipped, and the status where an audit is beaten."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def beaten(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its module."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    return importlib.import_module("beaten")


def _run(beaten: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["beaten.py", *words])
    status: int = beaten.main()
    return status


def test_rows_and_status(beaten: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for either question and either party; 1 where an easy attack is better by more than is allowed."""
    rows = [("labels, x", beaten.Best("easy", 0.8), beaten.Best("audit", 0.7))]
    compared = beaten.Comparison("AUC", 0.15, lambda _: iter(rows))
    monkeypatch.setattr(beaten, "COMPARISONS", {"kind": compared})
    given = ("--sets", "breast_cancer", "--ways", "withheld", "--trees", "1", "--depth", "1")
    assert _run(beaten, monkeypatch, *given, "--json") == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [row["holder"] for row in found] == ["first half", "second half"]
    assert found[0]["difference"] == pytest.approx(0.1)
    monkeypatch.setattr(beaten, "COMPARISONS", {"kind": compared.__class__("AUC", 0.05, compared.compare)})
    assert _run(beaten, monkeypatch, *given) == 1
    assert "easy beats the audit" in capsys.readouterr().err


def test_a_table_that_is_not_at_hand_is_skipped_with_the_reason(
    beaten: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without the folder, and with one that lacks it."""
    monkeypatch.delenv("TREETAP_DATA", raising=False)
    assert _run(beaten, monkeypatch, "--sets", "bank", "--json") == 0
    assert "bank: skipped: set TREETAP_DATA" in capsys.readouterr().err
    monkeypatch.setenv("TREETAP_DATA", str(tmp_path))
    assert beaten.absent("bank") == "TREETAP_DATA has no bank_marketing.parquet"


def test_easy_attacks_find_what_is_planted(beaten: Any) -> None:
    """A class that a column follows is found by its components, with or without a missing cell; either side counts."""
    draw = np.random.default_rng(0)
    labels = (draw.random(400) < 0.3).astype(np.int64)
    columns = np.stack([labels * 2 + draw.normal(size=400) for _ in range(3)], axis=1)
    columns[0, 0] = np.nan
    ways = dict(beaten.by_columns(beaten.Trained([("h", columns), ("f", columns)], labels, ())))
    assert beaten.either_side(ways["component 1 of columns"], labels) > 0.95
    assert beaten.either_side(-ways["vote of columns"], labels) > 0.95


@pytest.mark.second_tier
def test_the_audit_is_not_beaten_on_a_small_table(
    beaten: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Breast cancer, spaces withheld, few trees: both questions are answered by the audit's own attacks."""
    assert _run(beaten, monkeypatch, "--sets", "breast_cancer", "--ways", "withheld", "--trees", "3", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["question"] for row in found] == ["labels, with the training", "labels, before it"] * 2
    assert all(0.8 < row["audit_figure"] <= 1 for row in found)
