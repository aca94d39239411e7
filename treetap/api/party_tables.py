"""The caller's data as a table for each party: one frame split by columns, or a frame of each party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.api.errors import InvalidInput
from treetap.api.frames import arrow_of, column_of, library_of, of_array
from treetap.api.loopback import ID
from treetap.names import did_you_mean

#: Names of columns that the parties' tables have beside the caller's.
LABEL, WEIGHT = "treetap_label", "treetap_weight"


@dataclass(frozen=True)
class PartyTables:
    """Records by party, the id column first. `ids`: of the label holder's rows, in their order."""

    tables: dict[str, pa.Table]
    ids: list[str]

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns of each party, without the ids."""
        return {party: [name for name in table.column_names if name != ID] for party, table in self.tables.items()}


def are_frames(data: Any) -> bool:
    """True for a table of each party: a mapping by party, or a list of data frames or of arrays of two axes."""
    if isinstance(data, Mapping):
        return all(isinstance(name, str) for name in data)  # some sparse matrices are mappings too
    if not isinstance(data, list | tuple) or not data:
        return False
    return all(library_of(each) is not None or (isinstance(each, np.ndarray) and each.ndim == 2) for each in data)


def split(
    table: pa.Table, parties: Mapping[str, Sequence[Any]] | int | None, names: Sequence[str] = ()
) -> dict[str, list[str]]:
    """The columns of each party, for `parties` of an estimator; `names`: of the parties if it is no mapping.

    Raises:
        InvalidInput: a column is unknown, of two parties or of none, or there are fewer columns than parties.
    """
    have = table.column_names
    if not isinstance(parties, Mapping):
        count = 2 if parties is None else parties
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 2:
            raise InvalidInput(f"parties = {parties!r}: must be columns by party, or a number of parties from 2")
        if len(have) < count:
            raise InvalidInput(
                f"n_features = {len(have)}: {count} parties need at least {count} features; name the columns of each "
                "party, of which the label holder may have none"
            )
        parts = np.array_split(np.arange(len(have)), count)
        return {name: [have[place] for place in part] for name, part in zip(names, parts, strict=True)}
    found: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    for party, columns in parties.items():
        found[party] = [_named(party, column, have) for column in columns]
        for column in found[party]:
            if column in owner:
                raise InvalidInput(f"parties: column {column!r} is of {owner[column]} and of {party}")
            owner[column] = party
    if free := [name for name in have if name not in owner]:
        raise InvalidInput(
            f"parties: column {free[0]!r}{f' and {len(free) - 1} more' if len(free) > 1 else ''} is of no party: drop "
            "it, or name it under one"
        )
    return found


def _named(party: str, column: Any, have: Sequence[str]) -> str:
    """A column by name, or by place where the caller's table is an array."""
    if isinstance(column, int | np.integer) and not isinstance(column, bool) and 0 <= column < len(have):
        return have[int(column)]
    if column not in have:
        meant = did_you_mean(column, have) if isinstance(column, str) else ""
        raise InvalidInput(f"parties: {party} has column {column!r}, which the table lacks{meant}")
    return str(column)


def of_one(table: pa.Table, columns: Mapping[str, Sequence[str]]) -> PartyTables:
    """One table split by columns: records are numbered."""
    _refuse_own(table.column_names)
    ids = numbered(table.num_rows)
    return PartyTables({party: table.select(own).add_column(0, ID, [ids]) for party, own in columns.items()}, ids)


def of_several(
    frames: Mapping[str, Any],
    label_holder: str,
    id_column: str | None,
    *,
    leave_out: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> PartyTables:
    """A table of each party. Records are known by `id_column`, else by the index of pandas frames, else by their place.

    `leave_out`: the label's column in the label holder's frame. `columns`: those of the training, which are selected.

    Raises:
        InvalidInput: a frame lacks a column, or has records without ids, and the frames differ in length.
    """
    tables = {party: _arrow(party, frame) for party, frame in frames.items()}
    ids = _ids(frames, tables, id_column)
    found = {}
    for party, table in tables.items():
        left_out = {id_column, leave_out if party == label_holder else None}
        kept = [name for name in table.column_names if name not in left_out]
        if columns is not None:
            if lacking := [name for name in columns[party] if name not in kept]:
                raise InvalidInput(f"the frame of {party} lacks column {lacking[0]!r}, which the model was trained on")
            kept = list(columns[party])
        _refuse_own(kept)
        found[party] = table.select(kept).add_column(0, ID, ids[party])
    texts = [str(each) for each in ids[label_holder].to_pylist()]
    return PartyTables(found, texts)


def _ids(frames: Mapping[str, Any], tables: Mapping[str, pa.Table], id_column: str | None) -> dict[str, Any]:
    """The ids of each party's records."""
    if id_column is not None:
        if without := [party for party, table in tables.items() if id_column not in table.column_names]:
            raise InvalidInput(f"id_column = {id_column!r}: the frame of {', '.join(without)} has no such column")
        return {party: table.column(id_column) for party, table in tables.items()}
    if {library_of(frame) for frame in frames.values()} == {"pandas"}:
        return {party: pa.chunked_array([pa.array(frame.index)]) for party, frame in frames.items()}
    lengths = {party: table.num_rows for party, table in tables.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{party} has {length}" for party, length in lengths.items())
        raise InvalidInput(f"records of the frames cannot belong together by their place, {counts}: set id_column")
    return {party: pa.chunked_array([numbered(length)]) for party, length in lengths.items()}


def numbered(count: int) -> list[str]:
    """Ids of n records, in the order of the records."""
    width = len(str(count))
    return [f"{row:0{width}d}" for row in range(count)]


def _arrow(party: str, frame: Any) -> pa.Table:
    if library_of(frame) is not None:
        return arrow_of(frame)
    values = np.asarray(column_of(frame), dtype=np.float64)
    if values.ndim != 2:
        raise InvalidInput(f"the data of {party} is no data frame and no array (records, columns)")
    return of_array(values, [f"x{place}" for place in range(values.shape[1])])


def _refuse_own(names: Sequence[str]) -> None:
    for own in (ID, LABEL, WEIGHT):
        if own in names:
            raise InvalidInput(f"column {own!r} has a name of the parties' own columns: rename it")
