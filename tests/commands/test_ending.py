"""Signals that end a command: as Ctrl-C does, and never in the midst of what an event loop calls."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import selectors
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict

import pytest

from treetap.commands import ending
from treetap.commands.ending import ENDED, as_ctrl_c, run, tell
from treetap.commands.jobs import serve
from treetap.commands.jobs.client import Operator, OperatorConfig
from treetap.commands.jobs.serve import ModelOptions
from treetap.lab.local_federation import clean_end
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.usefixtures("interruptible")
ENDING = [signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", ENDING)
def test_an_event_loop_finishes_what_it_does(number: signal.Signals) -> None:
    """Native code that a loop calls is not interrupted: the task ends where it waits next, and cleans up there."""
    done: list[str] = []

    async def main() -> None:
        try:
            signal.raise_signal(number)
            done.append("the call")
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            signal.raise_signal(number)  # an impatient operator
            done.append("the cleaning")

    with pytest.raises(SystemExit) as raised, clean_end():
        asyncio.run(main())
    assert (raised.value.code, done) == (128 + number, ["the call", "the cleaning"])


@pytest.mark.parametrize("number", ENDING)
def test_without_a_loop_it_ends_at_once(number: signal.Signals) -> None:
    """As at Ctrl-C; afterwards the signal means what it meant before."""
    before = signal.getsignal(number)
    with pytest.raises(ENDED), as_ctrl_c(*ENDING) as came:
        signal.raise_signal(number)
    assert came == [number]
    assert signal.getsignal(number) == before


def test_a_waiting_loop_wakes() -> None:
    """The signal arrives while nothing else happens."""

    async def main() -> None:
        threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGTERM)).start()
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError), as_ctrl_c(signal.SIGTERM) as came:
        asyncio.run(asyncio.wait_for(main(), 60))
    assert came == [signal.SIGTERM]


def test_ctrl_c_keeps_its_own_way() -> None:
    """Only the signals that are named have another handler."""

    async def main() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(3600)

    with pytest.raises(KeyboardInterrupt), clean_end():
        asyncio.run(main())


def test_signals_that_are_ignored_stay_ignored() -> None:
    """As after nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with as_ctrl_c(*ENDING) as came:
            signal.raise_signal(signal.SIGHUP)
        assert (came, signal.getsignal(signal.SIGHUP)) == ([], signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    "ask",
    [
        lambda operator: operator.status("job"),
        lambda operator: operator.cancel("job"),
        lambda operator: operator.watch("job", lambda _: None),
        lambda operator: operator.resume("job"),
    ],
)
def test_ctrl_c_while_the_loop_of_a_call_is_made_leaves_no_complaint(
    ask: Callable[[Operator], object], monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """The call ends before it begins: no half-made loop, no coroutine that was never awaited."""
    made, complaints = selectors.DefaultSelector, list[object]()

    def interrupted() -> selectors.BaseSelector:
        signal.raise_signal(signal.SIGINT)
        return made()

    monkeypatch.setattr(selectors, "DefaultSelector", interrupted)
    monkeypatch.setattr(ending, "_calls", None)
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    with pytest.raises(KeyboardInterrupt):
        ask(Operator(OperatorConfig(coordinator="127.0.0.1:9", insecure=True)))
    gc.collect(1)  # what has just been made, and not all that the run has
    assert complaints == []
    assert [text for text in (str(warning.message) for warning in recwarn) if "never awaited" in text] == []


def test_where_a_loop_runs_a_call_has_another_thread() -> None:
    """As in a notebook: the call gives its result or its error, and the loop of the cell goes on."""

    async def called(outcome: Exception | int) -> int:
        await asyncio.sleep(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome + threading.get_ident() * 0

    async def cell() -> int:
        found = run(called(7))
        with pytest.raises(ValueError, match="theirs"):
            run(called(ValueError("theirs")))
        return found

    assert asyncio.run(cell()) == 7


def test_ctrl_c_in_a_notebook_cancels_the_call() -> None:
    """The call cleans up in its thread before the cell ends."""
    seen: list[str] = []

    async def called() -> None:
        threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned")

    async def cell() -> None:
        try:
            run(called())
        except KeyboardInterrupt:
            seen.append("ended")

    asyncio.run(cell())
    assert seen == ["cleaned", "ended"]


def test_calls_of_all_threads_have_one_loop_that_stays() -> None:
    """A loop that was closed would have gRPC complain on the screen; what a call tells is done where it was made."""

    async def called() -> tuple[asyncio.AbstractEventLoop, int]:
        return asyncio.get_running_loop(), await tell(threading.get_ident)

    found: list[tuple[asyncio.AbstractEventLoop, int]] = []
    threads = [threading.Thread(target=lambda: found.append(run(called()))) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found.append(run(called()))
    assert len({loop for loop, _ in found}) == 1
    assert not found[0][0].is_closed()
    assert {ident for _, ident in found} == {threading.get_ident(), *(each.ident for each in threads)}


def test_an_error_of_what_is_told_ends_the_call() -> None:
    """It rises where the call was made, once that has cleaned up; a call may be made there meanwhile."""
    seen: list[object] = []

    async def other() -> str:
        return "other"

    def told() -> None:
        seen.append(run(other()))
        raise ValueError("theirs")

    async def called() -> None:
        try:
            await tell(told)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned")

    with pytest.raises(ValueError, match="theirs"):
        run(called())
    assert seen == ["other", "cleaned"]


def test_a_fork_has_a_loop_of_its_own() -> None:
    """The thread of the first one is not in it."""

    async def called() -> int:
        return 7

    assert run(called()) == 7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        os._exit(run(called()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_ctrl_c_in_a_call_cancels_it_and_has_one_traceback() -> None:
    """The call cleans up in its loop, and nothing that was handled before is shown beside the interruption."""
    seen: list[str] = []

    async def called() -> None:
        threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned")

    with pytest.raises(KeyboardInterrupt) as interrupted:
        run(called())
    assert seen == ["cleaned"]
    assert interrupted.value.__context__ is None


@pytest.mark.parametrize("number", ENDING)
def test_serve_ends_its_job_when_the_signal_comes_after_the_error_of_a_closed_terminal(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that is closed fails what is written there, and its signal may come a moment later."""
    begin, cancelled = serve._end, list[str]()

    class Client:
        def predict(self, request: jobs_pb2.PredictRequest) -> str:
            return request.model

        def cancel(self, job: str) -> jobs_pb2.JobStatus:
            cancelled.append(job)
            return jobs_pb2.JobStatus(job=job, state="cancelled")

    def watch(*_: object, **__: object) -> jobs_pb2.JobStatus:
        raise OSError(errno.EIO, "the terminal has gone")

    def late(client: Operator, job: str) -> None:
        signal.raise_signal(number)
        begin(client, job)

    monkeypatch.setattr(serve, "operating", lambda *_: nullcontext(Client()))
    monkeypatch.setattr(serve, "_watch", watch)
    monkeypatch.setattr(serve, "_end", late)
    serve.serve(**asdict(ModelOptions(model="m")))
    assert cancelled == ["m"]
