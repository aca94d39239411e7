"""The tables of README.md, between its marks, and the pictures beside it, from the results at hand."""

from __future__ import annotations

from pathlib import Path

from marked_tables import MarkedPage, Rows
from resumable import Results
from sensfl_figures import Figures
from sensfl_pictures import write_pictures
from sensfl_tables import (
    accounted,
    attributes,
    clients,
    federations,
    images,
    projections,
    residual_cells,
    swept,
    table_1_cells,
    width_cells,
)


def tables(results: Results) -> dict[str, Rows]:
    """All tables of the page."""
    figures = Figures(results)
    return {
        "bank": attributes(figures, "bank"),
        "credit": attributes(figures, "credit"),
        "images": images(figures, table_1_cells(), papers=True),
        "residual": images(figures, residual_cells()),
        "widths": images(figures, width_cells()),
        "clients": clients(figures),
        "swept bank": swept(figures, "bank"),
        "swept credit": swept(figures, "credit"),
        "accounted": accounted(),
        "projections": projections(figures),
        "federations": federations(figures),
    }


PAGE = MarkedPage(Path(__file__).parent / "README.md", tables, write_pictures)
