"""Label differential privacy in a federation: the model of the noisy labels, which are drawn and charged once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.oracle import oracle_predict
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, World, assert_oracles_model, manifest, spec, world
from treetap.models.store import read_model
from treetap.party.defences.budgets import LabelBudget
from treetap.party.defences.settings import Defences, LabelDp
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


async def federated(folder: Path, here: World, own: LabelDp | None, act: Act, budget: float | None = None) -> Any:
    """The result of `act`, with a federation on these disks."""

    policies = {LABEL_HOLDER: {"labels": {"label_budget": budget}}}
    defences = {LABEL_HOLDER: Defences(label_dp=own)}
    federation = Federation(folder, here.tables, policies=policies, defences=defences)
    return await act(federation)


def trained(params: TreeParams, job: str = "job") -> Act:
    """Train to the end."""

    async def act(federation: Federation) -> jobs_pb2.JobStatus:
        return finished(await federation.train(spec(params), job))

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


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("setting", "params", "own"), CASES.values(), ids=CASES)
async def test_the_model_is_that_of_the_noisy_labels(
    setting: dict[str, Any], params: TreeParams, own: LabelDp, tmp_path: Path
) -> None:
    """Node for node; published metrics are by noisy labels, those by clean ones lie in the label holder's own file."""
    here = world(60, seed=3, **setting)
    status = await federated(tmp_path, here, own, trained(params))
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
    assert all(each.noisy for each in status.metrics)
    assert _spent(tmp_path) == own.epsilon
    read_model(_model(tmp_path))  # its files are those of the manifest


def _model(folder: Path, job: str = "job") -> Path:
    return _state(folder) / "models" / job


@pytest.mark.second_tier
async def test_a_draw_serves_every_job_on_the_table_and_is_charged_once(tmp_path: Path) -> None:
    """A repeated job, another model, and a job that is interrupted and resumed, have the same labels.

    Another ε is another draw, which the budget has to cover; the refusal names what is spent, and no label.
    """
    here, own = world(40, (1, 1, 1), seed=5), LabelDp(epsilon=1.5, stages=2)
    await federated(tmp_path, here, own, trained(BOOSTING, "first"), budget=2.0)
    await federated(tmp_path, here, own, trained(BOOSTING, "second"), budget=2.0)
    await federated(tmp_path, here, own, trained(FOREST, "third"), budget=2.0)
    await federated(tmp_path, here, own, _killed_and_resumed, budget=2.0)
    trees = [read_model(_model(tmp_path, job))[1] for job in ("first", "second", "killed")]
    assert trees[0] == trees[1] == trees[2]
    assert [path.name for path in (_state(tmp_path) / "noisy_labels").iterdir()] == ["0.npz"]
    assert _spent(tmp_path) == 1.5
    states = {name: tmp_path / name / "state" for name in PARTIES}
    assert_oracles_model(states, replace(here, y=noisy(tmp_path)).oracle(FOREST), "third")

    status = await federated(tmp_path, here, LabelDp(epsilon=0.75), refused(BOOSTING, "more"), budget=2.0)
    assert "they cost ε = 0.75, and of its policy's label_budget = 2 it has spent 1.5" in status.error
    assert _spent(tmp_path) == 1.5
    await federated(tmp_path, here, LabelDp(epsilon=0.5), trained(BOOSTING, "less"), budget=2.0)
    assert _spent(tmp_path) == 2.0


async def _killed_and_resumed(federation: Federation) -> None:
    """Train; the label holder dies at its third tree and comes back."""
    stores = ("store_tree", LABEL_HOLDER)
    federation.kill_at(
        LABEL_HOLDER,
        lambda message: (message.word, message.to) == stores and len(federation.log) > 60,
        back=True,
    )
    assert (await federation.train(spec(BOOSTING), "killed")).state == "interrupted"
    assert (await federation.resume("killed")).state == "finished"


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("after", [None, LabelDp(epsilon=2.0)])
async def test_an_interrupted_job_goes_on_with_its_own_labels_or_not_at_all(
    after: LabelDp | None, tmp_path: Path
) -> None:
    """Without label_dp, or with another one, the rest of the trees would be grown on other labels: clean ones too."""
    here, own = world(30, (1, 1, 1), seed=5), LabelDp(epsilon=1.0)

    async def interrupted(federation: Federation) -> None:
        federation.kill_at(
            LABEL_HOLDER, lambda message: message.word == "begin_tree" and message.served and len(federation.log) > 40
        )
        assert (await federation.train(spec(BOOSTING))).state == "interrupted"

    async def resumed(federation: Federation) -> jobs_pb2.JobStatus:
        return await federation.resume()

    await federated(tmp_path, here, own, interrupted)
    status = await federated(tmp_path, here, after, resumed)
    assert status.state == "interrupted"
    assert "grown on other labels: label_dp under [defences] has changed since" in status.error
    assert (await federated(tmp_path, here, own, resumed)).state == "finished"
    assert _spent(tmp_path) == 1.0


async def test_classes_are_those_of_the_whole_table(tmp_path: Path) -> None:
    """Records that the others lack decide no less: a model has a class that no common record has, and one of all."""
    here = world(50, (1, 1, 1), seed=2, **THREE)
    held = [f"r{record:05d}" for record in np.flatnonzero(here.y == 1)]
    tables = {
        name: (columns, {**own, "train": own["train"].filter(pc.is_in(own["train"]["id"], pa.array(held)))})
        for name, (columns, own) in here.tables.items()
        if name != LABEL_HOLDER
    }
    common = replace(here, tables={LABEL_HOLDER: here.tables[LABEL_HOLDER], **tables})
    job = replace(BOOSTING, objective="multi:softprob", n_estimators=1)

    async def act(federation: Federation) -> None:
        finished(await federation.train(spec(job, alignment="psi")))

    await federated(tmp_path, common, LabelDp(epsilon=0.5), act)
    assert manifest(_state(tmp_path))["classes"] == ["0", "1", "2"]
    assert manifest(_state(tmp_path))["trees"] == 3
