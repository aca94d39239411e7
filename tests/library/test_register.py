"""The register of attacks and defences: rendered, whole, and with figures that stand on the pages that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.renderers import papers
from tools.renderers.defences import DEFENCES
from tools.renderers.papers import Paper
from tools.renderers.register import CONTENT, cell, figure, tables
from treetap.attacks.registry import ROWS
from treetap.party.defences.settings import _OPTIONS, Defences
from treetap.protocols.registry import PREDICTION, TRAINING

ROOT = Path(__file__).parents[2]


def test_rows_are_whole() -> None:
    """A published name has a paper; code and protocols exist; no defence of a party's file is without a row."""
    assert len({row.key for row in DEFENCES}) == len(DEFENCES)
    assert papers.PUBLISHED.keys() <= {attack.name for attack in ROWS}
    for row in DEFENCES:
        assert bool(row.published) == (row.paper is not None), row.key
        assert (ROOT / row.module).exists(), row.key
        assert row.had_by, row.key
        assert set(row.had_by) <= {*TRAINING, *PREDICTION}, row.key
    keys = {row.key.partition(" ")[0] for row in DEFENCES}
    assert set(Defences.model_fields) - set(_OPTIONS) <= keys
    named = {paper for _, paper in papers.PUBLISHED.values()} | {row.paper for row in DEFENCES}
    assert {it for it in vars(papers).values() if isinstance(it, Paper)} == named - {None}


def test_a_figure_is_where_its_entry_says() -> None:
    """A row, a column, a command or words that are not there are named, and so is an entry of no row."""
    page = "| a | b |\n|---|---|\n| x | 1 |\n| y | 2 |\n\n| c |\n|---|\n| y | 3 |\n"
    assert cell(page, "| y |", "b") == "2"
    with pytest.raises(ValueError, match="has no row"):
        cell(page, "| z |", "b")
    with pytest.raises(ValueError, match="has no column 'c'"):
        cell(page, "| y |", "c")
    content = json.loads(CONTENT.read_text("utf-8"))
    for change, said in (
        ({"quote": "of 0.123 by nothing"}, "does not say"),
        ({"command": "python benchmarks/nothing.py"}, "has no command"),
    ):
        entry = {**content["figures"]["norm-scoring"], **change}
        with pytest.raises(ValueError, match=said):
            figure({"norm-scoring": entry}, "norm-scoring")
    assert figure({}, "cl") == "–"
    with pytest.raises(ValueError, match="'clx' is no attack of the registry and no defence"):
        tables({**content, "figures": {"clx": content["figures"]["cl"]}})
