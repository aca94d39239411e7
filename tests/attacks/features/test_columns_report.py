"""The report of a label holder as attacker, on made-up figures: page, terminal, document, limits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.attacks.documents import in_terminal, made
from tests.attacks.features.documents import HOLDER, VICTIM, attribute, figures, number, of_label_holder
from tests.attacks.present import present
from treetap.attacks.document import Document, parse
from treetap.attacks.limits import exceeded
from treetap.attacks.limits import parse as limits
from treetap.attacks.report.columns import RESCALED, words
from treetap.attacks.report.page import html
from treetap.errors import BadInput

pytestmark = pytest.mark.second_tier

DATA_URL = r"data:image/png;base64,[A-Za-z0-9+/=]+"


@pytest.fixture(scope="module")
def document() -> Document:
    """An audit of a label holder alone."""
    return of_label_holder(feature_b=figures(), feature_c=figures(images=False, scored=False))


def test_the_page_fetches_nothing(document: Document) -> None:
    """Its pictures are data URLs, two victims by four, each with a text in its place."""
    page = html(document.plain())
    addresses = re.findall(r'src="([^"]*)"', page)
    assert len(addresses) == 8
    assert all(re.fullmatch(DATA_URL, each) for each in addresses)
    assert page.count('alt="truth of victim') == 2
    rest = re.sub(DATA_URL, "", page)
    policy = present(re.search(r'content="(default-src[^"]*)"', rest))
    assert re.findall(r"https?:|//|@import|url\(|@font-face|<iframe|<object|<embed", rest.replace(policy[1], "")) == []


def test_the_page_and_the_terminal_have_every_figure(document: Document) -> None:
    """Raw, standardised and floor of columns and records, and the sentence on what a difference means."""
    page, said = html(document.plain()), in_terminal(document)
    for text in (page, said):
        assert RESCALED in text
        for shown in ("0.841", "0.962", "0.840", "0.187", "0.625", "0.125", "0.875", "20.250", "standardised"):
            assert shown in text
        assert "needs the model that the feature party has published" in text
        assert "are not at hand, so nothing says how right the guesses are" in text
    for shown in ("0.952", "0.942", "0.932", "0.811"):  # macro F1, precision and recall are in a folded table
        assert shown in page
    assert page.count('class="dumbbell"') == 2
    for section in ("network", "glance", "bounds", "trees", "attacks"):
        assert f'id="{section}"' not in page
    assert 'href="#columns"' in page
    assert "<dt>feature parties</dt>" not in page
    assert "DIMIP" not in page + said
    assert "No labels were given" not in page + said


def test_words_say_what_was_read() -> None:
    """The columns that are read best by name, whole records, and what only standardising brought out."""
    text = " ".join(words(figures()))
    assert "loan (right for 96.2 %; its most frequent value is 84.0 %)" in text
    assert "age (20.0 % of its variance)" in text
    assert "2 of 2 columns are guessed better than by the floor" in text
    assert "Its best images, by decode, have an SSIM of 0.625" in text
    assert "Better from standardised embeddings than from raw ones, by at least 0.1: loan, decode." in text
    tables = " ".join(words(figures(images=False)))
    assert "Its best whole records, by decode, remove 75.0 % of the error of the mean known record." in tables
    blind = figures().model_copy(update={"attributes": [attribute("loan", 0.84, 0.84, 0.84)], "reconstructions": []})
    assert "No column is guessed better than by the floor." in " ".join(words(blind))
    below = figures().model_copy(update={"attributes": [number("age", -0.5, -0.1)]})
    assert "at least 0.1: decode." in " ".join(words(below))


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", "\"'><img src=https://example.org/x>", "{{ 7 * 7 }}"])
def test_names_stay_text(evil: str) -> None:
    """Names of columns, parties and jobs are escaped."""
    given = figures().model_copy(update={"attributes": [attribute(evil, 0.9, 0.8, 0.5)], "job": evil})
    document = of_label_holder(feature_b=given).plain()
    document["parties"][evil] = document["parties"].pop(HOLDER)
    document["parties"][evil]["victims"][evil] = document["parties"][evil]["victims"].pop(VICTIM)
    page = html(document)
    assert evil not in page or evil.startswith("{{")
    assert "49" not in re.findall(r"could read of <bdi>([^<]*)</bdi>", page)
    assert page.count("<script>") == 1
    assert page.count("<img ") == 8


def test_trees_and_networks_keep_their_report(document: Document) -> None:
    """A document without a label holder has no such section."""
    assert 'id="columns"' not in html(made(trees=1).plain())
    assert "Columns of feature parties" not in in_terminal(made(trees=1))


@pytest.mark.parametrize(
    ("limit", "lines"),
    [
        ("attributes=0.9", ["feature-b: attributes, standardised, guesses loan with an accuracy of 0.962, above 0.9"]),
        ("attributes=0.97", []),
        ("decode=0.6", ["feature-b: decode, standardised, reaches an SSIM of 0.625, above 0.6"]),
        ("decode=0.7", []),
    ],
)
def test_limits(limit: str, lines: list[str], document: Document) -> None:
    """By the stronger scale; no labels are needed."""
    assert exceeded(document, limits([limit])) == lines


def test_limits_on_tables() -> None:
    """By the share of the mean record's error that is removed."""
    assert exceeded(of_label_holder(feature_b=figures(images=False)), limits(["decode=0.7"])) == [
        "feature-b: decode, standardised, removes a share of the mean record's error of 0.750, above 0.7"
    ]


def test_limits_that_nothing_answers(document: Document) -> None:
    """An attack that was not run, a document without scores, and one without a label holder."""
    with pytest.raises(BadInput, match="match: nothing is scored: the attack was not run"):
        exceeded(document, {"match": 0.5})
    with pytest.raises(BadInput, match=r"\[\[victim\]\] has no truth"):
        exceeded(of_label_holder(feature_b=figures(scored=False)), {"decode": 0.5})
    with pytest.raises(BadInput, match=r"name whose in \[\[victim\]\]"):
        exceeded(made(trees=1), {"attributes": 0.5})


@pytest.mark.parametrize("url", ["https://example.org/x.png", "data:image/svg+xml,<svg/>", 'data:image/png;base64,a"b'])
def test_pictures_are_data_alone(url: str, document: Document) -> None:
    """An address of anything else is no picture."""
    plain: dict[str, Any] = document.plain()
    plain["parties"][HOLDER]["victims"][VICTIM]["pictures"][0]["images"]["truth"] = url
    with pytest.raises(BadInput, match="images"):
        parse(plain)
