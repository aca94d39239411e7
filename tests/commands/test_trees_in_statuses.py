"""Trees and metrics in what an operator sees: those of the published model, and no tree that was not grown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands.command import screen
from tests.simulator import Federation, Message
from tests.worlds import PARTIES, manifest, spec, world
from treetap.commands.jobs import progress_view
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

LABEL_HOLDER = PARTIES[0]
#: A world in which early stopping ends the training after a few of the planned trees.
HERE = world(80, (1, 3), missing=0.1)
STOPPED = BoostingParams(
    n_estimators=8, max_depth=3, max_bin=8, learning_rate=0.9, early_stopping_rounds=1, validation_share=0.25, seed=2
)


def _shown(monkeypatch: pytest.MonkeyPatch, status: jobs_pb2.JobStatus) -> str:
    text = screen(monkeypatch, "out", 160)
    progress_view.print_statuses([status])
    return text.getvalue()


def _assert_model_s(status: jobs_pb2.JobStatus, federation: Federation) -> None:
    """The status has the metrics of the model that was published, and its number of trees."""
    published = manifest(federation.state(LABEL_HOLDER))
    assert status.state == "finished"
    assert {metric.name: metric.value for metric in status.metrics} == published["training_metrics"]
    assert (status.stored_trees, status.used_trees) == (published["trees"], published["best_round"] + 1)


async def test_after_early_stopping_the_best_round_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are those of the trees in use; the last round's, which are worse, stay out of sight."""
    oracle = HERE.oracle(STOPPED)
    assert oracle.best_round is not None
    assert oracle.best_round + 1 < len(oracle) < STOPPED.n_estimators
    seen: list[dict[str, float]] = []

    federation = Federation(tmp_path, HERE.tables)

    def watch(message: Message) -> None:
        if message.word == "publish" and not message.served:
            status = federation.jobs.status("job")[0]
            seen.append({metric.name: metric.value for metric in status.metrics})

    federation.hook = watch
    status = await federation.train(spec(STOPPED, 2, obfuscation="standard"))
    _assert_model_s(status, federation)
    assert status.stored_trees == len(oracle)
    assert seen[0] != {metric.name: metric.value for metric in status.metrics}
    line = f"job: stopped early: {oracle.best_round + 1} of {len(oracle)} trees used"
    assert line in _shown(monkeypatch, status).splitlines()
    assert progress_view.status_dict(status)["used_trees"] == oracle.best_round + 1
    assert "trees used" not in _shown(monkeypatch, jobs_pb2.JobStatus(kind="train", stored_trees=3, used_trees=3))


@pytest.mark.second_tier
@pytest.mark.parametrize("word", ["publish", "account"])
async def test_a_resumed_job_reports_the_published_model(word: str, tmp_path: Path) -> None:
    """Also one whose coordinator was killed while the model was published, or just after."""

    federation = Federation(tmp_path, HERE.tables)

    federation.kill_at(
        "coordinator", lambda message: message.word == word and message.to == LABEL_HOLDER and message.served
    )
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=spec(STOPPED, 2, obfuscation="standard")))
    await federation.jobs.wait("job")
    federation.start("coordinator")
    assert (federation.state(LABEL_HOLDER) / "models" / "job").is_dir()
    _assert_model_s(await federation.resume(), federation)


async def test_trees_are_counted_once_they_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that breaks off in its first tree has grown none; a resumed one counts those on disk."""
    params: dict[str, Any] = {"n_estimators": 3, "max_depth": 2, "max_bin": 4}

    federation = Federation(tmp_path, HERE.tables)

    def kill_in(tree: int) -> None:
        begun = 0

        def kill(message: Message) -> None:
            nonlocal begun
            begun += message.word == "choose_splits" and not message.served
            if begun and federation.jobs.status("job")[0].round == tree + 1:
                federation.hook = None
                federation.kill(PARTIES[1])

        federation.hook = kill

    kill_in(0)
    status = await federation.train(spec(BoostingParams(**params), 2, obfuscation="standard"))
    assert (status.state, status.round, status.stored_trees) == ("interrupted", 1, 0)
    assert " 0 of 3 " in _shown(monkeypatch, status)
    federation.start(PARTIES[1])
    kill_in(1)
    status = await federation.resume()
    assert (status.state, status.round, status.stored_trees) == ("interrupted", 2, 1)
    federation.start(PARTIES[1])
    status = await federation.resume()
    assert (status.state, status.stored_trees, status.used_trees) == ("finished", 3, 3)


async def test_steps_of_predictions_are_no_trees(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A prediction's lines in the logs name rounds of records."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(spec(BoostingParams(n_estimators=2, max_depth=2, max_bin=4), 2, obfuscation="standard"))
    caplog.clear()
    with caplog.at_level("DEBUG"):
        assert (await federation.predict(predict_request(model="job", job="p"))).state == "finished"
    await federation.close()
    lines = [record.getMessage() for record in caplog.records if "job p" in record.getMessage()]
    assert any("ask_directions" in line for line in lines)
    assert not [line for line in lines if "tree" in line]
