"""Limits on an audit's figures, and its headline: the largest over the number of trees, and after how many."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.attacks.documents import made
from tests.attacks.present import present
from treetap.attacks.document import Document
from treetap.attacks.limits import exceeded, parse
from treetap.attacks.report.page import html
from treetap.errors import BadInput

PARTY = "lab-north"


def _document(**results: dict[str, Any]) -> Document:
    """A party's audit after four trees, where UNI+CL was best after the second."""
    content = made(parties=1, trees=4).plain()
    attacks = content["parties"][PARTY]["attacks"]
    for name in attacks:
        low = {"v_measure": 0.2, "accuracy": 0.6, "after_trees": 1}
        attacks[name] |= low | {"by_tree": [0.2] * 4, "accuracy_by_tree": [0.6] * 4}
    best = {"v_measure": 0.54, "accuracy": 0.7, "after_trees": 2}
    attacks["uni+cl"] |= best | {"by_tree": [0.3, 0.54, 0.5, 0.3], "accuracy_by_tree": [0.6, 0.7, 0.93, 0.6]}
    attacks["cl"] |= {"v_measure": 0.9, "accuracy": 0.99, "by_tree": [0.9] * 4, "accuracy_by_tree": [0.99] * 4}
    for name, more in results.items():
        attacks[name] |= more
    signature = content["parties"][PARTY]["signature"]
    signature |= {"label_entropy": 0.5, "mutual_information": 0.3, "by_chance": 0.1}
    for number, step in enumerate(signature["by_tree"], start=1):
        step |= {"mutual_information": 0.075 * number, "by_chance": 0.025 * number}
    return Document.model_validate(content)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("any=0.4", "lab-north: uni+cl reaches a V-measure of 0.540 after 2 of 4 trees, above 0.4"),
        ("uni+cl=0.53", "lab-north: uni+cl reaches a V-measure of 0.540 after 2 of 4 trees, above 0.53"),
        ("accuracy=0.8", "lab-north: uni+cl reaches an accuracy of 0.930 after 3 of 4 trees, above 0.8"),
        (
            "information=0.5",
            "lab-north: all known nodes together tell 0.600 of the label's entropy after 4 of 4 trees "
            "(0.200 by chance), above 0.5",
        ),
        ("cl=0.5", "lab-north: cl reaches a V-measure of 0.900, above 0.5"),
        ("id2graph=0.4", ""),
        ("any=0.54", ""),
        ("accuracy=0.93", ""),
        ("information=0.6", ""),
    ],
)
def test_a_limit(limit: str, message: str) -> None:
    """The largest figure after any number of trees is judged, by whatever attack but CL, and so is what nodes tell."""
    assert exceeded(_document(), parse([limit])) == ([message] if message else [])


def test_several_limits() -> None:
    """Each is judged; a line says which one was exceeded."""
    found = exceeded(_document(), parse(["any=0.5", "accuracy=0.9", "information=0.7"]))
    assert [line.rpartition("above ")[2] for line in found] == ["0.5", "0.9"]


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        (["any"], "say LIMIT=V with V from 0 to 1, as in any=0.4"),
        (["any=1.1"], "with V from 0 to 1"),
        (["guess=0.1"], "unknown limit 'guess'; known are any, accuracy, information, cl, uni"),
        (["any=0.1", "any=0.2"], "names any twice"),
    ],
)
def test_a_limit_that_is_none(texts: list[str], fault: str) -> None:
    """The error of a wrong option names the right ones."""
    with pytest.raises(BadInput, match=re.escape(fault)):
        parse(texts)


@pytest.mark.parametrize("limit", ["any=0.1", "accuracy=0.1", "information=0.1", "uni=0.1"])
@pytest.mark.parametrize("options", [{"labelled": False}, {"classes": None}])
def test_nothing_to_judge(limit: str, options: dict[str, Any]) -> None:
    """No limit passes in an audit without scores."""
    with pytest.raises(BadInput, match="nothing is scored"):
        exceeded(made(trees=1, **options), parse([limit]))


def test_no_attack_to_judge() -> None:
    """A limit on attacks that were not run does not pass either."""
    with pytest.raises(BadInput, match="no attack but cl was run"):
        exceeded(made(trees=1, attacks=False), parse(["any=0.1"]))


def test_the_headline_is_the_largest_figure() -> None:
    """The report's line names the attack, its best figure, and after how many trees it was reached."""
    assert "<bdi>0.540</bdi><small>UNI+CL, after 2 of 4 trees; no better than CL</small>" in html(_document())


def test_labels_have_the_names_of_their_table() -> None:
    """The key of the pictures and the counts of nodes name labels as their table has them."""
    document = made(trees=1, classes=11)
    page = html(document)
    key = present(re.search(r'<ul class="key" aria-label="Labels">.*?</ul>', page, re.DOTALL))
    assert re.findall(r"<bdi>(.*?)</bdi>", key[0]) == [str(label) for label in range(1, 12)]
    assert "class 0" not in page
    node = document.parties[PARTY].trees[0].nodes[0]
    assert f"1: {(node.classes or [])[0]:,}, 2: " in page
