"""The joined table of an experiment: read and checked as parties will read it, split by rows and columns.

The operator of an experiment wrote one table. A fault in it is reported by that table's file, line and column before
any process starts, not by a party from its copy.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from treetap import terminal
from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.held_out import Rows, drawn_fold, drawn_share, expanding_window, last_share, time_ranks
from treetap.commands.experiment.spread_labels import OWNER, draw_owners, named_owners
from treetap.errors import ConfigError, DataError
from treetap.names import did_you_mean
from treetap.protocols.registry import training
from treetap.tables.binned import refuse_tensors, without_order
from treetap.tables.categories import categories_of, without_missing
from treetap.tables.cells import plain_column
from treetap.tables.config import CONSTRAINTS, ORDERED, encoded_by_name
from treetap.tables.dates import timestamps
from treetap.tables.features import Held
from treetap.tables.ids import ids_of
from treetap.tables.label_cells import LabelCells
from treetap.tables.labels import Labels, read_labels
from treetap.tables.loading import columns_of, read_columns
from treetap.tables.numbers import is_number, is_text, numbers_of
from treetap.tables.opening import source_of
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.tables.source import Origin, Source
from treetap.tables.tensors import check_tensors, is_tensor, tensor_of, tensor_shape
from treetap.tables.typed import id_type
from treetap.tables.weights import check_job, weights_of
from treetap.trees import sampling
from treetap.trees.job_params import REGRESSIONS

ID = "treetap_id"
#: Entry of the metadata of this column: the type that ids have in the joined table's own column.
ID_TYPE = b"type"
#: Column of the joined table: each row's place by the time column.
TIME = "treetap_time"
#: The columns of the joined table that an experiment adds, and what they hold.
ADDED = {ID: "ids", OWNER: "owners of labels", TIME: "order by time"}


@dataclass(frozen=True)
class Split:
    """Rows and columns of one run: record positions of training and test, columns by party.

    `labels`: where labels are spread, the training rows that each party labels; parties without labels are left out.
    """

    train: np.ndarray[Any, np.dtype[np.int64]]
    test: np.ndarray[Any, np.dtype[np.int64]]
    columns: dict[str, list[str]]
    labels: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = field(default_factory=dict)


def read_table(experiment: ExperimentFile, base: Path, file: Path | None = None) -> pa.Table:
    """The joined table with an id column, and where labels are spread their owners, checked as parties will check it.

    `file`: the experiment's, which messages about the path name.

    Raises:
        DataError: a column is missing or twice, or the first cell that a party would refuse; by line or row.
        ConfigError: the file contradicts itself about a column.
    """
    data = experiment.data
    path = _source(experiment, base, file)
    if data.id is None and not path.ordered:
        raise ConfigError(f"{path}: rows of a query have no order: name their ids by id = COLUMN in [data]")
    for sentence in path.says:
        terminal.err.print(terminal.text(sentence))
    names = columns_of(path)
    _check_names(experiment, path, names)
    claimed = {column for party in experiment.party for column in party.columns or []}
    left = {data.id, *data.drop}
    kept = [name for name in names if name not in left and (name != data.time or name in claimed)]
    own_ids = [] if data.id is None else [data.id]
    by_name, constrained = experiment.encoded_by_name, experiment.constrained
    as_written = [name for name in kept if name in by_name]
    by = [data.time] if data.time is not None and data.time not in kept else []
    table = read_columns(path, [*own_ids, *kept, *by], [*own_ids, *as_written], data.id)
    columns = {name: table.column(name) for name in kept}
    used, missing = _used(experiment, kept), experiment.job.params().missing
    for name in kept:
        if name in used or name == data.label:
            columns[name] = plain_column(path, f"column {name!r}", columns[name])
        if is_tensor(columns[name].type):
            check_tensors(path, name, columns[name])
            if name in used and training(experiment.job.protocol).grows_trees:
                refuse_tensors(path, {name: tensor_shape(path, name, columns[name].type)})
        elif name in used:
            columns[name] = _checked(path, name, columns[name], used[name], missing, constrained=name in constrained)
    if data.id is None:
        width = len(str(table.num_rows))
        ids, kind = Ids.of(f"{i:0{width}d}" for i in range(table.num_rows)), pa.int64()
    else:
        place = f"column {data.id!r}"
        column = plain_column(path, place, table.column(data.id))
        ids = ids_of(path, place, column)
        kind = id_type(ids, column.type, in_csv=not path.typed)
    records = Table(path, ids, [], Held(np.empty((len(ids), 0))), LabelCells(columns[data.label]), np.arange(len(ids)))
    read_labels(records, data.label, experiment.job.params().objective)
    if data.weight is not None:
        column = plain_column(path, f"column {data.weight!r}", columns[data.weight])
        weights, job = weights_of(path, data.weight, column), experiment.job
        check_job(path, data.weight, weights, records.rows, job.protocol, job.params().largest_weight)
        columns[data.weight] = pa.array(weights)
    columns[ID] = pa.array(ids, pa.string())
    if data.time is not None:
        columns[TIME] = pa.array(time_ranks(path, data.time, table.column(data.time)))
    if experiment.spread:
        columns[OWNER] = named_owners(experiment, base, ids)
    joined = pa.table(columns)
    named = pa.field(ID, pa.string(), metadata={ID_TYPE: str(kind)})
    return joined.set_column(joined.column_names.index(ID), named, joined.column(ID))


def _source(experiment: ExperimentFile, base: Path, file: Path | None) -> Source:
    """The source of the joined table; a file that is not there, or is none, is refused by the key that names it."""
    keys = experiment.data.expanded("data.path").below(base)
    try:
        return source_of(keys)
    except DataError as failure:
        if keys.path is None:
            raise
        raise DataError(f"{'' if file is None else f'{file}: '}data.path: {failure}") from None


def content_digest(table: pa.Table) -> str:
    """SHA-256 of a table's names and cells, whatever types its file has.

    Tensors, and columns of types that CSV has not, which no party can have, follow the others.
    """
    apart = [name for name, kind in zip(table.column_names, table.schema.types, strict=True) if not _in_csv(kind)]
    out = io.BytesIO()
    pacsv.write_csv(table.drop_columns(apart), out)
    state = hashlib.sha256(out.getvalue())
    for name in apart:
        column = table.column(name)
        if is_tensor(column.type):
            cells = tensor_of(Path(name), name, column, np.arange(table.num_rows))
            state.update(f"{name}\0{cells.shape}\0".encode())
            state.update(cells.data)
            continue
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pa.schema([(name, column.type)])) as stream:
            stream.write_table(pa.table({name: column.combine_chunks()}))
        state.update(sink.getvalue())
    return state.hexdigest()


def _in_csv(kind: pa.DataType) -> bool:
    """True for types of cells that Arrow writes to CSV."""
    number = is_number(kind) and not (pa.types.is_float16(kind) or pa.types.is_decimal256(kind))
    other = (pa.types.is_null, pa.types.is_boolean, pa.types.is_temporal, pa.types.is_binary, pa.types.is_large_binary)
    return (number or is_text(kind) or any(is_kind(kind) for is_kind in other)) and not pa.types.is_interval(kind)


def labels_of(experiment: ExperimentFile, table: pa.Table) -> Labels:
    """The labels of the joined table that `read_table` has checked."""
    data, count = experiment.data, table.num_rows
    ids, rows = Ids.of([""] * count), np.arange(count)
    records = Table(Path(data.title), ids, [], Held(np.empty((count, 0))), LabelCells(table.column(data.label)), rows)
    return read_labels(records, data.label, experiment.job.params().objective)


def _check_names(experiment: ExperimentFile, path: Source, names: list[str]) -> None:
    """Check that every column that the file names exists once and has one purpose."""
    data = experiment.data
    claimed = [column for party in experiment.party for column in party.columns or []]
    of_parties = set(claimed)
    encoded = [name for name in encoded_by_name(data.encode) if name not in of_parties]
    own = [name for name in (data.label, data.weight, data.id) if name]
    constrained = list(data.directions)
    times = Counter(names)
    for name in [*own, *filter(None, [data.time]), *data.drop, *claimed, *encoded, *constrained]:
        if name not in times:
            remedy = path.remedy_of_absence(name)
            raise DataError(f"{path}: has no column {name!r}{remedy and '; '}{remedy or did_you_mean(name, names)}")
    if twice := sorted(name for name, count in times.items() if count > 1):
        raise DataError(f"{path}: has column {twice[0]!r} more than once")
    if data.label in (data.id, *data.drop):
        raise ConfigError(f"column {data.label!r} is the label, and is the id or dropped")
    if data.weight is not None and data.weight in (data.label, data.id, data.time, *data.drop):
        raise ConfigError(f"column {data.weight!r} is the weight, and is the label, the id, the time or dropped")
    taken = {*own, *data.drop}
    for name in claimed:
        if name in taken:
            raise ConfigError(f"column {name!r} is claimed by a party, and is the label, the weight, the id or dropped")
    for key, name in [
        *(("encode", each) for each in encoded),
        *((CONSTRAINTS, each) for each in constrained),
    ]:
        if name in taken:
            raise ConfigError(
                f"{key} of [data] names column {name!r}, which is the label, the weight, the id or dropped"
            )
    for reserved, what in ADDED.items():
        if reserved in times and reserved not in (data.id, *data.drop):
            raise DataError(
                f"{path}: column {reserved!r} has the name of an experiment's own {what}; rename it or drop it"
            )


def _used(experiment: ExperimentFile, names: list[str]) -> dict[str, list[Any]]:
    """Columns that some party gets in some run, with the different encodings that they have there."""
    found: dict[str, list[Any]] = {}
    for seed in experiment.data.seeds:
        drawn = _columns(experiment, names, seed)
        for party in experiment.party:
            encode = experiment.encode(party, drawn[party.name])
            for name in drawn[party.name]:
                if encode not in found.setdefault(name, []):
                    found[name].append(encode)
    return found


def _checked(
    path: Origin, name: str, column: pa.ChunkedArray, encodings: list[Any], missing: float, *, constrained: bool
) -> pa.ChunkedArray:
    """A column that parties can read by their encodings; texts that are dates become times, as which they are written.

    Raises:
        DataError: a party would refuse it.
    """
    found = [categories_of(path, name, column, encode, missing) for encode in encodings]
    if None in found:
        numbers_of(path, name, column)
    if constrained and not all(category is None or category.encode in ORDERED for category in found):
        raise without_order(path, name)
    dated = [category is not None and category.of_dates for category in found]
    return timestamps(path, name, without_missing(path, name, column, missing)) if all(dated) else column


def split(experiment: ExperimentFile, table: pa.Table, seed: int, fold: int | None = None) -> Split:
    """Rows of a run, stratified by the label for classification where they are drawn; columns by name or random share.

    `fold`: from 1, of `cv`; else `test_share` of the rows is held out.

    Raises:
        DataError: no row is held out, or none of a class, or of all, would be left to train on.
    """
    data = experiment.data
    label = table.column(data.label)
    groups = [np.arange(len(label))]
    names = np.array(["table"])
    regression = experiment.job.params().objective in REGRESSIONS
    if not regression:
        names, numbers = np.unique(np.asarray(label.to_pylist(), dtype=object).astype(str), return_inverse=True)
        groups = [np.flatnonzero(numbers == k) for k in range(len(names))]
    train, test = _rows(experiment, table, groups, seed, fold)
    how = f"test_share = {data.test_share}" if data.cv is None else f"cv = {data.cv}"
    what = f"a test share of {data.test_share}" if data.cv is None else how
    if not len(test) or not len(train):
        raise DataError(f"{data.title}: {len(label)} rows are too few for {what}")
    for name, rows in zip(names, groups, strict=True):
        if not len(np.intersect1d(rows, train)):
            why = "has too few rows" if data.time is None else f"begins too late by column {data.time!r}, with its rows"
            raise DataError(
                f"{data.title}: label column {data.label!r}: class {str(name)!r} {why}, {len(rows)}: with {how} no row "
                "remains to train on; lower it, or leave the class out"
            )
    if regression and len(label.take(pa.array(train)).unique()) == 1:
        raise DataError(
            f"{data.title}: label column {data.label!r}: seed {seed} draws training rows of one target only"
        )
    columns = _columns(experiment, [name for name in table.column_names if name not in ADDED], seed)
    owned = draw_owners(experiment, table, train, seed) if experiment.spread else {}
    return Split(train, test, columns, owned)


def _rows(
    experiment: ExperimentFile, table: pa.Table, groups: list[Rows], seed: int, fold: int | None
) -> tuple[Rows, Rows]:
    """Training and held-out rows, ascending. `groups`: the rows of each class, or all rows."""
    data = experiment.data
    if data.time is not None:
        order = np.argsort(table.column(TIME).to_numpy())
        if fold is None or data.cv is None:
            return last_share(order, data.test_share)
        return expanding_window(order, fold, data.cv)
    draw = sampling.generator(seed, "experiment rows")
    if fold is None or data.cv is None:
        test = drawn_share(groups, data.test_share, draw)
    else:
        test = drawn_fold(groups, fold, data.cv, draw)
    return np.setdiff1d(np.arange(table.num_rows), test), test


def _columns(experiment: ExperimentFile, names: list[str], seed: int) -> dict[str, list[str]]:
    """Each party's columns of those in the table."""
    claimed = {column for party in experiment.party for column in party.columns or []}
    claimed |= {experiment.data.label, experiment.data.weight or ""}
    free, place = [name for name in names if name not in claimed], {name: k for k, name in enumerate(names)}
    shuffled = list(sampling.generator(seed, "experiment columns").permutation(np.array(free, dtype=object)))
    columns: dict[str, list[str]] = {}
    taken, wanted = 0, 0.0
    for party in experiment.party:
        if party.columns is not None:
            columns[party.name] = list(party.columns)
            continue
        wanted += (party.share or 0) * len(free)
        columns[party.name] = sorted(shuffled[taken : round(wanted)], key=place.__getitem__)
        taken = round(wanted)
    return columns
