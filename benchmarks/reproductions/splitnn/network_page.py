"""The tables of README.md, between its marks, and the pictures beside it, from the results at hand."""

from __future__ import annotations

from pathlib import Path

from marked_tables import MarkedPage, Rows
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


def tables(results: Results) -> dict[str, Rows]:
    """All tables of the page."""
    figures = Figures(results)
    return {
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


PAGE = MarkedPage(Path(__file__).parent / "README.md", tables, write_pictures)
