"""The tables of README.md, between its marks, the pictures beside it, and all points as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from claims import dominance, lowest, repairs, verdicts
from defended_cells import MORE_SETS
from frontier_pictures import write_pictures
from frontier_tables import equal_trees, federations, points, table_3
from frontiers import Frontier, frontiers
from marked_tables import Rows, filled, write_marked_page
from resumable import Results

PAGE, POINTS = "README.md", "points.json"


def write_page(results: Results, out: Path) -> Path:
    """Fill the tables, draw the pictures and write the points; the page's path.

    Raises:
        BadInput: the page lacks the marks of a table, or cannot be written.
    """
    every, without = frontiers(results, own=True), frontiers(results, own=False)

    def draw() -> None:
        write_pictures(every, without, out)
        lines = ",\n".join(json.dumps(_plain(it)) for it in (*every, *without))
        (out / POINTS).write_text(f"[\n{lines}\n]\n")

    return write_marked_page(Path(__file__).parent / PAGE, out, lambda text: with_tables(text, results), draw)


def with_tables(text: str, results: Results) -> str:
    """The page's text with all its tables."""
    every, without = frontiers(results, own=True), frontiers(results, own=False)
    made: dict[str, Rows] = {
        "claims": verdicts(every, without),
        "dominance": dominance(every),
        "lowest": lowest(every),
        "lowest without columns": lowest(without),
        "repairs": repairs(every),
        "table 3": table_3(every, frontiers(results, own=True, sets=MORE_SETS)),
        "equal trees": equal_trees(every),
        "federations": federations(results),
        "points": points(every),
        "points without columns": points(without),
    }
    for name, rows in made.items():
        text = filled(text, name, rows, PAGE)
    return text


def _plain(it: Frontier) -> dict[str, Any]:
    """A frontier as plain JSON types."""
    found = {"set": it.set, "model": it.model, "label_holder_has_columns": it.own, "seeds": it.seeds}
    return found | {"points": [asdict(point) for point in it.points]}
