"""`treetap experiment`: one table, split between parties, the real federation run on it, once per seed.

The harness of tests, benchmarks and reproductions. Whoever runs it holds the whole table, so it may
measure against labels; the processes it starts hold their own columns only.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from treetap import show
from treetap.config import Strict, load
from treetap.errors import BadInput, ConfigError, DataError, Interrupted
from treetap.federation import LocalFederation
from treetap.jobfile import JobTable
from treetap.names import Name
from treetap.report import collect
from treetap.trees import metrics, sampling
from treetap.wire.v1 import jobs_pb2

ID = "treetap_id"


class DataTable(Strict):
    """The joined table. `$NAME` in `path` is an environment variable; a relative path is from the file's folder."""

    path: str
    label: str
    id: str | None = None
    drop: list[str] = []
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    seed: int | list[int] = 0


class PartyTable(Strict):
    """One party: the columns it gets, by name or as a random share of those that nobody claims."""

    name: Name
    columns: list[str] | None = None
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    labels: bool = False
    record: Literal["received", "both", "off"] = "off"
    workers: Annotated[int, Field(ge=1, le=256)] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> PartyTable:
        if (self.columns is None) == (self.share is None):
            raise ValueError("give either columns = [...] or share = 0.x")
        return self


class ExperimentFile(Strict):
    """The file that `treetap experiment` reads."""

    data: DataTable
    party: Annotated[list[PartyTable], Field(min_length=2)]
    job: JobTable

    @model_validator(mode="after")
    def _parties(self) -> ExperimentFile:
        names = [party.name for party in self.party]
        if len(set(names)) != len(names):
            raise ValueError("two parties have one name")
        if sum(party.labels for party in self.party) != 1:
            raise ValueError("exactly one [[party]] has labels = true")
        owner: dict[str, str] = {}
        for party in self.party:
            for column in party.columns or []:
                if column in owner:
                    raise ValueError(f"column {column!r} is claimed by {owner[column]} and by {party.name}")
                owner[column] = party.name
        if sum(party.share or 0 for party in self.party) > 1 + 1e-9:
            raise ValueError("the shares add up to more than 1")
        return self


@dataclass(frozen=True)
class Split:
    """Rows and columns of one run: record positions of training and test, columns by party."""

    train: np.ndarray[Any, np.dtype[np.int64]]
    test: np.ndarray[Any, np.dtype[np.int64]]
    columns: dict[str, list[str]]


def run_file(file: Path, *, as_json: bool, workdir: Path | None) -> None:
    """Run an experiment file and print its report."""
    experiment = load(file, ExperimentFile)
    table = read_table(experiment, file.resolve().parent)
    seeds = experiment.data.seed if isinstance(experiment.data.seed, list) else [experiment.data.seed]
    runs = []
    with ExitStack() as stack:
        if workdir is None:
            workdir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treetap-")))
        workdir = workdir.resolve()
        workdir = workdir.resolve()  # the processes read their configuration from folders of their own
        for seed in seeds:
            runs.append(run_seed(experiment, table, seed, workdir / f"seed-{seed}"))
    if as_json:
        print(json.dumps({"runs": runs}, indent=1))
    else:
        from treetap.report import print_runs

        print_runs(runs)


def read_table(experiment: ExperimentFile, base: Path) -> pa.Table:
    """The joined table, with an id column; `DataError` names what is missing."""
    data = experiment.data
    expanded = os.path.expandvars(data.path)
    if "$" in expanded:
        raise ConfigError(f"data.path = {data.path!r}: the environment variable is not set")
    path = base / expanded
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)
        names = list(table.column_names)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as failure:
        raise DataError(f"{path}: cannot be read: {failure}") from None
    claimed = [column for party in experiment.party for column in party.columns or []]
    for name in [data.label, *([data.id] if data.id else []), *data.drop, *claimed]:
        if name not in names:
            raise DataError(f"{path}: has no column {name!r}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: has column {twice[0]!r} more than once")
    if data.label in (data.id, *data.drop):
        raise ConfigError(f"column {data.label!r} is the label, and is the id or dropped")
    for name in claimed:
        if name in (data.label, data.id, *data.drop):
            raise ConfigError(f"column {name!r} is claimed by a party, and is the label, the id or dropped")
    table = table.drop_columns(data.drop) if data.drop else table
    if data.id is None:
        width = len(str(table.num_rows))
        return table.append_column(ID, pa.array([f"{i:0{width}d}" for i in range(table.num_rows)]))
    return table.rename_columns([ID if name == data.id else name for name in table.column_names])


def split(experiment: ExperimentFile, table: pa.Table, seed: int) -> Split:
    """Rows by `test_share`, stratified by the label for classification; columns by name or by random share."""
    label = np.asarray(table.column(experiment.data.label).to_pylist(), dtype=object)
    if any(value is None for value in label):
        raise DataError(f"row {[value is None for value in label].index(True) + 1}: the label is missing")
    groups = [np.arange(len(label))]
    if experiment.job.objective != "reg:squarederror":
        _, numbers = np.unique(label.astype(str), return_inverse=True)
        groups = [np.flatnonzero(numbers == k) for k in range(numbers.max() + 1)]
    draw = sampling.generator(seed, "experiment rows")
    test = np.concatenate([draw.permutation(rows)[: round(experiment.data.test_share * len(rows))] for rows in groups])
    train = np.setdiff1d(np.arange(len(label)), test)
    if not len(test) or not len(train):
        raise DataError(f"{len(label)} rows are too few for a test share of {experiment.data.test_share}")
    claimed = {column for party in experiment.party for column in party.columns or []}
    free = [n for n in table.column_names if n not in claimed and n not in (experiment.data.label, ID)]
    shuffled = list(sampling.generator(seed, "experiment columns").permutation(np.array(free, dtype=object)))
    columns: dict[str, list[str]] = {}
    taken, wanted = 0, 0.0
    for party in experiment.party:
        if party.columns is not None:
            columns[party.name] = list(party.columns)
            continue
        wanted += (party.share or 0) * len(free)
        columns[party.name] = sorted(shuffled[taken : round(wanted)], key=table.column_names.index)
        taken = round(wanted)
    return Split(train, np.sort(test), columns)


def run_seed(experiment: ExperimentFile, table: pa.Table, seed: int, folder: Path) -> dict[str, Any]:
    """One federation from start to end: train, predict the test rows, measure, collect what it cost."""
    drawn = split(experiment, table, seed)
    holder = next(party.name for party in experiment.party if party.labels)
    label = experiment.data.label
    settings: dict[str, dict[str, Any]] = {}
    for party in experiment.party:
        tables = {}
        for name, rows in (("train", drawn.train), ("predict", drawn.test)):
            path = folder / party.name / f"{name}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = [ID, *drawn.columns[party.name], *([label] if party.labels else [])]
            pq.write_table(table.select(kept).take(pa.array(rows)), path, compression="zstd")
            tables[name] = {"path": str(path), "id": ID, "columns": drawn.columns[party.name]}
            if party.labels:
                tables[name]["label"] = label
        settings[party.name] = {"record": party.record, "workers": party.workers, "tables": tables}
    started = time.monotonic()
    with LocalFederation(folder, settings) as federation:
        seconds = {"startup": time.monotonic() - started}
        others = [party.name for party in experiment.party if not party.labels]
        job = experiment.job.model_copy(update={"seed": experiment.job.seed + seed})
        operator = federation.operator
        name = operator.submit(jobs_pb2.SubmitRequest(job="experiment", spec=job.spec(holder, others, "train")))
        with show.live(f"seed {seed}") as update:
            trained = _finished(operator.watch(name, update))
            asked = jobs_pb2.PredictRequest(job="experiment-predict", model=name, table="predict")
            predicted = _finished(operator.watch(operator.predict(asked), update))
        scores = pq.read_table(predicted.predictions)
        models = {party: federation.state(party) / "models" / name for party in settings}
        manifest = json.loads((models[holder] / "manifest.json").read_text())
        return {
            "seed": seed,
            "metrics": {
                "train": _named(manifest["training_metrics"], "train_"),
                "test": test_metrics(experiment, manifest, scores, table.take(pa.array(drawn.test))),
            },
            "seconds": seconds
            | {row.name: row.amount for row in trained.phases}
            | {f"predict.{row.name}": row.amount for row in predicted.phases},
            **collect([trained, predicted], models),
            "model": {party: str(path) for party, path in models.items()},
            "columns": drawn.columns,
            "records": {"train": len(drawn.train), "test": len(drawn.test)},
        }


def test_metrics(
    experiment: ExperimentFile, manifest: dict[str, Any], scores: pa.Table, rows: pa.Table
) -> dict[str, float]:
    """Measures of the label holder's predictions against the labels of the same rows."""
    place = {value: i for i, value in enumerate(scores.column("id").to_pylist())}
    order = [place[str(value)] for value in rows.column(ID).to_pylist()]
    label = rows.column(experiment.data.label).to_pylist()
    objective = experiment.job.objective
    if objective == "reg:squarederror":
        prediction = scores.column("prediction").to_numpy()[order]
        return metrics.evaluate(objective, prediction, np.asarray(label, dtype=np.float64))
    classes = manifest["classes"]
    known = {name: k for k, name in enumerate(classes)}
    labels = np.array([known[_class_text(value)] for value in label], dtype=np.int64)
    if objective == "binary:logistic":
        return metrics.evaluate(objective, scores.column("probability").to_numpy()[order], labels)
    columns = [scores.column(f"probability_{name}").to_numpy()[order] for name in classes]
    return metrics.evaluate(objective, np.stack(columns, axis=1), labels)


def _class_text(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _named(found: dict[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def _finished(status: jobs_pb2.JobStatus) -> jobs_pb2.JobStatus:
    if status.state == "finished":
        return status
    raise (BadInput if status.bad_input else Interrupted)(status.error or status.state)
