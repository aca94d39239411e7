"""What an operator has signed ends, and what has ended stays so: at every party, whoever asks again, and when."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.approvals.people import LABEL_HOLDER, B, C, begin, certify
from tests.approvals.test_ledger import JOB as WAITS
from tests.campaign.small_jobs import TRAININGS, trained
from tests.replay import JOB
from tests.simulator import COORDINATOR, Federation
from treetap.errors import BadInput, Overloaded, Pending, Refused, TreetapError
from treetap.party.approvals.ledger import WAIT_DAYS, Approvals
from treetap.party.approvals.openings import operator_of
from treetap.party.node import PartyNode
from treetap.party.policy import Policy
from treetap.party.runtime import attempts
from treetap.party.runtime.attempts import Attempts, Session
from treetap.party.runtime.ledger import Ledger
from treetap.protocols.agreement import job_digest, named, statement
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import filled, name_of
from treetap.wire.signatures import NANOS_A_DAY, signed
from treetap.wire.tls import Insecure, TlsFiles
from treetap.wire.v2 import control_pb2, jobs_pb2, setup_pb2

PREPARE = setup_pb2.Prepare(spec=JOB, submission="7")
DIGEST = job_digest("job", PREPARE)
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsFiles]:
    return certify(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("names", "days", "forgotten", "says"),
    [
        (None, 6.9, 0.0, ""),
        (None, 7.1, 0.0, "signature has ended on"),
        (1.0, 0.9, 0.0, ""),
        (1.0, 1.1, 0.0, "signature has ended on"),
        (30.0, 29.0, 0.0, ""),
        (3650.0, 365.0, 0.0, ""),
        (3650.0, 367.0, 0.0, "signature has ended on"),  # no statement holds for longer
        (-1.0, 0.0, 0.0, "signature has ended on"),
        (None, 300.0, None, ""),  # of a job that is open here
        (None, 1.0, 0.5, "which may have ended: so many have since"),
        (None, 1.0, -0.1, ""),
        (None, 0.0, 0.0, "which may have ended"),  # its clock may be ahead
    ],
)
def test_a_statement_is_for_a_first_opening_until_its_end(
    names: float | None, days: float, forgotten: float | None, says: str, certificates: dict[str, TlsFiles]
) -> None:
    """The end that it names, or a week after it was signed. All days count from the signature."""
    now = time.time_ns()
    until = 0 if names is None else now + int(names * NANOS_A_DAY)
    made = signed(certificates["operator"], statement(DIGEST), "job", now, until)
    opening = setup_pb2.Prepare(spec=JOB, submission="7", signed=made)
    since = None if forgotten is None else now / 1e9 + forgotten * DAY_S if says or forgotten else 0.0

    def asked() -> str:
        with mock.patch("time.time", return_value=now / 1e9 + days * DAY_S):
            policy = Policy(people={"operators": ["operator"]})
            return operator_of(B, "job", opening, DIGEST, certificates[B], policy, new=True, forgotten=since)[0]

    if says:
        with pytest.raises(Refused, match=says):
            asked()
    else:
        assert asked() == "operator"


@pytest.mark.parametrize("change", [1, -1, None])
def test_no_other_end_counts_than_the_one_that_was_signed(
    change: int | None, certificates: dict[str, TlsFiles]
) -> None:
    """One that is added, moved or left out."""
    now = time.time_ns()
    made = signed(certificates["operator"], statement(DIGEST), "job", now, 0 if change is None else now + NANOS_A_DAY)
    made.until_nanos = now + 9 * NANOS_A_DAY if change is None else made.until_nanos + change
    for other in (made.until_nanos, 0) if change is not None else (made.until_nanos,):
        made.until_nanos = other
        opening = setup_pb2.Prepare(spec=JOB, submission="7", signed=made)
        with pytest.raises(Refused, match="is of something else, or was changed"):
            operator_of(B, "job", opening, DIGEST, certificates[B], Policy(), new=True, forgotten=0.0)


# ---- what has ended


def _submitted(federation: Federation, operator: TlsFiles | None) -> jobs_pb2.SubmitRequest:
    """A training, signed by an operator if there is one."""
    asked = named(jobs_pb2.SubmitRequest(job="job", spec=TRAININGS["boosting"][1]))
    if operator is not None:
        opening = setup_pb2.Prepare(spec=asked.spec, submission=asked.submission)
        asked.signed.CopyFrom(signed(operator, statement(job_digest("job", opening)), "job", time.time_ns()))
    federation._told(lambda jobs: jobs.submit(asked))
    return asked


async def _ask(federation: Federation, party: str, request: control_pb2.StepRequest, days: float) -> str:
    """The error of an opening so many days later; empty: it opened."""
    again = control_pb2.StepRequest()
    again.CopyFrom(request)
    again.attempt += 50
    node, later = federation.node(party), time.time() + days * DAY_S
    with mock.patch("time.time", return_value=later):
        try:
            session = await PartyNode._open(node, COORDINATOR, again, name_of(again))
        except TreetapError as fault:
            return str(fault)
        await node._end(session)
        return ""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, control_pb2.StepRequest]:
    """The last opening that a party was asked for."""
    seen: dict[str, control_pb2.StepRequest] = {}
    session = PartyNode._open

    async def open_it(self: PartyNode, caller: str, request: control_pb2.StepRequest, kind: str) -> Session:
        seen[self.config.name] = request
        return await session(self, caller, request, kind)

    monkeypatch.setattr(PartyNode, "_open", open_it)
    return seen


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("end", "is_signed"), [("cancelled", True), ("finished", False), ("cancelled", False), ("finished", True)]
)
async def test_a_training_that_has_ended_opens_nowhere_again(
    end: str,
    is_signed: bool,
    tmp_path: Path,
    certificates: dict[str, TlsFiles],
    opened: dict[str, control_pb2.StepRequest],
) -> None:
    """Cancelled or done, signed or not; the party knows it after a restart too. No other approval is asked for."""
    policies = {name: {"people": {"operators": ["operator"]}} for name in (LABEL_HOLDER, B, C) if is_signed}
    federation = begin(tmp_path, "boosting", certificates, policies)
    cancels: list[asyncio.Future[jobs_pb2.JobStatus]] = []

    def hook(message: Any) -> None:
        if end == "cancelled" and not cancels and "candidate_sums" in message.word:
            cancels.append(asyncio.ensure_future(federation.jobs.cancel("job")))

    federation.hook = hook
    _submitted(federation, certificates["operator"] if is_signed else None)
    status = await federation.jobs.wait("job")
    federation.hook = None
    if cancels:
        status = await cancels[0]
    assert (status.state, len(cancels)) == (end, end == "cancelled")
    for party, days in ((B, 0.0), (B, 300.0), (LABEL_HOLDER, 1.0), (C, 1.0)):
        federation.restart(party)
        assert "job job has ended here; submit a new job" in await _ask(federation, party, opened[party], days)


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("end", "fault"), [("cancelled", "killed"), ("finished", "away"), ("cancelled", "away"), ("finished", "killed")]
)
async def test_an_end_that_was_not_heard_is_told_at_the_next_start(
    end: str, fault: str, tmp_path: Path, certificates: dict[str, TlsFiles], caplog: pytest.LogCaptureFixture
) -> None:
    """By a coordinator that was killed at the first leave, or to a party that was away; after that no more."""
    federation = begin(tmp_path, "boosting", certificates, {})
    tasks: list[asyncio.Future[Any]] = []

    def hook(message: Any) -> None:
        if end == "cancelled" and not tasks and "candidate_sums" in message.word:
            tasks.append(federation.process(COORDINATOR).run(federation.jobs.cancel("job")))
        if message.word == "leave":
            federation.hook = None
            federation.kill(COORDINATOR) if fault == "killed" else federation.freeze(B)

    federation.hook = hook
    _submitted(federation, None)
    await asyncio.sleep(600)
    assert federation.hook is None
    federation.freeze(B, thaw=True)
    if fault == "away":
        assert f"job job: {B} did not confirm that it is over" in caplog.text
        await federation.jobs.close()
    federation.start(COORDINATOR)
    assert (await federation.jobs.wait("job")).state == end
    for told in (["job"], []):
        assert federation.jobs._journal.untold() == told
        federation._told(lambda jobs: jobs.go_on())
        await asyncio.sleep(60)
    for party in (LABEL_HOLDER, B, C):
        node = federation.node(party)
        (known,) = node._attempts._known.values()
        assert (list(node._sessions), known.left, known.ended > 0, known.discarded) == (
            [],
            True,
            True,
            end != "finished",
        )


async def test_a_prediction_that_is_done_is_not_repeated(
    tmp_path: Path, certificates: dict[str, TlsFiles], opened: dict[str, control_pb2.StepRequest]
) -> None:
    """Its operator has signed one, whatever the table has by then."""
    trained("boosting")
    federation = begin(tmp_path, "interactive", certificates, {B: {"people": {"operators": ["operator"]}}})
    request = predict_request(protocol="interactive", model="job", table="predict")
    request.job = "new"
    asked = named(request)
    opening = federation.jobs.submissions.draft(jobs_pb2.DraftRequest(predict=asked)).open_model
    asked.signed.CopyFrom(
        signed(certificates["operator"], statement(job_digest("new", opening)), "job", time.time_ns())
    )
    federation._told(lambda jobs: jobs.submit(asked))
    assert (await federation.jobs.wait("new")).state == "finished"
    for party in (B, LABEL_HOLDER):
        assert "job new has ended here" in await _ask(federation, party, opened[party], 2.0)


async def test_a_job_that_failed_may_go_on_as_long_as_its_statement_holds(
    tmp_path: Path, certificates: dict[str, TlsFiles], opened: dict[str, control_pb2.StepRequest]
) -> None:
    """Where all is discarded its next opening is a first one; one that is open here needs no statement any more."""
    federation = begin(tmp_path, "boosting", certificates, {B: {"people": {"operators": ["operator"]}}})
    federation.kill_at(C, lambda message: "candidate_sums" in message.word)
    asked = _submitted(federation, certificates["operator"])
    assert (await federation.jobs.wait("job")).state == "interrupted"
    assert await _ask(federation, B, opened[B], 300.0) == ""
    leave = setup_pb2.Leave(submission=asked.submission, discard=True)
    number = opened[B].attempt + 50
    await federation.node(B)._leave(
        COORDINATOR, filled(control_pb2.StepRequest(job="job", attempt=number), "leave", leave)
    )
    opened[B].attempt = number
    assert "whose operator's signature has ended" in await _ask(federation, B, opened[B], 8.0)
    assert await _ask(federation, B, opened[B], 6.0) == ""


def _over(folder: Path) -> Attempts:
    return Attempts(Ledger(folder))


def test_ends_are_remembered_in_bounded_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are made up push no end out without a trace: the last of those ends is kept."""
    monkeypatch.setattr(attempts, "MOST", 4)
    known, began = _over(tmp_path), time.time()
    known.opened("job", "7", 1, "aa")
    for job in ("job", "unheard"):
        known.left(job, "7", 1, ended=True)
        with pytest.raises(BadInput, match=f"^job {job} has ended here"):
            _over(tmp_path).check(job, "7", 2, "aa")
    for number in range(4):
        assert known.forgotten("") == 0.0
        known.left("made-up", str(number), 1, ended=True)
    assert _over(tmp_path).forgotten("") == known.forgotten("") >= began


@pytest.mark.parametrize("discarded", [False, True])
def test_jobs_that_are_over_push_none_out_that_is_open(
    discarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a served model, which its coordinator opens again after a restart; and the other way round."""
    monkeypatch.setattr(attempts, "MOST", 4)
    known = _over(tmp_path)
    known.opened("served", "7", 1, "aa", "c")
    for number in range(9):
        known.opened("other", str(number), 1, "bb", "c")
        known.left("other", str(number), 1, ended=not discarded, discarded=discarded, coordinator="c")
        known.left("made-up", str(number), 1, ended=not discarded, discarded=discarded, coordinator="c")
    assert _over(tmp_path).has_opened("served", "7")
    known.left("served", "7", 1, ended=True, coordinator="c")
    for number in range(9):
        known.opened("open", str(number), 1, "bb", "c")
    with pytest.raises(BadInput, match=r"^job served has ended here"):
        _over(tmp_path).check("served", "7", 2, "aa")


def test_ends_of_one_coordinator_are_no_matter_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It pushes out its own alone, whoever says later that a job of the other is left, and refuses its own alone."""
    monkeypatch.setattr(attempts, "MOST", 4)
    known, began = _over(tmp_path), time.time()
    known.opened("open", "7", 1, "aa", "one")
    known.opened("over", "7", 1, "aa", "one")
    known.left("over", "7", 1, ended=True, coordinator="flood")
    for number in range(9):
        known.left("made-up", str(number), 1, ended=True, coordinator="flood")
        known.opened("other", str(number), 1, "bb", "flood")
    known = _over(tmp_path)
    assert (known.forgotten("one"), known.has_opened("open", "7")) == (0.0, True)
    assert known.forgotten("flood") >= began
    with pytest.raises(BadInput, match=r"^job over has ended here"):
        known.check("over", "7", 2, "aa")


async def test_a_coordinator_that_floods_ends_keeps_none_of_another_from_new_jobs(
    tmp_path: Path, certificates: dict[str, TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "MOST", 4)
    named_ones = {B: {"people": {"operators": ["operator"], "coordinators": [COORDINATOR, "other"]}}}
    federation = begin(tmp_path, "boosting", certificates, named_ones)
    for number in range(5):
        leave = setup_pb2.Leave(submission="7", ends=True)
        request = filled(control_pb2.StepRequest(job=f"made-up-{number}", attempt=1), "leave", leave)
        async for _ in federation.node(B).step("other", request):
            pass
    _submitted(federation, certificates["operator"])
    assert (await federation.jobs.wait("job")).state == "finished"


# ---- what waits


@pytest.mark.parametrize(("others", "share"), [(0, 64), (1, 32), (3, 16), (99, 1)])
def test_jobs_that_wait_leave_room_for_other_coordinators(others: int, share: int, tmp_path: Path) -> None:
    """Each has its share of the places for as long as it wants, and makes room for its own alone."""
    clock = [0.0]
    names = ["coordinator", *(f"other-{number}" for number in range(others))]
    policy = Policy(people={"approval": "manual", "approvers": ["ann"], "coordinators": names})
    kept = Approvals(B, tmp_path, Insecure(B), lambda: clock[0])

    def waits(coordinator: str, number: int) -> None:
        asked = replace(WAITS, coordinator=coordinator, digest=f"{coordinator}-{number}")
        with pytest.raises(Pending):
            kept.admit(policy, asked, lambda: ())

    for number in range(share):
        waits("coordinator", number)
    with pytest.raises(Overloaded, match=f"{share} jobs wait for approval already, all of coordinator"):
        waits("coordinator", share)
    for name in names[1:4]:
        for number in range(share):
            waits(name, number)
    clock[0] = (WAIT_DAYS + 1) * DAY_S
    waits("coordinator", share)
    assert len([one for one in kept.listed() if one.coordinator == "coordinator"]) == share
