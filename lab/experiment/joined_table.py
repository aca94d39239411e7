"""The joined table of an experiment: read and checked as parties will read it, split by rows and columns.

The operator of an experiment wrote one table. A fault in it is reported by that table's file, line and column before
any process starts, not by a party from its copy.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from treetap import terminal
from treetap.arrays import Ints
from treetap.errors import ConfigError, DataError, did_you_mean, each_of
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.file_tables import PartyTable
from treetap.lab.experiment.joined_encodings import encode_in, noted, settled_in, time_ranks_in
from treetap.lab.experiment.party_tables import ID, OWNER, Split, check_positive, dealt, draw_owners, named_owners
from treetap.lab.experiment.results import PlannedRun
from treetap.protocols.registry import training
from treetap.tables.asked_columns import OF_EXPERIMENT
from treetap.tables.auto_encoding import codes
from treetap.tables.binned import directions_of, refuse_cuts, refuse_tensors
from treetap.tables.categories import as_written, encoded
from treetap.tables.cells import check_tensors, is_tensor, plain_column, tensor_of
from treetap.tables.config import AUTO, CONSTRAINTS, TableConfig, encoded_by_name, with_taken
from treetap.tables.dates import ISO, timestamps
from treetap.tables.features import Held, constant_columns, in_words
from treetap.tables.label_columns import LabelCells, check_weight_bound, classes_of
from treetap.tables.labels import Labels, complete, read_labels
from treetap.tables.number_styles import PLAIN
from treetap.tables.opening import called, columns_of, read_columns, source_of
from treetap.tables.reading import Table, by_likely_encoding, table_of
from treetap.tables.record_ids import Ids, sorted_keys
from treetap.tables.source import Origin, Source, is_number, is_text, numbers_of
from treetap.trees import sampling
from treetap.trees.job_params import REGRESSIONS

#: Entry of the metadata of this column: the type that ids have in the joined table's own column.
ID_TYPE = b"type"
#: Column of the joined table: each row's place by the time column.
TIME = "treetap_time"
#: The columns of the joined table that an experiment adds, and what they hold.
ADDED = {ID: "ids", OWNER: "owners of labels", TIME: "order by time"}


def read_table(experiment: ExperimentFile, base: Path, file: Path | None = None) -> pa.Table:
    """The joined table with an id column, and where labels are spread their owners, read as each party will read it.

    `file`: the experiment's, which messages about the path name.

    Raises:
        DataError: a column is missing or twice, or the first cell that a party would refuse; by line or row. Of text in
            another encoding also what would be wrong of it by the likely one, so that a table is mended at once.
        ConfigError: the file contradicts itself about a column.
    """
    return by_likely_encoding(
        experiment.data, lambda data: _read(experiment.model_copy(update={"data": data}), base, file)
    )


def _read(experiment: ExperimentFile, base: Path, file: Path | None) -> pa.Table:
    """The same of text that is what the settings say."""
    data, job = experiment.data, experiment.job
    source = _source(experiment, base, file)
    if data.id is None and not source.ordered:
        raise ConfigError(f"{source}: rows of a query have no order: name their ids by id = COLUMN in [data]")
    names = columns_of(source)
    _check_names(experiment, source, names)
    for sentence in source.says:
        terminal.err.print(terminal.text(sentence), soft_wrap=True)
    claimed = {column for own in experiment.claims(names).values() for column in own}
    kept = [name for name in names if name not in (data.id, *data.drop) and (name != data.time or name in claimed)]
    own_ids = [] if data.id is None else [data.id]
    by_name = set(data.dated_by_name).union(
        *map(encoded_by_name, [data.encode, *(party.encode for party in experiment.party)])
    )
    times = [data.time] if data.time is not None and data.time not in kept else []
    texts = [*own_ids, *(name for name in kept if name in by_name)]
    table = read_columns(source, [*own_ids, *kept, *times], texts, own_ids)
    configs = _configs(experiment, kept)
    used = {data.label, *(name for config in configs for name in config.columns)}
    columns = {name: _column(source, name, table.column(name), plain=name in used) for name in kept}
    weights = {} if data.weight is None else {data.weight: _column(source, data.weight, columns[data.weight])}
    ids = (
        pa.chunked_array([numbered(table.num_rows)], pa.string())
        if data.id is None
        else _column(source, data.id, table.column(data.id))
    )
    settled, *_ = each_of(
        partial(settled_in, experiment, source, configs, columns),
        partial(sorted_keys, source, {configs[0].keys[0]: ids}, configs[0].rules),
        partial(complete, _unread(source, columns[data.label]), data.label),
    )
    for place, config in enumerate(configs):
        encode = with_taken(config.encode or AUTO, config.columns, settled.taken)
        configs[place] = config.model_copy(update={"encode": encode, "date_format": settled.date_formats or None})
    plain = list(dict.fromkeys(name for config in configs for name in config.columns))
    said = codes(
        source, {name: columns[name] for name in plain if name not in by_name | settled.taken.keys()}, OF_EXPERIMENT
    )
    cells = {**columns, **weights, configs[0].keys[0]: ids}
    reads = [_as_party(experiment, source, config, cells) for config in configs]
    labelled = reads[0]
    said += dict.fromkeys(sentence for read in reads for sentence in read.says)
    ordinal = {name: it.values for read in reads for name, it in read.categories.items() if it.encode == "ordinal"}
    orders = {name: values for name, values in ordinal.items() if source.orders(name)}
    columns |= _rewritten(source, columns, reads, settled.date_formats, job.params().missing)
    labels, in_order = read_labels(labelled, data.label, job.params().objective), np.argsort(labelled.rows)
    check_positive(experiment, source, labels.classes)
    if labels.classes and is_text(labels.kind) and labelled.label is not None:
        columns[data.label] = classes_of(data.label, labelled.label).take(pa.array(in_order))
    if data.weight is not None and labelled.weights is not None:
        most = job.params().largest_weight
        assert most is not None  # a check of the file
        check_weight_bound(source, data.weight, labelled.weights, labelled.rows, most)
        columns[data.weight] = pa.array(labelled.weights[in_order])
    in_file = labelled.ids.take(in_order)
    columns[ID] = pa.array(in_file, pa.string())
    if data.time is not None:
        columns[TIME] = pa.array(
            time_ranks_in(experiment, source, data.time, _column(source, data.time, table.column(data.time)))
        )
    if experiment.spread:
        columns[OWNER] = named_owners(experiment, base, in_file)
    joined = noted(pa.table(columns), settled, said, orders)
    named = pa.field(ID, pa.string(), metadata={ID_TYPE: str(labelled.id_types.get(data.id or "", pa.int64()))})
    return joined.set_column(joined.column_names.index(ID), named, joined.column(ID))


def _rewritten(
    source: Source,
    columns: Mapping[str, pa.ChunkedArray],
    reads: Sequence[Table],
    date_formats: Mapping[str, str],
    missing: float | None,
) -> dict[str, pa.ChunkedArray]:
    """The columns whose text says nothing without the table's settings: dates as times, numbers as numbers.

    `reads`: as each party reads the table. A column that some party takes for categories stays as it is.
    """
    made = dict[str, pa.ChunkedArray]()
    for name in dict.fromkeys(name for read in reads for name in read.sources):
        kinds = [read.categories.get(name) for read in reads if name in read.sources]
        if all(kind is not None and kind.of_dates for kind in kinds):
            form = date_formats.get(name, ISO)
            made[name] = timestamps(source, name, as_written(source, name, columns[name], missing, form), form)
        elif source.style != PLAIN and is_text(columns[name].type) and not any(kinds):
            made[name] = pa.chunked_array([pa.array(numbers_of(source, name, columns[name]), from_pandas=True)])
    return made


def _configs(experiment: ExperimentFile, names: list[str]) -> list[TableConfig]:
    """The tables that parties get in some run, each once; the first one is with the labels and their weights."""
    data, configs = experiment.data, list[TableConfig]()
    for seed in data.seeds:
        drawn = _columns(experiment, names, seed)
        for party in experiment.party:
            columns = drawn[party.name]
            config = TableConfig(
                path=Path(data.title),
                id=data.id or ID,
                normalise=data.normalise,
                columns=columns,
                encode=experiment.encode(party, columns),
                monotone_constraints=experiment.constraints(party, columns),
                cuts=party.cuts,
            )
            if config not in configs:
                configs.append(config)
    configs[0] = configs[0].model_copy(update={"label": data.label, "weight": data.weight})
    return configs


def _as_party(
    experiment: ExperimentFile, source: Source, config: TableConfig, columns: dict[str, pa.ChunkedArray]
) -> Table:
    """A party's table as it will read it. Raises `DataError` where it would refuse one of its columns."""
    table = table_of(source, config, columns, config.label is not None, experiment.job.params().missing)
    if training(experiment.job.protocol).grows_trees:
        refuse_tensors(source, table.shapes)
    refuse_cuts(table)
    directions_of(table)
    return table


def _column(source: Source, name: str, column: pa.ChunkedArray, *, plain: bool = True) -> pa.ChunkedArray:
    """A column that some party may have, as a plain one; another one as it is, its images being whole."""
    column = plain_column(source, f"column {name!r}", column) if plain else column
    if is_tensor(column.type):
        check_tensors(source, name, column)
    return column


def numbered(count: int) -> list[str]:
    """Ids for rows without one: their numbers, in the order of texts."""
    width = len(str(count))
    return [f"{row:0{width}d}" for row in range(count)]


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
    records = _unread(Path(experiment.data.title), table.column(experiment.data.label))
    return read_labels(records, experiment.data.label, experiment.job.params().objective)


def _unread(origin: Origin, label: pa.ChunkedArray) -> Table:
    """A table of nothing but labels, in the order of their rows."""
    count = len(label)
    return Table(origin, Ids.of([""] * count), [], Held(np.empty((count, 0))), LabelCells(label), np.arange(count))


def _check_names(experiment: ExperimentFile, path: Source, names: list[str]) -> None:
    """Check that every column that the file names exists once and has one purpose."""
    data = experiment.data
    owners = {column: party for party, own in experiment.claims(names).items() for column in own}
    encoded = [name for name in encoded_by_name(data.encode) if name not in owners]
    own = [name for name in (data.label, data.weight, data.id) if name]
    constrained, dated = list(data.directions), list(data.dated_by_name)
    times = Counter(names)
    for name in [*own, *filter(None, [data.time]), *data.drop, *owners, *encoded, *constrained, *dated]:
        if name not in times:
            remedy = path.remedy("no column", [name])
            raise DataError(
                f"{path}: has no column {called(name)}{remedy and '; '}{remedy or did_you_mean(name, names)}"
            )
    if twice := sorted(name for name, count in times.items() if count > 1):
        raise DataError(f"{path}: has column {twice[0]!r} more than once")
    if data.label in (data.id, *data.drop):
        raise ConfigError(f"column {data.label!r} is the label, and is the id or dropped")
    if data.weight is not None and data.weight in (data.label, data.id, data.time, *data.drop):
        raise ConfigError(f"column {data.weight!r} is the weight, and is the label, the id, the time or dropped")
    # a column that is dropped may be nothing else: the file says two things of it
    taken = {*own, *data.drop}
    if both := [name for name in owners if name in taken]:
        uses = {data.weight: "weight", data.id: "id", data.label: "label"}
        raise ConfigError(
            f"columns of [[party]] {owners[both[0]]}: {both[0]!r} is named by {uses.get(both[0], 'drop')} of [data], "
            "and no feature; leave it out"
        )
    for key, own_names in (("encode", encoded), (CONSTRAINTS, constrained)):
        if both := [name for name in own_names if name in taken]:
            raise ConfigError(
                f"{key} of [data] names column {both[0]!r}, which is the label, the weight, the id or dropped"
            )
    for reserved, what in ADDED.items():
        if reserved in times and reserved not in (data.id, *data.drop):
            raise DataError(
                f"{path}: column {reserved!r} has the name of an experiment's own {what}; rename it or drop it"
            )


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
    # Party → those of all rows that it lacks; the same ones in all folds, and whatever the join.
    count = len(label)
    lacking = {party.name: round(party.lacks * count) for party in experiment.party if party.lacks}
    lacked = {
        name: np.sort(sampling.generator(seed, "experiment lacks", name).permutation(count)[:size])
        for name, size in lacking.items()
    }
    drawn = Split(*_rows(experiment, table, groups, seed, fold), {}, {}, lacked, left=experiment.apart)
    train, test = drawn.of_job(drawn.train), drawn.of_job(drawn.test)
    how = f"test_share = {data.test_share}" if data.cv is None else f"cv = {data.cv}"
    what = f"a test share of {data.test_share}" if data.cv is None else how
    what += " of those that all parties have" if drawn.lacked and not drawn.left else ""
    if not len(test) or not len(train):
        raise DataError(f"{data.title}: {len(label)} rows are too few for {what}")
    for name, rows in zip(names, groups, strict=True):
        if not len(np.intersect1d(rows, train)):
            why = "has too few rows" if data.time is None else f"begins too late by column {data.time!r}, with its rows"
            raise DataError(
                f"{data.title}: label column {data.label!r}: class {str(name)!r} {why}, {len(rows)}: with {how} no row "
                "remains to train on; lower it, or leave the class out"
            )
    # by targets that are all the same no split has a gain
    if regression and len(label.take(pa.array(train)).unique()) == 1:
        raise DataError(
            f"{data.title}: label column {data.label!r}: seed {seed} draws training rows of one target only"
        )
    columns = _columns(experiment, [name for name in table.column_names if name not in ADDED], seed)
    owned = draw_owners(experiment, table, train, seed) if experiment.spread else {}
    return replace(drawn, columns=columns, labels=owned)


def _rows(
    experiment: ExperimentFile, table: pa.Table, groups: list[Ints], seed: int, fold: int | None
) -> tuple[Ints, Ints]:
    """Training and held-out rows, ascending. `groups`: the rows of each class, or all rows.

    Of rows in time the last share is held out or, of folds, what scikit-learn's `TimeSeriesSplit` holds out: the rows
    have `cv` + 1 parts, the first of them with the remainder; fold k holds part k + 1 out and trains on all before it.
    Of others a share of each group is drawn, or every `cv`-th row, so that sizes of folds differ by one row at most.
    """
    data, count = experiment.data, table.num_rows
    if data.time is not None:
        order, size = np.argsort(table.column(TIME).to_numpy()), round(data.test_share * count)
        start = count - size
        if fold is not None and data.cv is not None:
            size = count // (data.cv + 1)
            start = count - (data.cv - fold + 1) * size
        return np.sort(order[:start]), np.sort(order[start : start + size])
    draw = sampling.generator(seed, "experiment rows")
    dealt = [draw.permutation(rows) for rows in groups]
    shares = [rows[: round(data.test_share * len(rows))] for rows in dealt]
    test = np.concatenate(shares) if fold is None else np.concatenate(dealt)[fold - 1 :: data.cv]
    return np.setdiff1d(np.arange(count), test), np.sort(test)


def _columns(experiment: ExperimentFile, names: list[str], seed: int) -> dict[str, list[str]]:
    """Each party's columns of those in the table."""
    own = experiment.claims(names)
    claimed = {column for named in own.values() for column in named}
    claimed |= {experiment.data.label, experiment.data.weight or ""}
    free, place = [name for name in names if name not in claimed], {name: k for k, name in enumerate(names)}
    shuffled = sampling.generator(seed, "experiment columns").permutation(np.array(free, dtype=object))
    shares = {party.name: party.share or 0 for party in experiment.party if party.name not in own}
    drawn = {name: sorted(some, key=place.__getitem__) for name, some in dealt(shares, shuffled).items()}
    return {party.name: (own | drawn)[party.name] for party in experiment.party}


def refuse_constant(experiment: ExperimentFile, table: pa.Table, runs: Sequence[tuple[PlannedRun, Split]]) -> None:
    """Check that the parties of a job of trees can train on the columns that they get in each run.

    Raises:
        DataError: columns are constant, and nothing says to drop them, or a party that needs columns keeps none; the
            message has all columns of all runs.
    """
    if not training(experiment.job.protocol).grows_trees:
        return
    faults, titles = dict[str, dict[str, str]](), list[str]()
    for run, drawn in runs:
        said = {party.name: _unusable(experiment, table, drawn, party) for party in experiment.party}
        titles += [run.title] if any(said.values()) else []
        faults |= {name: columns | faults.get(name, {}) for name, columns in said.items() if columns}
    if faults:
        cure = (
            "give it another" if experiment.data.drop_constant else "set drop_constant = true in [data], or drop them"
        )
        raise DataError(
            f"{experiment.data.title}: among the training rows of {'; '.join(titles)} these columns hold no two "
            f"values: {'; '.join(f'of {name} {in_words(columns)}' for name, columns in faults.items())}: {cure}"
        )


def _unusable(experiment: ExperimentFile, table: pa.Table, drawn: Split, party: PartyTable) -> dict[str, str]:
    """A party's constant columns in a run, as it would find them in its own table.

    Where they are dropped only if it needs a column and keeps none.
    """
    own = drawn.columns[party.name]
    names = [column for column in own if not is_tensor(table.column(column).type)]
    rows, path = pa.array(drawn.of(party.name, drawn.train)), Path(experiment.data.title)
    columns = {column: table.column(column).take(rows) for column in names}
    missing = experiment.job.params().missing
    made = encoded(path, columns, len(rows), encode_in(experiment, table, party, names), None, missing)
    extents = dict(zip(made.names, Held(made.values).extents(np.arange(len(rows))), strict=True))
    names = [column for column in names if column not in party.cuts]
    dropped = experiment.data.drop_constant
    constant = constant_columns(names, extents, made.categories, one_hot=dropped)
    return {} if dropped and not (experiment.spread and len(constant) == len(own)) else constant
