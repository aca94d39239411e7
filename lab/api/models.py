"""Models of finished trainings, here in a folder: `treetap.load_model`, or at a federation elsewhere.

The latter is asked as an operator, `treetap.connect`. Tables are the parties' own, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.arrays import Array
from treetap.commands.jobs.client import Operator, OperatorConfig
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import TreetapError
from treetap.lab.api import party_tables
from treetap.lab.api.explanations import by_shards, plot_history, plot_importance
from treetap.lab.api.fitted import CLASSES, OTHERS_PREDICTED, cells_of, predict_jointly, sent_in, warn_unlike
from treetap.lab.api.frames import InvalidInput, Rows, array_of, checked, importances_of, library_of, probabilities_of
from treetap.lab.api.loopback import OwnTable, watched
from treetap.lab.api.parameters import Columns
from treetap.lab.experiment.joint_model import JointModel, shards_in
from treetap.models.store import MANIFEST, read_history, read_manifest
from treetap.protocols.prediction import predict_request
from treetap.wire.metric_history import merged, rows
from treetap.wire.v2 import jobs_pb2


class LoadedModel:
    """The joint model of all parties: it predicts in this process, as the federation would, bit for bit."""

    def __init__(self, joint: JointModel, classes: Array | None = None) -> None:
        """`classes`: those of the estimator that was saved, in its caller's type."""
        self._joint, self._classes = joint, classes

    def __repr__(self) -> str:
        columns = {party: Columns(len(names)) for party, names in self.columns_.items()}
        return f"LoadedModel(parties={columns}, label_holder={self.label_holder!r}, metrics={self.metrics_})"

    @property
    def label_holder(self) -> str:
        """The party that had the labels."""
        return self._joint.label_holder

    @property
    def columns_(self) -> dict[str, list[str]]:
        """The columns that each party's table must have."""
        return {party: self._joint.columns(party) for party in self._joint.shards}

    @property
    def classes_(self) -> Array:
        """The classes, in the type that they had for the estimator or in their table; none of a regression."""
        return array_of(self._joint.classes) if self._classes is None else self._classes

    @property
    def importances_(self) -> Any:
        """Gain, cover and number of splits by party and feature, as a data frame."""
        return importances_of(self._joint.importances())

    @property
    def metrics_(self) -> dict[str, float]:
        """The metrics of the training, as the label holder has them."""
        return dict(self._joint.manifest["training_metrics"])

    @checked()
    def predict_frame(self, X: Any, *, id_column: str | None = None, normalise: Sequence[str] | None = None) -> Any:
        """Predictions of records, as a data frame of the library of `X`.

        `X`: a data frame with the columns of all parties, or {party: frame}, joined as by the estimators; then only of
        records that all parties have. `id_column`: that of their ids. `normalise`: the rules of these.

        Raises:
            ValueError: a column is missing, or cannot be read as in the training.
        """
        predicted, rows = self._predictions(X, id_column, normalise)
        return rows.framed(predicted)

    @checked()
    def explain(self, X: Any, *, id_column: str | None = None, normalise: Sequence[str] | None = None) -> Any:
        """Shapley values of the scores of `X`, as a `shap.Explanation`: see `FederatedClassifier.explain`.

        Raises as `predict`, and ImportError without the extra `explain`.
        """
        return by_shards(self._joint, *self._tables(X, id_column, normalise))

    def plot_importance(
        self, *, importance_type: str = "gain", max_num_features: int | None = 20, ax: Any = None
    ) -> Any:
        """Draw the importance of features: see `FederatedClassifier.plot_importance`."""
        return plot_importance(self._joint.importances(), importance_type, max_num_features, ax)

    def plot_history(self, *, metric: str | None = None, ax: Any = None) -> Any:
        """Draw a metric of the training round by round: see `FederatedClassifier.plot_history`."""
        rows = merged([read_history(folder) for folder in self._joint.shards.values()])
        return plot_history(rows, self._joint.manifest["best_round"], metric, ax)

    @checked()
    def predict(self, X: Any, *, id_column: str | None = None, normalise: Sequence[str] | None = None) -> Array:
        """Classes or values (n,) of the rows of `X`; raises as `predict_frame`, and where a party lacks a record."""
        predicted = self._rows(X, id_column, normalise).column("prediction").to_pylist()
        place = {value: number for number, value in enumerate(self._joint.classes)}
        return self.classes_[[place[value] for value in predicted]] if place else np.array(predicted)

    @checked()
    def predict_proba(self, X: Any, *, id_column: str | None = None, normalise: Sequence[str] | None = None) -> Array:
        """Probabilities (n, classes), in the order of `classes_`; raises as `predict`, and of a regression."""
        predicted = self._rows(X, id_column, normalise)
        if not self._joint.classes:
            raise InvalidInput("the model was trained on numbers: it has no probabilities")
        return probabilities_of(predicted, self._joint.classes)

    def _rows(self, X: Any, id_column: str | None, normalise: Sequence[str] | None) -> pa.Table:
        predicted, rows = self._predictions(X, id_column, normalise)
        return predicted.take(pa.array(rows.all_in(predicted, OTHERS_PREDICTED)))

    def _predictions(self, X: Any, id_column: str | None, normalise: Sequence[str] | None) -> tuple[pa.Table, Rows]:
        tables, rows = self._tables(X, id_column, normalise)
        with checked():
            return predict_jointly(self._joint, tables), rows

    def _tables(
        self, X: Any, id_column: str | None, normalise: Sequence[str] | None
    ) -> tuple[dict[str, OwnTable], Rows]:
        columns = self.columns_
        if isinstance(X, Mapping):
            data = party_tables.of_several(X, self.label_holder, id_column, normalise, columns=columns)
        elif library_of(X) is None:
            raise InvalidInput("X must be a data frame with the columns of all parties, or one of each party")
        else:
            data = party_tables.of_one(X, party_tables.framed(X), columns, id_column)
        return {party: OwnTable(records, {}) for party, records in data.tables.items()}, data.rows


class PartyModel:
    """One party's shard. It predicts nothing by itself: the leaves are at the label holder, splits at their owners."""

    def __init__(self, folder: Path) -> None:
        self.manifest = read_manifest(folder)

    def __repr__(self) -> str:
        return f"PartyModel(the shard of a {self.role.replace('_', ' ')} alone)"

    @property
    def role(self) -> str:
        """The party's role in the training."""
        return str(self.manifest["role"])

    def predict(self, X: Any) -> Array:  # noqa: ARG002 - as other models have it
        """Raise TreetapError: only a federation, or all shards together, predict."""
        raise TreetapError(
            f"this is the shard of a {self.role.replace('_', ' ')} alone: its federation predicts with it (treetap "
            "predict), or load_model of a folder with the shards of all parties"
        )

    predict_proba = predict


@checked()
def load_model(folder: str | Path) -> LoadedModel | PartyModel:
    """The model in a folder: that of all parties, or one party's shard.

    Args:
        folder: of an estimator's `save`, of an experiment's results with one run, of one run in it (`seed-0`), or one
            party's published model (`state/models/JOB`).

    Raises:
        ValueError: there is none there, or there are several.
        TreetapError: a file is damaged, or of a newer treetap.
    """
    place = Path(folder)
    if (place / MANIFEST).is_file():
        return PartyModel(place)
    model, shards = shards_in(place)
    return LoadedModel(JointModel(shards), _classes(model / CLASSES))


def _classes(path: Path) -> Array | None:
    """The classes that an estimator has saved; None where none has. Raises TreetapError: the file is damaged."""
    try:
        return np.asarray(np.load(path, allow_pickle=False)) if path.exists() else None
    except (OSError, ValueError, EOFError):
        raise TreetapError(
            f"{path}: cannot be read as the classes of a model: restore it, or fit and save again"
        ) from None


@dataclass(frozen=True)
class Connection:
    """An operator of a coordinator; estimators take it as `federation`."""

    config: OperatorConfig

    @property
    def operator(self) -> Operator:
        """Calls to the coordinator."""
        return Operator(self.config)

    def train(
        self,
        job: JobTable,
        label_holder: str,
        others: Sequence[str],
        table: str,
        evaluated: str = "",
        *,
        dealer: str = "",
        verbose: bool,
    ) -> jobs_pb2.JobStatus:
        """Train on the parties' tables of a name, and measure those of another; returns the job's status.

        Raises:
            InvalidInput: a party or the coordinator refuses the tables or the job.
            TreetapError: the job failed otherwise, or the coordinator cannot be reached.
        """
        with checked():
            operator = self.operator
            spec = job.spec(label_holder, list(others), table, evaluated, dealer)
            name = operator.submit(jobs_pb2.SubmitRequest(spec=spec))
        return watched(operator, name, verbose=verbose)


def connect(coordinator: str | None = None, *, operator_file: str | Path = "operator.toml") -> Connection:
    """A running federation, asked with an operator's certificate.

    Args:
        coordinator: its address, HOST:PORT, in the place of the file's.
        operator_file: docs/configuration.md shows one.

    Raises:
        ValueError: the file or its certificate has a fault.
    """
    with checked():
        config = OperatorConfig.from_file(Path(operator_file))
        if coordinator is not None:
            config = OperatorConfig.model_validate({**config.model_dump(), "coordinator": coordinator})
        connection = Connection(config)
        connection.operator  # noqa: B018 - checks the certificate
    return connection


class RemoteFitted:
    """The outcome of a training elsewhere. Its model is with its parties; here are its name, cost and metrics."""

    federated, simulated = True, False

    def __init__(self, connection: Connection, status: jobs_pb2.JobStatus, label_holder: str, *, stops: bool) -> None:
        """`stops`: the training had early stopping."""
        self.stops = stops
        self.job, self.label_holder, self._connection = status.job, label_holder, connection
        self._statuses = {"train": status.SerializeToString()}

    @property
    def training(self) -> jobs_pb2.JobStatus:
        """The training's status."""
        return jobs_pb2.JobStatus.FromString(self._statuses["train"])

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics that the label holder sends the coordinator."""
        return {row.name: row.value for row in self.training.metrics}

    @property
    def history(self) -> list[dict[str, float | None]]:
        """The metrics after each round that the label holder sends the coordinator."""
        return rows(self.training.history)

    @property
    def best_round(self) -> int | None:
        """The last round that predictions use, from 0; None without early stopping."""
        status, rounds = self.training, len(self.history)
        return int(status.used_trees) * rounds // int(status.stored_trees) - 1 if self.stops else None

    @property
    def rounds(self) -> int:
        """Trees in use."""
        return int(self.training.used_trees or self.training.stored_trees)

    def predict(self, table: str, protocol: str, *, verbose: bool, attributed: bool = False) -> pa.Table:
        """The predictions of the parties' tables of a name, read where the label holder wrote them.

        `attributed`: of "eini"; the Shapley values of the scores in their place.

        Raises:
            InvalidInput: a party refuses the table.
            TreetapError: the prediction failed, or its file is on the label holder's machine, which is not this one.
        """
        request = predict_request(protocol, model=self.job, table=table, attributions=attributed)
        with checked():
            operator = self._connection.operator
            name = operator.predict(request)
        status = watched(operator, name, verbose=verbose)
        self._statuses["predict"] = status.SerializeToString()
        warn_unlike(cells_of(status))
        written = Path(status.attributions if attributed else status.predictions)
        if not written.is_file():
            raise TreetapError(
                f"prediction {name} is finished; {self.label_holder} has it on its own machine, as {written}"
            )
        read = pq.read_table(written)
        return read if attributed else read.filter(read.column("prediction").is_valid())

    def sent(self) -> list[dict[str, Any]]:
        """Bytes by sender, receiver, step and class of the training and of the last prediction."""
        return sent_in({name: jobs_pb2.JobStatus.FromString(kept) for name, kept in self._statuses.items()})

    def __getattr__(self, name: str) -> Any:
        if name in ("importances", "sources", "shards", "manifest"):
            raise InvalidInput(
                f"job {self.job} was trained by a federation that runs elsewhere: its parties have the model, and "
                "treetap model show says there what it is"
            )
        raise AttributeError(name)
