"""Names in docs/papers.md stand for something: files, functions, tests, and rows of `tools.renderers.papers`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tools.renderers.papers import DIMIP, FED_EINI, ID2GRAPH, PIVODL, SENSFL, Paper

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
#: `path/to/file.py::Class.method`, as in the tables.
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::([\w.]+)`", PAGE)))
ROW = re.compile(r"^\| .+ \| `(\S+\.py::\S+)` \| `(tests/\S+\.py::test_\w+)` \|$", re.M)


@cache
def _definitions(path: str) -> frozenset[str]:
    """The functions and classes of a file, and the methods of its classes as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda each: each)
def test_it_exists(path: str, name: str) -> None:
    """The file has the function, class or test."""
    assert name in _definitions(path)


def test_every_row_of_code_has_a_test() -> None:
    """Each table leads from code to a test, and nothing else on the page has the form of either."""
    rows = ROW.findall(PAGE)
    assert {f"{path}::{name}" for path, name in NAMED} == {each for row in rows for each in row}
    assert len(rows) > 30


@pytest.mark.parametrize("paper", [FED_EINI, ID2GRAPH, PIVODL, DIMIP, SENSFL], ids=lambda paper: paper.title[:20])
def test_papers_are_cited_as_the_register_cites_them(paper: Paper) -> None:
    """Authors, year, and where the paper appeared."""
    words = " ".join(PAGE.split())
    assert f"{paper.authors} {paper.year}" in words
    assert paper.where.rpartition("; ")[2] in words
