"""Cells of a table that its model takes otherwise than those of the training: counted, said, and refused where all are.

A category that the training had not is unknown to every split, and a column without a value is missing everywhere: both
predict, and predict worse, without any other sign.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from treetap.errors import DataError
from treetap.tables.categories import Seen
from treetap.tables.source import Origin

log = logging.getLogger(__name__)


class Unlike(NamedTuple):
    """`unknown_cells`: of categories that the training had not. `empty_columns`: without a value, which had some.

    `columns`: the names of both; none of a party elsewhere, which keeps them.
    """

    unknown_cells: int = 0
    empty_columns: int = 0
    columns: tuple[str, ...] = ()


NOTHING = Unlike()


def unlike_training(path: Origin, seen: Mapping[str, Seen], empty: Collection[str], records: int) -> Unlike:
    """The counts of a table's columns, each of which the log names. `empty`: those without a value in the training.

    A table of one record is never refused.

    Raises:
        DataError: no cell of a column with categories has one of the training.
    """
    gone = [name for name, column in seen.items() if not column.present and name not in empty]
    strange = {name: column for name, column in seen.items() if column.unknown}
    for name, column in strange.items():
        log.warning(
            "%s: column %r: %d of %d cells are of no category of the training",
            path,
            name,
            column.unknown,
            column.present,
        )
    for name in gone:
        log.warning("%s: column %r has no value, and had some in the training", path, name)
    # a single record may well have a new category: nobody confused tables
    if records > 1:
        for name, column in strange.items():
            if column.unknown == column.present > 1:
                raise DataError(
                    f"{path}: column {name!r}: all {column.present} cells are of no category of the training: write "
                    "them as the training has them"
                )
    return Unlike(sum(column.unknown for column in strange.values()), len(gone), (*strange, *gone))


def check_values(path: Origin, seen: Mapping[str, Seen], unlike: Unlike, records: int) -> None:
    """Raise `DataError` for a table to predict, of several records, of which no column has a value any more."""
    if records > 1 and unlike.empty_columns and not any(column.present for column in seen.values()):
        raise DataError(
            f"{path}: no column has any value, and {unlike.empty_columns} had some in the training: is it the right "
            "table?"
        )
