"""The text of the pictures in docs/ against what the programs print and draw now: numbers and seconds may differ."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from renderers.rendering import texts
from tests.attacks.frontiers import frontier, point
from tests.commands.command import python
from tests.needs import needs_libraries
from treetap.lab.experiment.frontier import picture
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredAlone, Recommended

DOCS = Path(__file__).parents[2] / "docs"
RENDERED = "import sys; from renderers.demo import main; sys.exit(main())"
#: Symbol of a setting in a picture → its key.
KEYS = {"ξ": "xi", "ε": "epsilon", "trees": "trees"}
LABELS = {
    **{"no defence": "none", "Reduced-Leakage": "reduced_leakage", "ID-LMID": "id_lmid", "label DP": "label_dp"},
    **{"label DP + refit": "label_dp + refit", "Grafting-LDP": "grafting", "Grafting-LDP + refit": "grafting + refit"},
}


@pytest.mark.campaign
def test_the_picture_of_the_demo_is_what_it_prints(tmp_path: Path) -> None:
    """A whole demo; of two pictures a copy with another word alone is told as stale."""
    kept = (DOCS / "demo.svg").read_text(encoding="utf-8")
    changed = kept.replace("Together", "Tagether", 1)
    assert changed != kept
    (tmp_path / "demo.svg").write_text(changed, encoding="utf-8")
    checked = python("-c", RENDERED, "--check", DOCS / "demo.svg", tmp_path / "demo.svg", paths=[DOCS.parent])
    assert checked.status == 1, checked.err
    assert re.findall(r"(\S+) is stale", checked.err) == [str(tmp_path / "demo.svg")]
    assert "Tagether" in checked.err


def _frontier(kept: str) -> FrontierDocument:
    """The document that a picture of a frontier was drawn from, by its own texts."""
    head = re.search(r"<title>AUC against what is read of labels and columns, each defence, (.+?), (\w+)</title>", kept)
    before, alone = re.search(r"without the training ([\d.]+)", kept), re.search(r">(\w+) alone ([\d.]+)<", kept)
    assert head is not None
    assert alone is not None
    known = float(before[1])
    mark = r"<title>([^<:]+?) ?(?:(ξ|ε|trees) (NUM))?: AUC (NUM) ± (NUM), labels guessed (NUM) ± (NUM)</title>"
    points = []
    for label, symbol, value, *figures in re.findall(mark.replace("NUM", r"[\d.]+"), unescape(kept)):
        auc, auc_sd, guessed, guessed_sd = map(float, figures)
        points.append(
            point(LABELS[label], {KEYS[symbol]: float(value)} if symbol else {}, auc, guessed, before=known).model_copy(
                update={
                    "auc": Measured(mean=auc, sd=auc_sd),
                    "added": Measured(mean=guessed - known, sd=guessed_sd),
                }
            )
        )
    chosen = re.search(r'<circle class="chosen" cx="([\d.]+)" cy="([\d.]+)"', kept)
    places = re.findall(r'class="mark" transform="translate\(([\d.]+) ([\d.]+)\)"[^>]*><title>', kept)
    return frontier(*points).model_copy(
        update={
            "table": head[1],
            "protocol": head[2],
            "label_holder": alone[1],
            "measure": "AUC" if "AUC by 40 known" in kept else "accuracy",
            "before": Measured(mean=known),
            "alone": MeasuredAlone(auc=Measured(mean=float(alone[2])), accuracy=Measured(mean=None)),
            "points": points,
            "recommended": Recommended(point=places.index(chosen.groups()), says=""),
        }
    )


def test_the_picture_of_a_frontier_is_what_is_drawn() -> None:
    """Drawn again from the figures that the picture itself has: legend, titles, axes and marks have the same text."""
    kept = (DOCS / "frontier.svg").read_text(encoding="utf-8")
    document = _frontier(kept)
    assert len(document.points) > 10
    drawn = picture(document)
    assert set(texts(drawn)) == set(texts(kept))
    other = picture(document.model_copy(update={"protocol": "forest"}))
    assert set(texts(other)) != set(texts(kept))


@pytest.mark.second_tier
def test_the_picture_of_growth_is_what_is_drawn(tmp_path: Path) -> None:
    """From its committed results."""
    needs_libraries("matplotlib", extra="bench")
    from renderers import growth

    growth.draw(growth.read_results(growth.RESULTS), tmp_path / "growth.svg")
    drawn, kept = (texts((folder / "growth.svg").read_text(encoding="utf-8")) for folder in (tmp_path, DOCS))
    assert set(drawn) == set(kept)
    assert len(set(kept)) > 5
