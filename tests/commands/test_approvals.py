"""Which job `treetap approve` and `treetap refuse` take, by its name and digest."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any, cast

import pytest

from tests.commands.command import screen
from treetap.commands.approvals import client
from treetap.commands.approvals.cli import _shown
from treetap.errors import BadInput, Conflict, Interrupted, TreetapError, UnknownJob
from treetap.wire.v2 import approvals_pb2


class _Asked:
    """An approver's calls to a party that was asked for these jobs of one name: first byte of a digest, and state."""

    def __init__(self, *jobs: tuple[int, str]) -> None:
        self._jobs = jobs

    def jobs(self, job: str) -> list[approvals_pb2.AskedJob]:
        return [approvals_pb2.AskedJob(job=job, digest=bytes([first] * 32), state=state) for first, state in self._jobs]


def _taken(digest: str, *jobs: tuple[int, str]) -> int:
    return _shown(lambda call: call(cast(Any, _Asked(*jobs))), "first", digest, quiet=True).digest[0]


@pytest.mark.parametrize("state", ["waiting", "approved"])
def test_namesakes_are_told_apart_by_the_digest(state: str) -> None:
    """None is taken by its age."""
    jobs = (1, state), (2, state)
    with pytest.raises(
        BadInput, match=f"2 jobs of the name first are {state}: say --digest, one of {'01' * 6}, {'02' * 6}$"
    ):
        _taken("", *jobs)
    assert _taken("01" * 6, *jobs) == 1
    assert _taken("02" * 6, *jobs) == 2


@pytest.mark.parametrize("others", [("ended", "waiting", "refused"), ("refused", "approved", "ended")])
def test_one_that_is_over_needs_no_digest(others: tuple[str, ...]) -> None:
    """A name may be used again."""
    assert _taken("", *enumerate(others)) == 1


@pytest.mark.parametrize(
    ("answers", "seconds", "said", "ends"),  # the digest begins with 1
    [
        ([[], [], [(1, "waiting")]], 60, ["no job 'first'"], ""),
        ([Interrupted("telco is away"), [(1, "ended")], [(1, "approved")]], 60, ["telco is away", "is ended"], ""),
        ([[], [(2, "waiting")], [(1, "open"), (2, "waiting")]], 60, ["no job"], ""),
        ([[(1, "refused")]] * 3, 2, ["is refused"], ""),  # the party says why it cannot be approved
        ([[]] * 4, 2.5, ["no job"], f"the party was asked for no job 'first' of digest {'01' * 6}"),
        ([[]], 0, [], f"the party was asked for no job 'first' of digest {'01' * 6}"),
        ([Interrupted("telco is away")] * 2, 1, ["away"], "telco is away"),
    ],
)
def test_a_job_is_waited_for(
    answers: list[Any], seconds: float, said: list[str], ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it can be approved, or for so long; a line where what is waited for changes; the digest tells namesakes."""
    text, now, left = screen(monkeypatch, "err", 80), 0.0, iter(answers)

    def sleep(pause: float) -> None:
        nonlocal now
        now += pause

    def ask(call: Any) -> Any:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return call(cast(Any, _Asked(*answer)))

    monkeypatch.setattr("treetap.commands.approvals.cli.time.sleep", sleep)
    monkeypatch.setattr("treetap.commands.approvals.cli.time.monotonic", lambda: now)
    with pytest.raises((BadInput, Interrupted), match=re.escape(ends) + "$") if ends else nullcontext():
        assert _shown(ask, "first", "01" * 6, seconds, quiet=True).digest[0] == 1
    assert next(left, None) is None
    lines = text.getvalue().replace("\n  ", " ").splitlines()
    assert all(what in line for what, line in zip(said, lines, strict=True))


@pytest.mark.parametrize("fault", [UnknownJob, Conflict, BadInput])
def test_a_job_that_went_meanwhile_keeps_no_other_from_being_refused(
    fault: type[TreetapError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was withdrawn or decided after the list was read; those that were refused are returned."""

    class Calls:
        def __init__(self, _config: object) -> None: ...

        async def jobs(self, *, brief: bool) -> list[approvals_pb2.AskedJob]:
            listed = [("one", "c"), ("gone", "c"), ("other", "d"), ("two", "c")]
            return [approvals_pb2.AskedJob(job=job, coordinator=of, state="waiting") for job, of in listed if brief]

        async def decide(self, decision: approvals_pb2.DecideRequest) -> approvals_pb2.AskedJob:
            if decision.job == "gone":
                raise fault("it went")
            return approvals_pb2.AskedJob(job=decision.job)

        async def close(self) -> None: ...

    monkeypatch.setattr(client, "PartyCalls", Calls)
    assert [
        one.job for one in client.ask(cast(Any, None), lambda calls: client.refuse_all(calls, "c", "no contract"))
    ] == ["one", "two"]
