"""A party's table: rows with an id column, of any source; only the named columns are read.

Records come back sorted by id, so that parties with the same ids have the same order. Messages about faults travel to
the operator by way of the coordinator: they name the place of a fault, never the content of a cell.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from treetap.errors import DataError, NotText, cannot, each_of
from treetap.tables.auto_encoding import Cells, Rules, Settled, codes, declared_in, redated, settle
from treetap.tables.categories import Category, Encoded, Seen, encoded, merges, texts_of
from treetap.tables.cells import Shape, Tensor, check_trained, is_tensor, plain_column, tensor_of, tensor_shape
from treetap.tables.config import AUTO, CATEGORICAL, TableConfig, encoded_by_name, encodings_in
from treetap.tables.features import Extent, Features, Held, constant_columns, in_words
from treetap.tables.files import HEAD, SUFFIXES, TableFile, content_of
from treetap.tables.label_columns import STRING, IdColumns, LabelCells, id_type, offsets_of, weights_of
from treetap.tables.opening import check_columns, columns_of, file_source, missing_words, read_columns, source_of
from treetap.tables.record_ids import NOTHING, Ids, Unlike, distinct_ids, ids_of, sorted_keys, unlike_training
from treetap.tables.source import Origin, Source, in_width, is_number, kind_name, numbers_of, row_name
from treetap.tables.source_keys import SourceKeys
from treetap.tables.streamed_reading import features_of, first_pass, kinds_of, too_large_to_hold
from treetap.trees.offsets import Offsets

log = logging.getLogger(__name__)
Keys = TypeVar("Keys", bound=SourceKeys)
Made = TypeVar("Made")
Floats = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Table:
    """Records in the order of their sorted ids.

    `path`: where the table comes from, for messages. `ids`: N texts. `columns`: names of the d features. `values`:
    these, held or streamed. `label`: N cells as read, or None. `rows`: (N,) each record's row in the file,
    from 0. `sources`: the file's columns that the features were made of, and those of tensors; `categories`: how those
    of text were encoded. `tensors`: each column of images, (N, height, width) or (N, channels, height, width); none of
    them is among `columns`. `id_types`: of the id columns in the file. `dropped`: columns that were
    left out because they are constant; None where the configuration does not ask for that. `weights`: (N,)
    sample weights; None: the table has none, or is read without its label. `offsets`: what scores begin with, of the
    same records. `directions`: those of the columns in which
    predictions are monotone. `cuts`: those that are listed, by column. `seen`: of each column of the file, but tensors,
    how many cells of all rows have a value. `unlike`: of a table that was read as that of a training was. `says`:
    sentences about what `encode = "auto"` took, and about cells that a word or a setting made missing.
    """

    path: Origin
    ids: Ids
    columns: list[str]
    values: Features
    label: LabelCells | None
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    sources: list[str] = field(default_factory=list)
    categories: Mapping[str, Category] = field(default_factory=dict)
    id_types: Mapping[str, pa.DataType] = field(default_factory=lambda: {"id": STRING})
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    dropped: list[str] | None = None
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None
    offsets: Offsets | None = None
    directions: Mapping[str, int] = field(default_factory=dict)
    cuts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    seen: Mapping[str, Seen] = field(default_factory=dict)
    unlike: Unlike = NOTHING
    says: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Table of {len(self.ids)} records>"

    @property
    def id_columns(self) -> IdColumns:
        """The ids as columns of a file."""
        return IdColumns(self.ids, self.id_types)

    @property
    def features(self) -> Floats:
        """All features, (N, d) float64, NaN where missing; those of a large table are read anew each time.

        Raises:
            DataError: they take up more than half of the memory, or the table cannot be read any more.
        """
        return self.values.whole(self.rows)

    @property
    def made(self) -> set[str]:
        """Features that are one category each."""
        return {
            name for category in self.categories.values() for name in category.features if category.encode == "one-hot"
        }

    def constant(self, extents: Sequence[Extent] | None = None) -> dict[str, str]:
        """The columns of the file that may not be constant and are: see `constant_columns`.

        `extents`: those of some of the records, if these alone matter.
        """
        if self.dropped is not None:
            return {}
        known = self.values.extents(self.rows) if extents is None else extents
        return constant_columns(self.quantiled, dict(zip(self.columns, known, strict=True)), self.categories)

    @property
    def quantiled(self) -> list[str]:
        """The columns of the file without listed cuts."""
        return [name for name in self.sources if name not in self.cuts]

    @property
    def category_counts(self) -> dict[str, int]:
        """Features that trees split as categories → the number of these."""
        return {
            name: len(category.values) for name, category in self.categories.items() if category.encode == CATEGORICAL
        }

    @property
    def empty_columns(self) -> list[str]:
        """The columns of the file without a value in any row."""
        return [name for name in self.sources if name in self.seen and not self.seen[name].present]

    @property
    def shapes(self) -> dict[str, Shape]:
        """Column of tensors → shape of a cell: (height, width) or (channels, height, width)."""
        return {name: cells.shape[1:] for name, cells in self.tensors.items()}

    def described(self) -> dict[str, Any]:
        """The columns in a model's manifest: the features, the file's columns they are made of, shapes of tensors."""
        return {
            "columns": self.columns,
            "source_columns": self.sources,
            "categories": {name: category.to_dict() for name, category in self.categories.items()},
            "tensors": {name: {"shape": list(shape)} for name, shape in self.shapes.items()},
            "empty_columns": self.empty_columns,
            **({"normalise": list(self.ids.rules)} if self.ids.rules else {}),
            **({"dropped_columns": self.dropped} if self.dropped else {}),
            **({"offsets": dict(self.offsets.columns)} if self.offsets else {}),
        }

    def where(self, record: int) -> str:
        """A record's place in the file, for a reader."""
        return row_name(self.path, int(self.rows[record]))

    def take(self, records: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Table:
        """The records at these places, in this order."""
        return replace(
            self,
            ids=self.ids.take(records),
            values=self.values.take(records),
            label=None if self.label is None else self.label.take(records),
            weights=None if self.weights is None else self.weights[records],
            offsets=self.offsets and self.offsets.take(records),
            rows=self.rows[records],
            tensors={name: cells[records] for name, cells in self.tensors.items()},
        )


def read_table(
    config: TableConfig,
    *,
    with_label: bool,
    missing: float | None,
    categories: Mapping[str, Category] | None = None,
    shapes: Mapping[str, Shape] | None = None,
    empty: Collection[str] = (),
    streams: bool = False,
    categorical: bool = False,
) -> Table:
    """Read the named columns; `DataError` names file, row and column of the first fault.

    A cell equal to `missing`, an empty cell and NaN count as missing. Columns of categories and dates are encoded as
    the configuration says or, for a model that is there already, as its `categories` say; its columns of tensors have
    these `shapes`, and those in `empty` had no value in its training. What is unlike the training is counted, logged,
    and refused where it is all of a column. `streams`: features of a large table may stay in their source, to be read
    anew in batches. `categorical`: `encode = "auto"` may take categories that trees split by sets of them. One error
    has all that is wrong with ids and encodings, and of text in another encoding what would be wrong by the likely one.
    """
    return by_likely_encoding(
        config,
        partial(
            _read,
            with_label=with_label,
            missing=missing,
            categories=categories,
            shapes=shapes,
            empty=empty,
            streams=streams,
            categorical=categorical,
        ),
    )


def by_likely_encoding(keys: Keys, read: Callable[[Keys], Made]) -> Made:
    """What is read by a table's settings.

    Raises:
        DataError: as `read` does; of text in another encoding also what would be wrong by the likely one.
    """
    try:
        return read(keys)
    except NotText:
        # each of two readings raises what is wrong by its encoding
        likely = keys.model_copy(update={"encoding": keys.encoding or "windows-1252"})
        made: list[Made] = each_of(partial(read, keys), partial(read, likely))
        return made[0]


def _read(
    config: TableConfig,
    *,
    with_label: bool,
    missing: float | None,
    categories: Mapping[str, Category] | None,
    shapes: Mapping[str, Shape] | None,
    empty: Collection[str],
    streams: bool,
    categorical: bool,
) -> Table:
    """The same by the encoding that the settings say."""
    categories = None if categories is None else _dated_as(config, categories)
    further = []
    if with_label:
        if config.label is None:
            raise DataError(f"{config.title}: the configuration names no label column for this table")
        further = [config.label, *filter(None, (config.weight, config.label_upper))]
    further += config.offsets.values()
    source = source_of(config)
    with source.opened():
        if categories is None:  # a model's columns are names
            config = _matched(source, config)
        check_columns(source, [*config.keys, *config.columns, *further])
        for sentence in source.says:
            log.info("%s", sentence)
        # both ways give the same table; the second holds all features in memory
        if streams and too_large_to_hold(source, config):
            stamp = source.stamp()
            kinds = kinds_of(source, config, texts_of(categories or {}))
            columns, cells = first_pass(source, config, kinds, further, categories)
            dated = {name: (it.origin(), it.column()) for name, it in cells.items()}
            categories = _redated(config, dated, categories, missing)
            rules = _rules(source, config, missing, categorical)
            (ids, order), (made, encodings, says) = each_of(
                partial(
                    sorted_keys, source, {name: columns[name] for name in config.keys}, config.rules, config.key_places
                ),
                partial(features_of, source, stamp, source.count_rows() or 0, rules, kinds, cells, categories),
            )
            names, own = made.names, list(config.columns)
            read = Table(source, ids, names, made, None, order, own, encodings, seen=made.seen, says=says)
            read = _beside_features(read, source, config, columns, kinds, with_label)
        else:
            columns = _columns(source, config, further, categories)
            categories = _redated(config, {name: (source, it) for name, it in columns.items()}, categories, missing)
            read = table_of(source, config, columns, with_label, missing, categories, shapes, categorical)
            features = {name: columns[name] for name in config.columns}
            plain = {name: it for name, it in features.items() if categories is None and name not in read.categories}
            read = replace(read, says=[*read.says, *missing_words(source, features), *codes(source, plain)])
        read = replace(read, says=[*read.says, *source.cleared(config.columns)])
        for sentence in read.says:
            log.info("%s: %s", source, sentence)
        if categories is not None:
            return replace(read, unlike=unlike_training(source, read.seen, set(empty), len(read.ids)))
        if not config.columns:
            others = [name for name in columns_of(source) if name not in config.spared]
            has = f"; it has {', '.join(map(repr, others))}" if others else ""
            log.info("%s: columns names none, so that the table contributes no feature%s", source, has)
        return _without_constant(read) if config.drop_constant else read


def _matched(source: Source, config: TableConfig) -> TableConfig:
    try:
        return config.matched(columns_of(source))
    except ValueError as fault:
        raise DataError(f"{source}: {fault}") from None


def _columns(
    source: Source, config: TableConfig, further: list[str], categories: Mapping[str, Category] | None
) -> dict[str, pa.ChunkedArray]:
    wanted = [*config.keys, *config.columns, *further]
    encoded_here, dated = set(encoded_by_name(config.encode)), set(config.dated_by_name)
    if categories is not None:
        dated = {name for name, it in categories.items() if it.of_dates}
        encoded_here = set(categories) - dated
    # a database's numbers that are categories are numbers
    as_written = dated if source.typed else dated | encoded_here
    table = read_columns(source, wanted, {*config.keys, *as_written}, config.keys, texts_of(categories or {}))
    return {name: plain_column(source, f"column {name!r}", table.column(name)) for name in wanted}


def table_of(
    source: Source,
    config: TableConfig,
    columns: Mapping[str, pa.ChunkedArray],
    with_label: bool,
    missing: float | None,
    categories: Mapping[str, Category] | None = None,
    shapes: Mapping[str, Shape] | None = None,
    categorical: bool = False,
) -> Table:
    """A table of plain columns of a source that have been read, with its features and tensors in memory.

    Raises:
        DataError: as `read_table`, by the source's own rows.
    """
    kinds, rows = {name: columns[name].type for name in config.columns}, len(columns[config.keys[0]])
    cells = {name: tensor_shape(source, name, kind) for name, kind in kinds.items() if is_tensor(kind)}
    if shapes is not None:
        check_trained(source, cells, shapes, config.columns)
    chosen = {name: columns[name] for name in config.columns if name not in cells}

    def features() -> tuple[Encoded, Settled]:
        rules, own = _rules(source, config, missing, categorical), chosen if categories is None else {}
        settled = settle(source, {name: Cells(source, column, rows) for name, column in own.items()}, rules)
        return encoded(source, chosen, rows, settled.encode, categories, missing, settled.date_formats), settled

    (ids, order), (made, settled) = each_of(
        partial(sorted_keys, source, {name: columns[name] for name in config.keys}, config.rules, config.key_places),
        features,
    )
    tensors = {name: tensor_of(source, name, columns[name], order) for name in cells}
    held, own = Held(made.values[order]), list(config.columns)
    names, encodings = made.names, made.categories
    read = Table(source, ids, names, held, None, order, own, encodings, tensors=tensors, seen=made.seen)
    read = replace(
        read, says=[*settled.says, *merges(source, chosen, made.categories if categories is None else categories)]
    )
    return _beside_features(read, source, config, columns, kinds, with_label)


def _rules(source: Source, config: TableConfig, missing: float | None, categorical: bool) -> Rules:
    declared = declared_in(source) if AUTO in encodings_in(config.encode) else frozenset[str]()
    return Rules(config.encode, config.date_format, missing, categorical, declared, listed=config.missing)


def _dated_as(config: TableConfig, categories: Mapping[str, Category]) -> dict[str, Category]:
    """The categories of a training, with the formats of the columns of dates that this table's settings name."""
    forms = {name: form for name, form in config.dated_by_name.items() if name in categories}
    dated = {name: replace(categories[name], date_format=form) for name, form in forms.items()}
    return {**categories, **{name: it for name, it in dated.items() if it.of_dates}}


def _redated(
    config: TableConfig,
    columns: Mapping[str, tuple[Origin, pa.ChunkedArray]],
    categories: Mapping[str, Category] | None,
    missing: float | None,
) -> Mapping[str, Category] | None:
    """The same, with the one format that this table's settings have for all columns where the cells are of it."""
    form = config.date_format
    if categories is None or not isinstance(form, str):
        return categories
    own = {name: it for name, it in categories.items() if it.of_dates and name in columns}
    return {**categories, **{name: redated(*columns[name], name, it, form, missing) for name, it in own.items()}}


def _beside_features(
    table: Table,
    source: Source,
    config: TableConfig,
    columns: Mapping[str, pa.ChunkedArray],
    kinds: Mapping[str, pa.DataType],
    with_label: bool,
) -> Table:
    """The table with the types of its ids, constraints, cuts, and labels and their weights if read with them.

    `kinds`: the types of the columns of features.
    """
    own_ids = zip(config.keys, table.ids.columns(len(config.keys)), strict=True)
    texts_only = not source.typed or bool(config.rules)
    types = {name: id_type(own, columns[name].type, in_csv=texts_only) for name, own in own_ids}
    cuts = {name: [in_width(cut, kinds[name]) for cut in listed] for name, listed in config.cuts.items()}
    table = replace(table, id_types=types, directions=config.directions, cuts=cuts)
    if with_label and config.label:
        label = columns[config.label]
        texts = None
        if not source.typed and (is_number(label.type) or pa.types.is_boolean(label.type)):
            written = source.read([config.label], {config.label}).column(0)
            texts = plain_column(source, f"column {config.label!r}", written)
        upper = (
            None
            if config.label_upper is None
            else numbers_of(source, config.label_upper, columns[config.label_upper], "a bound is one", finite=False)
        )
        table = replace(table, label=_label(source, config.label, label, texts, upper, table.rows))
    if with_label and config.weight:
        table = replace(table, weights=weights_of(source, config.weight, columns[config.weight])[table.rows])
    if config.offsets:
        table = replace(table, offsets=offsets_of(source, config.offsets, columns).take(table.rows))
    return table


def _without_constant(table: Table) -> Table:
    """The table without its constant columns, which the log names."""
    extents = dict(zip(table.columns, table.values.extents(table.rows), strict=True))
    constant = constant_columns(table.quantiled, extents, table.categories, one_hot=True)
    if constant:
        log.info("%s: drop_constant leaves out %s", table.path, in_words(constant))
    categories = {name: category for name, category in table.categories.items() if name not in constant}
    # a column of the file may have become several features
    made = [table.categories[name].features if name in table.categories else [name] for name in constant]
    gone = set(chain(*made))
    kept = [place for place, name in enumerate(table.columns) if name not in gone]
    return replace(
        table,
        columns=[table.columns[place] for place in kept],
        values=table.values.keep(kept),
        sources=[name for name in table.sources if name not in constant],
        categories=categories,
        dropped=list(constant),
    )


def read_ids(path: Path, rules: tuple[str, ...] = ()) -> Ids:
    """A file of record ids: text, one id a line, or the first column of a table in a file of any format.

    `rules`: those of the table that has these records, see `Ids`.
    """
    file = TableFile.local(path)
    if file.suffix not in SUFFIXES:
        return _id_lines(path, rules)
    source = file_source(file)  # this file and no other, whatever characters its name has
    names = columns_of(source)
    if not names:
        raise DataError(f"{path}: has no column")
    if names.count(names[0]) > 1:
        raise DataError(f"{path}: another column has the name of the first one")
    # without a header the name is a record's id, hence is not shown
    column = read_columns(source, names[:1], set(names[:1])).column(0)
    return ids_of(source, "first column", plain_column(source, "first column", column), rules)


def _id_lines(path: Path, rules: tuple[str, ...]) -> Ids:
    with cannot("be read", path, DataError):
        raw = path.read_bytes()
    if content := content_of(raw[:HEAD]):
        raise DataError(f"{path}: is {content.what}, not text with one id a line: {content.remedy}")
    try:
        lines = raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: is not UTF-8 text; give one id a line, or a table whose name ends with {', '.join(SUFFIXES)}"
        ) from None
    return distinct_ids(path, "column 'id'", Ids.of(line.strip() for line in lines if line.strip()), rules)


def _label(
    path: Origin,
    name: str,
    column: pa.ChunkedArray,
    texts: pa.ChunkedArray | None,
    upper: np.ndarray[tuple[int], np.dtype[np.float64]] | None,
    order: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> LabelCells:
    try:
        return LabelCells(column, texts, upper).take(order)
    except pa.ArrowNotImplementedError:
        raise DataError(f"{path}: label column {name!r} holds {kind_name(column.type)}, which is no label") from None
