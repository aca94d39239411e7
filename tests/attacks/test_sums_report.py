"""The report of a label holder of trees as attacker, on made-up figures: document, page, terminal, limits."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from tests.attacks.documents import HOLDER, made
from tests.attacks.sums_documents import both_directions, figures, unread
from treetap.attacks.document import Document, parse
from treetap.attacks.limits import exceeded
from treetap.attacks.limits import parse as limits
from treetap.attacks.pivodl.schema import SourceColumns, SourceFigures
from treetap.attacks.report import html, print_summary
from treetap.attacks.report.pivodl import column_words
from treetap.attacks.report.sums import WHO_KNOWS, words
from treetap.attacks.sums.schema import CellsRead
from treetap.errors import BadInput

WHY = "the party offered no sums"
SENTENCE = (
    "placed 84.2 % of telco's cells (900 records × 8 columns) in their bins, by the sums that it opened in 5 trees; 65 "
    "of its 6,128 claims are wrong, which the audit alone knows. The left sets of splits that telco won, which no "
    "noise on sums hides, place 2.1 % by themselves; with all links given it would place 99.5 %. By left sets alone it "
    "learned 7 cuts in 1 of 8 columns, and between which two of these 15.6 % of the cells lie: telco answers for the "
    "records of a node. The order of systolic is read best: its rank correlation is 0.964."
)


@pytest.fixture(scope="module")
def document() -> Document:
    """Two feature parties that attack labels, and their label holder, which attacked one of two by its sums."""
    return both_directions(figures("telco"), unread("insurer", WHY), parties=["telco", "insurer"])


def summary(document: Document, width: int = 250) -> str:
    """What a terminal shows, without line breaks."""
    out = io.StringIO()
    print_summary(document, Console(file=out, width=width))
    return " ".join(out.getvalue().split())


def text_of(page: str) -> str:
    """The words of a page, without tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).replace("&#39;", "'").replace("&#160;", " ").split())


def test_the_document_is_what_was_written(document: Document) -> None:
    """Its JSON reads back as the same, and only a label holder's part has the key."""
    plain = document.plain()
    assert parse(plain) == document
    assert set(plain["parties"][HOLDER]["columns_read"]) == {"telco", "insurer"}
    assert all("columns_read" not in party for name, party in plain["parties"].items() if name != HOLDER)
    assert document.columns_read["telco"] == figures("telco")
    assert made(trees=1).columns_read == {}


def test_both_directions_are_shown(document: Document) -> None:
    """Page and terminal have a sentence and every figure of either; the label holder is no attacker on labels."""
    page, said = html(document.plain()), summary(document)
    assert words("telco", figures("telco")) == SENTENCE
    for text in (text_of(page), said):
        assert f"{HOLDER} {SENTENCE}" in text
        assert f"was not measured as a reader of insurer's columns: {WHY}." in text
        assert WHO_KNOWS in text
        for row in ("left sets alone (floor) 2.1 % 153 0 0.0 %", "and differences 61.1 % 4,404 5 0.1 %"):
            assert row in text
        for row in ("and all equations 84.2 % 6,128 65 1.1 %", "all links given (bound) 99.5 % 7,171 4 0.1 %"):
            assert row in text
        assert "4,321" not in text  # its own signatures tell nothing about labels that it has
        assert f"No attack was run on the view of {HOLDER}" not in text
    for fact in ("links right 87.6 %", "contradictions 19", "equations 77", "processor time 12.34 s"):
        assert fact in text_of(page)
    assert "telco 84.2 % 1.1 % 2.1 % 99.5 % systolic 0.964 insurer – – – – – –" in text_of(page)
    assert "<dt>feature parties</dt><dd><bdi>2</bdi></dd>" in page


def test_the_pictures_are_in_the_page(document: Document) -> None:
    """A column beside its reconstruction, as data URLs."""
    picture = document.columns_read["telco"].picture
    assert picture is not None
    page = html(document)
    assert re.findall(r'<img src="([^"]*)"', page) == [picture.truth, picture.read]
    assert page.count('href="#columns"') == 1


def test_a_label_holder_alone() -> None:
    """Its page has no section on labels, and no line says that these were not scored."""
    document = both_directions(figures("telco"), alone=True)
    page, said = html(document), summary(document)
    for section in ("attacks", "bounds", "together", "trees"):
        assert f'id="{section}"' not in page
        assert f'href="#{section}"' not in page
    for text in (text_of(page), said):
        assert SENTENCE in text
        assert "No labels were given" not in text
        assert "V-measure" not in text


def _source(placed: int, wrong: int | None) -> SourceFigures:
    """A party of PIVODL whose columns another one read; of 400 cells."""
    counts = dict.fromkeys(("received", "by_left_sets", "opened", "linked", "contradictions"), 0)
    size = {"records": 100, "columns": 4, "cells": 400, "by_left_sets_wrong": None, "rank_correlation": None}
    return SourceFigures.model_validate(counts | size | {"placed": placed, "wrong": wrong, "best_column": None})


def test_words_on_the_columns_of_pivodl() -> None:
    """The party that is read best, by right claims; without its table no claim is called right."""
    both = SourceColumns(sources={"east": _source(90, 60), "west": _source(50, 2)}, reasons={})
    assert column_words(both) == (
        "west",
        "placed 12.0 % of west's cells (100 records that it does not label × 4 columns) in their bins, and no more of "
        "another party's; 2 of its 50 claims are wrong, which the audit alone knows.",
    )
    unscored = column_words(SourceColumns(sources={"east": _source(90, None)}, reasons={}))
    assert unscored is not None
    assert unscored[1].startswith("claims the bins of 22.5 % of east's cells (")
    assert unscored[1].endswith("; no table scores that.")
    assert column_words(SourceColumns(sources={}, reasons={})) is None


def test_a_regression() -> None:
    """Attacks on labels are not scored there, and those on columns are."""
    document = both_directions(figures("lab-north"), classes=None)
    for text in (text_of(html(document)), summary(document)):
        assert "placed 84.2 % of lab-north's cells" in text
        assert "(regression), so no attack on labels is scored" in text


def test_names_are_escaped() -> None:
    """A feature party's column may have any name."""
    page = html(both_directions(figures("telco", best="<b>&")))
    assert "<b>&" not in page
    assert "The order of &lt;b&gt;&amp; is read best" in page


@pytest.mark.parametrize(("limit", "above"), [("columns=0.1", True), ("columns=0.8421", False)])
def test_a_limit(limit: str, above: bool, document: Document) -> None:
    """On the share that was placed by all that was read, and without any label."""
    message = f"telco: {HOLDER} placed a share of 0.842, above 0.1"
    assert exceeded(document, limits([limit])) == ([message] if above else [])
    assert exceeded(both_directions(figures("telco"), labelled=False), limits([limit])) == ([message] if above else [])


def test_a_limit_on_left_sets() -> None:
    """They may place more than the attack by sums does, whose links of columns with categories are of no use to it."""
    few, many = CellsRead(placed=0.005, claims=20, wrong=1), CellsRead(placed=0.25, claims=900, wrong=0)
    document = both_directions(figures("telco", together=few, left_sets=many))
    message = f"telco: {HOLDER} placed a share, by left sets alone, of 0.250, above 0.1"
    assert exceeded(document, limits(["columns=0.1"])) == [message]


def test_limits_on_labels_beside_it(document: Document) -> None:
    """A label holder's transcript is none that they judge."""
    assert exceeded(document, limits(["any=1", "information=1", "accuracy=1"])) == []


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (made(trees=1), r"no label holder's attack by opened sums is in this audit: .* \[\[victim\]\]"),
        (both_directions(unread("telco", WHY), trees=1), f"nothing was attacked: {WHY}"),
    ],
)
def test_a_limit_that_cannot_be_judged(document: Document, said: str) -> None:
    """Nothing was attacked: a fault, and no pass."""
    with pytest.raises(BadInput, match=f"--fail-above columns: {said}"):
        exceeded(document, limits(["columns=0.1"]))
