"""The text of the pictures in docs/ against what the programs print and draw now: numbers and seconds may differ."""

from __future__ import annotations

import importlib
import re
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.commands.command import python
from tests.needs import needs_libraries
from treetap.commands.frontier.page import picture
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredPoint

DOCS = Path(__file__).parents[2] / "docs"
#: Symbol of a setting in a picture → its key.
KEYS = {"ξ": "xi", "ε": "epsilon", "trees": "trees"}
LABELS = {
    **{"no defence": "none", "Reduced-Leakage": "reduced_leakage", "ID-LMID": "id_lmid", "label DP": "label_dp"},
    **{"label DP + refit": "label_dp + refit", "Grafting-LDP": "grafting", "Grafting-LDP + refit": "grafting + refit"},
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script of the documents as its own folder does."""
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module


@pytest.mark.second_tier
def test_the_picture_of_the_demo_is_what_it_prints(tmp_path: Path) -> None:
    """A whole demo, and a copy of the picture with another word is told as stale."""
    kept = (DOCS / "demo.svg").read_text(encoding="utf-8")
    changed = kept.replace("Time", "Tame", 1)
    assert changed != kept
    (tmp_path / "demo.svg").write_text(changed, encoding="utf-8")
    for path, status in ((DOCS / "demo.svg", 0), (tmp_path / "demo.svg", 1)):
        checked = python(DOCS / "render_demo.py", "--check", path)
        assert checked.status == status, checked.err
    assert "Tame" in checked.err


def _frontier(kept: str) -> FrontierDocument:
    """The document that a picture of a frontier was drawn from, by its own texts."""
    head = re.search(r"<title>AUC against what is read of labels and columns, each defence, (.+?), (\w+)</title>", kept)
    assert head is not None
    panels = kept.split("<g transform=")[1:]
    points: dict[tuple[str, str], dict[str, Any]] = {}
    attacks = []
    for panel in (each for each in panels if 'font-weight="600"' in each):
        title = re.search(r'font-weight="600">(.+?)</text>', panel)
        assert title is not None
        attacks.append(
            {"UNI": "uni", "UNI+CL": "uni+cl", "ID2Graph": "id2graph", "ID2Graph, quotient": "id2graph-quotient"}[
                title[1]
            ]
        )
        level = re.search(r"CL ([\d.]+)", panel)
        assert level is not None
        mark = r"<title>([^<:]+?) ?(?:(ξ|ε|trees) (NUM))?: AUC (NUM) ± (NUM), V-measure (NUM) ± (NUM)</title>"
        for label, symbol, value, *figures in re.findall(mark.replace("NUM", r"[\d.]+"), unescape(panel)):
            settings = {KEYS[symbol]: float(value)} if symbol else {}
            auc, auc_sd, v, v_sd = map(float, figures)
            made = points.setdefault((label, value), {"settings": settings, "auc": (auc, auc_sd), "v": {}})
            made["v"] |= {attacks[-1]: (v, v_sd), "cl": (float(level[1]), 0.0)}
    return FrontierDocument(
        version=2,
        table=head[1],
        data_digest="00",
        protocol=head[2],
        trainer="centralised",
        job={},
        classes=2,
        records={},
        seeds=[0, 1],
        attacks=[*attacks, "cl"],
        says=[],
        points=[
            MeasuredPoint(
                defence=LABELS[label],
                settings=it["settings"],
                auc=Measured(mean=it["auc"][0], sd=it["auc"][1]),
                accuracy=Measured(mean=None),
                v_measure={name: Measured(mean=mean, sd=sd) for name, (mean, sd) in it["v"].items()},
                parties={},
                cells=None,
                cells_of={},
                seeds=[0, 1],
            )
            for (label, _), it in points.items()
        ],
    )


def test_the_picture_of_a_frontier_is_what_is_drawn(module: Any) -> None:
    """Drawn again from the figures that the picture itself has: legend, titles, axes and marks have the same text."""
    texts = module("rendering").texts
    kept = (DOCS / "frontier.svg").read_text(encoding="utf-8")
    document = _frontier(kept)
    assert len(document.points) > 10
    drawn = picture(document)
    assert set(texts(drawn)) == set(texts(kept))
    other = picture(document.model_copy(update={"protocol": "boosting"}))
    assert set(texts(other)) != set(texts(kept))


@pytest.mark.second_tier
def test_the_pictures_of_growth_and_capacity_are_what_is_drawn(module: Any, tmp_path: Path) -> None:
    """Growth from its committed results; capacity with made-up minutes, which leave legend and axes as they are."""
    needs_libraries("matplotlib", extra="bench")
    texts, growth, capacity = module("rendering").texts, module("render_growth"), module("render_capacity")
    growth.draw(growth.read_results(growth.RESULTS), tmp_path / "growth.svg")
    every = product(capacity.RECORDS, capacity.LINES, capacity.SCHEMES, capacity.NODES)
    points = [
        capacity.Point(records, nodes, scheme, line, {"seconds": {"tree": 60.0}})
        for records, line, scheme, nodes in every
    ]
    capacity.draw(points, tmp_path / "capacity.svg")
    for name in ("growth.svg", "capacity.svg"):
        drawn, kept = (texts((folder / name).read_text(encoding="utf-8")) for folder in (tmp_path, DOCS))
        assert set(drawn) == set(kept)
        assert len(set(kept)) > 5
