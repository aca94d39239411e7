"""The caller's records, labels and weights as tables of the parties, for a training and for predictions.

Labels of the caller: all of them the label holder's, or, where no party has all, a part of them each party's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from treetap.arrays import Array, Bools
from treetap.errors import BadInput
from treetap.lab.api import party_tables
from treetap.lab.api.fitted import marked
from treetap.lab.api.frames import InvalidInput, Rows, array_of, column_in, library_of, of_array
from treetap.lab.api.loopback import OwnTable
from treetap.lab.api.parameters import Parameters, plain
from treetap.lab.api.party_tables import LABEL, WEIGHT, PartyTables, framed
from treetap.protocols.registry import training
from treetap.tables.config import OTHERS

#: Where labels are spread: party → the number of its rows, and those that it labels, in the order of the labels.
Places = Mapping[str, tuple[int, Array]]


def by_party(column: pa.Array, places: Places | None, label_holder: str) -> dict[str, pa.Array]:
    """The labels (n,) as the column of each party that has some, null where it has none; None: the label holder's."""
    if places is None:
        return {label_holder: column}
    columns, start = {}, 0
    for party, (count, rows) in places.items():
        at = np.full(count, -1, dtype=np.int64)
        at[rows] = np.arange(start, start + len(rows))
        start += len(rows)
        columns[party] = column.take(pa.array(at, mask=at < 0))
    return columns


def spread(labels: Mapping[str, Any], rows_of: Mapping[str, Rows]) -> tuple[Array, Places]:
    """The labels (n,) of all parties, one after the other, and where they belong.

    `labels`: by party, an empty cell where it labels no record. `rows_of`: by party.

    Raises:
        InvalidInput: a party is unknown, its labels are not as many as its records, or those of other ones.
    """
    known: list[Array] = []
    places = {}
    for party, given in labels.items():
        if party not in rows_of:
            raise InvalidInput(f"y names {party!r}, which is none of {', '.join(rows_of)}")
        own = np.asarray(rows_of[party].aligned(given, f"y[{party!r}]"))
        if own.shape != (count := len(rows_of[party].ids),):
            raise InvalidInput(f"y of {party} has shape {own.shape}, and its table {count} records")
        rows_with = np.flatnonzero(~missing_in(own))
        places[party] = len(own), rows_with
        held = own[rows_with]
        known += [array_of(held.tolist()) if held.dtype.kind == "O" else held] if len(held) else []
    if not known:
        raise InvalidInput("y has no label of any party")
    try:
        targets = np.concatenate(known)
    except TypeError:
        targets = np.empty(0)
    if targets.tolist() != [label for own in known for label in own.tolist()]:
        raise InvalidInput("y: the parties' labels have types that are not one: give all of them in one type")
    return targets, places


def missing_in(labels: Array) -> Bools:
    """True of the labels (n,) that are absent, as libraries say it, and of blank ones."""
    if labels.dtype.kind in "mM":
        return np.isnat(labels)
    absent = (
        not label.strip() if isinstance(label, str) else label is None or is_scalar_nan(label) or is_pandas_na(label)
        for label in labels.tolist()
    )
    return np.fromiter(absent, dtype=np.bool_, count=len(labels))


#: Parameters about tables and parties, which those of a federation elsewhere have in their own files.
OF_PARTIES = (
    *("encode", "date_format", "monotone_constraints", "defences", "policy", "workdir", "id_column", "normalise"),
)


class CallerRecords(Parameters, ABC):
    """The part of an estimator that knows how its caller gives records: columns by party, ids, labels, weights."""

    #: True if the targets are numbers.
    _numeric = False

    @abstractmethod
    def _labels(self, targets: Array) -> tuple[pa.Array, str]:
        """The label column of these targets (n,), and the objective of the job."""

    @abstractmethod
    def _column(self, targets: Array) -> pa.Array:
        """The label column of further targets (n,), by the classes of the training."""

    def _tables_like(self, X: Any, columns: Mapping[str, Sequence[str]], holder: str) -> PartyTables:
        """Records as a table of each party with these columns."""
        if not party_tables.are_frames(X):
            return party_tables.of_one(X, self._table_of(X), columns, self._id_column)
        frames = self._by_party(X)
        return party_tables.of_several(
            frames, holder, self._id_column, self.normalise, leave_out=self._label_column, columns=columns
        )

    def _eval_set(self, X: Any, y: Any, weight: Any, trained: PartyTables, holder: str) -> dict[str, OwnTable]:
        """A set by which the model is measured, encoded as the training's tables; their records may be in it too."""
        try:
            data = self._tables_like(X, trained.columns, holder)
            if is_label(y) and library_of(data.rows.data) is not None:
                y = column_in(data.rows.data, str(y))
            labels = self._column(self._targets_of(data, y))
            weights = None if weight is None else self._weights(data, weight)
        except BadInput as failure:
            raise InvalidInput(f"eval_set: {failure}") from None
        tables = {party: marked(records) for party, records in data.tables.items()}
        encoded = replace(data, tables=tables, encodings=trained.encodings)
        return self._labelled(encoded, {holder: labels}, weights, holder)

    def _labelled(
        self, data: PartyTables, labels: Mapping[str, pa.Array], weights: Array | None, holder: str
    ) -> dict[str, OwnTable]:
        """The parties' own tables, with labels by party, and weights at the label holder."""
        tables = self._own_tables(data)
        further = [(party, "label", LABEL, column) for party, column in labels.items()]
        if weights is not None:
            further.append((holder, "weight", WEIGHT, pa.array(weights)))
        for party, key, name, column in further:
            own = tables[party]
            tables[party] = OwnTable(own.records.append_column(name, column), {**own.keys, key: name})
        return tables

    def _weights(self, data: PartyTables, given: Any) -> Array:
        """Weights (n,) of the label holder's rows."""
        own = data.rows.aligned(given, "sample_weight")
        checked_weights = _check_sample_weight(own, np.empty((len(data.rows.ids), 1)), ensure_non_negative=True)
        return np.asarray(checked_weights, dtype=np.float64)

    def _of_one(self, X: Any, y: Any) -> tuple[PartyTables, Array, Places | None]:
        """One table split by columns, and its labels."""
        if self.normalise:
            raise InvalidInput("normalise is of the ids of several tables, and X is one, whose rows are numbered")
        self._by_place, id_column = library_of(X) is None, self._id_column
        if self._by_place:
            given = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "ensure_min_samples": 2}
            if isinstance(y, Mapping):
                numbers = validate_data(self, X, **given)
            else:
                numbers, y = validate_data(self, X, y, **given)
            table = of_array(numbers)
            self._names_in = table.column_names
        else:
            table = framed(X)
            self._remember([name for name in table.column_names if name != id_column], [X])
        parties = self._parties
        apart = parties if isinstance(parties, Mapping | int) else len(parties)
        columns = party_tables.split(self._names_in, apart, self._names(), by_place=self._by_place)
        self._label_column: str | None = None
        data = party_tables.of_one(X, table, columns, id_column)
        return data, *self._spread(data, y)

    def _of_frames(self, X: Any, y: Any) -> tuple[PartyTables, Array, Places | None]:
        """A table of each party, and the labels of the label holder's rows."""
        frames = self._by_party(X)
        self._by_place = any(library_of(frame) is None for frame in frames.values())
        holder = self._holder(list(frames))
        self._label_column = str(y) if is_label(y) else None
        named = self._parties if isinstance(self._parties, Mapping) else None
        labelled = [holder]
        if self._label_column is not None and training(self.protocol).one_role:
            labelled = [party for party, frame in frames.items() if self._label_of(frame) is not None]
        data = party_tables.of_several(
            frames,
            holder,
            self._id_column,
            self.normalise,
            leave_out=self._label_column,
            labelled=labelled,
            columns=named,
        )
        self._remember([name for own in data.columns.values() for name in own], list(frames.values()))
        if self._label_column is not None:
            y = {party: self._label_of(frames[party]) for party in labelled} or {holder: None}
            if y.get(holder, 0) is None:
                raise InvalidInput(f"y = {self._label_column!r}: the frame of {holder} has no such column")
            y = y[holder] if labelled == [holder] else y
        return data, *self._spread(data, y)

    def _label_of(self, frame: Any) -> Any:
        """The column of labels in a party's frame; None where it has none."""
        return column_in(frame, str(self._label_column)) if library_of(frame) is not None else None

    def _spread(self, data: PartyTables, y: Any) -> tuple[Array, Places | None]:
        """The labels of the label holder's rows, or of each party's own where the protocol has no label holder."""
        if not isinstance(y, Mapping):
            return self._targets_of(data, y), None
        if not training(self.protocol).one_role:
            raise InvalidInput(
                f"y: with protocol = {self.protocol!r} one party has all labels: give them as one column"
            )
        targets, places = spread(y, data.rows_of)
        return self._targets(targets, len(targets)), places

    def _remember(self, names: list[str], frames: Sequence[Any]) -> None:
        """Keep the names of the columns; `feature_names_in_` as scikit-learn has it, of labels that are text alone."""
        self._names_in, self.n_features_in_ = names, len(names)
        labels = [label for frame in frames for label in (frame.columns if library_of(frame) == "pandas" else ())]
        named = not self._by_place and all(isinstance(label, str) for label in labels)
        if named and len(set(names)) == len(names):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @property
    def _id_column(self) -> str | None:
        return None if self.id_column is None else str(self.id_column)

    def _by_party(self, X: Any) -> dict[str, Any]:
        """The frames by party; those of a list have the names of `parties`, or numbers."""
        parties = self._parties
        names = list(X) if isinstance(X, Mapping) else self._names(len(X))
        if not isinstance(parties, int) and (set(parties) != set(names) or len(names) != len(X)):
            raise InvalidInput(f"X has {len(X)} tables, and parties has {', '.join(parties)}")
        if len(X) < 2:
            raise InvalidInput(
                f"X has the frame of {', '.join(X) or 'no party'}: a federation has at least two parties"
            )
        return dict(X) if isinstance(X, Mapping) else dict(zip(names, X, strict=True))

    def _table_of(self, X: Any) -> pa.Table:
        """One table to predict: a frame with its own names, an array with those of the training's columns."""
        if library_of(X) is not None:
            table = framed(X)
            if self._by_place and set(self._names_in) - set(table.column_names):
                raise InvalidInput(
                    "the model was trained on an array, whose columns have places alone: pass X.to_numpy()"
                )
            return table
        values = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        if len(set(self._names_in)) < len(self._names_in):
            raise InvalidInput("columns of several parties have one name: give a table of each party")
        return of_array(values, self._names_in)

    def _targets_of(self, data: PartyTables, y: Any) -> Array:
        """The labels of the rows, of which none is missing."""
        if y is None:
            raise InvalidInput(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None."
            )
        return self._targets(data.rows.aligned(y, "y"), len(data.rows.ids))

    def _targets(self, labels: Any, records: int) -> Array:
        if isinstance(labels, list) and {type(label) for label in labels} in ({int}, {str}):
            labels = array_of(labels)
        targets = column_or_1d(labels, warn=True)
        if targets.dtype.kind in "OUmM" and (absent := int(missing_in(targets).sum())):
            raise InvalidInput(f"y has no label for {absent} of {len(targets)} records: leave them out")
        if targets.dtype.kind == "f" or self._numeric:
            targets = _as_numbers(targets)
            assert_all_finite(targets, input_name="y")
        check_consistent_length(np.empty(records), targets)
        return np.asarray(targets)

    @property
    def _parties(self) -> Mapping[str, Sequence[Any]] | Sequence[str] | int:
        """The parties: their names, with their columns or without, or their number.

        Raises:
            InvalidInput: it is none of these.
        """
        given: Mapping[str, Sequence[Any]] | Sequence[str] | int = 2 if self.parties is None else self.parties
        if isinstance(given, int | np.integer) and not isinstance(given, bool):
            return int(given)
        names = list(given) if isinstance(given, Sequence | Mapping) and not isinstance(given, str) else [None]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return given
        raise InvalidInput(
            f"parties = {given!r}: must be columns by party, names of parties, each another one, or their number from 2"
        )

    def _names(self, count: int | None = None) -> list[str]:
        """The names of the parties, of which there are `count` where they have no names."""
        parties = self._parties
        if not isinstance(parties, int):
            return list(parties)
        return [f"party-{number}" for number in range(1, (parties if count is None else count) + 1)]

    def _holder(self, names: Sequence[str]) -> str:
        holder = names[0] if self.label_holder is None else self.label_holder
        if holder not in names:
            raise InvalidInput(f"label_holder = {holder!r}: must be one of the parties, {', '.join(names)}")
        return holder

    def _own_tables(self, data: PartyTables) -> dict[str, OwnTable]:
        """The parties' own tables, without labels."""
        wanted, tables = self._by_name("monotone_constraints"), {}
        for party, columns in data.columns.items():
            keys = {
                "columns": columns,
                "drop_constant": True,
                "monotone_constraints": {name: plain(sign) for name, sign in wanted.items() if name in columns},
                **data.keys(party, self._dated),
            }
            tables[party] = OwnTable(data.tables[party], keys)
        return tables

    @property
    def _dated(self) -> str | dict[str, str] | None:
        """The formats of dates in text, of all columns or by name. Raises as `_by_name`."""
        return self._by_name("date_format") if isinstance(self.date_format, Mapping) else self.date_format

    def _by_name(self, key: str) -> dict[str, Any]:
        """A parameter that is a table by column, with the columns' names.

        Raises:
            InvalidInput: it names a column that no party has, or one twice.
        """
        known, by_name = {*self._names_in, *([OTHERS] if key == "encode" else [])}, {}
        given = getattr(self, key) or {}
        if not isinstance(given, Mapping):
            raise InvalidInput(f"{key} = {given!r}: must be {{column: …}}, such as {{{self._names_in[0]!r}: …}}")
        for label, value in given.items():
            name = party_tables.column_name(label, self._names_in, known, by_place=self._by_place)
            if name is None:
                raise InvalidInput(f"{key} names {label!r}, which is a column of no party")
            if name in by_name:
                raise InvalidInput(f"{key} names column {name!r} twice")
            by_name[name] = value
        return by_name


def is_label(y: Any) -> bool:
    """True of a text or a whole number, which names a column."""
    return isinstance(y, str | int | np.integer) and not isinstance(y, bool)


def _as_numbers(targets: Array) -> Array:
    """Targets of a regression (n,) as numbers. Raises InvalidInput: one is none."""
    objects = targets if targets.dtype.kind == "O" else targets[:1]
    if any(isinstance(value, np.datetime64 | np.timedelta64) for value in objects):
        raise InvalidInput(
            "y holds dates or times, and a regression needs numbers: count them in a unit, such as days, "
            'as (y - numpy.datetime64("2020-01-01")) / numpy.timedelta64(1, "D")'
        )
    try:
        return np.asarray(targets, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            "y holds targets that are no numbers, as those of a regression are: FederatedClassifier is for classes"
        ) from None
