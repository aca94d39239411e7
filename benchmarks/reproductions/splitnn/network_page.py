"""The tables of README.md, between its marks, and the pictures beside it, from the results at hand."""

from __future__ import annotations

from pathlib import Path

from marked_tables import Rows, filled, write_marked_page
from network_figures import Figures
from network_pictures import write_pictures
from network_tables import (
    PAPER_CIFAR,
    active_cells,
    attacked,
    baseline_cells,
    both_cells,
    dimip_cells,
    federations,
    floors,
    joint_cells,
    quitting,
    quitting_tables,
)
from resumable import Results

PAGE = "README.md"


def write_page(results: Results, out: Path) -> Path:
    """Fill the tables and draw the pictures; the page's path.

    Raises:
        BadInput: the page lacks the marks of a table, or cannot be written.
    """
    source = Path(__file__).parent / PAGE
    return write_marked_page(source, out, lambda text: with_tables(text, results), lambda: write_pictures(results, out))


def with_tables(text: str, results: Results) -> str:
    """The page's text with all its tables."""
    figures = Figures(results)
    made: dict[str, Rows] = {
        "fashion": quitting(figures, "fashion"),
        "cifar": quitting(figures, "cifar10", PAPER_CIFAR),
        "tables": quitting_tables(figures),
        "dimip": attacked(figures, dimip_cells()),
        "baselines": attacked(figures, baseline_cells()),
        "active": attacked(figures, active_cells()),
        "joint": attacked(figures, joint_cells(), after=True),
        "weights": attacked(figures, dimip_cells("cifar10")),
        "both": attacked(Figures(results, (0,)), both_cells()),
        "floors": floors(figures),
        "federations": federations(figures),
    }
    for name, rows in made.items():
        text = filled(text, name, rows, PAGE)
    return text
