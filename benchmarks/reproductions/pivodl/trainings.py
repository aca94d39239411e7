"""One cell of the reproduction of PIVODL: trained, measured against the test rows, its costs counted."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cells import Cell
from worlds import Joined, drawn, experiment_of, joined

from treetap.errors import BadInput, TreetapError
from treetap.lab.experiment.joint_model import collect
from treetap.lab.local_federation import LocalFederation, clean_end, working_folder
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model
from treetap.privacy.zcdp import LeafWeightPrivacy
from treetap.protocols.registry import training
from treetap.trees import metrics, sampling
from treetap.trees.candidates import Candidate
from treetap.trees.centralised_pivodl import CentralPivodlModel, CentralPivodlTree, Release, SourceSplit, train
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import Moments, SharedLabelLoss
from treetap.wire.v2 import jobs_pb2

Floats = npt.NDArray[np.float64]
MODEL = "experiment"
#: The last commit whose jobs could take each of the paper's ways alone.
LAST_WITH_WAYS = "b21a9b48"


def run(cell: Cell) -> dict[str, Any]:
    """The result of a cell, for the file of results; `BadInput` for one that this code cannot train."""
    if cell.of_earlier_code:
        raise BadInput(
            f"{cell.name()}: jobs with one of the paper's ways alone need the code of commit {LAST_WITH_WAYS}"
        )
    found = {"centralised": _centralised, "processes": _processes, "plain": _plain}[cell.over](cell)
    return {"trial": cell.key(), **found}


def _params(cell: Cell) -> PivodlParams:
    params = drawn(cell).experiment.job.params()
    assert isinstance(params, PivodlParams)
    return params


def _centralised(cell: Cell) -> dict[str, Any]:
    """By the centralised reference, with noise that is drawn here for each leaf."""
    here, params = joined(cell.set, cell.seed, cell.parties, cell.labels), _params(cell)
    started = time.process_time()
    model = train(here.before, here.labels.values, params, here.ownership, _noise(params, cell))
    used = time.process_time() - started
    return {
        **_measured(model, here),
        "cpu_seconds": round(used, 3),
        "splits": sum(len(each.splits) for each in model.trees),
    }


def _plain(cell: Cell) -> dict[str, Any]:
    """By a federation in one process without encryption; it needs the folder of the tests."""
    from without_encryption import processor_seconds

    return {"cpu_seconds": round(processor_seconds(cell), 3)}


def _noise(params: PivodlParams, cell: Cell) -> Release | None:
    """clip(w, ηC) + N(0, (2ηCσ)²), as the parties draw it, but from the seed."""
    privacy = LeafWeightPrivacy.of(params)
    if privacy is None:
        return None
    if cell.accounting == "paper":  # one release per tree
        privacy = replace(privacy, releases=params.n_estimators)
    draw = sampling.generator(cell.seed, "noise of leaf weights", *((cell.draw,) if cell.draw else ()))

    def release(tree: int, leaf: int, weight: Floats) -> Floats:
        del tree, leaf
        length = float(np.linalg.norm(weight))
        kept = weight if length <= privacy.sent_clip else weight * (privacy.sent_clip / length)
        return kept + draw.normal(0.0, privacy.deviation, size=weight.shape)

    return release


def _measured(model: CentralPivodlModel, here: Joined) -> dict[str, Any]:
    """Measures of the exact weights, on the training and the test rows."""
    objective = model.params.objective
    found = {}
    for name, tables, labels in (("train", here.before, here.labels.values), ("test", here.after, here.truth)):
        measured = metrics.evaluate(objective, model.outcome(model.predict(tables)), labels)
        found[name] = {measure: round(value, 6) for measure, value in measured.items()}
    return {"metrics": found}


def _processes(cell: Cell) -> dict[str, Any]:
    """By a federation of processes: its model is put together from the shards of all parties, and measured.

    `load` is the machine's load average before the run: wall times of a busy machine say little.
    """
    here, load = drawn(cell), os.getloadavg()[0]
    with clean_end(), working_folder(None, "treetap-") as folder:
        settings = here.write(folder)
        with LocalFederation(folder, settings) as federation:
            first, *others = here.experiment.in_order
            job = here.experiment.job.model_copy(update={"seed": here.experiment.job.seed + cell.seed})
            started = time.monotonic()
            operator = federation.operator
            name = operator.submit(jobs_pb2.SubmitRequest(job=MODEL, spec=job.spec(first, others, "train")))
            status = operator.watch(name, lambda _: None)
            wall = time.monotonic() - started
            if status.state != "finished":
                raise TreetapError(status.error or status.state)
            models = {party: federation.state(party) / "models" / name for party in here.split.columns}
            costs = collect([status], models)
            measured, model = _joined_measures(cell, models)
    phases = {row.name: row.amount for row in status.phases}
    by_class: Counter[str] = Counter()
    for row in costs["traffic"]:
        by_class[row.disclosure] += row.bytes
    return {
        **measured,
        "model": model,
        "seconds": {name: round(value, 3) for name, value in {"wall": wall, **phases}.items()},
        "cpu_seconds": sum(costs["cpu_seconds"].values()),
        "load": load,
        "traffic": dict(sorted(by_class.items())),
        "ciphertexts": costs["ciphertexts"],
        "operations": costs["operations"],
    }


def _joined_measures(cell: Cell, models: dict[str, Path]) -> tuple[dict[str, Any], str]:
    """Measures of the shards put together, and a digest of the trees; of boosting, those of its centralised model."""
    here = joined(cell.set, cell.seed, cell.parties, cell.labels)
    if cell.system == "boosting":
        scores, outcome = training("boosting").centrally.predict(
            *here.raw, here.labels.values, len(here.labels.classes), experiment_of(cell).job.params()
        )
        del scores
        return {"metrics": {"test": metrics.evaluate("binary:logistic", outcome, here.truth)}}, ""
    params = _params(cell)
    model = _model_of(models, params, here)
    trees = [
        [
            sorted((node, str((it.source, it.candidate, it.threshold))) for node, it in tree.splits.items()),
            sorted((k, v.tolist()) for k, v in tree.leaves.items()),
        ]
        for tree in model.trees
    ]
    return _measured(model, here), hashlib.sha256(json.dumps(trees).encode()).hexdigest()[:16]


def _model_of(models: dict[str, Path], params: PivodlParams, here: Joined) -> CentralPivodlModel:
    """The model that the shards of all parties are together, with exact weights."""
    shards = {party: read_model(folder)[1] for party, folder in models.items()}
    trees = []
    for lines in zip(*shards.values(), strict=True):
        splits: dict[int, SourceSplit] = {}
        for party, line in zip(shards, lines, strict=True):
            for own in map(OwnSplit.from_dict, line["splits"]):
                candidate = Candidate(own.feature, own.bin, own.missing_left)
                splits[own.node] = SourceSplit(party, candidate, own.threshold, 0)
        leaves = {each["node"]: np.array(each["weight"]) for line in lines for each in line["weights"]}
        trees.append(CentralPivodlTree(splits, leaves, frozenset(splits)))
    moments = Moments.of(here.labels.values) if params.needs_moments else None
    return CentralPivodlModel(replace(params, epsilon=None), SharedLabelLoss(params, moments), tuple(trees))
