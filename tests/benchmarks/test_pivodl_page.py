"""The page of the PIVODL reproduction: its tables are what the results give, and its fits are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.page_commands import REPRODUCTIONS, page_is_of_its_results, python

pytestmark = pytest.mark.second_tier

PIVODL = REPRODUCTIONS / "pivodl"


def test_the_page_has_the_tables_of_its_results(tmp_path: Path) -> None:
    """Filled again from the results the page stays as it is, and changes where a result is another one."""
    page_is_of_its_results(PIVODL, "page", tmp_path / "r.jsonl", '"accuracy": 0.', '"accuracy": 0.9')


def test_fits_find_planted_growth() -> None:
    """A line and a power law through points that lie on them."""
    code = """
from points import Point, growth, linear
lines = [Point(x, 2 + 3 * x, 0, 0, 1) for x in (3, 5, 9)]
shifted = [Point(x, 4 * (x - 1) ** 0.5, 0, 0, 1) for x in (3, 5, 9)]
powers = [Point(x, 4 * x**1.5, 0, 0, 1) for x in (3, 5, 9)]
print(*(round(each, 9) for each in linear(lines)), round(growth(powers), 9), round(growth(shifted, 1), 9))
"""
    done = python(PIVODL, code)
    assert done.out.split() == ["2.0", "3.0", "1.0", "1.5", "0.5"], done.err


def test_without_the_tables_the_command_says_so(tmp_path: Path) -> None:
    """Exit status 2, and no results."""
    done = python(PIVODL, "", PIVODL / "run.py", "secure", "--json", tmp_path / "results.jsonl", "--out", tmp_path)
    assert done.status == 2
    assert "TREETAP_DATA is not set" in done.err
    assert not (tmp_path / "results.jsonl").exists()
