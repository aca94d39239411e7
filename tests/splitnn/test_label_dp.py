"""Label differential privacy of networks: all that is learned and published is by noisy labels, drawn once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.blindness.comparison import of_coordinator
from tests.blindness.observed import Act, Crossed, Observed, observed
from tests.simulator import Federation, Message, finished
from tests.splitnn.jobs import EMITS, PARAMS, spec
from tests.splitnn.networks import assert_same_bits, federation, oracle, published
from tests.worlds import PARTIES, Tables, World, manifest, world
from treetap.models.store import read_manifest
from treetap.neural.params import Bottom, SplitnnParams
from treetap.party.defences.budgets import LabelBudget
from treetap.party.defences.settings import Defences, LabelDp
from treetap.wire.v2 import jobs_pb2

pytest.importorskip("torch", reason="needs treetap[neural]")


pytestmark = pytest.mark.second_tier

HOLDER, FEATURE, _ = PARTIES
N = 49
HERE = world(N, (2, 2, 1), seed=3)
NOISY = np.random.default_rng(1).permutation(HERE.y)
STOPPED = replace(PARAMS, early_stopping_rounds=1, validation_share=0.2, epochs=4, learning_rate=0.5)
#: Parameters, and the label holder's defences beside `label_dp`.
JOBS: dict[str, tuple[SplitnnParams, dict[str, Any]]] = {
    "stopped early, dimip": (STOPPED, {"dimip": {FEATURE: 0.3}}),
    "noise": (PARAMS, {"gradient": {"kind": "noise", "scale": 0.01}}),
}
ONE, TWO = LabelDp(epsilon=1.0), LabelDp(epsilon=1.0, stages=2)
#: Done with a federation.
Done = Callable[[Federation], Any]


def with_labels(values: np.ndarray[Any, Any]) -> Tables:
    """The tables with other clean labels, in order of ids."""
    columns, own = HERE.tables[HOLDER]
    train, known = own["train"], {f"r{i:05d}": value for i, value in enumerate(values.tolist())}
    cells = pa.array([known[each] for each in train["id"].to_pylist()])
    changed = train.set_column(train.column_names.index("y"), "y", cells)
    return {**HERE.tables, HOLDER: (columns, {**own, "train": changed})}


def training(params: SplitnnParams) -> Act:
    """Train; returns the label holder's figures by clean labels, and what it publishes."""

    async def act(running: Observed) -> Any:
        finished(await running.train(spec(params)))
        model = running.state(HOLDER) / "models" / "job"
        return json.loads((model / "clean_metrics.json").read_text()), read_manifest(model)["history"]

    return act


@pytest.mark.parametrize("job", JOBS)
def test_clean_labels_show_to_no_other_party(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels as they are, all turned round, and all but one of one class: the same bytes to parties and coordinator.

    Figures by clean labels are in the label holder's own file, and in no manifest.
    """
    monkeypatch.setattr("treetap.party.defences.noisy_labels.staged", lambda *_: NOISY)
    params, more = JOBS[job]
    options = {"policies": EMITS, "defences": {HOLDER: Defences(label_dp=ONE, **more)}}
    single = np.zeros(N, dtype=np.int64)
    single[7] = 1
    runs = [
        observed(tmp_path / "f", with_labels(clean), training(params), **options)
        for clean in (HERE.y, 1 - HERE.y, single)
    ]
    (first, (clean, shown)), *others = runs
    for crossed, (other_clean, other_shown) in others:
        assert of_coordinator(crossed) == of_coordinator(first)
        assert _between(crossed) == _between(first)
        assert other_shown == shown
        assert other_clean != clean
    assert len(_between(first)) > 20


async def test_the_network_is_that_of_the_noisy_labels(tmp_path: Path) -> None:
    """Bit by bit that of one graph on them; a draw in two stages is charged once."""
    here = world(N, (2, 2), seed=4)
    assert (await _federated(tmp_path, here, TWO, _trained)).error == ""
    labels = noisy(tmp_path)
    assert (labels != here.y).any()
    network, _ = oracle(tmp_path, replace(here, y=labels), PARAMS)
    assert_same_bits(published(tmp_path, here), network.weights())
    assert manifest(_state(tmp_path))["classes"] == ["0", "1"]
    assert _spent(tmp_path) == 1.0


async def test_every_network_on_the_table_has_the_same_labels_for_one_charge(tmp_path: Path) -> None:
    """One that is interrupted and resumed too, and one of another architecture, whose priors would be others."""
    here = world(N, (2, 2), seed=4)
    wider = replace(PARAMS, bottom={"default": Bottom(hidden=(9,), width=7)})
    for job, params, act in (("first", PARAMS, _trained), ("killed", PARAMS, _killed), ("wider", wider, _trained)):
        await _federated(tmp_path, here, TWO, act, params=params, job=job, budget=1.5)
    assert_same_bits(published(tmp_path, here, "killed"), published(tmp_path, here, "first"))
    network, _ = oracle(tmp_path, replace(here, y=noisy(tmp_path)), wider)
    assert_same_bits(published(tmp_path, here, "wider"), network.weights())
    clean = [_model(tmp_path, job) / "clean_metrics.json" for job in ("first", "killed")]
    assert clean[0].read_bytes() == clean[1].read_bytes()
    assert _spent(tmp_path) == 1.0

    status = await _federated(tmp_path, here, LabelDp(epsilon=0.75), _refused, job="more", budget=1.5)
    assert "they cost ε = 0.75, and of its policy's label_budget = 1.5 it has spent 1" in status.error
    status = await _federated(tmp_path, here, None, _refused, job="clean", budget=1.5)
    assert f"{HOLDER} takes no part in a job that uses its labels as they are" in status.error
    assert _spent(tmp_path) == 1.0


async def test_figures_by_clean_labels_are_those_of_the_best_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same scores as the published ones; under fixed noisy labels, by which the last epoch is not the best."""
    here = world(N, (2, 2), seed=4)
    monkeypatch.setattr("treetap.party.defences.noisy_labels.staged", lambda *_: NOISY)
    await _federated(tmp_path, here, ONE, _trained, params=STOPPED)
    shown, clean = manifest(_state(tmp_path)), json.loads((_model(tmp_path) / "clean_metrics.json").read_text())
    published_figures = shown["training_metrics"]
    assert shown["best_epoch"] < shown["epochs"] - 1
    assert set(clean["training_metrics"]) == set(published_figures) - {"train_loss"}
    assert clean["training_metrics"] != published_figures


def _between(crossed: list[Crossed]) -> list[tuple[str, str, bytes]]:
    """Messages that parties sent each other, byte for byte."""
    return [
        (sender, to, message.SerializeToString(deterministic=True))
        for sender, to, _, message in crossed
        if to in PARTIES
    ]


async def _federated(
    folder: Path,
    here: World,
    own: LabelDp | None,
    act: Done,
    *,
    params: SplitnnParams = PARAMS,
    job: str = "job",
    budget: float | None = None,
) -> jobs_pb2.JobStatus:
    """The status of a job after `act`, in a federation on these disks."""

    policies = {**EMITS, HOLDER: {**EMITS[HOLDER], "labels": {"label_budget": budget}}}
    running = federation(folder, here, policies=policies, defences={HOLDER: Defences(label_dp=own)})
    found: jobs_pb2.JobStatus = await act(running, params, job)
    return found


async def _trained(running: Federation, params: SplitnnParams, job: str) -> jobs_pb2.JobStatus:
    return finished(await running.train(spec(params, parties=2), job))


async def _refused(running: Federation, params: SplitnnParams, job: str) -> jobs_pb2.JobStatus:
    status = await running.train(spec(params, parties=2), job)
    assert status.state == "failed"
    return status


async def _killed(running: Federation, params: SplitnnParams, job: str) -> jobs_pb2.JobStatus:
    """Train; the label holder dies when it has stored the first epoch, and comes back."""

    def kill(message: Message) -> None:
        if message.word == "store_epoch" and message.to == HOLDER and message.served:
            running.hook = None
            running.restart(HOLDER)

    running.hook = kill
    assert (await running.train(spec(params, parties=2), job)).state == "interrupted"
    status = await running.resume(job)
    assert (status.state, running.hook) == ("finished", None)
    return status


def noisy(folder: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The noisy labels of the only draw, in order of ids."""
    (path,) = (_state(folder) / "noisy_labels").iterdir()
    labels: np.ndarray[Any, np.dtype[np.int64]] = np.load(path)["labels"]
    return labels


def _state(folder: Path) -> Path:
    return folder / HOLDER / "state"


def _model(folder: Path, job: str = "job") -> Path:
    return _state(folder) / "models" / job


def _spent(folder: Path) -> float:
    return float(LabelBudget(_state(folder), None).spent())
