"""Serving that goes on without a party, and with it once it is back.

The models are trees, whose protocol is made to allow it here: what the coordinator and the clients see is the same for
every protocol that does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.replay import HERE, PARAMS
from tests.serving.served import CLIENT, IDS, LABEL_HOLDER, B, C, ask, config, serve
from tests.simulator import COORDINATOR, Faults, Federation, Message, failed
from tests.worlds import spec
from treetap.coordinator.attempt import ANSWER_S
from treetap.errors import ConfigError, NotServed, Silent, Unreachable
from treetap.ops.gateway.http_json import predict_reply
from treetap.party.serving.decisions import decisions_of
from treetap.protocols import interactive
from treetap.protocols.exclusions import Feature
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import prediction
from treetap.wire.frame import name_of
from treetap.wire.v2 import jobs_pb2, serving_pb2

#: Seconds until a party counts as away, and between two times that it is asked again.
DEADLINE_S = 20
#: Virtual seconds within which the service goes on after a party has gone or come back.
SOON_S = 90.0
DROPPED = replace(PARAMS, party_dropout={B: 0.3, C: 0.3})


@pytest.fixture
def _allowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trees whose protocol lets a served model go on without a party."""
    monkeypatch.setattr(
        interactive,
        "PROTOCOL",
        replace(interactive.PROTOCOL, capabilities=interactive.PROTOCOL.capabilities | {Feature.SERVE_DEGRADED}),
    )
    prediction.cache_clear()
    yield
    prediction.cache_clear()


class Scores:
    """The scores of the new records by all parties, and without one or both feature parties."""

    def __init__(self) -> None:
        self.by_away: dict[tuple[str, ...], list[float]] = {}

    async def measure(self, federation: Federation, *away: str) -> None:
        """Predict the table while these parties are away."""
        for party in away:
            federation.kill(party)
        asked = predict_request(model="job", away_policy="degrade", away_deadline_s=DEADLINE_S)
        status = await federation.predict(asked)
        assert (status.state, sorted(status.away)) == ("finished", sorted(away))
        self.by_away[away] = pq.read_table(status.predictions).column("score").to_pylist()
        for party in away:
            federation.start(party)


@asynccontextmanager
async def degrading(folder: Path, **changes: Any) -> AsyncIterator[tuple[Federation, Scores]]:
    """A federation that serves by `degrade`, and what its answers must be."""
    federation = Federation(folder, HERE.tables, serve={LABEL_HOLDER: config(**changes)})
    assert (await federation.train(spec(DROPPED, obfuscation="standard"))).state == "finished"
    scores = Scores()
    for away in ((), (B,), (C,), (B, C)):
        await scores.measure(federation, *away)
    assert len({tuple(found) for found in scores.by_away.values()}) == 4
    await serve(federation, away_policy="degrade", away_deadline_s=DEADLINE_S)
    yield federation, scores
    await federation.close()


async def answer(federation: Federation, *wanted: str) -> serving_pb2.PredictedRecords:
    """Ask about all records, and again until the answer lists these parties as away."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                found: serving_pb2.PredictedRecords = await ask(federation, *IDS)
            except (NotServed, Silent):
                await asyncio.sleep(0.5)
                continue
            if sorted(found.away) == sorted(wanted):
                return found
            await asyncio.sleep(0.5)


def check(found: serving_pb2.PredictedRecords, scores: Scores) -> None:
    """An answer has the scores of the parties that it says were present."""
    expected = scores.by_away[tuple(sorted(found.away))]
    assert [each.scores[0] for each in found.predictions] == pytest.approx(expected, abs=1e-12)


def state(federation: Federation) -> jobs_pb2.JobStatus:
    """The status of the serving job."""
    (found,) = federation.jobs.status("s")
    return found


@pytest.mark.usefixtures("_allowed")
async def test_it_goes_on_without_a_party_and_with_it_when_it_is_back(tmp_path: Path) -> None:
    """Every answer is the one of the parties that were present, and lists the others; healed, it lists none."""
    async with degrading(tmp_path, decision_days=9) as (federation, scores):
        check(await answer(federation), scores)
        federation.kill(B)
        check(await answer(federation, B), scores)
        assert (state(federation).phase, list(state(federation).away)) == ("serve", [B])
        assert list(state(federation).serving.away) == [B]
        reply = json.loads(predict_reply(await answer(federation, B), IDS).model_dump_json(exclude_none=True))
        assert reply["away"] == [B]
        federation.kill(C)
        check(await answer(federation, B, C), scores)
        federation.start(C)
        federation.start(B)
        healed = await answer(federation)
        check(healed, scores)
        scored = [line for line in decisions_of(federation.state(LABEL_HOLDER)) if line["status"] == "predicted"]
        assert [sorted(away) for away, _ in groupby(line["away"] for line in scored)] == [[], [B], [B, C], []]
        assert json.loads(predict_reply(healed, IDS).model_dump_json(exclude_none=True))["away"] == []
        found = state(federation)
        assert (found.phase, list(found.away)) == ("serve", [])
        await asyncio.sleep(5)
        assert list(state(federation).serving.away) == []


@pytest.mark.second_tier
@pytest.mark.usefixtures("_allowed")
async def test_asking_again_does_not_disturb_those_who_are_present(tmp_path: Path) -> None:
    """While a party stays away every client is answered in one attempt; once it is back a single new one begins."""
    async with degrading(tmp_path) as (federation, scores):
        federation.kill(B)
        await answer(federation, B)
        attempt, before = state(federation).attempt, len(federation.log)
        for _ in range(60):
            check(await ask(federation, *IDS), scores)
            await asyncio.sleep(1)
        assert (state(federation).attempt, state(federation).serving.refused) == (attempt, 0)
        metrics = federation.node(LABEL_HOLDER).served_models.metrics.registry
        assert metrics.get_sample_value("treetap_served_without_total", {"peer": B}) == 61
        assert metrics.get_sample_value("treetap_served_without_total", {"peer": C}) is None
        asked = [message for message in federation.log[before:] if message.to == B]
        assert {message.word for message in asked} == {"leave"}
        times = 60 / DEADLINE_S
        assert len(asked) <= (times + 1) * (ANSWER_S + 3) * 2
        federation.start(B)
        check(await answer(federation), scores)
        assert state(federation).attempt == attempt + 1


@pytest.mark.second_tier
@pytest.mark.usefixtures("_allowed")
async def test_requests_that_wait_are_answered_or_refused(tmp_path: Path) -> None:
    """No client hangs while a party goes or comes back: each has an answer, or an error that says to ask again."""
    async with degrading(tmp_path, deadline_s=8) as (federation, scores):
        outcomes: list[serving_pb2.PredictedRecords | BaseException] = []

        async def client() -> None:
            while True:
                began = asyncio.get_running_loop().time()
                (found,) = await asyncio.gather(ask(federation, *IDS), return_exceptions=True)
                assert asyncio.get_running_loop().time() - began < 8.5
                outcomes.append(found)
                await asyncio.sleep(0.8)

        clients = [asyncio.ensure_future(client()) for _ in range(3)]
        await asyncio.sleep(5)
        federation.kill(B)
        await asyncio.sleep(60)
        federation.start(B)
        await asyncio.sleep(60)
        for each in clients:
            each.cancel()
        answers = [each for each in outcomes if isinstance(each, serving_pb2.PredictedRecords)]
        for each in answers:
            check(each, scores)
        flags = [tuple(each.away) for each in answers]
        assert flags[0] == flags[-1] == ()
        assert (B,) in flags
        faults = [each for each in outcomes if not isinstance(each, serving_pb2.PredictedRecords)]
        assert all(isinstance(each, NotServed | Silent) for each in faults), faults
        assert all("again later" in str(each) for each in faults if isinstance(each, NotServed))


@pytest.mark.second_tier
@pytest.mark.usefixtures("_allowed")
async def test_a_party_that_is_back_and_fails_is_asked_less_often(tmp_path: Path) -> None:
    """It answers the coordinator and cannot reach the others: the service goes on without it, with longer pauses."""
    async with degrading(tmp_path) as (federation, scores):

        def hook(message: Message) -> None:
            if message.sender == B and message.to == LABEL_HOLDER:
                raise Unreachable("the line is cut")

        federation.kill(B)
        await answer(federation, B)
        federation.hook = hook
        federation.start(B)
        await asyncio.sleep(15 * DEADLINE_S)
        openings = {
            asked.attempt
            for kind, to, asked in federation.conducted
            if (kind, to, asked.job, name_of(asked)) == ("begin", B, "s", "open_model")
        }
        assert 3 <= len(openings) <= 5  # one before it went, and after 1, 2, 4 and 8 times the deadline
        check(await answer(federation, B), scores)
        federation.hook = None
        await asyncio.sleep(16 * DEADLINE_S)
        check(await answer(federation), scores)


@pytest.mark.second_tier
@pytest.mark.usefixtures("_allowed")
async def test_a_party_that_comes_back_without_its_table_is_left_out_again(tmp_path: Path) -> None:
    """Bad input of a party that is back does not end the service of the others; the operator's log names it."""
    async with degrading(tmp_path) as (federation, scores):
        table = tmp_path / B / "predict.parquet"
        federation.kill(B)
        await answer(federation, B)
        content = table.read_bytes()
        table.unlink()
        federation.start(B)
        await asyncio.sleep(3 * DEADLINE_S)
        check(await answer(federation, B), scores)
        table.write_bytes(content)
        await asyncio.sleep(8 * DEADLINE_S)
        check(await answer(federation), scores)


@pytest.mark.second_tier
@pytest.mark.usefixtures("_allowed")
async def test_a_party_that_is_suspended(tmp_path: Path) -> None:
    """It takes connections and answers nothing; once it runs on, what it was asked meanwhile disturbs no attempt."""
    async with degrading(tmp_path) as (federation, scores):
        federation.freeze(B)
        check(await answer(federation, B), scores)
        await asyncio.sleep(3 * DEADLINE_S)
        check(await answer(federation, B), scores)
        attempt = state(federation).attempt
        federation.freeze(B, thaw=True)
        check(await answer(federation), scores)
        assert state(federation).attempt == attempt + 1


@pytest.mark.second_tier
@pytest.mark.usefixtures("_allowed")
async def test_a_bad_network_while_parties_go_and_come_back(tmp_path: Path) -> None:
    """Lost, doubled and late messages: every answer is the one of the parties that it does not list."""
    async with degrading(tmp_path) as (federation, scores):
        federation.faults = Faults(drop=0.05, lose_reply=0.05, double=0.1, delay_s=0.3, late_s=3.0, seed=11)
        for party in (B, C, B):
            federation.kill(party)
            check(await answer(federation, party), scores)
            federation.start(party)
            check(await answer(federation), scores)
        federation.faults = Faults()


@pytest.mark.second_tier
@pytest.mark.usefixtures("_allowed")
async def test_the_coordinator_starts_again_while_a_party_is_away(tmp_path: Path) -> None:
    """It asks all parties, finds the same one away, and goes on without it."""
    async with degrading(tmp_path) as (federation, scores):
        federation.kill(B)
        await answer(federation, B)
        federation.restart(COORDINATOR)
        federation.jobs.serve_on()
        check(await answer(federation, B), scores)
        federation.start(B)
        check(await answer(federation), scores)


@pytest.mark.usefixtures("_allowed")
async def test_only_models_that_were_trained_without_each_party_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator refuses by the training's job, the label holder by its manifest; both name the party."""
    federation = Federation(tmp_path, HERE.tables, serve={LABEL_HOLDER: config()})
    await federation.train(spec(replace(PARAMS, party_dropout={C: 0.3}), obfuscation="standard"))
    fault = r"without party_dropout of feature-b, .* train it with party_dropout = \{feature-b = 0.1\}, or use retry"
    degraded: dict[str, Any] = {"serve": True, "away_policy": "degrade", "away_deadline_s": DEADLINE_S}
    with pytest.raises(ConfigError, match=fault):
        federation.jobs.submit(predict_request(model="job", **degraded))
    monkeypatch.setattr("treetap.coordinator.prediction.check_degraded_serving", lambda *_: None)
    federation.jobs.submit(predict_request(model="job", job="s", **degraded))
    failed(
        await federation.jobs.wait("s"),
        "label-holder: away = 'degrade': model job was trained without party_dropout of feature-b",
        bad_input=True,
    )


async def test_trees_are_not_served_without_a_party(tmp_path: Path) -> None:
    """The reason is that clients would get guesses, also where each party sat trees out."""
    federation = Federation(tmp_path, HERE.tables, serve={LABEL_HOLDER: config(clients=[CLIENT])})
    await federation.train(spec(DROPPED, obfuscation="standard"))
    for protocol in ("interactive", "eini", "eini-lattice"):
        asked = predict_request(protocol, model="job", serve=True, away_policy="degrade")
        with pytest.raises(ConfigError, match=r"trees send a record both ways .* clients would get guesses; use ret"):
            federation.jobs.submit(asked)
