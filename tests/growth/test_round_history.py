"""Metrics after each round: in the label holder's model, in the job's status, and in exports of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.boosting.test_resume_rounds import HERE, ORACLE, PARAMS
from tests.campaign.cipher import KeysMade, ciphers
from tests.forest.jobs import PARAMS as FOREST
from tests.pivodl import small_job
from tests.pivodl.federations import federation_of, transparent
from tests.simulator import Federation, Message, finished
from tests.worlds import PARTIES, manifest, spec
from treetap.commands.jobs.progress_view import status_dict
from treetap.commands.model.view import describe
from treetap.models.store import read_history
from treetap.wire import metric_history
from treetap.wire.v2 import jobs_pb2, types_pb2

LABEL_HOLDER = PARTIES[0]
JOB = spec(PARAMS, obfuscation="standard")
Rounds = list[dict[str, float | None]]


def _model(federation: Federation, party: str = LABEL_HOLDER) -> Path:
    return federation.state(party) / "models" / "job"


def _shown(status: jobs_pb2.JobStatus) -> Rounds:
    found: Rounds = status_dict(status)["history"]
    return found


@pytest.mark.second_tier
async def test_every_round_of_an_interrupted_boosting(tmp_path: Path) -> None:
    """A round of three trees has one entry; after a kill within a round the history is as without one."""
    with ciphers(KeysMade(), transparent=True):
        whole = Federation(tmp_path / "whole", HERE.tables)
        undisturbed = await whole.train(JOB)
        expected = read_history(_model(whole))
        await whole.close()
        assert len(expected) == len(ORACLE) // 3 > 2
        assert _shown(undisturbed) == expected
        best = manifest(whole.state(LABEL_HOLDER))["best_round"]
        assert expected[best] == manifest(whole.state(LABEL_HOLDER))["training_metrics"]

        federation, grown = Federation(tmp_path / "killed", HERE.tables), 0

        def kill(message: Message) -> None:
            nonlocal grown
            grown += (message.word, message.served) == ("begin_tree", False)
            if grown == 8:
                federation.hook = None
                federation.kill("coordinator")
                federation.restart(LABEL_HOLDER)
                federation.start("coordinator")

        federation.hook = kill
        await federation.train(JOB)
        assert grown == 8
        status = finished(await federation.resume())
        assert read_history(_model(federation)) == _shown(status) == expected
        assert read_history(_model(federation, PARTIES[1])) == []
        await federation.close()
    models = {party: tmp_path / "whole" / party / "state" / "models" / "job" for party in PARTIES[:2]}
    assert describe(models[LABEL_HOLDER])["history"] == read_history(models[LABEL_HOLDER])
    assert "history" not in describe(models[PARTIES[1]])


async def test_while_a_job_runs_its_status_has_the_history_and_watching_does_not(tmp_path: Path) -> None:
    """A watcher gets the metrics of each round as they come, and all of them with the last status."""
    seen: list[Rounds] = []

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, HERE.tables)

        def look(message: Message) -> None:
            if (message.word, message.to, message.served) == ("begin_tree", LABEL_HOLDER, False):
                seen.append(_shown(federation.jobs.status("job")[0]))

        federation.hook = look
        job = replace(FOREST, n_estimators=3)
        federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=spec(job, obfuscation="standard")))
        watched = [_shown(status) async for status in federation.jobs.watch("job")]
        assert all(rounds == [] for rounds in watched[:-1])
        assert watched[-1] == read_history(_model(federation))
        assert [len(rounds) for rounds in seen] == [0, 1, 2]
        assert watched[-1][:2] == seen[2]
        assert federation.jobs.status("")[0].history == []


@pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
async def test_metrics_of_spread_labels_lie_at_the_aggregation_party_of_each_tree(tmp_path: Path) -> None:
    """The coordinator has those of every tree; a party has its own trees', also in a resumed job."""
    with transparent():
        job = small_job.JOB
        federation = federation_of(tmp_path, small_job.HERE, job)

        federation.kill_at("coordinator", lambda message: message.word == "publish" and not message.served, back=True)
        await federation.train(job)
        status = finished(await federation.resume())
        rounds = _shown(status)
        assert [list(row) for row in rounds] == [["train_rmse"]] * 2
        parts = [read_history(_model(federation, party)) for party in federation.configs]
        assert metric_history.merged(parts) == rounds
        assert sum(bool(row) for part in parts for row in part) == 2


def test_columns_of_a_message() -> None:
    """A metric that some rounds lack is absent there; rounds beyond the most are left out; parts are merged."""
    rounds: Rounds = [{"a": 1.0}, {"a": 2.0, "b": None}, {"b": 3.0}]
    columns = metric_history.columns(rounds)
    assert metric_history.rows(columns) == [{"a": 1.0}, {"a": 2.0}, {"b": 3.0}]
    metric_history.append(columns, [types_pb2.NamedMetric(name="c", value=4.0)])
    assert metric_history.rows(columns)[2:] == [{"b": 3.0}, {"c": 4.0}]
    assert metric_history.rows([]) == []
    long: Rounds = [{"a": 1.0}] * (metric_history.MOST_ROUNDS + 1)
    full = metric_history.columns(long)
    assert len(full[0].values) == metric_history.MOST_ROUNDS
    metric_history.append(full, [types_pb2.NamedMetric(name="a", value=4.0)])
    assert len(full[0].values) == metric_history.MOST_ROUNDS
    assert metric_history.merged([[{"a": 1.0}, {}], [{}, {"a": 2.0}, {"a": 3.0}]]) == [
        {"a": 1.0},
        {"a": 2.0},
        {"a": 3.0},
    ]
