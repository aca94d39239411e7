"""A trained model in the hands of its caller: the shards of all parties, and the federation while it runs."""

from __future__ import annotations

import hashlib
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.commands.jobs.progress_view import counted
from treetap.errors import BadInput
from treetap.lab.api.frames import ID, InvalidInput
from treetap.lab.api.loopback import Loopback, OwnTable, to_caller
from treetap.lab.experiment.joint_model import JointModel, traffic
from treetap.lab.experiment.results import Importance
from treetap.models.store import read_history, read_manifest
from treetap.protocols.registry import training
from treetap.tables.config import TableConfig
from treetap.tables.labels import class_name
from treetap.tables.record_ids import Ids, Unlike
from treetap.trees import metrics
from treetap.trees.boosting_rounds import VALIDATION
from treetap.wire.metric_history import merged
from treetap.wire.v2 import jobs_pb2

#: What to do with records that a party lacks.
OTHERS_PREDICTED = "predict_frame predicts the others"
#: Party → name of a file → its content.
Shards = Mapping[str, Mapping[str, bytes]]
#: File beside the shards that an estimator saves: its classes, in the caller's type.
CLASSES = "classes.npy"


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
def written(shards: Shards) -> Iterator[dict[str, Path]]:
    """Shards in memory as temporary folders, by party."""
    with tempfile.TemporaryDirectory(prefix="treetap-model-") as folder:
        yield write_shards(shards, Path(folder))


def predict_jointly(model: JointModel, tables: Mapping[str, OwnTable]) -> pa.Table:
    """Predictions of tables by party, as a label holder's file has them; no message is sent.

    Raises:
        InvalidInput: a table cannot be read as in the training; the message names the party.
    """
    with on_disk(tables) as configs:
        predictions = model.predict(configs)
    warn_unlike(model.unlike)
    for sentence in model.says:
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return predictions


@contextmanager
def on_disk(tables: Mapping[str, OwnTable]) -> Iterator[dict[str, TableConfig]]:
    """Tables by party as a joint model reads them, whose own encodings they have. Raises as `predict_jointly`."""
    with tempfile.TemporaryDirectory(prefix="treetap-tables-") as folder:
        configs = {}
        for party, own in tables.items():
            path = Path(folder) / f"{party}.parquet"
            pq.write_table(own.records, path)
            names = [name for name in own.records.column_names if name != ID]
            configs[party] = TableConfig(path=path, id=ID, columns=names, date_format=own.keys.get("date_format"))
        try:
            yield configs
        except BadInput as failure:
            # in terms of the caller, who gave frames and parameters
            message = re.sub(rf"{re.escape(folder)}/(\S+?)\.parquet: ", r"\1: ", str(failure))
            raise InvalidInput(to_caller(message)) from None


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
            said = counted(unlike.unknown_cells, unlike.empty_columns)
            where = f"columns {', '.join(map(repr, unlike.columns))}" if unlike.columns else "its log names the columns"
            warnings.warn(
                f"{party}: {said} in the table to predict, which count as unknown or missing; {where}",
                UserWarning,
                stacklevel=2,
            )


class Fitted:
    """The outcome of a training on loopback, or of a simulated one.

    Its federation predicts while it runs. A copy, a pickle, a simulated model, or one whose federation has ended
    predicts in this process from the shards of all parties, which gives the same numbers. The last predictions are
    kept, so that `predict` and `predict_proba` of the same records ask the federation once.
    """

    def __init__(
        self,
        shards: Shards,
        label_holder: str,
        trained: tuple[Loopback, jobs_pb2.JobStatus] | None = None,
    ) -> None:
        """`trained`: the federation and its job; None: the training was simulated."""
        self.shards, self.label_holder = shards, label_holder
        self._loopback: Loopback | None = trained[0] if trained else None
        self._training = trained[1].SerializeToString() if trained else None
        self._folder = None if self._loopback is None else self._loopback.folder
        with written(shards) as folders:
            manifests = {party: read_manifest(folder) for party, folder in folders.items()}
            self.manifest = manifests[label_holder]
            self.history = merged([read_history(folder) for folder in folders.values()])
            self._importances = JointModel(folders).importances() if self._joint else []
        # party → feature → the column that it was made of
        self.sources = dict[str, dict[str, str]]()
        for party, own in manifests.items():
            encoded = {name: column for column, category in own["categories"].items() for name in category["features"]}
            self.sources[party] = {name: encoded.get(name, name) for name in own["columns"]}
        self.dropped = {party: list(manifest.get("dropped_columns", ())) for party, manifest in manifests.items()}
        self._last: tuple[str, pa.Table] | None = None
        self._predicted: jobs_pb2.JobStatus | None = None

    @property
    def simulated(self) -> bool:
        """True if no federation trained it."""
        return self._training is None

    @property
    def training(self) -> jobs_pb2.JobStatus:
        """The training's status. Raises InvalidInput: it was simulated."""
        if self._training is None:
            raise InvalidInput("simulate = True: no party sent anything; fit without it to see what is sent")
        return jobs_pb2.JobStatus.FromString(self._training)

    @property
    def job(self) -> str:
        """The name of the training's job."""
        return str(self.manifest["job"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loopback": None, "_last": None, "_predicted": None}

    @property
    def rounds(self) -> int:
        """The rounds whose trees predictions use."""
        if (best := self.best_round) is not None:
            return best + 1
        return int(self.manifest["trees"]) // int(self.manifest["trees_per_round"])

    @property
    def best_round(self) -> int | None:
        """The last round, or epoch of a network, that predictions use, from 0; None: all, whatever the measures say."""
        best = self.manifest.get("best_epoch", self.manifest.get("best_round"))
        return None if best is None else int(best)

    @property
    def stops(self) -> bool:
        """True of a training with early stopping."""
        # the measures of a training that sets records aside
        validated = any(name.startswith(f"{VALIDATION}_") for measures in self.history for name in measures)
        return validated or self.manifest.get("best_round") is not None

    @property
    def importances(self) -> list[Importance]:
        """Gain, cover and number of splits by party and feature. Raises InvalidInput: the parts are not joined."""
        if not self._joint:
            raise InvalidInput(
                f"a model of protocol {self._protocol!r} has no importances that add up over its parties"
            )
        return self._importances

    @property
    def _protocol(self) -> str:
        return str(self.manifest["protocol"])

    @property
    def _joint(self) -> bool:
        """True if the shards of all parties predict together."""
        described = training(self._protocol)
        return described.grows_trees and not described.one_role

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
        # SHA-256 of the tables' content.
        state = hashlib.sha256(protocol.encode())
        for party, own in sorted(tables.items()):
            state.update(f"{party}\0{own.keys.get('date_format')!r}".encode())
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, own.records.schema) as stream:
                stream.write_table(own.records)
            state.update(sink.getvalue())
        digest = state.hexdigest()
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        if (running := self.loopback) is not None:
            predicted, self._predicted = running.predict(self.job, tables, protocol, verbose=verbose)
            warn_unlike(cells_of(self._predicted))
            # it lists records that a party lacks
            predicted = predicted.filter(predicted.column("prediction").is_valid())
        elif not self._joint:
            raise InvalidInput(
                f"a model of protocol {self._protocol!r} predicts with its federation alone, which has ended: fit and "
                "predict in a block of treetap.federation"
            )
        else:
            with written(self.shards) as folders:
                predicted = predict_jointly(JointModel(folders), tables)
            self._predicted = None
        self._last = digest, predicted
        return predicted

    def measured(self, tables: Mapping[str, OwnTable]) -> list[dict[str, float | None]]:
        """Measures of tables by party, with labels and weights at the label holder, after each round of the training.

        Raises:
            InvalidInput: a table cannot be read.
        """
        classes = {name: number for number, name in enumerate(self.manifest["classes"])}
        objective, own = str(self.manifest["objective"]), tables[self.label_holder]
        with written(self.shards) as folders, on_disk(tables) as configs:
            ids, outcomes = JointModel(folders).after_rounds(configs)
            records = own.records.take(pa.array(Ids.of_column(own.records.column(ID)).places_of(ids)))
            labels = records.column(own.keys["label"]).to_pylist()
            truth = np.array([classes[class_name(label)] for label in labels] if classes else labels)
            weights = records.column(own.keys["weight"]).to_numpy() if "weight" in own.keys else None
            options = self.manifest["params"]
            measured = (metrics.evaluate(objective, outcome, truth, weights, options) for outcome in outcomes)
            return [metrics.finite(of_round) for of_round in measured]

    def sent(self) -> list[dict[str, Any]]:
        """Bytes by sender, receiver, step and class of the training and of the last prediction."""
        return sent_in({"train": self.training, "predict": self._predicted})


#: The mark before ids of records of an eval set: a record may be there and in the training.
_MARK = "eval "
#: The word before the names of the last set's measures in a history.
_EVAL = "eval_"


def marked(table: pa.Table) -> pa.Table:
    """The same records under ids that no record of the training has."""
    ids = Ids.of_column(table.column(ID)).marked(_MARK)
    return table.set_column(table.column_names.index(ID), ID, ids.array)


def pairs_of(eval_set: Any, weights: Any) -> list[tuple[Any, Any, Any]]:
    """The sets as (records, labels, weights or None), none where there are none.

    Raises:
        InvalidInput: they are no pairs, or there are not as many weights.
    """
    if eval_set is None:
        if weights is not None:
            raise InvalidInput("sample_weight_eval_set: there is no eval_set; give it too")
        return []
    sets: list[Any] = list(eval_set) if isinstance(eval_set, Sequence) and not isinstance(eval_set, str) else [None]
    if not sets or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in sets):
        raise InvalidInput("eval_set: must be a list of pairs, [(X, y)], of which the last one may stop the training")
    given = [None] * len(sets) if weights is None else list(weights)
    if len(given) != len(sets):
        raise InvalidInput(f"sample_weight_eval_set has {len(given)} entries, and eval_set {len(sets)}: one for each")
    return [(records, labels, weight) for (records, labels), weight in zip(sets, given, strict=True)]


def add_history(fitted: Fitted, sets: Sequence[Mapping[str, OwnTable]]) -> None:
    """Give the history of a training the measures of all sets; of several each has its number, from 0."""
    if len(sets) < 2:
        return
    last = f"{_EVAL}{len(sets) - 1}_"
    history = [
        {last + name.removeprefix(_EVAL) if name.startswith(_EVAL) else name: value for name, value in row.items()}
        for row in fitted.history
    ]
    for number, further in enumerate(sets[:-1]):
        for row, measured in zip(history, fitted.measured(further), strict=True):
            row.update({f"{_EVAL}{number}_{name}": value for name, value in measured.items()})
    fitted.history = history


def results(history: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, list[float | None]]]:
    """The measures of eval sets as XGBoost's `evals_result` has them: set → measure → a value for each round."""
    sets: dict[str, dict[str, list[float | None]]] = {}
    for row in history:
        for name, value in row.items():
            if name.startswith(_EVAL):
                number, _, measure = name.removeprefix(_EVAL).partition("_")
                place, of = (number, measure) if number.isdigit() else ("0", name.removeprefix(_EVAL))
                sets.setdefault(f"validation_{place}", {}).setdefault(of, []).append(value)
    return dict(sorted(sets.items(), key=lambda item: int(item[0].rpartition("_")[2])))
