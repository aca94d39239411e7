"""The part that both estimators share: from the caller's records to a training, and from its model to predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from treetap.api import loopback, party_tables, simulated
from treetap.api.errors import InvalidInput, checked
from treetap.api.eval_sets import EvalSet, add_history, marked, pairs_of, results
from treetap.api.fitted import Fitted, read_shards, write_shards
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
from treetap.api.job_table import changed, job_table, plain
from treetap.api.loopback import ID, Loopback, OwnTable, Settings
from treetap.api.parameters import Parameters
from treetap.api.party_tables import LABEL, WEIGHT, PartyTables
from treetap.api.remote import Connection, RemoteFitted, connect
from treetap.api.spread_targets import SpreadTargets, is_missing, spread
from treetap.commands.jobs.job_file import JobTable
from treetap.commands.jobs.progress_view import backends, rounds
from treetap.errors import BadInput
from treetap.protocols.prediction import predicting
from treetap.protocols.registry import training
from treetap.tables.config import OTHERS
from treetap.tables.labels import class_name

Array = np.ndarray[Any, np.dtype[Any]]


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
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        sample_weight_eval_set: Any = None,
        base_model: FederatedEstimator | None = None,
    ) -> Self:
        """Train on records with labels.

        One person acts for all parties: the job's `max_sample_weight` is at least the largest weight here.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or {party: data frame}, or a list of data frames
            Records. Columns of one table are split by `parties`. Of a table of each party the records that all have
            are trained on. Columns of frames go by name, those of arrays by place. Of a federation elsewhere: the name
            of the parties' own tables.
        y : array of shape (n_samples,) or column name
            Labels of the label holder's rows. Those of pandas go by their index where `X` has one. With
            protocol = "pivodl" also {party: labels}, with an empty cell where a party does not label a record.
        sample_weight : array of shape (n_samples,), optional
            Weights of the records from 0 on.
        eval_set : list of (X, y) pairs, optional
            Sets by which the model is measured after each round. With `early_stopping_rounds` the last one stops the
            training, and no record of `X` is set aside. Of a federation elsewhere: the name of the eval tables.
        sample_weight_eval_set : list of arrays of shape (n_samples,), optional
            Weights of the records of each set; they weigh its measures.
        base_model : estimator, optional
            A fitted estimator of the same records and parties, whose federation runs: `n_estimators` counts the rounds
            that are added to its trees. It has no `eval_set`.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        ValueError
            The records, the labels or a parameter cannot be used.
        TreetapError
            The federation failed.
        """
        if isinstance(self.federation, Connection):
            return self._fit_elsewhere(self.federation, X, y, sample_weight, eval_set)
        if base_model is not None and eval_set is not None:
            raise InvalidInput(
                "eval_set and base_model do not go together: no party has scores of its records under the base model; "
                "leave it out, or have validation_share of the records set aside"
            )
        several = party_tables.are_frames(X)
        data, given = self._of_frames(X, y) if several else self._of_one(X, y)
        labels, objective = self._labels(given.targets)
        names = list(data.tables)
        holder = self._holder(names)
        job = self._job(objective, "psi" if several else "sorted-ids")
        weights = None
        if sample_weight is not None:
            weights = self._weights(data, sample_weight)
            job = changed(job, max_sample_weight=max(float(weights.max()), job.max_sample_weight or 1.0))
        tables = self._labelled(data, given.by_party(labels, holder), weights, holder)
        sets = [self._eval_set(*pair, data.columns, holder) for pair in pairs_of(eval_set, sample_weight_eval_set)]
        evaluated = sets[-1].tables if sets else None
        if self.simulate:
            self._check_simulated(base_model)
            fitted = Fitted(simulated.train(tables, job, holder, evaluated, self.defences or {}), holder)
        else:
            running = self._loopback(names)
            if base_model is not None:
                if getattr(getattr(base_model, "_fitted", None), "loopback", None) is not running:
                    raise InvalidInput(
                        "base_model: must be fitted, with the same parties, on a federation that still runs"
                    )
                job = changed(job, base_model=base_model._fitted.job)
            status, folders = running.train(tables, job, holder, evaluated, verbose=bool(self.verbose))
            fitted = Fitted(read_shards(folders), holder, (running, status))
        add_history(fitted, sets)
        self._fitted = fitted
        self.label_holder_, self.columns_, self.constant_columns_ = holder, data.columns, fitted.dropped
        self.n_iter_ = fitted.rounds
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
    def best_iteration_(self) -> int:
        """The best round, from 0, the last one that predictions use; an AttributeError without early stopping."""
        check_is_fitted(self)
        if (best := self._fitted.best_round) is None:
            raise AttributeError("best_iteration_: there is one with early_stopping_rounds alone")
        return int(best)

    def evals_result(self) -> dict[str, dict[str, list[float | None]]]:
        """The measures of each eval set after each round, as XGBoost has them.

        Returns
        -------
        results : dict
            "validation_0" and so on, in the order of `eval_set` → measure → a value for each round, from round 0.
        """
        check_is_fitted(self)
        return results(self._fitted.history)

    @property
    def disclosure_(self) -> Any:
        """Bytes by sender, receiver and disclosure class, in the training and the last prediction."""
        check_is_fitted(self)
        return frame_of(self._fitted.sent(), ("job", "from", "to", "step", "class", "messages", "bytes"))

    @property
    def report_(self) -> dict[str, Any]:
        """The training's cost and outcome: seconds by phase, bytes, ciphertext arithmetic by party, metrics, trees."""
        check_is_fitted(self)
        if self._fitted.simulated:
            return {"metrics": self._fitted.metrics, "trees": self._fitted.trees, "federated": False}
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

    @abstractmethod
    def _column(self, targets: Array) -> pa.Array:
        """The label column of further targets (n,), by the classes of the training."""

    def connect(self, coordinator: str | None = None, *, operator_file: str | Path = "operator.toml") -> Self:
        """Have this estimator train by a federation that runs elsewhere; see `treetap.connect`.

        Then `parties` has their names, `fit` and `predict` take the name of the parties' own tables, and no `y`.
        Predictions are in the order of the label holder's file, which is read if it is on this machine.
        """
        return self.set_params(federation=connect(coordinator, operator_file=operator_file))  # type: ignore[no-any-return]

    def _fit_elsewhere(self, connection: Connection, table: Any, y: Any, sample_weight: Any, further: Any) -> Self:
        if not isinstance(table, str) or y is not None or sample_weight is not None:
            raise InvalidInput("a federation that runs elsewhere has its own tables: fit takes their name alone")
        if self.simulate:
            raise InvalidInput(
                "simulate: the tables of a federation that runs elsewhere are its parties' own; leave simulate out"
            )
        if further is not None and not isinstance(further, str):
            raise InvalidInput(f"eval_set = {further!r}: must be the name of the parties' own eval tables")
        parties = self._parties
        if isinstance(parties, int) or len(parties) < 2:
            raise InvalidInput("parties: name them all, as ['bank', 'telco']; their columns are in their own files")
        for key in ("encode", "monotone_constraints", "defences", "policy", "workdir", "id_column"):
            if getattr(self, key) is not None:
                raise InvalidInput(f"{key}: parties of a federation that runs elsewhere have it in their own files")
        # the first party has the labels unless `label_holder` says otherwise
        names = list(parties)
        holder = self._holder(names)
        job = self._job(self.objective or self._usual_objective, "psi")
        others = [name for name in names if name != holder]
        status = connection.train(job, holder, others, table, further or "", verbose=bool(self.verbose))
        self._fitted = RemoteFitted(connection, status, holder, stops=job.early_stopping_rounds is not None)
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
        """The protocol of predictions. Raises InvalidInput: models of the training's protocol have no such one."""
        known = predicting(self.protocol, withheld=self.instance_spaces == "withheld")
        if self.prediction is not None and self.prediction not in known:
            raise InvalidInput(f"prediction = {self.prediction!r}: must be one of {', '.join(known)}")
        return self.prediction or known[0]

    def _party_tables(self, X: Any) -> PartyTables:
        """Records to predict, as a table of each party."""
        return self._tables_like(X, self.columns_, self.label_holder_)

    def _tables_like(self, X: Any, columns: Mapping[str, Sequence[str]], holder: str) -> PartyTables:
        """Records as a table of each party with these columns."""
        if not party_tables.are_frames(X):
            return party_tables.of_one(X, self._table_of(X), columns, self._id_column)
        frames = self._by_party(X)
        return party_tables.of_several(frames, holder, self._id_column, leave_out=self._label_column, columns=columns)

    def _eval_set(self, X: Any, y: Any, weight: Any, columns: Mapping[str, Sequence[str]], holder: str) -> EvalSet:
        """A set by which the model is measured; its records may be those of the training too."""
        try:
            data = self._tables_like(X, columns, holder)
            if _is_label(y) and library_of(data.rows.data) is not None:
                y = column_in(data.rows.data, str(y))
            labels = self._column(self._targets_of(data, y))
            weights = None if weight is None else self._weights(data, weight)
        except BadInput as failure:
            raise InvalidInput(f"eval_set: {failure}") from None
        tables = {party: marked(records) for party, records in data.tables.items()}
        return EvalSet(self._labelled(replace(data, tables=tables), {holder: labels}, weights, holder), holder)

    def _labelled(
        self, data: PartyTables, labels: Mapping[str, pa.Array], weights: Array | None, holder: str
    ) -> dict[str, OwnTable]:
        """The parties' own tables, with labels by party, and weights at the label holder."""
        tables = {party: self._own_table(records) for party, records in data.tables.items()}
        further = [(party, "label", LABEL, column) for party, column in labels.items()]
        if weights is not None:
            further.append((holder, "weight", WEIGHT, pa.array(weights)))
        for party, key, name, column in further:
            own = tables[party]
            tables[party] = OwnTable(own.records.append_column(name, column), {**own.keys, key: name})
        return tables

    def _weights(self, data: PartyTables, given: Any) -> Array:
        """Weights (n,) of the label holder's rows."""
        own = column_of(data.rows.aligned(given, "sample_weight"))
        checked_weights = _check_sample_weight(own, np.empty((len(data.rows.ids), 1)), ensure_non_negative=True)
        return np.asarray(checked_weights, dtype=np.float64)

    def _check_simulated(self, base_model: Any) -> None:
        """Raise InvalidInput for what a training without processes cannot have."""
        lacking = {
            "base_model": (base_model, "train with more n_estimators, at the same cost"),
            "federation": (self.federation, "no federation trains; leave it out"),
            "policy": (self.policy, "there is no party to keep it; leave it out"),
            "workdir": (self.workdir, "there are no processes whose files it would keep; leave it out"),
        }
        for name, (value, remedy) in lacking.items():
            if value is not None:
                raise InvalidInput(f"{name} and simulate do not go together: {remedy}")
        if self._protocol != predicting(self.protocol, withheld=False)[0]:
            raise InvalidInput(
                f"prediction = {self._protocol!r} and simulate do not go together: it rounds scores; leave it out"
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

    def _of_one(self, X: Any, y: Any) -> tuple[PartyTables, SpreadTargets]:
        """One table split by columns, and its labels."""
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
            table = _framed(X)
            self._remember([name for name in table.column_names if name != id_column], [X])
        if id_column is not None and id_column not in table.column_names:
            raise InvalidInput(f"id_column = {id_column!r}: X has no such column")
        parties = self._parties
        apart = parties if isinstance(parties, Mapping | int) else len(parties)
        columns = party_tables.split(self._names_in, apart, self._names(), by_place=self._by_place)
        self._label_column: str | None = None
        data = party_tables.of_one(X, table, columns, id_column)
        return data, self._spread(data, y)

    def _of_frames(self, X: Any, y: Any) -> tuple[PartyTables, SpreadTargets]:
        """A table of each party, and the labels of the label holder's rows."""
        frames = self._by_party(X)
        self._by_place = any(library_of(frame) is None for frame in frames.values())
        holder = self._holder(list(frames))
        self._label_column = str(y) if _is_label(y) else None
        named = self._parties if isinstance(self._parties, Mapping) else None
        labelled = [holder]
        if self._label_column is not None and training(self.protocol).one_role:
            labelled = [party for party, frame in frames.items() if self._label_of(frame) is not None]
        data = party_tables.of_several(
            frames, holder, self._id_column, leave_out=self._label_column, labelled=labelled, columns=named
        )
        self._remember([name for own in data.columns.values() for name in own], list(frames.values()))
        if self._label_column is not None:
            y = {party: self._label_of(frames[party]) for party in labelled} or {holder: None}
            if y.get(holder, 0) is None:
                raise InvalidInput(f"y = {self._label_column!r}: the frame of {holder} has no such column")
            y = y[holder] if labelled == [holder] else y
        return data, self._spread(data, y)

    def _label_of(self, frame: Any) -> Any:
        """The column of labels in a party's frame; None where it has none."""
        return column_in(frame, str(self._label_column)) if library_of(frame) is not None else None

    def _spread(self, data: PartyTables, y: Any) -> SpreadTargets:
        """The labels of the label holder's rows, or of each party's own where the protocol has no label holder."""
        if not isinstance(y, Mapping):
            return SpreadTargets(self._targets_of(data, y))
        if not training(self.protocol).one_role:
            raise InvalidInput(
                f"y: with protocol = {self.protocol!r} one party has all labels: give them as one column"
            )
        targets, places = spread(y, {party: table.num_rows for party, table in data.tables.items()})
        return SpreadTargets(self._targets(targets, len(targets)), places)

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
        return self._targets(column_of(data.rows.aligned(y, "y")), len(data.rows.ids))

    def _targets(self, labels: Any, records: int) -> Array:
        targets = column_or_1d(labels, warn=True)
        if targets.dtype.kind == "O" and (absent := sum(map(is_missing, targets))):
            raise InvalidInput(f"y has no label for {absent} of {len(targets)} records: leave them out")
        if targets.dtype.kind == "f" or self._numeric:
            targets = _as_numbers(targets)
            assert_all_finite(targets, input_name="y")
        check_consistent_length(np.empty(records), targets)
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

    def _own_table(self, records: pa.Table) -> OwnTable:
        columns = [name for name in records.column_names if name != ID]
        known = {*columns, OTHERS}
        encode, wanted = self.encode, self._by_name("monotone_constraints") or {}
        if isinstance(encode, Mapping):
            encode = {name: encoding for name, encoding in self._by_name("encode").items() if name in known}
        constrained = {name: plain(sign) for name, sign in wanted.items() if name in known}
        return OwnTable(
            records,
            {"columns": columns, "drop_constant": True, "encode": encode, "monotone_constraints": constrained},
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
        own = [] if self._numeric else [class_name(name) for name in getattr(self, "_own_names", ())]
        job = job_table(self, objective, alignment, own, numeric=self._numeric)
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


def _as_numbers(targets: Array) -> Array:
    """Targets of a regression (n,) as numbers. Raises InvalidInput: one is none."""
    try:
        return np.asarray(targets, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            "y holds targets that are no numbers, as those of a regression are: FederatedClassifier is for classes"
        ) from None
