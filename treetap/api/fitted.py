"""A trained model in the hands of its caller: the shards of all parties, and the federation while it runs."""

from __future__ import annotations

import hashlib
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from treetap.api.errors import InvalidInput
from treetap.api.loopback import AS_PARAMETER, ID, IN_SETTINGS, Loopback, OwnTable
from treetap.commands.experiment.joint_model import JointModel
from treetap.commands.experiment.report import traffic
from treetap.commands.jobs.progress_view import counted
from treetap.errors import BadInput
from treetap.models.history import read_history
from treetap.tables.config import TableConfig
from treetap.tables.unlike import Unlike
from treetap.wire.metric_history import merged
from treetap.wire.v2 import jobs_pb2

#: Party → name of a file → its content.
Shards = Mapping[str, Mapping[str, bytes]]


def read_shards(folders: Mapping[str, Path]) -> dict[str, dict[str, bytes]]:
    """The files of published models, party → folder."""
    return {
        party: {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}
        for party, folder in folders.items()
    }


def write_shards(shards: Shards, folder: Path) -> dict[str, Path]:
    """Write shards below a folder, one folder for each party; returns these."""
    for party, files in shards.items():
        (folder / party).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / party / name).write_bytes(content)
    return {party: folder / party for party in shards}


@contextmanager
def joint_model(shards: Shards) -> Iterator[JointModel]:
    """The joint model of shards in memory, from a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="treetap-model-") as folder:
        yield JointModel(write_shards(shards, Path(folder)))


def predict_jointly(model: JointModel, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Predictions of tables by party, with a column `ID`, as a label holder's file has them; no message is sent.

    Raises:
        InvalidInput: a table cannot be read as in the training; the message names the party.
    """
    with on_disk(tables) as configs:
        predictions = model.predict(configs)
    warn_unlike(model.unlike)
    return predictions


@contextmanager
def on_disk(tables: Mapping[str, pa.Table]) -> Iterator[dict[str, TableConfig]]:
    """Tables by party, with a column `ID`, as a joint model reads them. Raises as `predict_jointly`."""
    with tempfile.TemporaryDirectory(prefix="treetap-tables-") as folder:
        configs = {}
        for party, table in tables.items():
            path = Path(folder) / f"{party}.parquet"
            pq.write_table(table, path)
            configs[party] = TableConfig(path=path, id=ID)
        try:
            yield configs
        except BadInput as failure:
            raise InvalidInput(_to_caller(str(failure), folder)) from None


def cells_of(status: jobs_pb2.JobStatus) -> dict[str, Unlike]:
    """Cells that a prediction took for unknown or missing, by party."""
    return {row.party: Unlike(row.unknown_cells, row.empty_columns) for row in status.cells}


def sent_in(jobs: Mapping[str, jobs_pb2.JobStatus | None]) -> list[dict[str, Any]]:
    """Bytes by sender, receiver, step and class in jobs, each under its name; None: there is none."""
    return [
        {"job": name, **row.plain()} for name, status in jobs.items() if status is not None for row in traffic([status])
    ]


def warn_unlike(by_party: Mapping[str, Unlike]) -> None:
    """Warn of cells that a prediction took for unknown or missing, a warning for each party that has some."""
    for party, unlike in by_party.items():
        if any(unlike):
            said = f"{party}: {counted(*unlike)} in the table to predict, which count as unknown or missing"
            warnings.warn(f"{said}; its log names the columns", UserWarning, stacklevel=2)


def _to_caller(message: str, folder: str) -> str:
    """A message about a table in a folder, in terms of the caller, who gave frames and parameters."""
    return re.sub(rf"{re.escape(folder)}/(\S+?)\.parquet: ", r"\1: ", message).replace(IN_SETTINGS, AS_PARAMETER)


class Fitted:
    """The outcome of a training on loopback.

    Its federation predicts while it runs. A copy, a pickle, or a model whose federation has ended predicts in this
    process from the shards of all parties, which gives the same numbers. The last predictions are kept, so that
    `predict` and `predict_proba` of the same records ask the federation once.
    """

    def __init__(
        self, loopback: Loopback, status: jobs_pb2.JobStatus, label_holder: str, folders: Mapping[str, Path]
    ) -> None:
        self.job, self.label_holder = status.job, label_holder
        self.training = status
        self.shards = read_shards(folders)
        with joint_model(self.shards) as joint:
            self.manifest = joint.manifest
            self.importances = joint.importances()
            self.history = merged([read_history(folder) for folder in joint.shards.values()])
            self.sources = _sources(joint)
            self.dropped = {
                name: list(manifest.get("dropped_columns", ())) for name, manifest in joint.manifests.items()
            }
        self._loopback: Loopback | None = loopback
        self._folder = loopback.folder
        self._last: tuple[str, pa.Table] | None = None
        self._predicted: jobs_pb2.JobStatus | None = None

    def __getstate__(self) -> dict[str, Any]:
        kept = {"_loopback": None, "_last": None, "_predicted": None, "training": self.training.SerializeToString()}
        return {**self.__dict__, **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "training": jobs_pb2.JobStatus.FromString(state["training"])}

    @property
    def rounds(self) -> int:
        """The rounds whose trees predictions use."""
        return int(self.training.used_trees or self.training.stored_trees) // int(self.manifest["trees_per_round"])

    @property
    def metrics(self) -> dict[str, float]:
        """The training's metrics, as the label holder has them."""
        return dict(self.manifest["training_metrics"])

    @property
    def loopback(self) -> Loopback | None:
        """Its federation; None once that has ended, and in a copy."""
        running = self._loopback is not None and self._loopback.running and self._loopback.folder == self._folder
        return self._loopback if running else None

    @property
    def federated(self) -> bool:
        """True if its federation runs and predicts."""
        return self.loopback is not None

    def predict(self, tables: Mapping[str, OwnTable], protocol: str, *, verbose: bool) -> pa.Table:
        """Predictions of the records that all tables have, as a label holder's file has them.

        Raises:
            InvalidInput: a table lacks a column, or cannot be read.
            TreetapError: the prediction failed.
        """
        digest = _digest(tables, protocol)
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        if (running := self.loopback) is not None:
            predicted, self._predicted = running.predict(self.job, tables, protocol, verbose=verbose)
            warn_unlike(cells_of(self._predicted))
            predicted = predicted.filter(
                predicted.column("prediction").is_valid()
            )  # it lists records that a party lacks
        else:
            with joint_model(self.shards) as joint:
                predicted = predict_jointly(joint, {party: own.records for party, own in tables.items()})
            self._predicted = None
        self._last = digest, predicted
        return predicted

    def sent(self) -> list[dict[str, Any]]:
        """Bytes by sender, receiver, step and class of the training and of the last prediction."""
        return sent_in({"train": self.training, "predict": self._predicted})


def _sources(joint: JointModel) -> dict[str, dict[str, str]]:
    """Party → feature → the column that it was made of."""
    sources = {}
    for party, manifest in joint.manifests.items():
        made = {name: column for column, category in manifest["categories"].items() for name in category["features"]}
        sources[party] = {name: made.get(name, name) for name in manifest["columns"]}
    return sources


def _digest(tables: Mapping[str, OwnTable], protocol: str) -> str:
    """SHA-256 of the tables' content."""
    state = hashlib.sha256(protocol.encode())
    for party, own in sorted(tables.items()):
        state.update(party.encode())
        with pa.ipc.new_stream(_Hashing(state), own.records.schema) as stream:
            stream.write_table(own.records)
    return state.hexdigest()


class _Hashing:
    """A file that only hashes."""

    closed = False

    def __init__(self, state: Any) -> None:
        self._state = state

    def write(self, content: Any) -> int:
        """Hash a piece of what is written."""
        self._state.update(content)
        return len(content)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""
