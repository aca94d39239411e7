"""A federation that runs elsewhere, asked as an operator: `treetap.connect`. Tables are the parties' own, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from treetap.commands.jobs.client import Operator, OperatorConfig, read
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import TreetapError
from treetap.lab.api.errors import InvalidInput, checked
from treetap.lab.api.fitted import cells_of, sent_in, warn_unlike
from treetap.lab.api.loopback import watched
from treetap.protocols.prediction import predict_request
from treetap.wire.metric_history import rows
from treetap.wire.v2 import jobs_pb2


@dataclass(frozen=True)
class Connection:
    """An operator of a coordinator; estimators take it as `federation`."""

    config: OperatorConfig

    @property
    def operator(self) -> Operator:
        """Calls to the coordinator."""
        return Operator(self.config)

    def train(
        self, job: JobTable, label_holder: str, others: Sequence[str], table: str, evaluated: str = "", *, verbose: bool
    ) -> jobs_pb2.JobStatus:
        """Train on the parties' tables of a name, and measure those of another; returns the job's status.

        Raises:
            InvalidInput: a party or the coordinator refuses the tables or the job.
            TreetapError: the job failed otherwise, or the coordinator cannot be reached.
        """
        with checked():
            operator = self.operator
            name = operator.submit(jobs_pb2.SubmitRequest(spec=job.spec(label_holder, list(others), table, evaluated)))
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
        config = read(Path(operator_file))
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

    def predict(self, table: str, protocol: str, *, verbose: bool) -> pa.Table:
        """The predictions of the parties' tables of a name, read where the label holder wrote them.

        Raises:
            InvalidInput: a party refuses the table.
            TreetapError: the prediction failed, or its file is on the label holder's machine, which is not this one.
        """
        predicted = self._read("predictions", predict_request(protocol, model=self.job, table=table), verbose=verbose)
        return predicted.filter(predicted.column("prediction").is_valid())

    def attributions(self, table: str, *, verbose: bool) -> pa.Table:
        """The Shapley values of the scores, as the label holder has written them; raises as `predict`."""
        asked = predict_request("eini", model=self.job, table=table, attributions=True)
        return self._read("attributions", asked, verbose=verbose)

    def _read(self, file: str, request: jobs_pb2.PredictRequest, *, verbose: bool) -> pa.Table:
        """A file of a prediction, which its status names."""
        with checked():
            operator = self._connection.operator
            name = operator.predict(request)
        status = watched(operator, name, verbose=verbose)
        self._statuses["predict"] = status.SerializeToString()
        warn_unlike(cells_of(status))
        written = Path(getattr(status, file))
        if not written.is_file():
            raise TreetapError(
                f"prediction {name} is finished; {self.label_holder} has it on its own machine, as {written}"
            )
        return pq.read_table(written)

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
