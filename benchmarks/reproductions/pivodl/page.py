"""The tables of README.md, between its marks, and the plots beside it, from the results at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from accuracy_tables import by_draw, by_epsilon, by_parameter, defaults
from cost_tables import by_class, comparison_of_gains, costs, disclosed, scaled, shapes, systems, times
from marked_tables import MarkedPage, Rows
from pictures import write_pictures
from resumable import Results

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
PAGE = MarkedPage(
    Path(__file__).parent / "README.md",
    lambda results: {name: made(results) for name, made in TABLES.items()},
    write_pictures,
)
