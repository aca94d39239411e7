"""The part that both estimators share: from the caller's records to a training, and from its model to predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from treetap.api import encodings, loopback, party_tables
from treetap.api.errors import InvalidInput, checked
from treetap.api.fitted import Fitted, write_shards
from treetap.api.frames import (
    Rows,
    arrow_of,
    column_in,
    column_of,
    frame_of,
    importances_of,
    library_of,
    like,
    of_array,
)
from treetap.api.loopback import ID, Loopback, OwnTable, Settings
from treetap.api.parameters import Parameters
from treetap.api.party_tables import LABEL, WEIGHT, PartyTables
from treetap.api.remote import Connection, RemoteFitted, connect
from treetap.commands.jobs.job_file import JobTable
from treetap.commands.jobs.progress_view import backends, rounds
from treetap.protocols.prediction import predicting
from treetap.tables.config import AUTO, OTHERS
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.params import BoostingParams, TreeParams

Array = np.ndarray[Any, np.dtype[Any]]
#: The protocol by which the estimators train.
PROTOCOL = "boosting"


class Served(NamedTuple):
    """A served model: its address, the headers that name the client, and the ids of the records, in their order."""

    address: str
    headers: dict[str, str]
    ids: list[str]


class FederatedEstimator(Parameters, ABC):
    """Trains and predicts by a federation. Its subclasses have the constructor, and `_labels` of their targets."""

    #: True if the targets are numbers, and the objective where the targets are not seen here.
    _numeric = False
    _usual_objective = "binary:logistic"
    _fitted: Any

    @checked()
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, base_model: FederatedEstimator | None = None
    ) -> Self:
        """Train on records `X` (n, d) with labels `y` (n,) and, if given, weights from 0 on (n,).

        `X` is a data frame of pandas, polars or Arrow, or an array, whose columns `parties` splits; or a table of each
        party: {party: frame}, or a list of frames. Then `y` is of the label holder's rows, or names a column there, and
        the model is trained on the records that all parties have. Columns of frames go by name, those of arrays by
        place; labels and weights of pandas go by their index where `X` has one, all others by their place.

        The job's `max_sample_weight` is at least the largest weight here: one person acts for all parties, and knows
        it. `base_model`: a fitted estimator of the same records and parties, whose federation runs; `n_estimators`
        counts the rounds that are added to its trees.

        Raises:
            ValueError: the records, the labels or a parameter cannot be used.
            TreetapError: the federation failed.
        """
        if isinstance(self.federation, Connection):
            return self._fit_elsewhere(self.federation, X, y, sample_weight)
        several = party_tables.are_frames(X)
        data, targets = self._of_frames(X, y) if several else self._of_one(X, y)
        labels, objective = self._labels(targets)
        names = list(data.tables)
        holder = self._holder(names)
        job = self._job(objective, "psi" if several else "sorted-ids")
        data = encodings.settled(
            data,
            self._by_name("encode") if isinstance(self.encode, Mapping) else self.encode,
            self._dated,
            missing=self.missing,
            categorical=self._splits_categories(job),
            has_ids=self.id_column is not None,
        )
        further = {"label": (LABEL, labels)}
        if sample_weight is not None:
            given = column_of(data.rows.aligned(sample_weight, "sample_weight"))
            weights = _check_sample_weight(given, np.empty((len(data.rows.ids), 1)), ensure_non_negative=True)
            further["weight"] = WEIGHT, pa.array(np.asarray(weights, dtype=np.float64))
            job = _changed(job, max_sample_weight=max(float(weights.max()), job.max_sample_weight or 1.0))
        tables = {party: self._own_table(records) for party, records in data.tables.items()}
        for key, (name, column) in further.items():
            own = tables[holder]
            tables[holder] = OwnTable(own.records.append_column(name, column), {**own.keys, key: name})
        running = self._loopback(names)
        if base_model is not None:
            if getattr(getattr(base_model, "_fitted", None), "loopback", None) is not running:
                raise InvalidInput("base_model: must be fitted, with the same parties, on a federation that still runs")
            job = _changed(job, base_model=base_model._fitted.job)
        status, folders = running.train(tables, job, holder, verbose=bool(self.verbose))
        self._fitted = Fitted(running, status, holder, folders)
        self.label_holder_, self.columns_, self.constant_columns_ = holder, data.columns, self._fitted.dropped
        self.encodings_ = {party: encodings.keys_of(records) for party, records in data.tables.items()}
        self.n_iter_ = self._fitted.rounds
        return self

    @checked()
    def predict_frame(self, X: Any) -> Any:
        """Predictions of the records that all parties have, as a data frame of the library of `X`, in its order.

        Columns: the ids where a column has them, `prediction`, of classes their probabilities, and raw scores. Rows
        have the index of `X`, or of the label holder's frame, where there is one.

        Raises as `predict`.
        """
        predicted, rows = self._predictions(X)
        if rows is None:
            return like(
                predicted.rename_columns(["id" if name == ID else name for name in predicted.column_names]), None
            )
        return rows.framed(predicted)

    @contextmanager
    def serve(self, X: Any) -> Iterator[Served]:
        """Serve the model for the records of `X` while the block runs; clients ask the label holder over HTTP by ids.

        The federation is one of `treetap.federation(…, serve=True)`; docs/serving.md describes requests and answers.

        Raises:
            ValueError: there is no such federation, or the records do not fit the model.
            TreetapError: the federation failed.
        """
        check_is_fitted(self)
        running = self._fitted.loopback if isinstance(self._fitted, Fitted) else None
        if running is None:
            raise InvalidInput("the federation of this model does not run here: fit in a block of treetap.federation")
        with checked():
            data = self._party_tables(X)
            tables = {party: self._own_table(records) for party, records in data.tables.items()}
        with running.serve(self._fitted.job, tables, self._protocol) as address:
            yield Served(f"http://{address}", {"treetap-name": running.settings.client}, list(data.rows.ids))

    @checked()
    def save(self, folder: str | Path) -> Path:
        """Write the shards of all parties below a folder, which `treetap.load_model` reads; returns the folder.

        Raises:
            ValueError: the folder holds something.
        """
        check_is_fitted(self)
        place, shards = Path(folder), self._fitted.shards
        try:
            if place.exists() and any(place.iterdir()):
                raise InvalidInput(f"{place}: is not empty; name another folder")
            write_shards(shards, place)
        except OSError as failure:
            raise InvalidInput(f"{place}: cannot be written: {failure.strerror}; name another folder") from None
        return place

    @property
    def feature_importances_(self) -> Array:
        """Mean gain of the splits at each feature (d,), adding up to 1, as XGBoost's; 0 of a feature without splits."""
        check_is_fitted(self)
        rows = self._fitted.importances  # refused by a federation elsewhere, before columns that it has not
        gained = dict.fromkeys(((party, name) for party, own in self.columns_.items() for name in own), (0.0, 0))
        for row in rows:
            place = row.party, self._fitted.sources[row.party][row.feature]
            total, count = gained[place]
            gained[place] = total + row.size, count + row.weight
        order = self._feature_order
        means = np.array([gained[place][0] / max(gained[place][1], 1) for place in order])
        return means / means.sum() if means.sum() > 0 else means

    @property
    def importances_(self) -> Any:
        """Gain, cover and number of splits by party and feature, as a data frame."""
        check_is_fitted(self)
        return importances_of(self._fitted.importances)

    @property
    def history_(self) -> Any:
        """Metrics after each round, from round 0, as a data frame."""
        check_is_fitted(self)
        return frame_of([{"round": number, **row} for number, row in enumerate(self._fitted.history)], ("round",))

    @property
    def disclosure_(self) -> Any:
        """Bytes by sender, receiver and disclosure class, in the training and the last prediction."""
        check_is_fitted(self)
        return frame_of(self._fitted.sent(), ("job", "from", "to", "step", "class", "messages", "bytes"))

    @property
    def report_(self) -> dict[str, Any]:
        """The training's cost and outcome: seconds by phase, bytes, ciphertext arithmetic by party, metrics, trees."""
        check_is_fitted(self)
        status = self._fitted.training
        return {
            "job": status.job,
            "seconds": {row.name: row.amount for row in status.phases},
            "bytes": sum(row["bytes"] for row in self._fitted.sent() if row["job"] == "train"),
            "arithmetic": backends(status),
            "metrics": self._fitted.metrics,
            "trees": rounds(status),
            "federated": self._fitted.federated,
        }

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @abstractmethod
    def _labels(self, targets: Array) -> tuple[pa.Array, str]:
        """The label column of these targets (n,), and the objective of the job."""

    def connect(self, coordinator: str | None = None, *, operator_file: str | Path = "operator.toml") -> Self:
        """Have this estimator train by a federation that runs elsewhere; see `treetap.connect`.

        Then `parties` has their names, `fit` and `predict` take the name of the parties' own tables, and no `y`.
        Predictions are in the order of the label holder's file, which is read if it is on this machine.
        """
        return self.set_params(federation=connect(coordinator, operator_file=operator_file))  # type: ignore[no-any-return]

    def _fit_elsewhere(self, connection: Connection, table: Any, y: Any, sample_weight: Any) -> Self:
        if not isinstance(table, str) or y is not None or sample_weight is not None:
            raise InvalidInput("a federation that runs elsewhere has its own tables: fit takes their name alone")
        parties = self._parties
        if isinstance(parties, int) or len(parties) < 2:
            raise InvalidInput("parties: name them all, as ['bank', 'telco']; their columns are in their own files")
        for key in ("encode", "date_format", "monotone_constraints", "defences", "policy", "workdir", "id_column"):
            if getattr(self, key) not in (None, AUTO):
                raise InvalidInput(f"{key}: parties of a federation that runs elsewhere have it in their own files")
        # the first party has the labels unless `label_holder` says otherwise
        names = list(parties)
        holder = self._holder(names)
        job = self._job(self.objective or self._usual_objective, "psi")
        others = [name for name in names if name != holder]
        status = connection.train(job, holder, others, table, verbose=bool(self.verbose))
        self._fitted = RemoteFitted(connection, status, holder)
        self.label_holder_, self.n_iter_ = holder, self._fitted.rounds
        return self

    def _predictions(self, X: Any) -> tuple[pa.Table, Rows | None]:
        """Predictions as the label holder's file has them, and the rows of `X`; None where it has its own."""
        check_is_fitted(self)
        protocol = self._protocol
        if isinstance(self._fitted, RemoteFitted):
            if not isinstance(X, str):
                raise InvalidInput("the federation has its own tables: X is their name")
            predicted = self._fitted.predict(X, protocol, verbose=bool(self.verbose))
            return predicted.rename_columns([ID, *predicted.column_names[1:]]), None
        data = self._party_tables(X)
        tables = {party: self._own_table(records) for party, records in data.tables.items()}
        return self._fitted.predict(tables, protocol, verbose=bool(self.verbose)), data.rows

    @property
    def _protocol(self) -> str:
        """The protocol of predictions. Raises InvalidInput: models of boosting have no such one."""
        known = predicting(PROTOCOL, withheld=self.instance_spaces == "withheld")
        if self.prediction is not None and self.prediction not in known:
            raise InvalidInput(f"prediction = {self.prediction!r}: must be one of {', '.join(known)}")
        return self.prediction or known[0]

    def _party_tables(self, X: Any) -> PartyTables:
        """Records to predict, as a table of each party."""
        if not party_tables.are_frames(X):
            return party_tables.of_one(X, self._table_of(X), self.columns_, self._id_column)
        frames = self._by_party(X)
        return party_tables.of_several(
            frames, self.label_holder_, self._id_column, leave_out=self._label_column, columns=self.columns_
        )

    def _predicted_rows(self, X: Any) -> pa.Table:
        """Predictions of the rows of `X`, in their order.

        Raises:
            ValueError: a party lacks some of the records.
        """
        predicted, rows = self._predictions(X)
        if rows is None:
            return predicted
        places = rows.places_in(predicted)
        if lacking := int((places < 0).sum()):
            raise InvalidInput(
                f"{lacking} of {len(places)} records of {self.label_holder_} are not at every party: predict_frame "
                "predicts the others"
            )
        return predicted.take(pa.array(places))

    def _of_one(self, X: Any, y: Any) -> tuple[PartyTables, Array]:
        """One table split by columns, and its labels."""
        self._by_place, id_column = library_of(X) is None, self._id_column
        if self._by_place:
            numbers, y = validate_data(
                self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2
            )
            table = of_array(numbers)
            self._names_in = table.column_names
        else:
            table = _framed(X)
            self._remember([name for name in table.column_names if name != id_column], [X])
        if id_column is not None and id_column not in table.column_names:
            raise InvalidInput(f"id_column = {id_column!r}: X has no such column")
        parties = self._parties
        apart = parties if isinstance(parties, Mapping | int) else len(parties)
        columns = party_tables.split(self._names_in, apart, self._names(), by_place=self._by_place)
        self._label_column: str | None = None
        data = party_tables.of_one(X, table, columns, id_column)
        return data, self._targets_of(data, y)

    def _of_frames(self, X: Any, y: Any) -> tuple[PartyTables, Array]:
        """A table of each party, and the labels of the label holder's rows."""
        frames = self._by_party(X)
        self._by_place = any(library_of(frame) is None for frame in frames.values())
        holder = self._holder(list(frames))
        self._label_column = str(y) if _is_label(y) else None
        named = self._parties if isinstance(self._parties, Mapping) else None
        data = party_tables.of_several(frames, holder, self._id_column, leave_out=self._label_column, columns=named)
        self._remember([name for own in data.columns.values() for name in own], list(frames.values()))
        if self._label_column is not None:
            y = column_in(frames[holder], self._label_column) if library_of(frames[holder]) is not None else None
            if y is None:
                raise InvalidInput(f"y = {self._label_column!r}: the frame of {holder} has no such column")
        return data, self._targets_of(data, y)

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
            table = _framed(X)
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
        targets = column_or_1d(column_of(data.rows.aligned(y, "y")), warn=True)
        if targets.dtype.kind == "O" and (absent := sum(map(_is_missing, targets))):
            raise InvalidInput(f"y has no label for {absent} of {len(targets)} records: leave them out")
        if targets.dtype.kind == "f" or self._numeric:
            targets = _as_numbers(targets)
            assert_all_finite(targets, input_name="y")
        check_consistent_length(np.empty(len(data.rows.ids)), targets)
        return np.asarray(targets)

    def _scored(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Labels and weights for `score`, in the order of the rows of `X`; `y` may name a column as in `fit`."""
        check_is_fitted(self)
        if isinstance(self._fitted, RemoteFitted):
            return y, sample_weight
        rows = self._party_tables(X).rows
        if _is_label(y) and library_of(rows.data) is not None:
            y = column_in(rows.data, str(y))
        weights = None if sample_weight is None else column_of(rows.aligned(sample_weight, "sample_weight"))
        return column_of(rows.aligned(y, "y")), weights

    @property
    def _feature_order(self) -> list[tuple[str, str]]:
        """Party and column of each feature, in the order of the caller's columns."""
        owners = {name: party for party, own in self.columns_.items() for name in own}
        if len(owners) == len(self._names_in):
            return [(owners[name], name) for name in self._names_in]
        return [(party, name) for party, own in self.columns_.items() for name in own]

    @property
    def _parties(self) -> Mapping[str, Sequence[Any]] | Sequence[str] | int:
        """The parties: their names, with their columns or without, or their number.

        Raises:
            InvalidInput: it is none of these.
        """
        given = 2 if self.parties is None else self.parties
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

    @property
    def _dated(self) -> str | dict[str, str] | None:
        """The formats of dates in text, of all columns or by name. Raises as `_by_name`."""
        return self._by_name("date_format") if isinstance(self.date_format, Mapping) else self.date_format

    def _splits_categories(self, job: JobTable) -> bool:
        """True if trees may split columns by sets of their categories."""
        policy = self.federation.settings.policy if isinstance(self.federation, Loopback) else self.policy
        params = job.params()
        return isinstance(params, TreeParams) and params.splits_categories and loopback.splits_categories(policy)

    def _own_table(self, records: pa.Table) -> OwnTable:
        columns = [name for name in records.column_names if name != ID]
        known = {*columns, OTHERS}
        wanted = self._by_name("monotone_constraints") or {}
        constrained = {name: _plain(sign) for name, sign in wanted.items() if name in known}
        return OwnTable(
            records,
            {
                "columns": columns,
                "drop_constant": True,
                "monotone_constraints": constrained,
                **encodings.keys_of(records, self._dated),
            },
        )

    def _by_name(self, key: str) -> dict[str, Any]:
        """A parameter that is a table by column, with the columns' names.

        Raises:
            InvalidInput: it names a column that no party has, or one twice.
        """
        known, by_name = {OTHERS, *self._names_in}, {}
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

    def _job(self, objective: str, alignment: str) -> JobTable:
        """The job table of these parameters."""
        keys = {field.name: _plain(getattr(self, field.name)) for field in fields(BoostingParams)}
        keys |= {"objective": objective, "alignment": self.alignment or alignment}
        keys |= {name: _plain(getattr(self, name)) for name in ("scheme", "key_bits", "obfuscation")}
        with checked(JobTable):
            job: JobTable = JobTable.model_validate({name: value for name, value in keys.items() if value is not None})
        if (objective in REGRESSIONS) != self._numeric:
            other = "FederatedClassifier" if self._numeric else "FederatedRegressor"
            raise InvalidInput(f"objective = {objective!r} is one of {other}: use that, or leave objective out")
        self._protocol  # noqa: B018 - refuses one that would not predict
        return job

    def _loopback(self, names: Sequence[str]) -> Loopback:
        """The running federation that trains: the caller's, or the one of these settings."""
        if self.federation is not None and not isinstance(self.federation, Loopback):
            raise InvalidInput(
                f"federation = {self.federation!r}: must be one of treetap.federation, of treetap.connect, or None"
            )
        if self.federation is not None:
            for key in ("defences", "policy", "workdir"):
                if getattr(self, key):
                    raise InvalidInput(f"{key}: those of a federation that runs are given to treetap.federation")
            if set(self.federation.settings.parties) != set(names):
                raise InvalidInput(
                    f"federation has parties {', '.join(self.federation.settings.parties)}, the data has "
                    f"{', '.join(names)}"
                )
            return self.federation
        defences = {self._holder(names): dict(self.defences or {})}
        workdir = None if self.workdir is None else Path(self.workdir)
        return loopback.kept(Settings(tuple(names), defences, dict(self.policy or {}), self.workers, workdir))


def _changed(job: JobTable, **keys: Any) -> JobTable:
    """The job with other parameters. Raises InvalidInput: one is out of range."""
    with checked(JobTable):
        changed: JobTable = JobTable.model_validate({**job.model_dump(exclude_none=True), **keys})
        return changed


def _framed(X: Any) -> pa.Table:
    """One data frame of all parties as a table. Raises InvalidInput: it has no records or no columns."""
    table = arrow_of(X)
    if table.num_columns == 0:
        raise InvalidInput("0 feature(s): the data frame has no columns")
    if table.num_rows == 0:
        raise InvalidInput("Found array with 0 sample(s): the data frame has no records")
    return table


def _is_label(y: Any) -> bool:
    """True of a text or a whole number, which names a column."""
    return isinstance(y, str | int | np.integer) and not isinstance(y, bool)


def _is_missing(label: Any) -> bool:
    """True of what libraries have where a label is absent."""
    return label is None or bool(is_scalar_nan(label)) or bool(is_pandas_na(label))


def _as_numbers(targets: Array) -> Array:
    """Targets of a regression (n,) as numbers. Raises InvalidInput: one is none."""
    try:
        return np.asarray(targets, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            "y holds targets that are no numbers, as those of a regression are: FederatedClassifier is for classes"
        ) from None


def _plain(value: Any) -> Any:
    """A number of numpy as Python's, which a job file has."""
    return value.item() if isinstance(value, np.generic) else value
