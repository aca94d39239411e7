"""Pages keep every measured figure and every numbered leak, however they are cut."""

from __future__ import annotations

from tests.figures import inventory, leaks, lost

#: Leaks have had numbers since the first pages; a new one takes the next.
LEAKS = 59


def test_no_measured_figure_is_lost() -> None:
    """Each recorded statement is in one section, with all of its figures."""
    assert len(inventory()) >= 400
    assert lost() == []


def test_every_numbered_leak_is_described_once() -> None:
    """By a row or an item with its number and a name in bold."""
    assert {number: pages for number, pages in leaks().items() if len(pages) != 1} == {}
    assert sorted(leaks()) == list(range(1, LEAKS + 1))
