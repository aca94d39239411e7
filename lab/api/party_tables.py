"""The caller's data as a table for each party: one frame split by columns, or a frame of each party."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import did_you_mean, each_of
from treetap.lab.api.frames import (
    ID,
    InvalidInput,
    Rows,
    arrow_of,
    checked,
    column_of,
    ids_in,
    ids_of_index,
    library_of,
    of_array,
    only_numbers,
)
from treetap.lab.experiment.joined_table import numbered
from treetap.tables.asked_columns import OF_ESTIMATOR
from treetap.tables.auto_encoding import Cells, Rules, Settled, codes, settle
from treetap.tables.categories import are_plain, different_texts, merges
from treetap.tables.cells import plain_column
from treetap.tables.config import OTHERS, auto_for_others
from treetap.tables.normalised import checked as checked_rules
from treetap.tables.normalised import rules_of
from treetap.tables.record_ids import Ids
from treetap.tables.source import is_text

#: Names of columns that the parties' tables have beside the caller's.
LABEL, WEIGHT = "treetap_label", "treetap_weight"


@dataclass(frozen=True)
class PartyTables:
    """Records by party, the id column first. `rows_of`: as the caller has them, by party, the label holder first.

    `encodings`: of tables of a training by party the keys of its description that say how its columns are encoded.
    """

    tables: dict[str, pa.Table]
    rows_of: dict[str, Rows]
    encodings: dict[str, dict[str, Any]] | None = None

    @property
    def rows(self) -> Rows:
        """Those of the label holder."""
        return next(iter(self.rows_of.values()))

    def by_names(self) -> PartyTables:
        """The same records under the caller's names of them, where there are some. Raises as `Rows.names`."""
        rows_of = {
            party: rows if (names := rows.names()) is None else replace(rows, ids=names)
            for party, rows in self.rows_of.items()
        }
        tables = {party: table.set_column(0, ID, rows_of[party].ids.array) for party, table in self.tables.items()}
        return PartyTables(tables, rows_of)

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns of each party, without the ids."""
        return {party: [name for name in table.column_names if name != ID] for party, table in self.tables.items()}

    def keys(self, party: str, date_format: str | Mapping[str, str] | None = None) -> dict[str, Any]:
        """The keys of a table's description that say how its columns are encoded.

        A table to predict is encoded as the training's was; `date_format`: of its dates in text.
        """
        if self.encodings is not None:
            return self.encodings[party]
        own = date_format
        if isinstance(own, Mapping):
            own = {name: form for name, form in own.items() if name in self.columns[party]}
        return {"date_format": own} if own else {}


def are_frames(data: Any) -> bool:
    """True for a table of each party: a mapping by party, or a list of data frames or of arrays of two axes."""
    if isinstance(data, Mapping):
        return all(isinstance(name, str) for name in data)  # some sparse matrices are mappings too
    if not isinstance(data, list | tuple) or not data:
        return False
    return all(library_of(frame) is not None or (isinstance(frame, np.ndarray) and frame.ndim == 2) for frame in data)


def split(
    have: Sequence[str],
    parties: Mapping[str, Sequence[Any]] | int,
    names: Sequence[str] = (),
    *,
    by_place: bool = False,
) -> dict[str, list[str]]:
    """The columns of each party, for `parties` of an estimator; `names`: of the parties if it is no mapping.

    `have`: the columns of one table. `by_place`: it is an array, of whose columns whole numbers are places; of a frame
    they are names.

    Raises:
        InvalidInput: a column is unknown, of two parties or of none, or there are fewer columns than parties.
    """
    if not isinstance(parties, Mapping):
        count = parties
        if count < 2:
            raise InvalidInput(f"parties = {parties!r}: must be columns by party, or a number of parties from 2")
        if len(have) < count:
            raise InvalidInput(
                f"n_features = {len(have)}: {count} parties need at least {count} features; name the columns of each "
                "party, of which the label holder may have none"
            )
        parts = np.array_split(np.arange(len(have)), count)
        return {name: [have[place] for place in part] for name, part in zip(names, parts, strict=True)}
    columns_of: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    known = set(have)
    for party, columns in parties.items():
        if isinstance(columns, str):
            raise InvalidInput(f"parties: {party} has {columns!r}: give its columns as a list")
        columns_of[party] = []
        for column in columns:
            name = column_name(column, have, known, by_place=by_place)
            if name is None:
                meant = did_you_mean(column, have) if isinstance(column, str) else ""
                if by_place and isinstance(column, str):
                    meant = '; X names no columns: a step of a pipeline keeps names by .set_output(transform="pandas")'
                raise InvalidInput(f"parties: {party} has column {column!r}, which the table lacks{meant}")
            if name in owner:
                both = "twice" if owner[name] == party else f"of {owner[name]} and of {party}"
                raise InvalidInput(f"parties: column {name!r} is {both}")
            owner[name] = party
            columns_of[party].append(name)
    # a column of no party is probably forgotten: the caller decides
    if free := [name for name in have if name not in owner]:
        raise InvalidInput(
            f"parties: column {free[0]!r}{f' and {len(free) - 1} more' if len(free) > 1 else ''} is of no party: drop "
            "it, or name it under one"
        )
    return columns_of


def column_name(label: Any, have: Sequence[str], known: set[str], *, by_place: bool) -> str | None:
    """The name of a column that a caller means: by its label's text, or of an array by its place too; None without."""
    if by_place and isinstance(label, int | np.integer) and not isinstance(label, bool):
        return have[int(label)] if 0 <= label < len(have) else None
    return str(label) if str(label) in known else None


def framed(X: Any) -> pa.Table:
    """One data frame of all parties as a table. Raises InvalidInput: it has no records or no columns."""
    table = arrow_of(X)
    if table.num_columns == 0:
        raise InvalidInput("0 feature(s): the data frame has no columns")
    if table.num_rows == 0:
        raise InvalidInput("Found array with 0 sample(s): the data frame has no records")
    return table


def of_one(X: Any, table: pa.Table, columns: Mapping[str, Sequence[str]], id_column: str | None = None) -> PartyTables:
    """One table of the caller's data `X` split by columns: records are numbered, and have their ids for the caller.

    Raises:
        InvalidInput: the table lacks a column or that of ids, or one has several owners.
    """
    if id_column is not None and id_column not in table.column_names:
        raise InvalidInput(f"id_column = {id_column!r}: X has no such column")
    needed = [name for own in columns.values() for name in own]
    known = set(table.column_names)
    if lacking := [name for name in needed if name not in known]:
        raise InvalidInput(f"X lacks column {lacking[0]!r}, which the model was trained on")
    if len(set(needed)) < len(needed):
        twice = next(name for place, name in enumerate(needed) if name in needed[:place])
        raise InvalidInput(f"several parties have a column {twice!r}: give a table of each party")
    _refuse_own(needed)
    # the parties align by numbers, whatever ids the caller has
    ids = Ids.of(numbered(table.num_rows))
    named = None if id_column is None else (id_column, table.column(id_column))
    tables = {party: _with_ids(ids, table, own) for party, own in columns.items()}
    rows = Rows(X, ids, named, X.index if library_of(X) == "pandas" else None)
    return PartyTables(tables, dict.fromkeys(tables, rows))


def of_several(
    frames: Mapping[str, Any],
    label_holder: str,
    id_column: str | None,
    normalise: Sequence[str] | None = None,
    *,
    leave_out: str | None = None,
    labelled: Collection[str] = (),
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> PartyTables:
    """A table of each party. Records are known by `id_column`, else by the index of pandas frames, else by their place.

    `normalise`: rules of the ids, as of a party's table. `leave_out`: the label's column in the frames of the parties
    that are `labelled`, by default the label holder's. `columns`: those of each party, which are selected.

    Raises:
        InvalidInput: a frame is missing or lacks a column, has records without ids, or the frames differ in length.
    """
    if columns is not None and set(columns) != set(frames):
        raise InvalidInput(f"the frames are of {', '.join(frames)}, and the model's parties are {', '.join(columns)}")
    tables = _of_each({party: partial(_arrow, party, frame) for party, frame in frames.items()})
    if empty := [party for party, frame in frames.items() if not _length(tables[party], frame)]:
        raise InvalidInput(f"{_called(empty[0])} has no records")
    ids = _ids(frames, tables, id_column, _rules(normalise))
    kept_of = {}
    for party, table in tables.items():
        # other parties may have a feature of the label's name
        left_out = {id_column, leave_out if party in (labelled or (label_holder,)) else None}
        kept = [name for name in table.column_names if name not in left_out]
        if columns is not None:
            by_place, have = library_of(frames[party]) is None, set(kept)
            wanted = {label: column_name(label, kept, have, by_place=by_place) for label in columns[party]}
            if lacking := [label for label, name in wanted.items() if name is None]:
                raise InvalidInput(f"the frame of {party} lacks column {lacking[0]!r}, which the model needs")
            kept = [name for name in wanted.values() if name is not None]
        _refuse_own(kept)
        kept_of[party] = _with_ids(ids[party], table, kept)
    by_index = id_column is None and _all_pandas(frames)
    shared = _shared_index(frames) if id_column is None and not by_index else None
    rows_of = {}
    for party in dict.fromkeys([label_holder, *frames]):
        frame, own = frames[party], None if id_column is None else (id_column, tables[party].column(id_column))
        index = frame.index if shared is None and library_of(frame) == "pandas" else shared
        rows_of[party] = Rows(frame, ids[party], own, index, by_index)
    return PartyTables(kept_of, rows_of)


def _of_each(checks: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """What each party's check returns; raises the faults of all."""
    return dict(zip(checks, each_of(*checks.values()), strict=True))


def _with_ids(ids: Ids, table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Columns of a table after the ids, which are there also where there is no column."""
    return pa.table({ID: ids.array, **{name: table.column(name) for name in names}})


def _rules(normalise: Sequence[str] | None) -> tuple[str, ...]:
    """The rules of ids. Raises InvalidInput: one is none."""
    try:
        return rules_of([ID], checked_rules([] if normalise is None else list(normalise)))
    except (TypeError, ValueError) as fault:
        raise InvalidInput(f"normalise = {normalise!r}: {fault}") from None


def _ids(
    frames: Mapping[str, Any], tables: Mapping[str, pa.Table], id_column: str | None, rules: tuple[str, ...]
) -> dict[str, Ids]:
    """The ids of each party's records, by the rules of a file's ids; `rules`: see `Ids`."""
    if id_column is not None:
        if without := [party for party, table in tables.items() if id_column not in table.column_names]:
            raise InvalidInput(f"id_column = {id_column!r}: the frame of {', '.join(without)} has no such column")
        place = f"column {id_column!r}"
        return _of_each(
            {it: partial(ids_in, _called(it), place, own.column(id_column), rules) for it, own in tables.items()}
        )
    if _all_pandas(frames):
        return _of_each({it: partial(ids_of_index, _called(it), own.index, rules) for it, own in frames.items()})
    # nothing but their place is left to tell records apart
    lengths = {party: _length(tables[party], frame) for party, frame in frames.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{party} has {length}" for party, length in lengths.items())
        raise InvalidInput(f"records of the frames cannot belong together by their place, {counts}: set id_column")
    return {party: Ids.of(numbered(length)) for party, length in lengths.items()}


def _shared_index(frames: Mapping[str, Any]) -> Any:
    """The index of frames whose records belong together by their place; None where none names them.

    Raises:
        InvalidInput: the indexes of two frames differ.
    """
    indexes = {party: frame.index for party, frame in frames.items() if library_of(frame) == "pandas"}
    named = {party: index for party, index in indexes.items() if not only_numbers(index)}
    first = next(iter(named.values()), None)
    if other := [party for party, index in named.items() if not index.equals(first)]:
        raise InvalidInput(
            f"records of the frames cannot belong together by their place: the index of {other[0]} is another than "
            f"that of {next(iter(named))}: set id_column"
        )
    return first


def _length(table: pa.Table, frame: Any) -> int:
    """The number of a frame's records, which a table without columns does not have."""
    return table.num_rows if library_of(frame) == "arrow" else len(frame)


def _all_pandas(frames: Mapping[str, Any]) -> bool:
    return {library_of(frame) for frame in frames.values()} == {"pandas"}


def _called(party: str) -> str:
    return f"the frame of {party}"


def _arrow(party: str, frame: Any) -> pa.Table:
    if library_of(frame) is not None:
        return arrow_of(frame)
    try:
        values = np.asarray(column_of(frame), dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 2:
        raise InvalidInput(f"the data of {party} is no data frame and no array of numbers (records, columns)")
    return of_array(values)


def _refuse_own(names: Sequence[str]) -> None:
    for own in (ID, LABEL, WEIGHT):
        if own in names:
            raise InvalidInput(f"column {own!r} has a name of the parties' own columns: rename it")


log = logging.getLogger(__name__)


def settled(
    data: PartyTables,
    encode: str | Mapping[str, str] | None,
    date_format: str | Mapping[str, str] | None,
    *,
    missing: float,
    categorical: bool,
    has_ids: bool,
) -> PartyTables:
    """The tables with the encodings of their columns: those of `encode`, and for others what `AUTO` takes.

    `encode` None: text is refused. `categorical`: trees may split columns by sets of their categories. `has_ids`: a
    column has the ids already.

    Raises:
        InvalidInput: columns need a word: names all of them, and what to write.
    """
    writing = OF_ESTIMATOR._replace(id=None) if has_ids else OF_ESTIMATOR
    given = encode if encode is None else auto_for_others(encode)
    names = [name for own in data.columns.values() for name in own]
    # one message names the columns of all parties, unless two of them have one name
    groups = [list(data.tables)] if len(set(names)) == len(names) else [[party] for party in data.tables]
    encodings = {}
    for parties in groups:
        place, cells, declared = Path(f"the columns of {' and '.join(parties)}"), dict[str, Cells](), set[str]()
        for name, column in (
            (name, data.tables[party].column(name)) for party in parties for name in data.columns[party]
        ):
            declared |= {name} if pa.types.is_dictionary(column.type) else set()
            with checked():
                cells[name] = Cells(place, plain_column(place, f"column {name!r}", column), len(column))
        with checked():
            own = settle(place, cells, Rules(given, date_format, missing, categorical, frozenset(declared), writing))
        for line in own.lines(OF_ESTIMATOR):
            log.info('%s: encode = "auto" stands for %s', place, line)
        named = own.encode if isinstance(own.encode, Mapping) else {}
        rest = {name: it.column for name, it in cells.items() if name not in named}
        numbers = {
            name: it for name, it in rest.items() if not is_text(it.type) or are_plain(place, different_texts(it))
        }
        for sentence in (*merges(place, numbers, {}), *codes(place, numbers, writing)):
            warnings.warn(f"{place}: {sentence}", UserWarning, stacklevel=2)
        for party in parties:
            encodings[party] = _described(own, data.columns[party])
    return replace(data, encodings=encodings)


def _described(own: Settled, columns: Sequence[str]) -> dict[str, Any]:
    """The keys of a party's table that say the encodings of its columns."""
    encode = own.encode
    if isinstance(encode, Mapping):
        encode = {name: encoding for name, encoding in encode.items() if name in (OTHERS, *columns)}
    dated = {name: form for name, form in own.date_formats.items() if name in columns}
    return {key: value for key, value in (("encode", encode), ("date_format", dated)) if value}
