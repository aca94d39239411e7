"""A sample of corruptions: `python -m tests.campaign corruptions` carries out thousands."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.campaign import corruption
from tests.campaign.corruption import Corruption, carry_out, carry_out_all
from treetap.models import line_file

pytestmark = pytest.mark.second_tier


def test_damage_is_named_or_does_no_harm(tmp_path: Path) -> None:
    """Whatever is changed in whichever file: the right model and scores, or an error that names the file."""
    summary = carry_out_all(range(40), tmp_path)
    assert summary.findings == []
    assert summary.right + summary.named == 40
    assert summary.named > 20


def test_without_checksums_wrong_models_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is no yes-man: where checksums fit whatever they are of, changed digits make other models."""
    monkeypatch.setattr(line_file, "_chained", lambda before, body: "0" * 64)
    monkeypatch.setattr(corruption, "stopped", cache(corruption.stopped.__wrapped__))
    outcomes = [
        carry_out(Corruption(seed, "growing", "label-holder/state/jobs/job/trees.jsonl", "digit"), tmp_path / str(seed))
        for seed in range(12)
    ]
    assert any(outcome.startswith("WRONG") for outcome in outcomes)
