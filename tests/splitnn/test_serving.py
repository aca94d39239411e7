"""Served networks: with and without a party, a party that comes back, and beside a model of trees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.oracle import oracle_predict
from tests.serving.served import CLIENT, config
from tests.simulator import Federation, failed
from tests.splitnn.jobs import EMITS, PARAMS, spec
from tests.splitnn.networks import federation
from tests.splitnn.networks import oracle_scores as expected
from tests.splitnn.test_prediction import DROPPED, HERE, IDS
from tests.worlds import PARTIES
from tests.worlds import spec as tree_spec
from treetap.errors import ConfigError, NotServed, Silent
from treetap.neural.params import SplitnnParams
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import serving_pb2

pytestmark = pytest.mark.second_tier

HOLDER, B, C = PARTIES


@asynccontextmanager
async def serving(folder: Path, params: SplitnnParams, **asked: Any) -> AsyncIterator[Federation]:
    """A federation that serves a network as the job `s`."""
    running = federation(folder, HERE, serve={HOLDER: config()})
    assert (await running.train(spec(params))).state == "finished"
    await serve(running, "job", "s", **asked)
    yield running
    await running.close()


async def serve(running: Federation, model: str, job: str, **asked: Any) -> None:
    """Serve a model."""
    running.jobs.predict(predict_request(model=model, job=job, serve=True, **asked))
    async with asyncio.timeout(60):
        while running.jobs.status(job)[0].phase != "serve":
            assert running.jobs.status(job)[0].state == "running", running.jobs.status(job)[0].error
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


async def answer(running: Federation, away: tuple[str, ...] = (), model: str = "") -> serving_pb2.PredictedRecords:
    """Ask about all records until the answer lists these parties as away."""
    async with asyncio.timeout(120):
        while True:
            try:
                request = serving_pb2.PredictRecords(ids=IDS, model=model)
                found = await running.node(HOLDER).served_models.predict(CLIENT, request, None)
                if tuple(sorted(found.away)) == away:
                    return found
            except (NotServed, Silent):
                pass
            await asyncio.sleep(0.5)


def raw(found: serving_pb2.PredictedRecords) -> Any:
    """The scores (n, K) of an answer."""
    return np.array([list(each.scores) for each in found.predictions])


async def test_served_with_and_without_a_party(tmp_path: Path) -> None:
    """A killed party is left out and listed; back on its own disk it is asked again, and answers are whole again."""
    async with serving(tmp_path, DROPPED, away_policy="degrade", away_deadline_s=10) as running:
        for away in ((), (B,), (B, C), ()):
            for party in (B, C):
                if party in away and running.alive(party):
                    running.kill(party)
                elif party not in away and not running.alive(party):
                    running.start(party)
            found = await answer(running, away)
            assert np.abs(raw(found) - expected(tmp_path, HERE, DROPPED, *away)).max() < 1e-6
        (status,) = running.jobs.status("s")
        assert (status.state, status.phase, list(status.away)) == ("running", "serve", [])


async def test_a_killed_party_comes_back_within_the_deadline(tmp_path: Path) -> None:
    """Under retry no answer is without it: a new attempt opens its model from its own disk."""
    async with serving(tmp_path, PARAMS, away_policy="retry", away_deadline_s=20) as running:
        exact = expected(tmp_path, HERE, PARAMS)
        assert np.abs(raw(await answer(running)) - exact).max() < 1e-6
        running.kill(B)
        await asyncio.sleep(3)
        running.start(B)
        assert np.abs(raw(await answer(running)) - exact).max() < 1e-6
        assert running.jobs.status("s")[0].attempt == 2


async def test_degrade_only_with_dropout_of_every_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator refuses by the job, the label holder by its manifest; both name party and remedy."""
    running = federation(tmp_path, HERE, serve={HOLDER: config()})
    assert (await running.train(spec(replace(PARAMS, party_dropout={B: 0.3})))).state == "finished"
    asked = predict_request(model="job", job="s", serve=True, away_policy="degrade")
    fault = "without party_dropout of feature-c, .* train it with party_dropout = {feature-c = 0.1}, or use retry"
    with pytest.raises(ConfigError, match=fault):
        running.jobs.predict(asked)
    monkeypatch.setattr("treetap.coordinator.prediction.check_degraded_serving", lambda *_: None)
    running.jobs.predict(asked)
    failed(
        await running.jobs.wait("s"),
        "label-holder: away = 'degrade': model job was trained without party_dropout of feature-c",
        bad_input=True,
    )


async def test_a_network_and_trees_at_once(tmp_path: Path) -> None:
    """Two models of different kinds are served to the same client; each answer is the one of the model it names."""
    async with serving(tmp_path, DROPPED, away_policy="degrade", away_deadline_s=10) as running:
        trees = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
        job = tree_spec(trees, obfuscation="standard")
        assert (await running.train(job, "trees")).state == "finished"
        await serve(running, "trees", "t", away_policy="retry", away_deadline_s=10)
        found = await asyncio.gather(*(answer(running, model=name) for name in ("job", "trees", "job")))
        assert [each.model for each in found] == ["job", "trees", "job"]
        network = expected(tmp_path, HERE, DROPPED)
        assert np.abs(raw(found[0]) - network).max() < 1e-6
        assert np.abs(raw(found[2]) - network).max() < 1e-6
        assert raw(found[1]) == pytest.approx(np.array(oracle_predict(HERE.oracle(trees), HERE.newcomers)), abs=1e-9)
        running.kill(B)
        alone = await answer(running, (B,), "job")
        assert np.abs(raw(alone) - expected(tmp_path, HERE, DROPPED, B)).max() < 1e-6
        running.start(B)
        assert (await answer(running, (), "job")).job == "s"


async def test_a_record_of_which_no_query_is_left_goes_on_as_zeros(tmp_path: Path) -> None:
    """Its client hears the party's name; the other records of the block have their scores."""
    policies = {**EMITS, B: {**EMITS[B], "partners": {HOLDER: {"queries_per_record": 1}}}}

    running = federation(tmp_path, HERE, serve={HOLDER: config()}, policies=policies)
    assert (await running.train(spec(PARAMS))).state == "finished"
    await serve(running, "job", "s")
    for ids, said in ((IDS[:1], [""]), (IDS[:2], [B, ""]), (IDS[1:2], [B])):
        request = serving_pb2.PredictRecords(ids=ids)
        found = await running.node(HOLDER).served_models.predict(CLIENT, request, None)
        assert [each.party for each in found.predictions] == said
    assert running.jobs.status("s")[0].state == "running"
