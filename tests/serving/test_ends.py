"""How serving ends, breaks down and goes on: cancelled, a party away, a coordinator that stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.replay import HERE, JOB
from tests.serving.served import (
    CLIENT,
    EXACT,
    IDS,
    LABEL_HOLDER,
    WAYS,
    B,
    ask,
    config,
    expect,
    phase,
    scores,
    serve,
    serving,
    tolerance,
)
from tests.simulator import COORDINATOR, Faults, Federation, Message
from treetap.coordinator.attempt import MOST_ATTEMPTS
from treetap.errors import BadInput, NotServed, Silent, UnknownJob, Unreachable
from treetap.party import node
from treetap.party.runtime import steps
from treetap.party.runtime.steps import StepCache
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import serving_pb2


def right(answers: list[object], way: str = "") -> bool:
    """Whether these are the answers about the first records, as exact as the way of predicting is."""
    return scores(answers) == pytest.approx(EXACT[: len(answers)], abs=tolerance(way))  # type: ignore[arg-type]


async def answered(federation: Federation, *ids: str) -> list[object]:
    """Ask, and again while nobody serves, as a client does."""
    async with asyncio.timeout(60):
        while True:
            try:
                return list(await asyncio.gather(*(ask(federation, value) for value in ids)))
            except (NotServed, Silent):
                await asyncio.sleep(0.5)


@pytest.mark.second_tier
@pytest.mark.parametrize("way", ["interactive", "eini", "eini-lattice"])
async def test_cancelling_ends_it_everywhere(way: str, tmp_path: Path) -> None:
    """Who waits is told at once, who asks afterwards too; no party keeps anything; the model can be served anew."""

    async with serving(tmp_path, WAYS[way], window_ms=5000) as federation:
        await expect(federation, 2)
        waiting = ask(federation, IDS[0])
        await asyncio.sleep(0.3)
        status = await federation.jobs.cancel("s")
        assert (status.state, status.error) == ("cancelled", "cancelled by an operator")
        with pytest.raises(NotServed, match="model job is not served any more; ask again later"):
            await waiting
        with pytest.raises(NotServed, match="label-holder serves no model now"):
            await ask(federation, IDS[0])
        for party, state in federation.states.items():
            assert list((state / "jobs").iterdir()) == []
            assert federation.node(party)._sessions == {}
            assert federation.remembered(party) == []
        await serve(federation, "again", **WAYS[way])
        assert right(await answered(federation, IDS[0]), way)


async def test_cancelling_within_a_round(tmp_path: Path) -> None:
    """Requests whose round is under way are told so too."""

    async with serving(tmp_path, WAYS["eini"]) as federation:
        cut: list[Message] = []

        def hook(message: Message) -> None:
            if message.word == "block_records":
                cut.append(message)
                raise Unreachable("the line is cut")

        federation.hook = hook
        waiting = [ask(federation, value) for value in IDS[:2]]
        await asyncio.sleep(2)
        assert cut
        assert (await federation.jobs.cancel("s")).state == "cancelled"
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(end) for end in ends] == ["model job is not served any more; ask again later"] * 2
        with pytest.raises(NotServed):
            await ask(federation, IDS[0])


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("busy", [True, False], ids=["asked", "idle"])
async def test_a_party_that_goes_is_named_and_resuming_serves_on(busy: bool, tmp_path: Path) -> None:
    """Policy fail: the job is interrupted and says who, even while nobody asks; clients are told to come back."""

    async with serving(tmp_path, WAYS["eini"]) as federation:
        federation.kill(B)
        if busy:
            with pytest.raises((NotServed, Silent)):
                await ask(federation, IDS[0])
        async with asyncio.timeout(60):
            status = await federation.jobs.wait("s")
        assert status.state == "interrupted"
        assert B in status.error
        assert "treetap resume s" in status.error
        with pytest.raises(NotServed):
            await ask(federation, IDS[0])
        federation.start(B)
        federation.jobs.resume("s")
        assert right(await answered(federation, *IDS))


@pytest.mark.second_tier
async def test_retry_goes_on_by_itself_for_ever(tmp_path: Path) -> None:
    """Policy retry: a feature party that is restarted again and again is waited for each time."""

    asked = {"away_policy": "retry", "away_deadline_s": 20}
    async with serving(tmp_path, asked) as federation:
        for _ in range(12):
            federation.kill(B)
            await asyncio.sleep(3)
            federation.start(B)
            assert right(await answered(federation, *IDS[:2]))
            await asyncio.sleep(1)
        (status,) = federation.jobs.status("s")
        assert (status.state, status.phase, status.attempt) == ("running", "serve", 13)
        federation.kill(B)
        async with asyncio.timeout(120):
            status = await federation.jobs.wait("s")
        assert status.state == "interrupted"
        assert "feature-b did not answer for 20 s" in status.error


@pytest.mark.second_tier
async def test_retry_goes_on_although_nobody_asks(tmp_path: Path) -> None:
    """A served model is not given up for having had no clients between the times at which a party was away."""

    async with serving(tmp_path, {"away_policy": "retry", "away_deadline_s": 20}) as federation:
        for attempt in range(2, 14):
            federation.kill(B)
            await asyncio.sleep(3)
            federation.start(B)
            async with asyncio.timeout(60):
                while federation.jobs.status("s")[0].attempt < attempt:
                    await asyncio.sleep(0.5)
            (status,) = federation.jobs.status("s")
            assert (status.state, status.error) == ("running", "")
            await phase(federation, "s", "serve")
            await asyncio.sleep(65)
        assert right(await answered(federation, *IDS))


@pytest.mark.second_tier
async def test_a_block_that_always_fails_is_not_tried_for_ever(tmp_path: Path) -> None:
    """Being asked is not enough: an attempt counts as good once it has scored a block, or served for a minute."""

    async with serving(tmp_path, {**WAYS["eini"], "away_policy": "retry", "away_deadline_s": 20}) as federation:

        def hook(message: Message) -> None:
            if message.word == "block_records":
                raise Unreachable("the line is cut")

        async def ask_on() -> None:
            while True:
                await asyncio.gather(ask(federation, IDS[0]), return_exceptions=True)
                await asyncio.sleep(0.5)

        federation.hook = hook
        client = asyncio.ensure_future(ask_on())
        async with asyncio.timeout(900):
            status = await federation.jobs.wait("s")
        client.cancel()
        assert (status.state, status.attempt, status.serving.records) == ("interrupted", MOST_ATTEMPTS, 0)


async def test_the_status_says_whom_it_waits_for(tmp_path: Path) -> None:
    """A party that is away is named within seconds and for as long as it is away, and not any more when it is back."""

    async with serving(tmp_path, {"away_policy": "retry", "away_deadline_s": 60}) as federation:
        federation.kill(B)
        for wanted in ("serve", "wait"):
            await asyncio.sleep(8)
            (status,) = federation.jobs.status("s")
            assert (status.state, status.phase, list(status.away)) == ("running", wanted, [B])
        federation.start(B)
        await asyncio.sleep(5)
        status = await phase(federation, "s", "serve")
        assert (status.state, status.attempt, list(status.away)) == ("running", 2, [])
        federation.kill(B)
        async with asyncio.timeout(120):
            status = await federation.jobs.wait("s")
        assert (status.state, list(status.away)) == ("interrupted", [])
        assert B in status.error


async def test_what_was_counted_is_kept(tmp_path: Path) -> None:
    """Cancelling is how serving ends: its figures and costs, up to the last answer, stay at the coordinator."""

    async with serving(tmp_path, {}) as federation:
        assert right(await answered(federation, *IDS))
        began = asyncio.get_running_loop().time()
        ended = await federation.jobs.cancel("s")
        assert asyncio.get_running_loop().time() - began < 10
        federation.restart(COORDINATOR)
        for status in (ended, *federation.jobs.status("s")):
            assert (status.state, status.error, status.phase) == ("cancelled", "cancelled by an operator", "")
            assert (status.serving.requests, status.serving.records) == (6, 6)
            assert {each.party for each in status.accounts} == set(federation.states)
            sent = [
                row.messages
                for each in status.accounts
                for row in each.account.traffic
                if (row.step, row.to, row.disclosure) == ("predict", CLIENT, "PREDICTION")
            ]
            assert sent == [6]
            assert status.seconds > 0.5
            assert status.bytes > 0
            assert "serve" in {row.name for row in status.phases}


async def test_cancelling_while_a_party_is_away_is_not_held_up(tmp_path: Path) -> None:
    """What was said last is kept, and nobody waits for more than seconds."""

    async with serving(tmp_path, {"away_policy": "retry", "away_deadline_s": 60}) as federation:
        assert right(await answered(federation, *IDS))
        await asyncio.sleep(8)
        federation.kill(B)
        await asyncio.sleep(6)
        async with asyncio.timeout(10):
            ended = await federation.jobs.cancel("s")
        assert (ended.state, ended.serving.requests, len(ended.accounts)) == ("cancelled", 6, 3)
        assert f"{B} did not confirm it" in ended.error


async def test_a_label_holder_that_is_restarted(tmp_path: Path) -> None:
    """Its clients are told that nothing is served, until the job has begun another attempt."""

    async with serving(tmp_path, {"away_policy": "retry"}) as federation:
        federation.restart(LABEL_HOLDER)
        with pytest.raises(NotServed, match="serves no model now"):
            await ask(federation, IDS[0])
        assert right(await answered(federation, *IDS))


@pytest.mark.second_tier
async def test_a_model_between_two_attempts_is_served_later(tmp_path: Path) -> None:
    """Beside another model too its clients are asked to come again, and those who name none get no other's answer."""

    async with serving(tmp_path, {"away_policy": "retry", "away_deadline_s": 30}) as federation:
        assert (await federation.train(JOB, "other")).state == "finished"
        await serve(federation, "o", model="other")
        federation.node(LABEL_HOLDER).served_models.leave("s", 1)
        with pytest.raises(NotServed, match="model job is not served now; ask again later"):
            await ask(federation, IDS[0], model="job")
        with pytest.raises(BadInput, match="serves several: job, other"):
            await ask(federation, IDS[0])
        with pytest.raises(UnknownJob, match=r"does not serve model 'third' \(it serves job, other\)"):
            await ask(federation, IDS[0], model="third")
        assert right([await ask(federation, IDS[0], model="other")])
        assert (await federation.jobs.cancel("s")).state == "cancelled"
        with pytest.raises(UnknownJob, match=r"does not serve model 'job' \(it serves other\)"):
            await ask(federation, IDS[0], model="job")
        assert right([await ask(federation, IDS[0])])


async def test_a_coordinator_that_stops_and_comes_back(tmp_path: Path) -> None:
    """Clients learn that it is away; when it starts again serving goes on, as the same job, unless it was cancelled."""

    async with serving(tmp_path, {}, deadline_s=5) as federation:
        federation.kill(COORDINATOR)
        with pytest.raises(Silent):
            await asyncio.gather(*(ask(federation, IDS[0]) for _ in range(3)))
        await asyncio.sleep(20)
        with pytest.raises(NotServed, match="model job is not served: its coordinator is away"):
            await ask(federation, IDS[0])
        assert not federation.node(LABEL_HOLDER).served_models.ready
        federation.start(COORDINATOR)
        (status,) = federation.jobs.status("s")
        assert (status.state, status.error) == (
            "interrupted",
            "the coordinator stopped; the job goes on by itself when the coordinator is back",
        )
        federation.jobs.serve_on()
        federation.jobs.serve_on()  # once is enough
        assert (await phase(federation, "s", "serve")).attempt == 2
        assert right(await answered(federation, *IDS))
        await federation.jobs.cancel("s")
        federation.restart(COORDINATOR)
        federation.jobs.serve_on()
        assert federation.jobs.status("s")[0].state == "cancelled"


async def test_nothing_grows_while_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No session ends for want of steps, and each party remembers a bounded number of them."""
    monkeypatch.setattr(node, "SESSION_S", 30)
    monkeypatch.setattr(steps, "MOST_STEPS", 8)

    async with serving(tmp_path, {}) as federation:
        for _ in range(3):
            await asyncio.sleep(60)
            assert right(await answered(federation, *IDS))
        for _ in range(9):
            assert right(await answered(federation, *IDS))
        for party in federation.states:
            assert len(federation.node(party)._sessions["s"].context.mailbox._series) <= 4
            book: StepCache = federation.node(party)._sessions["s"].book
            assert len(book._tasks) <= 8
        await asyncio.sleep(6)
        (status,) = federation.jobs.status("s")
        assert (status.attempt, status.serving.rounds) == (1, 12)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", ["interactive", "eini", "eini-lattice"])
async def test_late_repeats_do_not_pile_up(way: str, tmp_path: Path) -> None:
    """Parcels that come once more when their round is over lie nowhere, however many rounds there have been."""

    async with serving(tmp_path, WAYS[way]) as federation:
        federation.faults = Faults(double=1.0, late_s=3.0, seed=7)
        for _ in range(12):
            assert right(await answered(federation, *IDS[:2]), way)
        federation.faults = Faults()
        await asyncio.sleep(5)
        for party in federation.states:
            mailbox = federation.node(party)._sessions["s"].context.mailbox
            assert len(mailbox._series) <= 4
            assert sum(sender.in_memory for sender in mailbox._senders.values()) == 0


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", ["interactive", "eini", "eini-lattice"])
async def test_a_bad_network(way: str, tmp_path: Path) -> None:
    """Lost requests and answers, doubles and delays: every answer is the oracle's, and all come."""

    async with serving(tmp_path, {**WAYS[way], "away_policy": "retry"}) as federation:
        federation.faults = Faults(drop=0.05, lose_reply=0.05, double=0.1, delay_s=0.3, late_s=3.0, seed=7)
        for _ in range(5):
            assert right(await answered(federation, *IDS), way)
        federation.faults = Faults()


async def test_preparing_is_not_serving(tmp_path: Path) -> None:
    """Between the opening and the first wait for requests clients are told to ask again."""
    federation = Federation(tmp_path, HERE.tables, serve={LABEL_HOLDER: config()})
    assert (await federation.train(JOB)).state == "finished"
    seen: list[str] = []

    async def look() -> None:
        try:
            await federation.node(LABEL_HOLDER).served_models.predict(CLIENT, request)
        except NotServed as failure:
            seen.append(str(failure))

    request = serving_pb2.PredictRecords(ids=IDS[:1])

    def hook(message: Message) -> None:
        if message.word == "record_digest" and not message.served:
            asyncio.ensure_future(look())  # noqa: RUF006 - it ends at once

    federation.hook = hook
    federation.jobs.submit(predict_request(model="job", job="s", serve=True))
    await phase(federation, "s", "serve")
    assert set(seen) == {"model job is being prepared; ask again later"}
