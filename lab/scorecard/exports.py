"""A scorecard as a file for other systems: CSV of the whole card; SQL and PMML of the party's own columns.

Another party's cuts are its own, so that no system can compute its points: that party exports its own part, and the
sums of all parts are added. Columns are as treetap encodes them: categories are texts, dates days since 1970.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape

from treetap.arrays import Ints
from treetap.lab.scorecard.card import MISSING, OTHER, Card, Column
from treetap.version import package_version

#: What every file of one part says of itself.
SAYS = "The part of {party} alone; the score is its sum with the parts of all other parties of the model."


def exported(card: Card, party: str, form: str) -> str:
    """The content of a file of this ending, of a card with whole points that `party` has."""
    if form == "csv":
        text, bins = io.StringIO(), [row for column in card.columns for row in column.rows()]
        rows = csv.DictWriter(text, max(bins, key=len), lineterminator="\n")
        rows.writeheader()
        rows.writerows([{"party": party, "bin": "the base", "points": int(card.base)}, *bins])
        return text.getvalue()
    columns = [
        {"name": it.name, "bins": _bins(it), "named": any(cell.value for cell in it.cells)}
        for it in card.of(party).columns
        if len(it.groups) > 1  # a bin alone has no points
    ]
    said = {"says": SAYS.format(party=party), "version": package_version(), "base": int(card.base)}
    return _templates().get_template(f"card.{form}.j2").render(columns=columns, **said)


#: Most reasons of a record, in files of records and in PMML.
REASONS = 4


def reasons(card: Card, ids: Sequence[object], cells: Sequence[Ints]) -> str:
    """CSV of records with their scores and the columns whose bins lose most points against their best one.

    `cells`: of each record (n,) in the first columns of a card with whole points; the score is of these columns.
    """
    told = Card(card.base, card.columns[: len(cells)])
    lost = np.stack([column.lost[column.bin_of(at)] for column, at in zip(told.columns, cells, strict=True)])
    names = [f"{column.party} {column.name}" for column in told.columns]
    text, heads = io.StringIO(), [f"{of} {rank}" for rank in range(1, REASONS + 1) for of in ("reason", "lost")]
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["id", "score", *heads])
    for name, score, points in zip(ids, told.scores(cells).tolist(), lost.T, strict=True):
        most = [at for at in np.argsort(-points, kind="stable")[:REASONS] if points[at] > 0]
        rows.writerow([name, int(score), *(it for at in most for it in (names[at], int(points[at])))])
    return text.getvalue()


def _bins(column: Column) -> list[dict[str, Any]]:
    """What templates have of each bin; that of all other categories, `rest`, comes last."""
    made = []
    for group, points in zip(column.groups, column.points.tolist(), strict=True):
        kinds = {column.cells[place].kind for place in group}
        ends = [tuple(None if math.isinf(end) else repr(end) for end in ends) for ends in column.ranges(group)]
        of = [column.cells[place].value for place in group if column.cells[place].value]
        row = {"points": int(points), "ranges": ends, "of": of, "missing": MISSING in kinds, "rest": OTHER in kinds}
        made.append(row)
    return sorted(made, key=lambda row: bool(row["rest"]))


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("treetap.lab.scorecard"),
        autoescape=select_autoescape(["pmml.j2"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["quoted"] = _quoted
    return made


def _quoted(text: str, mark: str, by: str) -> str:
    """A text in quotation marks, with `by` before each mark in it."""
    return mark + (text if by == mark else text.replace(by, by * 2)).replace(mark, by + mark) + mark
