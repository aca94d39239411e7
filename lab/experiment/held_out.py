"""The rows that a run holds out: a share of them, a fold of a cross-validation, or the last ones by a time.

Of the others the labels may be spread over the parties: by files of ids, the other rows by shares drawn for each seed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.arrays import Array, Ints
from treetap.errors import ConfigError, DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.tables.categories import as_written
from treetap.tables.dates import ISO, is_date, timestamps
from treetap.tables.labels import Labels, class_name
from treetap.tables.number_styles import number
from treetap.tables.reading import read_ids
from treetap.tables.source import Origin, Source, is_text, numbers_of, row_name
from treetap.trees import sampling
from treetap.trees.evaluation import looked_for
from treetap.trees.job_params import REGRESSIONS


def time_ranks(origin: Origin, name: str, column: pa.ChunkedArray, date_format: str = ISO) -> Ints:
    """Each row's place by the time in a plain column (N,): numbers, dates, times with a date, or text of these.

    Rows of one time keep the order of the table.

    Raises:
        DataError: a cell is missing or no time, by its place, or the column has another type.
    """
    plain = is_text(column.type) and _is_number(origin, column[0].as_py())
    if date_format != ISO or is_date(column.type) or (is_text(column.type) and not plain):
        moments = timestamps(origin, name, as_written(origin, name, column, None, date_format), date_format)
        absent, values = moments.is_null().to_numpy(), moments.cast(pa.int64()).fill_null(0).to_numpy()
    elif pa.types.is_integer(column.type):  # exact, as large ones are not in double precision
        absent, values = column.is_null().to_numpy(), column.fill_null(0).to_numpy()
    elif pa.types.is_boolean(column.type):
        raise DataError(f"{origin}: time column {name!r} holds bool; rows are ordered by numbers, dates or times")
    else:
        values = numbers_of(origin, name, column)
        absent = np.isnan(values)
    if np.any(absent):
        row = int(np.flatnonzero(absent)[0])
        raise DataError(f"{origin}: {row_name(origin, row)}, time column {name!r}: the cell is missing")
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _is_number(origin: Origin, cell: str | None) -> bool:
    try:
        (number if isinstance(origin, Path) else origin.number)(cell or "")
    except ValueError:
        return False
    return True


#: Column of the joined table: the party whose `label_rows` names the row; null elsewhere.
OWNER = "treetap_label_owner"


def named_owners(experiment: ExperimentFile, base: Path, ids: Sequence[str]) -> pa.Array:
    """The owner of each row that a file `label_rows` names, (N,).

    Raises:
        ConfigError: an environment variable in a path is not set.
        DataError: a file cannot be read or names an id that the table lacks, two name the same, or a row is named by
            none and no party has a label_share.
    """
    place = {record: row for row, record in enumerate(ids)}
    owner: list[str | None] = [None] * len(ids)
    for party in experiment.party:
        if party.label_rows is None:
            continue
        expanded = os.path.expandvars(party.label_rows)
        if "$" in expanded:
            raise ConfigError(f"label_rows = {party.label_rows!r}: the environment variable is not set")
        path = base / expanded
        for place_in_file, record in enumerate(read_ids(path), start=1):
            if record not in place:
                raise DataError(f"{path}: id number {place_in_file} is none of the table's")
            if (other := owner[place[record]]) is not None:
                raise DataError(
                    f"{path}: id number {place_in_file} is in label_rows of {other} too; one party labels a row"
                )
            owner[place[record]] = party.name
    # rows that no file names are drawn by share, if any party has one
    without = owner.count(None)
    if without and all(party.label_share is None for party in experiment.party):
        raise DataError(
            f"{experiment.data.title}: {without} of {len(ids)} rows are in no file of label_rows; name each in one, or "
            "give parties a label_share of the others"
        )
    return pa.array(owner, pa.string())


def dealt(shares: Mapping[str, float], items: Array) -> dict[str, Array]:
    """Each name's share of the items, one after the other: together they get what the shares add up to, to an item."""
    ends = [round(wanted) for wanted in accumulate(share * len(items) for share in shares.values())]
    return {name: items[begin:end] for name, begin, end in zip(shares, [0, *ends], ends, strict=False)}


def draw_owners(experiment: ExperimentFile, table: pa.Table, train: Ints, seed: int) -> dict[str, Ints]:
    """Party with labels → the training rows that it labels, as places in the table, ascending."""
    owner = np.asarray(table.column(OWNER).to_pylist(), dtype=object)[train]
    named = {party.name: train[owner == party.name] for party in experiment.party if party.label_rows is not None}
    free = train[owner == None]  # noqa: E711 - elementwise
    shuffled = sampling.generator(seed, "experiment labels").permutation(free)
    shares = {party.name: party.label_share or 0.0 for party in experiment.party if party.label_rows is None}
    owned = named | {name: np.sort(rows) for name, rows in dealt(shares, shuffled).items()}
    return {party.name: owned[party.name] for party in experiment.party if len(owned[party.name])}


def own_cells(labels: pa.ChunkedArray, train: Ints, own: Ints) -> pa.ChunkedArray:
    """The label column of one party's training table: null where another party labels the row."""
    return labels.take(pa.array(train, mask=~np.isin(train, own)))


def with_classes(experiment: ExperimentFile, labels: Labels) -> ExperimentFile:
    """The experiment, its job completed by the classes of the table where it has no `classes`.

    Raises:
        DataError: a label is none of the job's classes.
    """
    params = experiment.job.params()
    if not experiment.spread or params.objective in REGRESSIONS:
        return experiment
    if (given := getattr(experiment.job, "classes", None)) is None:
        return experiment.model_copy(update={"job": experiment.job.model_copy(update={"classes": labels.classes})})
    if strange := [name for name in labels.classes if name not in given]:
        raise DataError(
            f"{experiment.data.title}: label column {experiment.data.label!r} has a class {strange[0]!r} that is none "
            f"of job.classes ({', '.join(given)})"
        )
    return experiment


def truth(rows: pa.Table, id_column: str, label: str, ids: Sequence[str], labels: Labels) -> np.ndarray[Any, Any]:
    """Labels of the records with these ids: targets, or classes by the numbers that they have in `labels`."""
    place = {str(record): row for row, record in enumerate(rows.column(id_column).to_pylist())}
    cells = [rows.column(label)[place[record]].as_py() for record in ids]
    if not labels.classes:
        return np.asarray(cells, dtype=np.float64)
    number = {name: k for k, name in enumerate(labels.classes)}
    return np.array([number[class_name(cell)] for cell in cells], dtype=np.int64)


#: Names of classes that an error lists before it says how many there are.
_LISTED = 8


def check_positive(experiment: ExperimentFile, source: Source, classes: Sequence[str]) -> None:
    """Check that the class that the file looks for, if it names one, is one of the table's.

    Raises:
        DataError: it is none of them.
        ConfigError: there are no classes.
    """
    data = experiment.data
    if data.positive is None:
        return
    if not classes:
        raise ConfigError(f"positive of [data] names a class, and a regression has none ({data.label!r}); leave it out")
    if class_name(data.positive) not in classes:
        more = f" and {len(classes) - _LISTED} more" if len(classes) > _LISTED else ""
        raise DataError(
            f"{source}: label column {data.label!r} has no class {class_name(data.positive)!r}, which positive of "
            f"[data] names; its classes are {', '.join(map(repr, classes[:_LISTED]))}{more}"
        )


def with_positive(experiment: ExperimentFile, labels: Labels) -> ExperimentFile:
    """The experiment with the class that all of its runs look for; of more than two classes none, unless it names one.

    `labels`: of the whole table, so that runs whose held-out rows differ do not look for different classes.
    """
    given, names = experiment.data.positive, getattr(experiment.job, "classes", None) or labels.classes
    if given is None and len(names) == 2:
        first = np.count_nonzero(np.asarray(labels.classes)[labels.values.astype(np.int64)] == names[0])
        given = names[looked_for(int(first), len(labels.values))]
    if given is None:
        return experiment
    data = experiment.data.model_copy(update={"positive": class_name(given)})
    return experiment.model_copy(update={"data": data})
