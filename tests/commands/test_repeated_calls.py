"""Operators' calls to a coordinator that is there but does not take every call: asked again for a bounded time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from treetap.commands.jobs import client
from treetap.commands.jobs.client import Operator, OperatorConfig
from treetap.errors import Interrupted, TreetapError, Unanswered, UnknownJob
from treetap.wire import rpc
from treetap.wire.callers import ERROR_KEY
from treetap.wire.ports import Timeouts
from treetap.wire.v2 import jobs_pb2, jobs_pb2_grpc

GAVE_UP_S = 0.5


class Flaky(jobs_pb2_grpc.JobsServicer):
    """Refuses the first `refuses` calls as unavailable; a Watch that is taken after `breaks` others tells the end."""

    def __init__(self) -> None:
        self.refuses, self.breaks = 0, 0
        self.calls: list[str] = []

    def _take(self, call: str, context: grpc.ServicerContext) -> None:
        self.calls.append(call)
        if len(self.calls) <= self.refuses:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")

    def Submit(self, request: jobs_pb2.SubmitRequest, context: grpc.ServicerContext) -> jobs_pb2.JobAccepted:
        self._take("submit", context)
        return jobs_pb2.JobAccepted(job=request.job)

    def Predict(self, request: jobs_pb2.PredictRequest, context: grpc.ServicerContext) -> jobs_pb2.JobAccepted:
        self._take("predict", context)
        return jobs_pb2.JobAccepted(job=request.job)

    def Resume(self, request: jobs_pb2.JobName, context: grpc.ServicerContext) -> jobs_pb2.JobAccepted:
        self._take("resume", context)
        return jobs_pb2.JobAccepted(job=request.job)

    def Cancel(self, request: jobs_pb2.JobName, context: grpc.ServicerContext) -> jobs_pb2.JobStatus:
        self._take("cancel", context)
        return jobs_pb2.JobStatus(job=request.job, state="cancelled")

    def Status(self, request: jobs_pb2.StatusRequest, context: grpc.ServicerContext) -> Iterator[jobs_pb2.StatusReply]:
        self._take("status", context)
        yield jobs_pb2.StatusReply(jobs=[jobs_pb2.JobStatus(job=request.job, state="running")])

    def Watch(self, request: jobs_pb2.JobName, context: grpc.ServicerContext) -> Iterator[jobs_pb2.JobStatus]:
        self._take("watch", context)
        if request.job == "unknown":
            context.set_trailing_metadata(((ERROR_KEY, "UnknownJob"),))
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no job 'unknown'")
        taken = len(self.calls) - self.refuses
        yield jobs_pb2.JobStatus(job=request.job, state="running", round=taken)
        if taken <= self.breaks:
            context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
        yield jobs_pb2.JobStatus(job=request.job, state="finished")


@pytest.fixture
def flaky() -> Flaky:
    return Flaky()


@pytest.fixture
def operator(flaky: Flaky, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    """Asks a server that behaves as `flaky` says, and gives up sooner than people do."""
    monkeypatch.setattr(client, "TIMEOUTS", Timeouts(GAVE_UP_S))
    server = grpc.server(ThreadPoolExecutor(2))
    jobs_pb2_grpc.add_JobsServicer_to_server(flaky, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield Operator(OperatorConfig(coordinator=f"127.0.0.1:{port}", insecure=True))
    server.stop(None).wait()


@pytest.mark.second_tier
def test_watching_survives_refusals_and_breaks(flaky: Flaky, operator: Operator) -> None:
    """The first Watch is refused, the next ones break: the watcher sees every status, then the end."""
    flaky.refuses, flaky.breaks = 1, 8  # whose pauses together take longer than one break may last
    seen: list[tuple[str, int]] = []
    ended = operator.watch("job", lambda status: seen.append((status.state, status.round)))
    assert ended.state == "finished"
    assert seen == [*(("running", k) for k in range(1, 10)), ("finished", 0)]
    assert flaky.calls == ["watch"] * 10


#: Where to look for a job without a name of its own.
MADE_UP = "treetap status [a-z]+-[a-z-]*[0-9a-f]{8}"


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("call", ["status", "cancel"])
def test_what_changes_nothing_twice_is_asked_again(call: str, flaky: Flaky, operator: Operator) -> None:
    """Two refusals, then the answer."""
    flaky.refuses = 2
    answer = operator.status("job") if call == "status" else [operator.cancel("job")]
    assert [status.job for status in answer] == ["job"]
    assert flaky.calls == [call] * 3


@pytest.mark.parametrize(
    ("call", "begin", "look"),
    [
        ("submit", lambda asked: asked.submit(jobs_pb2.SubmitRequest(job="job")), "treetap status job"),
        ("submit", lambda asked: asked.submit(jobs_pb2.SubmitRequest()), MADE_UP),
        ("predict", lambda asked: asked.predict(jobs_pb2.PredictRequest(model="model")), MADE_UP),
        ("resume", lambda asked: asked.resume("job"), "treetap status job"),
    ],
)
def test_what_begins_a_job_is_asked_once(
    call: str, begin: Callable[[Operator], str], look: str, flaky: Flaky, operator: Operator
) -> None:
    """The error says that the job may have begun, and where to look."""
    flaky.refuses = 1
    with pytest.raises(Interrupted, match=f"not now; it may have accepted the job all the same; see: {look}$"):
        begin(operator)
    assert flaky.calls == [call]


@pytest.mark.second_tier
def test_who_never_takes_the_call_is_given_up(flaky: Flaky, operator: Operator) -> None:
    """After the time for one break, with the cause and what to type."""
    flaky.refuses = 1000
    began = time.monotonic()
    with pytest.raises(
        Interrupted, match=r"coordinator does not answer: not now; when it is back: treetap resume job$"
    ):
        operator.watch("job", lambda _: None)
    with pytest.raises(Unanswered, match=r"coordinator does not answer: not now$"):
        operator.status()
    assert time.monotonic() - began < 2 * GAVE_UP_S + 10
    assert 4 < len(flaky.calls) < 20


def test_an_answer_is_not_asked_for_again(flaky: Flaky, operator: Operator) -> None:
    """An error that the coordinator itself gives is the answer."""
    with pytest.raises(UnknownJob, match="there is no job 'unknown'"):
        operator.watch("unknown", lambda _: None)
    assert flaky.calls == ["watch"]


@pytest.mark.second_tier
@pytest.mark.parametrize("call", ["status", "watch"])
def test_who_seems_to_be_absent_is_asked_once_more(
    call: str, flaky: Flaky, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy host the diagnosis finds no process where there is one: one repeat, not more."""

    async def nobody(_location: str, _within_s: float) -> bool:
        return False

    monkeypatch.setattr(rpc, "_listens", nobody)

    def ask() -> object:
        return operator.status("job") if call == "status" else operator.watch("job", lambda _: None)

    flaky.refuses = 1
    assert ask()
    assert flaky.calls == [call] * 2
    flaky.refuses = 4
    with pytest.raises(TreetapError, match="coordinator does not answer: not now"):
        ask()
    assert flaky.calls == [call] * 4


def test_an_absent_coordinator_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are not repeated where no process listens, nor may a job have been accepted."""
    monkeypatch.setattr(client, "TIMEOUTS", Timeouts(60))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    operator = Operator(OperatorConfig(coordinator=f"127.0.0.1:{port}", insecure=True))
    began = time.monotonic()
    for call in (
        operator.status,
        lambda: operator.watch("job", lambda _: None),
        lambda: operator.submit(jobs_pb2.SubmitRequest()),
    ):
        with pytest.raises(TreetapError, match="Connection refused") as raised:
            call()
        assert "all the same" not in str(raised.value)
    assert time.monotonic() - began < 10
