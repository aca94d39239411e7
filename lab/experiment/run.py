"""One run of an experiment: one table, split between parties, and the real federation run on it.

The harness of tests, benchmarks and reproductions. Its operator holds the whole table, so it may
compare with labels; the processes it starts hold their own columns only.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.arrays import Array
from treetap.commands.jobs import progress_view
from treetap.commands.leakage import trees_of
from treetap.errors import BadInput, Interrupted, TreetapError
from treetap.lab.experiment.baselines import Comparison, defended, true_metrics
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_encodings import codes_in, leaks
from treetap.lab.experiment.joined_table import ID_TYPE, split
from treetap.lab.experiment.joint_model import collect, traffic
from treetap.lab.experiment.party_tables import ID, Split, places, write_tables
from treetap.lab.experiment.results import Evaluation, Measures, PlannedRun, Prediction, RunResult
from treetap.lab.local_federation import STAND_IN, LocalFederation, dealer_of
from treetap.models.durable import write_whole
from treetap.models.store import CONTINUATION, read_arrays_of, read_history, read_leakage, read_manifest
from treetap.names import of_class
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import training
from treetap.tables.label_columns import named_type, typed
from treetap.tables.labels import class_name
from treetap.tables.written import content_of
from treetap.trees import metrics, sampling
from treetap.trees.evaluation import evaluate
from treetap.trees.job_params import BINARY, REGRESSIONS
from treetap.wire.metric_history import merged
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
    rows = table.take(pa.array(drawn.of_job(drawn.test)))
    try:
        settings = write_tables(experiment, table, drawn, folder)
        started = time.monotonic()
        with live(title or planned.title) as update:
            parties = LocalFederation(folder, settings, dealer=bool(dealer_of(experiment.job)))
            run, done, outcome = _run(experiment, table, planned, drawn, parties, started, update)
        predicted = _scored(done[experiment.protocols[0]])
        if predictions is not None:
            keep_predictions(experiment, predicted, rows, predictions)
        run.data = [*leaks(experiment, table, run), *codes_in(table)]
        if experiment.defended or experiment.data.compare or experiment.predict is not None:
            _compare(experiment, Comparison(experiment, settings, seed, rows), run, predicted, outcome, done)
        if not experiment.audited:
            return run
        assert experiment.audit is not None
        try:
            from treetap.lab.experiment.audited import add_audit  # the attacks need an extra

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
) -> tuple[RunResult, dict[str, jobs_pb2.JobStatus], Array]:
    """The run, how each protocol's prediction ended, and the outcome of the first; the processes end with it."""
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
        train, test = drawn.of_job(drawn.train), drawn.of_job(drawn.test)
        scores, rows = _scored(predicted), table.take(pa.array(test))
        models = {party: federation.state(party) / "models" / name for party in drawn.columns}
        manifest = json.loads((models[first] / "manifest.json").read_text())
        # where labels are spread, another party adds up the metrics of each tree
        last = {row.name: row.value for row in trained.metrics}
        measured = last if experiment.spread else manifest["training_metrics"]
        outcome, tested, evaluation = evaluated(experiment, manifest, scores, rows)
        run = RunResult(
            seed=planned.seed,
            metrics={"train": of_training(measured), "test": tested},
            evaluation=evaluation,
            history=rounds(models),
            seconds=seconds
            | {row.name: row.amount for row in trained.phases}
            | {f"predict.{row.name}": row.amount for row in predicted.phases},
            arithmetic=progress_view.backends(trained),
            **collect([trained, *done.values()], models),
            model=models,
            columns=drawn.columns,
            records={"train": len(train), "test": len(test)},
            leakage=trees_of(read_leakage(models[first]), models[first]),
        )
        run.stability = _stability(models[first], scores)
        if planned.fold is not None:
            run.fold = planned.fold
        if training(job.protocol).grows_trees:
            run.trees = progress_view.rounds(trained)
        else:
            run.epochs = progress_view.rounds(trained)
        if experiment.data.drop_constant:
            run.dropped_columns = {party: read_manifest(it).get("dropped_columns", []) for party, it in models.items()}
        said = [*training(job.protocol).privacy(job.params()), *([STAND_IN] if dealer_of(job) else [])]
        if said:
            run.privacy = said
        return run, done, outcome


def _compare(
    experiment: ExperimentFile,
    central: Comparison,
    run: RunResult,
    predicted: pa.Table,
    outcome: Array,
    done: dict[str, jobs_pb2.JobStatus],
) -> None:
    """Add to a run what its defences withheld, and its centralised models beside it."""
    first = experiment.in_order[0]
    if experiment.defended:
        run.defences = defended(experiment, central, run.model, predicted)
        if (measured := true_metrics(run.model, first)) is not None:
            run.metrics = {**run.metrics, "train, true labels": of_training(measured)}
    if experiment.data.compare:
        run.metrics = {**run.metrics, **central.metrics()}
        run.gain = central.gain(outcome)
    if experiment.predict is not None:  # costs, disclosures, and raw scores' distance from the centralised model's
        compared = {}
        for protocol, status in done.items():
            rows = traffic([status])
            compared[protocol] = Prediction(
                seconds=status.seconds,
                bytes=sum(row.bytes for row in rows),
                max_difference=central.difference(_scored(status)) if central.comparable else None,
                traffic=rows,
            )
        run.predict = compared


def _scored(status: jobs_pb2.JobStatus) -> pa.Table:
    """The predictions of a job, of the records that it has: others of the label holder's are there without one."""
    table = pq.read_table(status.predictions)
    return table.filter(table.column("prediction").is_valid())


def _finished(status: jobs_pb2.JobStatus) -> jobs_pb2.JobStatus:
    if status.state == "finished":
        return status
    raise (BadInput if status.bad_input else Interrupted)(status.error or status.state)


def evaluated(
    experiment: ExperimentFile, manifest: Mapping[str, Any], scores: pa.Table, rows: pa.Table
) -> tuple[Array, Measures, Evaluation]:
    """The label holder's predictions in the order of the rows, their measures, and the document about them.

    Weights of the rows weigh the measures; the document counts each row once. `manifest`: of the label holder's model.
    """
    told, positive = _outcome(experiment, manifest, scores, rows), experiment.data.positive
    weights = None if experiment.data.weight is None else rows.column(experiment.data.weight).to_numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        measured = metrics.finite(metrics.evaluate(*told[:3], weights, manifest.get("params", {})))
        document = evaluate(*told, None if positive is None else class_name(positive), manifest.get("params", {}))
    return told[1], measured, Evaluation.model_validate(document)


def _stability(model: Path, predicted: pa.Table) -> float | None:
    """How far scores of held-out rows are from those of training; None where the label holder kept no single score."""
    if "score" not in predicted.column_names or not (model / CONTINUATION).exists():
        return None
    kept = read_arrays_of(model, CONTINUATION)[1]["scores"]
    return metrics.population_stability(kept[:, 0], predicted.column("score").to_numpy())


def keep_predictions(experiment: ExperimentFile, scores: pa.Table, rows: pa.Table, path: Path) -> None:
    """Write the predictions of the held-out rows with their labels, in the order of the joined table.

    Ids have the type of the joined table, and its name for them if no other column has that; without ids they are the
    numbers of its rows.
    """
    own = experiment.data.label
    label = own if own not in scores.column_names else f"label {own}"
    table = scores.take(pa.array(places(scores, rows.column(ID).to_pylist()))).append_column(label, rows.column(own))
    kind = named_type(rows.schema.field(ID).metadata[ID_TYPE].decode())
    own_ids = typed(table.column(ID).to_pylist(), kind)
    name = experiment.data.id
    called = ID if name is None or name in table.column_names else name
    table = table.set_column(table.column_names.index(ID), called, own_ids)
    write_whole(path, content_of(table, path.suffix[1:]))


def rounds(models: Mapping[str, Path]) -> list[dict[str, float | None]]:
    """The metrics after each round, by the models of all parties: where labels are spread each has some rounds'."""
    return merged([read_history(folder) for folder in models.values()])


def of_training(measures: Mapping[str, float]) -> Measures:
    """The measures of the records that were trained on, and not of those set aside or of an eval table."""
    own = {name: value for name, value in measures.items() if not name.startswith(("validation_", "eval_"))}
    return {name.removeprefix("train_"): value for name, value in own.items()}


def _outcome(
    experiment: ExperimentFile, manifest: Mapping[str, Any], scores: pa.Table, rows: pa.Table
) -> tuple[str, Array, Array, Sequence[str]]:
    """Objective, predictions as `Ensemble.outcome` has them, labels by number or targets, names of the classes."""
    order = places(scores, rows.column(ID).to_pylist())
    label = rows.column(experiment.data.label).to_pylist()
    objective = experiment.job.params().objective
    if objective in REGRESSIONS:
        return objective, scores.column("prediction").to_numpy()[order], np.asarray(label, dtype=np.float64), []
    classes = manifest["classes"]
    known = {name: k for k, name in enumerate(classes)}
    labels = np.array([known[class_name(value)] for value in label], dtype=np.int64)
    if objective in BINARY:
        return objective, scores.column(of_class("probability", classes[1])).to_numpy()[order], labels, classes
    columns = [scores.column(of_class("probability", name)).to_numpy()[order] for name in classes]
    return objective, np.stack(columns, axis=1), labels, classes
