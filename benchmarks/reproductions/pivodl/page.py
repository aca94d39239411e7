"""The tables of README.md, between its marks, and the plots beside it, from the results at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from accuracy_tables import by_draw, by_epsilon, by_parameter, defaults
from cost_tables import by_class, comparison_of_gains, costs, disclosed, scaled, shapes, systems, times
from marked_tables import Rows, filled, write_marked_page
from pictures import write_pictures
from resumable import Results

PAGE = "README.md"
#: Mark in the page → the table that stands there, its first row the heads of columns.
TABLES: dict[str, Callable[[Results], Rows]] = {
    "costs": costs,
    "classes": by_class,
    "defaults": defaults,
    "draws": by_draw,
    "parameters": by_parameter,
    "epsilon": by_epsilon,
    "times": times,
    "scaling": scaled,
    "wire": shapes,
    "systems": systems,
    "disclosed": disclosed,
    "gains": comparison_of_gains,
}


def write_page(results: Results, out: Path) -> Path:
    """Fill the tables and draw the plots; the page's path.

    Raises:
        BadInput: the page lacks the marks of a table, or cannot be written.
    """
    source = Path(__file__).parent / PAGE
    return write_marked_page(source, out, lambda text: with_tables(text, results), lambda: write_pictures(results, out))


def with_tables(text: str, results: Results) -> str:
    """The page's text with all its tables."""
    for name, made in TABLES.items():
        text = filled(text, name, made(results), PAGE)
    return text
