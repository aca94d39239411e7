"""Jobs are let go, also where nobody hears.

- Processes that live for months: whatever they hold is, after many jobs, as large as after the first.
- Work whose caller has gone, and work beside work that fails: errors are logged, and nothing goes on by itself.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np
import pytest

from tests.replay import HERE, JOB
from tests.simulator import COORDINATOR, Federation, Message, run
from tests.worlds import PARTIES
from treetap.coordinator.runtime.metrics import STATES, CoordinatorMetrics
from treetap.coordinator.runtime.roster import Roster
from treetap.errors import Conflict, DataError, Interrupted, OutOfOrder, Unreachable
from treetap.models import line_file
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.node import SESSION_S
from treetap.party.prediction.steps import send_block
from treetap.party.runtime import attempts
from treetap.party.runtime.context import Outbox
from treetap.party.runtime.steps import StepCache, follow
from treetap.process import limits
from treetap.process.together import together
from treetap.protocols.prediction import predict_request
from treetap.wire.disclosure import ByteCounts
from treetap.wire.ports import Address, Timeouts
from treetap.wire.v2 import control_pb2, jobs_pb2

#: Packages whose objects are looked into; those of Prometheus have a series for each value of their labels.
OURS = ("party", "coordinator", "treetap", "prometheus_client")
STEP = ("bin", 0, 0)
REQUEST = control_pb2.StepRequest(job="job", attempt=2)


def held(root: object) -> Counter[str]:
    """Number of entries of all containers that a process holds, by the way to them: `PartyNode._sessions`."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo = deque([(type(root).__name__, root)])
    while todo:
        way, each = todo.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict | WeakValueDictionary | list | tuple | set | frozenset | deque):
            inner = list(each.values()) if isinstance(each, dict | WeakValueDictionary) else list(each)
            found[way] += len(inner)
            todo.extend((f"{way}[]", one) for one in inner)
        elif ours := next((it for it in type(each).__mro__ if it.__module__.partition(".")[0] in OURS), None):
            todo.extend((f"{ours.__name__}.{name}", one) for name, one in _attributes(each))
    return +found


def _attributes(each: object) -> Iterator[tuple[str, Any]]:
    yield from vars(each).items() if hasattr(each, "__dict__") else ()
    for kind in type(each).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(each, name):
                yield name, getattr(each, name)


def _of_all(federation: Federation) -> dict[str, Counter[str]]:
    found = {name: held(federation.node(name)) for name in PARTIES}
    for party in found.values():
        for name in [way for way in party if way.startswith(("LineFile.", "Ledger.", "Charge.", "Occasion."))]:
            del party[name]  # of lines of the ledger, which no job ends
    kept = held(federation.jobs)
    for name in ("Lines.events", "Lines.events[]", "_Held.found"):
        kept.pop(name, None)  # of the one job that the journal read last
    for name in ("Journal._index", "_Entry.stamp"):
        kept.pop(name, None)  # of every job, and bounded in tests/runtime/test_retention.py
    return {**found, COORDINATOR: kept}


@pytest.mark.second_tier
def test_the_role_of_an_ended_job_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished and a failed one, with its tables and keys, in a process that seldom looks for garbage."""
    roles: dict[int, ref[object]] = {}
    monkeypatch.setattr(limits, "NEW_OBJECTS", gc.get_threshold()[0])
    gc.disable()  # as good as seldom

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)

        def note(message: Message) -> None:
            for name in PARTIES:
                for session in federation.node(name)._sessions.values():
                    roles.setdefault(id(session), ref(session.role))

        federation.hook = note
        assert (await federation.train(JOB, "done")).state == "finished"
        nowhere = predict_request(model="done", table="none")
        assert (await federation.predict(nowhere)).state == "failed"
        await asyncio.sleep(2 * limits.LET_GO_S)
        assert len(roles) >= len(PARTIES)
        assert [type(role()).__name__ for role in roles.values() if role() is not None] == []

    try:
        run(main())
    finally:
        gc.enable()


@pytest.mark.second_tier
async def test_many_jobs_leave_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained, predicted, refused, interrupted, cancelled: the fourth round of jobs leaves as much as the first.

    The journal holds one job, and a party remembers as many attempts as one round makes.
    """
    monkeypatch.setattr(attempts, "MOST", 4)

    federation = Federation(tmp_path, HERE.tables, record="both")

    async def several(number: int) -> None:
        assert (await federation.train(JOB, f"t{number}")).state == "finished"
        for protocol in ("interactive", "eini"):
            request = predict_request(model=f"t{number}", protocol=protocol)
            assert (await federation.predict(request)).state == "finished"
        nowhere = predict_request(model=f"t{number}", table="none")
        assert (await federation.predict(nowhere)).state == "failed"
        killed = asyncio.get_running_loop().create_future()

        def kill(message: Message) -> None:
            if message.word == "take_key" and not killed.done():
                killed.set_result(None)
                federation.jobs._running[f"c{number}"].cancel()

        federation.hook = kill
        assert (await federation.train(JOB, f"c{number}")).state == "interrupted"
        federation.hook = None
        assert (await federation.jobs.cancel(f"c{number}")).state == "cancelled"

    await several(1)
    first = _of_all(federation)
    assert first[COORDINATOR]["Parties.addresses"] == len(PARTIES)  # so it does look into them
    for number in range(2, 5):
        await several(number)
    assert _of_all(federation) == first
    for name in PARTIES:
        assert "PartyNode._sessions" not in first[name]
        assert "PartyNode._opening" not in first[name]
        assert "Recorders._writers" not in first[name]
    assert "Jobs._progress" not in first[COORDINATOR]


async def test_a_session_that_no_coordinator_leaves_closes_its_transcript(tmp_path: Path) -> None:
    """It ends by itself when the coordinator has been gone for long enough, and with it all that was held for it."""
    federation = Federation(tmp_path, HERE.tables, record="both")
    before = _of_all(federation)

    def kill(message: Message) -> None:
        if message.word == "build_histograms":
            federation.kill(COORDINATOR)

    federation.hook = kill
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    while federation.alive(COORDINATOR):
        await asyncio.sleep(0.1)
    during = _of_all(federation)
    for name in PARTIES:
        assert (during[name]["PartyNode._sessions"], during[name]["Recorders._writers"]) == (1, 1)
    sessions = {name: federation.node(name)._sessions["job"] for name in PARTIES}
    await asyncio.sleep(3 * SESSION_S)
    after = _of_all(federation)
    for name in PARTIES:
        for container in ("PartyNode._sessions", "PartyNode._opening", "PartyNode.tasks", "Recorders._writers"):
            assert after[name][container] == before[name][container] == 0
        attempts, context = federation.node(name)._attempts, sessions[name].context
        with pytest.raises(OutOfOrder, match=r"attempt 1 of job job is over: this party has left it"):
            attempts.check("job", sessions[name].submission, context.attempt, context.digest.hex())


async def test_jobs_are_counted_by_state_without_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After whatever happens to a job, and after a restart, the metric says what the journal has."""
    federation = Federation(tmp_path, HERE.tables)
    jobs = federation.jobs

    def check(**expected: int) -> None:
        of_metric = {
            state: jobs._metrics.registry.get_sample_value("treetap_jobs", {"state": state}) for state in STATES
        }
        assert of_metric == {state: float(expected.get(state, 0)) for state in STATES}
        assert Counter(status.state for status in jobs.status("")) == expected

    def kill(message: Message) -> None:
        if message.word == "take_key":
            federation.restart(PARTIES[1])
            federation.hook = None

    check()
    jobs.submit(jobs_pb2.SubmitRequest(job="one", spec=JOB))
    check(running=1)
    await jobs.wait("one")
    check(finished=1)
    with pytest.raises(Conflict):
        jobs.resume("one")
    await federation.predict(predict_request(model="one", table="none"))
    check(finished=1, failed=1)
    federation.hook = kill
    await federation.train(JOB, "two")
    check(finished=1, failed=1, interrupted=1)
    jobs.resume("two")
    check(finished=1, failed=1, running=1)
    await jobs.cancel("two")
    check(finished=1, failed=1, cancelled=1)
    await jobs.cancel("two")
    check(finished=1, failed=1, cancelled=1)
    federation.hook = kill
    await federation.train(JOB, "three")
    await jobs.cancel("three")
    check(finished=1, failed=1, cancelled=2)
    with monkeypatch.context() as patch:
        patch.setattr(line_file, "append", _full)
        with pytest.raises(Interrupted):
            await federation.train(JOB, "four")  # it is written down, and does not begin
    check(finished=1, failed=1, cancelled=2, interrupted=1)
    federation.restart(COORDINATOR)
    jobs = federation.jobs
    jobs._metrics = CoordinatorMetrics(COORDINATOR)
    jobs.count()
    check(finished=1, failed=1, cancelled=2, interrupted=1)
    assert (await federation.resume("four")).state == "finished"
    check(finished=2, failed=1, cancelled=2)


def _full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


async def _step_that_fails(error: Exception, *, heard: bool) -> None:
    """A step that fails after three seconds; its caller hears it, or goes after the first sign of life."""

    async def work() -> control_pb2.StepResult:
        await asyncio.sleep(3)
        raise error

    task = StepCache().start(STEP, REQUEST, work)
    events = follow("bank", task)
    await anext(events)
    if heard:
        with pytest.raises(type(error)):
            _ = [event async for event in events]
    else:
        await events.aclose()  # type: ignore[attr-defined]
    await asyncio.wait({task})
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("error", "level", "says"),
    [
        (DataError("t.csv: has no rows"), "WARNING", "failed after its caller had gone: DataError: t.csv: has no rows"),
        (Interrupted("lab cannot be reached"), "WARNING", "its caller had gone: Interrupted: lab cannot be reached"),
        (ZeroDivisionError("an amount"), "ERROR", "met a defect after its caller had gone"),
    ],
)
def test_a_failure_that_no_party_hears_is_logged(
    error: Exception, level: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the job, the attempt and the step; once, and only if no caller gets the error."""
    run(_step_that_fails(error, heard=False))
    (record,) = caplog.records
    assert (record.levelname, record.name) == (level, "treetap.party.runtime.steps")
    assert record.getMessage().startswith("job job, attempt 2: bin of round 0, stage 0")
    assert record.getMessage().endswith(says)
    assert bool(record.exc_info) == (level == "ERROR")
    caplog.clear()
    run(_step_that_fails(error, heard=True))
    assert caplog.records == []


class _Deaf:
    """A dialer whose calls never end."""

    async def step(self, _to: Address, _request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        await asyncio.get_running_loop().create_future()
        yield control_pb2.StepEvent()


async def test_no_call_to_leave_outlives_its_job() -> None:
    """The coordinator stops while it asks the parties to leave: when it has stopped it asks none."""

    parties = {name: Address(name, "sim") for name in PARTIES}
    deaf: Any = _Deaf()
    metrics = CoordinatorMetrics("coordinator")
    counts = ByteCounts("coordinator", metrics.sent)
    roster = Roster("job", 1, "one", parties, deaf, Timeouts(), counts, metrics, None)
    leaving = asyncio.ensure_future(roster.leave(60))
    await asyncio.sleep(1)
    assert len(asyncio.all_tasks()) >= 2 + len(PARTIES)
    leaving.cancel()
    await asyncio.wait({leaving})
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("cancelled", [False, True])
async def test_siblings_of_a_failure_have_ended(cancelled: bool) -> None:
    """A caller that awaits several calls together gets the first error when the others have stopped, not before."""

    ended: list[str] = []

    async def lasting(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)  # to stop takes its time too
            ended.append(name)

    async def failing() -> None:
        await asyncio.sleep(50 if cancelled else 1)
        raise Unreachable("no route")

    waiting = asyncio.ensure_future(together(lasting("a"), failing(), lasting("b")))
    await asyncio.sleep(0.5)
    if cancelled:
        waiting.cancel()
    (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError if cancelled else Unreachable)
    assert ended == ["a", "b"]


async def test_no_message_leaves_after_a_block_has_failed() -> None:
    """The records of a block go to all parties; if one cannot be reached the others' sending ends with it."""

    stopped: list[str] = []

    async def send(party: str, *_: object, **__: object) -> None:
        if party == "b":
            raise Interrupted("a cannot reach b")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            stopped.append(party)

    outbox: Any = SimpleNamespace(send=send)
    outbox.send_each = partial(Outbox.send_each, outbox)
    context: Any = SimpleNamespace(outbox=outbox)
    with pytest.raises(Interrupted):
        await send_block(context, dict.fromkeys("abc", PartnerRecords(5)), 0, np.arange(3))
    assert stopped == ["a", "c"]


async def test_an_unasked_end_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A session without steps ends by itself; an error of its end is in the log."""
    with caplog.at_level(logging.ERROR):
        federation = Federation(tmp_path, HERE.tables)

        def silence(message: Message) -> None:
            if message.word == "bin":
                raise Unreachable("cut")

        federation.hook = silence
        federation.jobs._parties.leave = _no_party  # type: ignore[method-assign]
        assert (await federation.train(JOB)).state == "interrupted"
        node = federation.node(PARTIES[1])

        async def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        node._sessions["job"].context.held.push_async_callback(full)
        await asyncio.sleep(4000)
        await federation.close()
    (record,) = [record for record in caplog.records if record.name == "treetap.party.runtime.steps"]
    assert record.getMessage() == "job job: the end of its session met a defect after its caller had gone"


async def _no_party(*_: object, **__: object) -> list[str]:
    """The parties are not told that the job has ended."""
    return []
