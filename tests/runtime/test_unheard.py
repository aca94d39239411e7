"""Work whose caller has gone, and work beside work that fails: errors are logged, and nothing goes on by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.replay import HERE, JOB
from tests.simulator import Federation, Message, run
from tests.worlds import PARTIES
from treetap.coordinator.runtime.metrics import CoordinatorMetrics
from treetap.coordinator.runtime.roster import Roster
from treetap.errors import DataError, Interrupted, Unreachable
from treetap.party.prediction.steps import send_block
from treetap.party.runtime.steps import StepCache, follow
from treetap.process.together import together
from treetap.wire.disclosure import ByteCounts
from treetap.wire.ports import Address, Timeouts
from treetap.wire.v2 import control_pb2

STEP = ("bin", 0, 0)
REQUEST = control_pb2.StepRequest(job="job", attempt=2)


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


def test_bad_input_of_a_step_names_the_party() -> None:
    """An operator of many parties sees whose table it is; a message that names the place already stays as it is."""

    async def failing(error: Exception) -> str:
        async def work() -> control_pb2.StepResult:
            raise error

        with pytest.raises(DataError) as raised:
            _ = [event async for event in follow("bank", StepCache().start(STEP, REQUEST, work))]
        return str(raised.value)

    assert run(failing(DataError("t.csv: has no rows"))) == "bank: t.csv: has no rows"
    assert run(failing(DataError("bank has no table", party="bank"))) == "bank has no table"


class _Deaf:
    """A dialer whose calls never end."""

    async def step(self, _to: Address, _request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        await asyncio.get_running_loop().create_future()
        yield control_pb2.StepEvent()


def test_no_call_to_leave_outlives_its_job() -> None:
    """The coordinator stops while it asks the parties to leave: when it has stopped it asks none."""

    async def main() -> int:
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
        return len(asyncio.all_tasks())

    assert run(main()) == 1


@pytest.mark.parametrize("cancelled", [False, True])
def test_siblings_of_a_failure_have_ended(cancelled: bool) -> None:
    """A caller that awaits several calls together gets the first error when the others have stopped, not before."""

    async def main() -> list[str]:
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
        return ended

    assert run(main()) == ["a", "b"]


def test_no_message_leaves_after_a_block_has_failed() -> None:
    """The records of a block go to all parties; if one cannot be reached the others' sending ends with it."""

    async def main() -> list[str]:
        stopped: list[str] = []

        async def send(party: str, *_: object, **__: object) -> None:
            if party == "b":
                raise Interrupted("a cannot reach b")
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                stopped.append(party)

        context: Any = SimpleNamespace(outbox=SimpleNamespace(send=send))
        with pytest.raises(Interrupted):
            await send_block(context, ["a", "b", "c"], 0, np.arange(3), 5)
        return stopped

    assert run(main()) == ["a", "c"]


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

        node._sessions["job"].role.close = full  # type: ignore[method-assign]
        await asyncio.sleep(4000)
        await federation.close()
    (record,) = [record for record in caplog.records if record.name == "treetap.party.runtime.steps"]
    assert record.getMessage() == "job job: the end of its session met a defect after its caller had gone"


async def _no_party(*_: object, **__: object) -> list[str]:
    """The parties are not told that the job has ended."""
    return []
