"""The first sentences: their figures against clusters made by hand, and what is said without labels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from attacks.document import Document
from attacks.report import html, print_summary
from attacks.report.glance import sentences
from attacks.scores import scores
from tests.attacks.documents import made
from treetap.tables.labels import Labels
from treetap.terminal import PlainConsole


def _scored(clusters: list[int]) -> Document:
    """A document of one party whose strongest attack found these clusters of ten records, six of the first class."""
    content = made(parties=["telco"], trees=1, records=10).plain()
    labels = Labels(np.repeat([0, 1], [6, 4]), ["no", "yes"])
    party = content["parties"]["telco"]
    for name, it in party["attacks"].items():
        guess = clusters if name == "id2graph" else [0, 1] * 5
        it.update(scores(labels, np.array(guess)), by_tree=None, accuracy_by_tree=None)
    party["trees"][0]["nodes"][0] |= {"records": 10, "classes": [6, 4]}
    return Document.model_validate(content)


def test_the_figures_of_the_sentence() -> None:
    """Six and four records in clusters of four and six, one record in the wrong one if labels match them."""
    (found,) = sentences(_scored([1, 1, 1, 1, 1, 0, 1, 0, 0, 0]))
    assert found.party == "telco"
    assert found.text == (
        "can sort the records into groups that agree with the label for 80.0 % of them (ID2Graph after 1 of 1 trees; "
        "groups matched to labels by the audit; named by published class sizes: 80.0 %); the largest class is 60.0 %. "
        "Its own columns alone, without this training, give 50.0 %."
    )
    (crossed,) = sentences(_scored([0, 0, 0, 0, 1, 1, 1, 1, 1, 1]))
    assert "agree with the label for 80.0 % of them" in crossed.text
    assert "named by published class sizes: 50.0 %" in crossed.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labelled": False}, "without labels the audit cannot say how far groups made of them agree"),
        ({"classes": None}, "the label is a number"),
        ({"attacks": False}, "no attack has made groups of them"),
    ],
)
def test_what_can_be_said_without_a_score(options: dict[str, Any], said: str) -> None:
    """Nodes and sets are counted, and the reason why there is no share stands beside them."""
    document = made(parties=1, trees=2, **options)
    (found,) = sentences(document)
    assert found.text.startswith("knows the records of ")
    assert f"into {document.parties['lab-north'].signature.signatures:,} sets; " in found.text
    assert said in found.text
    assert "Matched by the audit" not in html(document)


def test_both_reports_begin_with_it() -> None:
    """The page's first paragraph and the terminal's first lines after the job; terms stand below it in the page."""
    document = _scored([1, 1, 1, 1, 1, 0, 1, 0, 0, 0])
    page, text = html(document), io.StringIO()
    body = page[page.index("<body>") :]
    assert (
        body.index("can sort the records into groups") < body.index("Matched by the audit") < body.index("Attacks on")
    )
    print_summary(document, PlainConsole(file=text, width=300))
    assert text.getvalue().splitlines()[2].startswith("telco can sort the records into groups that agree with the ")
