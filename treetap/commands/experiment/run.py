"""One run of an experiment: one table, split between parties, and the real federation run on it.

The harness of tests, benchmarks and reproductions. Its operator holds the whole table, so it may
compare with labels; the processes it starts hold their own columns only.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.commands.experiment.baselines import Comparison
from treetap.commands.experiment.defended import defended, true_metrics
from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.joined_table import Split, split
from treetap.commands.experiment.measured import evaluation, keep_predictions, of_training, rounds, test_metrics
from treetap.commands.experiment.party_tables import write_tables
from treetap.commands.experiment.report import collect, dropped_columns, traffic
from treetap.commands.experiment.results import PlannedRun, Prediction, Rounds, Rows, RunResult
from treetap.commands.jobs import progress_view
from treetap.commands.leakage.account import trees_of
from treetap.commands.local_federation import LocalFederation
from treetap.errors import BadInput, Interrupted, TreetapError
from treetap.models.store import read_leakage
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import training
from treetap.trees import sampling
from treetap.wire.v2 import jobs_pb2

#: The end of an error that advises to resume a job: an experiment's federation has ended by then.
_ADVICE = re.compile(r";[^;]*\btreetap (?:resume|status) \S+")

#: Shows progress: given a title, a context whose function takes statuses of jobs.
Live = Callable[[str], AbstractContextManager[Callable[[jobs_pb2.JobStatus], None]]]


def run_seed(
    experiment: ExperimentFile,
    table: pa.Table,
    seed: int,
    folder: Path,
    title: str = "",
    *,
    fold: int | None = None,
    live: Live = progress_view.live,
    predictions: Path | None = None,
) -> RunResult:
    """One federation from start to end: train, predict the test rows, measure, collect the costs.

    `title`: of the progress line; by default the seed and the fold. `predictions`: a file for those of the test rows,
    beside their ids and labels.
    """
    planned = PlannedRun(seed, fold)
    drawn = _limited(experiment, split(experiment, table, seed, fold), seed)
    rows = table.take(pa.array(drawn.test))
    try:
        settings = write_tables(experiment, table, drawn, folder)
        started = time.monotonic()
        with live(title or planned.title) as update:
            run, done = _run(experiment, table, planned, drawn, LocalFederation(folder, settings), started, update)
        predicted = pq.read_table(done[experiment.protocols[0]].predictions)
        if predictions is not None:
            keep_predictions(experiment, predicted, rows, predictions)
        if experiment.defended:
            run.defences = defended(experiment, settings, run.model, predicted, rows)
            if (measured := true_metrics(run.model, experiment.in_order[0])) is not None:
                run.metrics = {**run.metrics, "train, true labels": of_training(measured)}
        if experiment.data.compare or experiment.predict is not None:
            central = Comparison(experiment, settings, seed, rows)
            if experiment.data.compare:
                run.metrics = {**run.metrics, **central.metrics()}
            if experiment.predict is not None:
                run.predict = _compared(central, done)
        if experiment.audit is None:
            return run
        try:
            from treetap.commands.experiment.audited import add_audit  # the attacks need an extra

            add_audit(run, experiment, experiment.audit, table, drawn, folder)
        except TreetapError as fault:  # the run itself has succeeded
            run.audit, run.audit_fault = None, str(fault)
        return run
    except TreetapError as failure:
        raise type(failure)(_ADVICE.sub("", str(failure))) from failure
    except OSError as failure:
        raise TreetapError(f"{failure.filename or folder}: {failure.strerror or failure}") from failure


def _limited(experiment: ExperimentFile, drawn: Split, seed: int) -> Split:
    """The same split with at most `predict.limit` of the held-out rows, drawn by the seed."""
    limit = experiment.predict.limit if experiment.predict is not None else None
    if limit is None or limit >= len(drawn.test):
        return drawn
    kept = sampling.generator(seed, "experiment limit").permutation(drawn.test)[:limit]
    return replace(drawn, test=np.sort(kept))


def _run(
    experiment: ExperimentFile,
    table: pa.Table,
    planned: PlannedRun,
    drawn: Split,
    parties: LocalFederation,
    started: float,
    update: Callable[[jobs_pb2.JobStatus], None],
) -> tuple[RunResult, dict[str, jobs_pb2.JobStatus]]:
    """The run and the outcome of each protocol's prediction; the processes end with it."""
    first = experiment.in_order[0]
    with parties as federation:
        seconds = {"startup": time.monotonic() - started}
        job = experiment.job.model_copy(update={"seed": experiment.job.seed + planned.seed})
        operator = federation.operator
        name = operator.submit(jobs_pb2.SubmitRequest(job="experiment", spec=experiment.spec(job)))
        trained = _finished(operator.watch(name, update))
        protocols, done = experiment.protocols, {}
        for protocol in protocols:
            words = "experiment-predict" if protocol == protocols[0] else f"experiment-predict-{protocol}"
            asked = predict_request(protocol, job=words, model=name, table="predict")
            done[protocol] = _finished(operator.watch(operator.predict(asked), update))
        predicted = done[protocols[0]]
        scores, rows = pq.read_table(predicted.predictions), table.take(pa.array(drawn.test))
        models = {party: federation.state(party) / "models" / name for party in drawn.columns}
        manifest = json.loads((models[first] / "manifest.json").read_text())
        # where labels are spread, another party adds up the metrics of each tree
        last = {row.name: row.value for row in trained.metrics}
        measured = last if experiment.spread else manifest["training_metrics"]
        used = Rounds(planned=trained.rounds, grown=trained.stored_trees, used=trained.used_trees)
        costs: dict[str, Any] = dict(collect([trained, *done.values()], models))
        run = RunResult(
            seed=planned.seed,
            metrics={"train": of_training(measured), "test": test_metrics(experiment, manifest, scores, rows)},
            evaluation=evaluation(experiment, manifest, scores, rows),
            history=rounds(models),
            seconds=seconds
            | {row.name: row.amount for row in trained.phases}
            | {f"predict.{row.name}": row.amount for row in predicted.phases},
            arithmetic=progress_view.backends(trained),
            **costs,
            model=models,
            columns=drawn.columns,
            records=Rows(train=len(drawn.train), test=len(drawn.test)),
            leakage=trees_of(read_leakage(models[first]), models[first]),
        )
        if planned.fold is not None:
            run.fold = planned.fold
        if training(job.protocol).grows_trees:
            run.trees = used
        else:
            run.epochs = used
        if experiment.data.drop_constant:
            run.dropped_columns = dropped_columns(models)
        if privacy := training(job.protocol).noise.statement(job.params()):
            run.privacy = list(privacy)
        return run, done


def _compared(central: Comparison, done: dict[str, jobs_pb2.JobStatus]) -> dict[str, Prediction]:
    """Per protocol a prediction's costs and disclosures, and its raw scores' distance from the centralised model's."""
    compared = {}
    for protocol, status in done.items():
        rows = traffic([status])
        compared[protocol] = Prediction(
            seconds=status.seconds,
            bytes=sum(row.bytes for row in rows),
            max_difference=central.difference(pq.read_table(status.predictions)) if central.comparable else None,
            traffic=rows,
        )
    return compared


def _finished(status: jobs_pb2.JobStatus) -> jobs_pb2.JobStatus:
    if status.state == "finished":
        return status
    raise (BadInput if status.bad_input else Interrupted)(status.error or status.state)
