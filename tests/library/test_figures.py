"""Pages keep every measured figure and every numbered leak, however they are cut."""

from __future__ import annotations

from tests.figures import inventory, leaks, lost, statements

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


def test_figures_are_numbers_with_a_unit_a_point_or_a_cell_of_their_own() -> None:
    """Settings in code, settings without unit, links, names of standards and examples are none."""
    page = """
Trees of depth 4 with `n_estimators = 20` read 63.6 % of the cells by TLS 1.3 ([20 s](a.md#b-1.5)). It takes 1,000 rows
and 34 s.

| table | rows | read |
|---|---|---|
| loans | 5,000 | **98 %** |

```toml
epsilon = 0.5
```
"""
    assert sorted(statements(page)) == [("1000", "34"), ("5000", "98"), ("63.6", "20")]
