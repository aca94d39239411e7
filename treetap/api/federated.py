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

from treetap.api import loopback, party_tables
from treetap.api.errors import InvalidInput, checked
from treetap.api.fitted import Fitted, write_shards
from treetap.api.frames import arrow_of, column_of, frame_of, library_of, like, of_array
from treetap.api.loopback import ID, Loopback, OwnTable, Settings
from treetap.api.parameters import Parameters
from treetap.api.party_tables import LABEL, WEIGHT, PartyTables
from treetap.api.remote import Connection, RemoteFitted, connect
from treetap.commands.jobs.job_file import JobTable
from treetap.commands.jobs.progress_view import backends
from treetap.protocols.registry import training
from treetap.tables.config import OTHERS
from treetap.trees.params import BoostingParams

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

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, base_model: FederatedEstimator | None = None
    ) -> Self:
        """Train on records `X` (n, d) with labels `y` (n,) and, if given, weights from 0 on (n,).

        `X` is a data frame of pandas, polars or Arrow, or an array, whose columns `parties` splits; or a table of each
        party: {party: frame}, or a list of frames. Then `y` is of the label holder's rows, or names a column there, and
        the model is trained on the records that all parties have. The job's `max_sample_weight` is at least the largest
        weight here: one person acts for all parties, and knows it. `base_model`: a fitted estimator of the same records
        and parties, whose federation runs; `n_estimators` counts the rounds that are added to its trees.

        Raises:
            ValueError: the records, the labels or a parameter cannot be used.
            TreetapError: the federation failed.
        """
        if isinstance(self.federation, Connection):
            return self._fit_elsewhere(self.federation, X, y, sample_weight)
        several = party_tables.are_frames(X)
        data, targets = self._of_frames(X, y) if several else self._of_one(X, y)
        self._check_columns(data)
        labels, objective = self._labels(targets)
        names = list(data.tables)
        holder = self._holder(names)
        job = self._job(objective, "psi" if several else "sorted-ids")
        further = {"label": (LABEL, labels)}
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, np.empty((len(data.ids), 1)), ensure_non_negative=True)
            further["weight"] = WEIGHT, pa.array(np.asarray(weights, dtype=np.float64))
            job = job.model_copy(update={"max_sample_weight": max(float(weights.max()), self.max_sample_weight)})
        tables = {party: self._own_table(records) for party, records in data.tables.items()}
        for key, (name, column) in further.items():
            own = tables[holder]
            tables[holder] = OwnTable(own.records.append_column(name, column), {**own.keys, key: name})
        running = self._loopback(names)
        if base_model is not None:
            if getattr(getattr(base_model, "_fitted", None), "loopback", None) is not running:
                raise InvalidInput("base_model: must be fitted, with the same parties, on a federation that still runs")
            job = job.model_copy(update={"base_model": base_model._fitted.job})
        status, folders = running.train(tables, job, holder, verbose=bool(self.verbose))
        self._fitted = Fitted(running, status, holder, folders)
        self.label_holder_, self.columns_, self.constant_columns_ = holder, data.columns, self._fitted.dropped
        self.n_iter_ = self._fitted.rounds
        return self

    def predict_frame(self, X: Any) -> Any:
        """Predictions of the records that all parties have, as a data frame of the library of `X`.

        Columns: the ids where records have some, `prediction`, of classes their probabilities, and raw scores.

        Raises as `predict`.
        """
        found, _ = self._predictions(X)
        first = next(iter(X.values() if isinstance(X, Mapping) else X)) if party_tables.are_frames(X) else X
        named = [getattr(self, "id_column", None) or "id" if name == ID else name for name in found.column_names]
        return like(found.rename_columns(named), library_of(first))

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
        data = self._party_tables(X)
        tables = {party: self._own_table(records) for party, records in data.tables.items()}
        with running.serve(self._fitted.job, tables, self._protocol) as address:
            yield Served(f"http://{address}", {"treetap-name": running.settings.client}, data.ids)

    def save(self, folder: str | Path) -> Path:
        """Write the shards of all parties below a folder, which `treetap.load_model` reads; returns the folder.

        Raises:
            ValueError: the folder holds something.
        """
        check_is_fitted(self)
        place = Path(folder)
        if place.exists() and any(place.iterdir()):
            raise InvalidInput(f"{place}: is not empty; name another folder")
        write_shards(self._fitted.shards, place)
        return place

    @property
    def feature_importances_(self) -> Array:
        """Mean gain of the splits at each feature (d,), adding up to 1, as XGBoost's; 0 of a feature without splits."""
        check_is_fitted(self)
        rows = self._fitted.importances
        gained = dict.fromkeys(((party, name) for party, own in self.columns_.items() for name in own), (0.0, 0))
        for row in rows:
            place = row["party"], self._fitted.sources[row["party"]][row["feature"]]
            total, count = gained[place]
            gained[place] = total + row["gain"] * row["weight"], count + row["weight"]
        order = self._feature_order()
        means = np.array([gained[place][0] / max(gained[place][1], 1) for place in order])
        return means / means.sum() if means.sum() > 0 else means

    @property
    def importances_(self) -> Any:
        """Gain, cover and number of splits by party and feature, as a data frame."""
        check_is_fitted(self)
        return frame_of(self._fitted.importances, ("party", "feature", "weight", "gain", "cover"))

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
            "trees": {"planned": status.rounds, "grown": status.stored_trees, "used": status.used_trees},
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
        if isinstance(self.parties, int | None) or len(self.parties) < 2:
            raise InvalidInput("parties: name them all, as ['bank', 'telco']; their columns are in their own files")
        names = list(self.parties)
        holder = self._holder(names)
        job = self._job(self.objective or self._usual_objective, "psi")
        others = [name for name in names if name != holder]
        status = connection.train(job, holder, others, table, verbose=bool(self.verbose))
        self._fitted = RemoteFitted(connection, status, holder)
        self.label_holder_, self.n_iter_ = holder, self._fitted.rounds
        return self

    def _predictions(self, X: Any) -> tuple[pa.Table, list[str]]:
        """Predictions as the label holder's file has them, and the ids of the rows of `X`, in their order."""
        check_is_fitted(self)
        protocol = self._protocol
        if isinstance(self._fitted, RemoteFitted):
            if not isinstance(X, str):
                raise InvalidInput("the federation has its own tables: X is their name")
            found = self._fitted.predict(X, protocol, verbose=bool(self.verbose))
            return found.rename_columns([ID, *found.column_names[1:]]), [str(v) for v in found.column(0).to_pylist()]
        data = self._party_tables(X)
        tables = {party: self._own_table(records) for party, records in data.tables.items()}
        return self._fitted.predict(tables, protocol, verbose=bool(self.verbose)), data.ids

    @property
    def _protocol(self) -> str:
        """The protocol of predictions."""
        return str(self.prediction or training(PROTOCOL).predicts[0])

    def _party_tables(self, X: Any) -> PartyTables:
        """Records to predict, as a table of each party."""
        if not party_tables.are_frames(X):
            return party_tables.of_one(self._table_of(X, reset=False), self.columns_)
        frames = self._by_party(X)
        return party_tables.of_several(
            frames, self.label_holder_, self.id_column, leave_out=self._label_column, columns=self.columns_
        )

    def _predicted_rows(self, X: Any) -> pa.Table:
        """Predictions of the rows of `X`, in their order.

        Raises:
            ValueError: a party lacks some of the records.
        """
        found, ids = self._predictions(X)
        place = {str(value): row for row, value in enumerate(found.column(ID).to_pylist())}
        if lacking := [each for each in ids if each not in place]:
            raise InvalidInput(
                f"{len(lacking)} of {len(ids)} records of {self.label_holder_} are not at every party: predict_frame "
                "predicts the others"
            )
        return found.take(pa.array([place[each] for each in ids]))

    def _of_one(self, X: Any, y: Any) -> tuple[PartyTables, Array]:
        """One table split by columns, and its labels."""
        table, targets = self._with_targets(X, y)
        apart = self.parties if isinstance(self.parties, Mapping | int | None) else len(self.parties)
        names = self._names(apart if isinstance(apart, int) else None)
        columns = party_tables.split(table, apart, names)
        self._label_column: str | None = None
        return party_tables.of_one(table, columns), targets

    def _of_frames(self, X: Any, y: Any) -> tuple[PartyTables, Array]:
        """A table of each party, and the labels of the label holder's rows."""
        frames = self._by_party(X)
        holder = self._holder(list(frames))
        self._label_column = y if isinstance(y, str) else None
        data = party_tables.of_several(frames, holder, self.id_column, leave_out=self._label_column)
        if y is None:
            raise InvalidInput("requires y to be passed, but the target y is None")
        if isinstance(y, str):
            labelled = arrow_of(frames[holder]) if library_of(frames[holder]) is not None else None
            if labelled is None or y not in labelled.column_names:
                raise InvalidInput(f"y = {y!r}: the frame of {holder} has no such column")
            y = labelled.column(y)
        names = [name for own in data.columns.values() for name in own]
        self.n_features_in_ = len(names)
        if len(set(names)) == len(names):
            self.feature_names_in_ = np.array(names, dtype=object)
        return data, self._targets_of(y, len(data.ids))

    def _by_party(self, X: Any) -> dict[str, Any]:
        """The frames by party; those of a list have the names of `parties`, or numbers."""
        if not isinstance(X, Mapping):
            return dict(zip(self._names(len(X)), X, strict=True))
        if len(X) < 2:
            raise InvalidInput(
                f"X has the frame of {', '.join(X) or 'no party'}: a federation has at least two parties"
            )
        return dict(X)

    def _with_targets(self, X: Any, y: Any) -> tuple[pa.Table, Array]:
        if library_of(X) is None:
            checked_X, targets = validate_data(
                self,
                X,
                y,
                dtype=np.float64,
                ensure_all_finite="allow-nan",
                ensure_min_samples=2,
            )
            table = of_array(checked_X, self._feature_names(checked_X.shape[1]))
            return table, _as_numbers(targets) if self._numeric else targets
        validate_data(self, X, y, skip_check_array=True)
        return self._framed(X), self._targets_of(y, X.shape[0])

    def _table_of(self, X: Any, *, reset: bool) -> pa.Table:
        if library_of(X) is not None:
            validate_data(self, X, skip_check_array=True, reset=reset)
            return self._framed(X)
        values = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset)
        return of_array(values, self._feature_names(values.shape[1]))

    def _framed(self, X: Any) -> pa.Table:
        if X.shape[0] == 0:
            raise InvalidInput("Found array with 0 sample(s): the data frame has no records")
        return arrow_of(X, self._feature_names(X.shape[1]))

    def _feature_names(self, count: int) -> list[str]:
        found = getattr(self, "feature_names_in_", None)
        return [f"x{place}" for place in range(count)] if found is None else [str(name) for name in found]

    def _targets_of(self, y: Any, count: int) -> Array:
        targets = column_or_1d(column_of(y), warn=True)
        if targets.dtype.kind == "O" and (absent := sum(map(_is_missing, targets))):
            raise InvalidInput(f"y has no label for {absent} of {len(targets)} records: leave them out")
        if targets.dtype.kind == "f" or self._numeric:
            targets = _as_numbers(targets)
            assert_all_finite(targets, input_name="y")
        check_consistent_length(np.empty(count), targets)
        return np.asarray(targets)

    def _feature_order(self) -> list[tuple[str, str]]:
        """Party and column of each feature, in the order of the caller's columns."""
        owners = {name: party for party, own in self.columns_.items() for name in own}
        names = self._feature_names(self.n_features_in_)
        if set(names) == set(owners):
            return [(owners[name], name) for name in names]
        return [(party, name) for party, own in self.columns_.items() for name in own]

    def _names(self, count: int | None) -> list[str]:
        """The names of the parties where the caller gives none."""
        if not isinstance(self.parties, int | None):
            return list(self.parties)
        return [f"party-{number}" for number in range(1, (count or 2) + 1)]

    def _holder(self, names: Sequence[str]) -> str:
        holder = names[0] if self.label_holder is None else self.label_holder
        if holder not in names:
            raise InvalidInput(f"label_holder = {holder!r}: must be one of the parties, {', '.join(names)}")
        return holder

    def _own_table(self, records: pa.Table) -> OwnTable:
        columns = [name for name in records.column_names if name != ID]
        encode, wanted = self.encode, self.monotone_constraints or {}
        if isinstance(encode, Mapping):
            encode = {name: each for name, each in encode.items() if name in (*columns, OTHERS)}
        constrained = {name: int(sign) for name, sign in wanted.items() if name in columns}
        return OwnTable(
            records,
            {"columns": columns, "drop_constant": True, "encode": encode, "monotone_constraints": constrained},
        )

    def _check_columns(self, data: PartyTables) -> None:
        """Raise InvalidInput where a parameter names a column that no party has."""
        have = {OTHERS, *(name for own in data.columns.values() for name in own)}
        for key in ("encode", "monotone_constraints"):
            named = getattr(self, key)
            if isinstance(named, Mapping) and (unknown := [name for name in named if name not in have]):
                raise InvalidInput(f"{key} names {unknown[0]!r}, which is a column of no party")

    def _job(self, objective: str, alignment: str) -> JobTable:
        """The job table of these parameters."""
        keys = {field.name: _plain(getattr(self, field.name)) for field in fields(BoostingParams)}
        keys |= {"objective": objective, "alignment": self.alignment or alignment}
        keys |= {name: _plain(getattr(self, name)) for name in ("scheme", "key_bits", "obfuscation")}
        with checked(JobTable):
            job: JobTable = JobTable.model_validate({name: each for name, each in keys.items() if each is not None})
            return job

    def _loopback(self, names: Sequence[str]) -> Loopback:
        """The running federation that trains: the caller's, or the one of these settings."""
        if isinstance(self.federation, Loopback):
            if set(self.federation.settings.parties) != set(names):
                raise InvalidInput(
                    f"federation has parties {', '.join(self.federation.settings.parties)}, the data has "
                    f"{', '.join(names)}"
                )
            return self.federation
        defences = {self._holder(names): dict(self.defences or {})}
        workdir = None if self.workdir is None else Path(self.workdir)
        return loopback.kept(Settings(tuple(names), defences, dict(self.policy or {}), self.workers, workdir))


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
