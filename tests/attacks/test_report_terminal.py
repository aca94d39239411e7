"""The audit in a terminal: every figure whole at every width, and what is missing said."""

from __future__ import annotations

import io
from typing import Any

import pytest

from tests.attacks.documents import made
from treetap.attacks.document import Document
from treetap.attacks.report import print_summary
from treetap.terminal import PlainConsole


def _printed(document: Document, width: int) -> list[str]:
    text = io.StringIO()
    print_summary(document.plain(), PlainConsole(file=text, width=width))
    return text.getvalue().splitlines()


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_no_figure_is_cut(width: int) -> None:
    """All scores, sizes and bounds stand whole in a line; no table is wider than the terminal."""
    document = made(parties=3, trees=2)
    lines = _printed(document, width)
    words = " ".join(lines).split()
    assert not any("…" in line for line in lines)
    assert max((len(line) for line in lines if "──" in line), default=0) <= width
    for name, party in document.parties.items():
        assert name in words
        for it in party.attacks.values():
            for value in (it.v_measure, it.homogeneity, it.completeness, it.ari, it.nmi, it.accuracy):
                assert f"{value:.3f}" in words
        assert f"{max(row.nats for row in party.bounds):.3f}" in words


def test_wide_tables_are_one_each() -> None:
    """Where there is room a row has all scores of an attack."""
    document = made(parties=1, trees=2)
    it = document.parties["lab-north"].attacks["id2graph"]
    (row,) = [line.split() for line in _printed(document, 160) if line.split()[1:2] == ["ID2Graph"]]
    others = (it.homogeneity, it.completeness, it.ari, it.nmi, it.accuracy)
    assert row[2:9] == [f"{it.v_measure:.3f}", str(it.after_trees), *(f"{value:.3f}" for value in others)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"labelled": False}, "No labels were given, so nothing is scored"),
        ({"classes": None}, "The label is a number, not a class (regression)"),
        ({"attacks": False}, "No attack was run on the view of lab-north."),
        ({"parties": 0}, "No feature party's transcript is at hand"),
    ],
)
def test_what_is_missing_is_said(options: dict[str, Any], sentence: str) -> None:
    """Without labels, classes, attacks or parties the summary says so, and what is there is still printed."""
    lines = _printed(made(**{"trees": 1, **options}), 100)
    assert any(sentence in line for line in lines)
    assert any("per node, not joint" in line for line in lines)


@pytest.mark.parametrize("width", [30, 160])
def test_names_are_neither_markup_nor_commands(width: int) -> None:
    """Brackets in a name are brackets; what would command the terminal does not reach it."""
    lines = _printed(made(trees=1, parties=["[bold]x[/bold]\x1b[2J"]), width)
    assert any("[bold]x[/bold]\\x1b[2J" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


@pytest.mark.second_tier
def test_ten_parties_and_a_hundred_columns_of_terminal() -> None:
    """The matrix of many receivers is printed in parts, each of which says which class a row is."""
    lines = _printed(made(parties=10, trees=1), 100)
    assert len([line for line in lines if line.split()[:1] == ["CIPHERTEXT"]]) >= 2
