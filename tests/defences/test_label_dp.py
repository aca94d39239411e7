"""Label differential privacy in a federation: the model of the noisy labels, which are drawn and charged once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.defences.label_budget import LabelBudget
from party.defences.settings import Defences, LabelDp
from tests.oracle import oracle_predict
from tests.simulator import Federation, run
from tests.worlds import PARTIES, World, assert_oracles_model, manifest, spec, world
from treetap.models.store import read_model
from treetap.trees.loss import outcome_of
from treetap.trees.metrics import evaluate
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.v2 import jobs_pb2

LABEL_HOLDER = PARTIES[0]
BOOSTING = BoostingParams(n_estimators=3, max_depth=3, max_bin=6)
FOREST = ForestParams(n_estimators=3, max_depth=3, max_bin=6)
THREE: dict[str, Any] = {"objective": "multi:softprob", "classes": 3}
STOPPED = replace(BOOSTING, n_estimators=6, early_stopping_rounds=1, validation_share=0.3)
#: World, parameters, ε and stages.
CASES: dict[str, tuple[dict[str, Any], TreeParams, LabelDp]] = {
    "boosting": ({}, BOOSTING, LabelDp(epsilon=1.0, stages=2)),
    "boosting, early stopping": ({}, STOPPED, LabelDp(epsilon=2.0)),
    "boosting, a tree per class": (
        THREE,
        replace(BOOSTING, objective="multi:softprob", n_estimators=1),
        LabelDp(epsilon=1.0, stages=3),
    ),
    "forest": (THREE, FOREST, LabelDp(epsilon=1.0, stages=2)),
}
#: Done with a federation.
Act = Callable[[Federation], Any]


def federated(folder: Path, here: World, own: LabelDp | None, act: Act, budget: float | None = None) -> Any:
    """What `act` returns, with a federation on these disks."""

    async def main() -> Any:
        policies = {LABEL_HOLDER: {"label_budget": budget}}
        defences = {LABEL_HOLDER: Defences(label_dp=own)}
        federation = Federation(folder, here.tables, policies=policies, defences=defences)
        found = await act(federation)
        await federation.close()
        return found

    return run(main())


def trained(params: TreeParams, job: str = "job") -> Act:
    """Train to the end."""

    async def act(federation: Federation) -> jobs_pb2.JobStatus:
        status = await federation.train(spec(params), job)
        assert (status.state, status.error) == ("finished", "")
        return status

    return act


def refused(params: TreeParams, job: str = "job") -> Act:
    """Submit a job that fails; returns its status."""

    async def act(federation: Federation) -> jobs_pb2.JobStatus:
        status = await federation.train(spec(params), job)
        assert status.state == "failed"
        return status

    return act


def noisy(folder: Path, draw: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The noisy labels of a draw, in order of ids."""
    labels: np.ndarray[Any, np.dtype[np.int64]] = np.load(_state(folder) / "noisy_labels" / f"{draw}.npz")["labels"]
    return labels


def _state(folder: Path) -> Path:
    return folder / LABEL_HOLDER / "state"


def _spent(folder: Path) -> float:
    return float(LabelBudget(_state(folder), None).spent())


@pytest.mark.parametrize(("setting", "params", "own"), CASES.values(), ids=CASES)
def test_the_model_is_that_of_the_noisy_labels(
    setting: dict[str, Any], params: TreeParams, own: LabelDp, tmp_path: Path
) -> None:
    """Node for node; published metrics are by noisy labels, those by clean ones lie in the label holder's own file."""
    here = world(60, seed=3, **setting)
    status = federated(tmp_path, here, own, trained(params))
    labels = noisy(tmp_path)
    assert (labels != here.y).any()
    oracle = replace(here, y=labels).oracle(params)
    assert_oracles_model({name: tmp_path / name / "state" for name in PARTIES}, oracle)
    told, kept = manifest(_state(tmp_path)), json.loads((_model(tmp_path) / "clean_metrics.json").read_text())
    assert told["classes"] == [str(each) for each in range(here.classes)]
    outcome = outcome_of(params.objective, here.classes, np.array(oracle_predict(oracle, here.parties)))
    share = params.training_rows(60) if isinstance(params, BoostingParams) else np.ones(60, dtype=bool)
    for found, truth in ((told, labels), (kept, here.y)):
        expected = evaluate(params.objective, outcome[share], truth[share])
        assert {name: found["training_metrics"][f"train_{name}"] for name in expected} == pytest.approx(expected)
    assert {each.name: each.value for each in status.metrics} == told["training_metrics"]
    assert _spent(tmp_path) == own.epsilon
    read_model(_model(tmp_path))  # its files are those of the manifest


def _model(folder: Path, job: str = "job") -> Path:
    return _state(folder) / "models" / job
