"""The tables of README.md, between its marks, the pictures beside it, and all points as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import copyfile
from typing import Any

from claims import dominance, lowest, repairs, verdicts
from defended_cells import MORE_SETS
from frontier_pictures import write_pictures
from frontier_tables import equal_trees, federations, points, table_3
from frontiers import Frontier, frontiers
from resumable import Results

from treetap.errors import BadInput

PAGE, POINTS = "README.md", "points.json"
Rows = Sequence[Sequence[str]]


def write_page(results: Results, out: Path) -> Path:
    """Fill the tables, draw the pictures and write the points; the page's path.

    Raises:
        BadInput: the page lacks the marks of a table, or cannot be written.
    """
    page = out / PAGE
    every, without = frontiers(results, own=True), frontiers(results, own=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not page.exists():
            copyfile(Path(__file__).parent / PAGE, page)
        page.write_text(with_tables(page.read_text(), results))
        write_pictures(every, without, out)
        lines = ",\n".join(json.dumps(_plain(it)) for it in (*every, *without))
        (out / POINTS).write_text(f"[\n{lines}\n]\n")
    except OSError as failure:
        raise BadInput(f"{failure.filename or page}: {failure.strerror or failure}") from None
    return page


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
        text = filled(text, name, rows)
    return text


def filled(text: str, name: str, rows: Rows) -> str:
    """The text with a table between the marks of its name; without rows but the head, the words that none is there."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if start not in text or end not in text:
        raise BadInput(f"{PAGE} has no marks {start} and {end}")
    body = "\n".join(_table(rows)) if len(rows) > 1 else "No results are at hand."
    between = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    return between.sub(lambda _: f"{start}\n\n{body}\n\n{end}", text)


def _table(rows: Rows) -> list[str]:
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return [head, "|" + " --- |" * len(rows[0]), *body]


def _plain(it: Frontier) -> dict[str, Any]:
    """A frontier as plain JSON types."""
    found = {"set": it.set, "model": it.model, "label_holder_has_columns": it.own, "seeds": it.seeds}
    return found | {"points": [asdict(point) for point in it.points]}
