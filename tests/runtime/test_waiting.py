"""More jobs than are under way at once: they wait, by operator, for as long as they may."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.protobuf.message import Message

from tests.replay import HERE, JOB
from tests.serving.served import config
from tests.simulator import Federation
from treetap.commands.jobs import progress_view
from treetap.coordinator.waiting import FIRST_PAUSE_S, Place, Waiting
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import jobs_pb2


def _submit(federation: Federation, job: str, operator: str = "ann") -> str:
    return federation.jobs.submit(jobs_pb2.SubmitRequest(job=job, spec=JOB), operator)


def _states(federation: Federation) -> dict[str, str]:
    return {status.job: status.state for status in federation.jobs.status("")}


@pytest.mark.second_tier
async def test_two_jobs_are_under_way_and_the_others_wait_in_order(tmp_path: Path) -> None:
    """Each begins when one ends; status says which wait, and why."""

    federation = Federation(tmp_path, HERE.tables)
    most = 0
    began: list[str] = []

    def look(message: Message) -> None:
        nonlocal most
        running = [job for job, state in _states(federation).items() if state == "running"]
        most = max(most, len(running))
        began.extend(job for job in running if job not in began)

    names = [f"job-{number}" for number in range(6)]
    for name in names:
        _submit(federation, name)
    federation.hook = look
    assert list(_states(federation).values()) == ["running"] * 2 + ["waiting"] * 4
    third, last = federation.jobs.status("job-2")[0], federation.jobs.status("job-5")[0]
    assert third.error == "waits until one of the 2 jobs under way ends (most_jobs = 2)"
    assert last.error == f"{third.error}; 3 came before it"
    assert progress_view._described(third) == (0, 0, "waiting", third.error)
    ended = await asyncio.gather(*(federation.jobs.wait(name) for name in names))
    assert [status.state for status in ended] == ["finished"] * 6
    assert [status.attempt for status in ended] == [1] * 6
    assert (most, began) == (2, names)


@pytest.mark.second_tier
async def test_watchers_of_a_waiting_job_see_it_begin_and_end(tmp_path: Path) -> None:
    """The stream goes on through the wait."""

    federation = Federation(tmp_path, HERE.tables)
    for name in ("one", "two", "three"):
        _submit(federation, name)
    seen = [status.state async for status in federation.jobs.watch("three")]
    assert seen[0] == "waiting"
    assert seen[-1] == "finished"
    assert list(dict.fromkeys(seen)) == ["waiting", "running", "finished"]


@pytest.mark.second_tier
async def test_a_waiting_job_is_cancelled_without_any_party(tmp_path: Path) -> None:
    """It never begins, and its place is free for the next."""

    federation = Federation(tmp_path, HERE.tables)
    for name in ("one", "two", "three", "four"):
        _submit(federation, name)
    assert (await federation.jobs.cancel("three")).state == "cancelled"
    assert _states(federation)["four"] == "waiting"
    assert (await federation.jobs.wait("four")).state == "finished"
    cancelled = federation.jobs.status("three")[0]
    assert (cancelled.state, cancelled.attempt) == ("cancelled", 0)


async def test_a_job_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    """It is interrupted then, and can be resumed."""

    federation = Federation(tmp_path, HERE.tables)
    federation.jobs._waiting_s = 0.05
    federation.jobs._most = 1
    stuck = asyncio.Event()

    async def never(*_: object) -> object:
        await stuck.wait()
        yield

    party = federation.node("feature-b")
    step, party.step = party.step, never  # type: ignore[method-assign, assignment]
    _submit(federation, "one")
    _submit(federation, "two")
    status = await federation.jobs.wait("two")
    assert status.state == "interrupted"
    assert status.error.startswith("has waited 0.05 s for its turn: waits until one of the 1 jobs under way ends")
    assert status.error.endswith("; then: treetap resume two")
    party.step = step  # type: ignore[method-assign]
    await federation.jobs.cancel("one")
    federation.jobs.resume("two")
    assert (await federation.jobs.wait("two")).state == "finished"


async def test_the_queue_outlives_the_coordinator(tmp_path: Path) -> None:
    """In its order; what ran is for an operator to resume, and holds no place at the parties meanwhile."""

    federation = Federation(tmp_path, HERE.tables)
    for name in ("one", "two", "three", "four"):
        _submit(federation, name)
    await asyncio.sleep(0)
    await federation.jobs.close()
    federation.start("coordinator")
    assert _states(federation) == {
        "one": "interrupted",
        "two": "interrupted",
        "three": "waiting",
        "four": "waiting",
    }
    federation.jobs.go_on()
    assert _states(federation)["three"] == "running"
    for name in ("three", "four"):
        assert (await federation.jobs.wait(name)).state == "finished"
    federation.jobs.resume("one")
    assert (await federation.jobs.wait("one")).state == "finished"


@pytest.mark.second_tier
async def test_served_models_do_not_count(tmp_path: Path) -> None:
    """Two jobs run beside them, at the coordinator and at the parties."""

    federation = Federation(tmp_path, HERE.tables, serve={"label-holder": config()})
    assert (await federation.train(JOB)).state == "finished"
    serve = predict_request(job="served", model="job", table="predict", serve=True)
    federation.jobs.submit(serve, "ann")
    for name in ("one", "two"):
        _submit(federation, name)
    assert set(_states(federation).values()) == {"finished", "running"}
    for name in ("one", "two"):
        assert (await federation.jobs.wait(name)).state == "finished"
    await federation.jobs.cancel("served")


async def test_a_party_that_is_busy_puts_a_job_off(tmp_path: Path) -> None:
    """As jobs of another coordinator make it; the job waits, and is tried again, without an operator."""

    federation = Federation(tmp_path, HERE.tables)
    busy = federation.configs["feature-b"].model_copy(update={"most_jobs": 1})
    federation.configs["feature-b"] = busy
    federation.start("feature-b")
    for name in ("one", "two"):
        _submit(federation, name)
    states = set()

    def look(_: Message) -> None:
        found = federation.jobs.status("two")[0]
        states.add((found.state, found.error.partition(" (")[0]))

    federation.hook = look
    status = await federation.jobs.wait("two")
    federation.hook = None
    assert ("waiting", "feature-b has 1 jobs under way") in states
    assert status.state == "finished"
    assert status.attempt > 1
    assert federation.jobs.status("one")[0].state == "finished"


async def test_turns_go_round_by_operator() -> None:
    """Twenty jobs of one operator do not keep those of another waiting behind them."""

    waiting, loop = Waiting(), asyncio.get_running_loop()
    for job, operator in [*((f"a{n}", "ann") for n in range(4)), ("b0", "bob"), ("b1", "bob"), ("c0", "cy")]:
        waiting.add(Place(job, operator, loop.call_later(99, lambda: None)))
    order, running = [], ["ann", "ann"]
    while place := waiting.next(running):
        order.append(place.job)
        waiting.remove(place.job, turn=True)
        running = [*running[1:], place.operator]
    assert order == ["b0", "c0", "a0", "b1", "a1", "a2", "a3"]


async def test_pauses_of_a_job_that_is_put_off_grow() -> None:
    """Up to a minute; the end of another job cuts one short."""
    waiting, loop = Waiting(), asyncio.get_running_loop()
    for expected in (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S, 60.0, 60.0):
        waiting.add(Place("a", "ann", loop.call_later(999, lambda: None), "bank is busy"))
        assert waiting.next([]) is None
        assert waiting.pause_s() == expected
        assert waiting.sentence("a", 2) == "bank is busy"
        waiting.hurry()
        assert waiting.next([]) is not None
        waiting.remove("a", turn=True)
