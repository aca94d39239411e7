"""Jobs that wait for people: every protocol, approved, refused, over restarts; nothing is held meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.approvals.people import ANN, LABEL_HOLDER, MANUAL, B, C, approvals, approve, begin, the_one, waiting
from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, TRAININGS, play, training_of, wrong
from tests.serving.served import phase as served
from tests.simulator import COORDINATOR, Federation, Message, finished
from treetap.errors import BadInput
from treetap.party.node import PartyNode
from treetap.party.runtime.attempts import Session
from treetap.protocols.prediction import predict_request
from treetap.wire.disclosure import CLASSES, bytes_by_class
from treetap.wire.frame import name_of
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2

STORIES = ["boosting", "interactive", "preview of a count", "serving"]
STORIES += [
    story
    for story in (*TRAININGS, *PREDICTIONS, *PREVIEWS)
    if story not in STORIES and (story in PREVIEWS or C in TRAININGS[training_of(story)][0].tables)
]


def _job(story: str) -> str:
    return "job" if story in TRAININGS else "p" if story in PREVIEWS else "new"


def _assert_nothing_held(federation: Federation) -> None:
    for name in federation.configs:
        assert not federation.node(name)._sessions


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("story", STORIES)
async def test_a_job_waits_for_two_parties_people_and_ends_right(
    story: str, tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """It has no session anywhere while it waits, and its result is that of a job that did not wait.

    All that can be read of what a party then sends to another stood in the words that its people were shown.
    """
    federation = begin(tmp_path, story, certificates, dict.fromkeys((B, C), MANUAL))
    sent: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def seen(sender: str, receiver: str, parcel: exchange_pb2.PeerMessage) -> None:
        sent[sender, receiver] |= {name for name in bytes_by_class(parcel) if CLASSES[name].kind == "open"}

    federation.tamper = seen
    playing = asyncio.ensure_future(play(federation, story))
    await waiting(federation, _job(story), B, C)
    _assert_nothing_held(federation)
    words = the_one(federation, B).words
    assert f"Coordinator {COORDINATOR} asks for job {_job(story)}, which no operator has signed." in words
    approve(federation, B)
    await waiting(federation, _job(story), C)
    approve(federation, C)
    status = await playing
    assert status.state == ("cancelled" if story == "serving" else "finished"), status.error
    assert approvals(federation, B).state(the_one(federation, B)) == "ended"
    assert wrong(federation, story) == ""
    for (sender, receiver), classes in sent.items():
        if sender in (B, C):
            said = _sent(the_one(federation, sender).words, receiver)
            assert [name for name in classes if CLASSES[name].tells not in said] == []


def _sent(words: Sequence[str], receiver: str) -> str:
    """The lists of what is sent to a receiver."""
    lists = "\n".join(words).split("\nYou ")
    return "".join(said for said in lists if said.startswith("send ") and receiver in said.partition("\n")[0])


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("story", ["boosting", "interactive", "preview of a count", "eini", "preview of records"])
async def test_an_approval_ends_with_its_job(
    story: str, tmp_path: Path, certificates: dict[str, TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further attempt at a job that is finished opens at no party, also after a restart."""
    opened: dict[str, control_pb2.StepRequest] = {}
    opens = PartyNode._open

    async def seen(self: PartyNode, caller: str, request: control_pb2.StepRequest, kind: str) -> Session:
        opened[self.config.name] = request
        return await opens(self, caller, request, kind)

    async def again(federation: Federation, party: str) -> Session:
        request = opened[party]
        request.attempt += 1
        return await opens(federation.node(party), COORDINATOR, request, name_of(request))

    monkeypatch.setattr(PartyNode, "_open", seen)
    federation = begin(tmp_path, story, certificates, dict.fromkeys((LABEL_HOLDER, B), MANUAL))
    playing = asyncio.ensure_future(play(federation, story))
    await waiting(federation, _job(story), LABEL_HOLDER, B)
    approve(federation, LABEL_HOLDER)
    approve(federation, B)
    assert (await playing).state == "finished"
    for party in (LABEL_HOLDER, B):
        federation.restart(party)
        with pytest.raises(BadInput, match=f"job {_job(story)} has ended here; submit a new job"):
            await again(federation, party)
        asked = the_one(federation, party)
        assert asked.last is not None
        assert (asked.last.approver, asked.last.way) == (COORDINATOR, "end of the job")
        with pytest.raises(BadInput, match="has ended here; have its operator submit a new one"):
            approve(federation, party)


@pytest.mark.parametrize("story", ["boosting", "interactive", "preview of a count"])
async def test_a_refusal_ends_the_job_with_its_reason(
    story: str, tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """It is the input of a person: exit status 2."""
    federation = begin(tmp_path, story, certificates, {B: MANUAL})
    playing = asyncio.ensure_future(play(federation, story))
    await waiting(federation, _job(story), B)
    asked = the_one(federation, B)
    approvals(federation, B).decide(ANN, asked.job, asked.digest, days=None, why="not\x1b[2J this table")
    status = await playing
    assert (status.state, status.bad_input) == ("failed", True)
    assert status.error == f"{B} has refused job {asked.job}: not\\x1b[2J this table (by {ANN})"
    _assert_nothing_held(federation)


STANDING = f"""name = "served"
until = 2099-01-01
count = 1
kinds = ["serve"]
coordinator = "{COORDINATOR}"
partners = ["{LABEL_HOLDER}", "{C}"]
table = "predict"
[document]
protocol = "interactive"
recipient = "{LABEL_HOLDER}"
model = "job"
serve = true
alignment = "sorted-ids"
"""


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("story", "way"), [("serving", "refused"), ("serving", "expired"), ("serving", "revoked"), ("boosting", "refused")]
)
async def test_what_goes_on_ends_with_the_consent(
    story: str, way: str, tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """A job that people refuse ends at the next step, and so does a served model once its approval is over."""
    federation = begin(tmp_path, story, certificates, {B: MANUAL})
    held, trained = approvals(federation, B), story in TRAININGS
    seen = asyncio.Event()
    federation.hook = lambda message: seen.set() if message.word == "candidate_sums" else None
    if trained:
        federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=TRAININGS[story][1]))
    else:
        federation.jobs.submit(predict_request(model="job", job="new", serve=True, protocol="interactive"))
    await waiting(federation, _job(story), B)
    if way == "revoked":
        held.stand(ANN, STANDING)
    else:
        approve(federation, B)
    async with asyncio.timeout(60):
        await (seen.wait() if trained else served(federation, "new", "serve"))
    asked, now = the_one(federation, B), held.clock()
    if way == "refused":
        held.decide(ANN, asked.job, asked.digest, days=None, why="no contract")
    elif way == "revoked":
        held.revoke(ANN, "served")
    else:
        held.clock = lambda: now + 8 * 86_400
    await asyncio.sleep(10)
    (status,) = federation.jobs.status(_job(story))
    refused = ("failed", f"{B} has refused job {asked.job}: no contract (by {ANN})")
    assert (status.state, status.error) == (
        refused if way == "refused" else ("waiting", f"waiting for approval of {B}")
    )
    _assert_nothing_held(federation)


async def test_a_wait_survives_both_restarts(tmp_path: Path, certificates: dict[str, TlsFiles]) -> None:
    """The journal and the party's state have the job; a resume after an approval needs no second one."""
    federation = begin(tmp_path, "boosting", certificates, {B: MANUAL})
    playing = asyncio.ensure_future(play(federation, "boosting"))
    await waiting(federation, "job", B)
    playing.cancel()
    digest = the_one(federation, B).digest
    for name in (COORDINATOR, B):
        federation.restart(name)
    federation.process(COORDINATOR).within(federation.jobs.go_on)
    await waiting(federation, "job", B)
    assert the_one(federation, B).digest == digest
    federation.kill(B)
    await asyncio.sleep(200)  # the party is away for a while
    assert federation.jobs.status("job")[0].state == "waiting"
    federation.start(B)
    approve(federation, B)
    status = finished(await federation.jobs.wait("job"))
    assert status.attempt == 2
    assert wrong(federation, "boosting") == ""


async def test_an_interrupted_job_resumes_without_another_approval(
    tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """Its digest is the same; once the approval has expired, it waits again."""
    federation = begin(tmp_path, "boosting", certificates, {B: MANUAL})
    playing = asyncio.ensure_future(play(federation, "boosting"))
    await waiting(federation, "job", B)
    approve(federation, B)

    def kill(message: Message) -> None:
        if message.word == "candidate_sums" and federation.alive(C):
            federation.kill(C)

    federation.hook = kill
    assert (await playing).state == "interrupted"
    federation.hook = None
    federation.start(C)
    held = approvals(federation, B).clock
    later = held() + 8 * 86_400
    approvals(federation, B).clock = lambda: later
    federation._told(lambda jobs: jobs.resume("job"))
    await waiting(federation, "job", B)
    assert approvals(federation, B).state(the_one(federation, B)) == "expired"
    approvals(federation, B).clock = held  # as if the clock had been wrong: the approval holds again
    assert (await federation.jobs.wait("job")).state == "finished"


@pytest.mark.second_tier
async def test_other_jobs_go_on_and_a_wait_has_an_end(tmp_path: Path, certificates: dict[str, TlsFiles]) -> None:
    """A job that waits for people has no place among those under way; after the days of the file it is interrupted."""
    federation = begin(tmp_path, "boosting", certificates, {B: MANUAL})
    federation.jobs._approval_days = 0.1
    playing = asyncio.ensure_future(play(federation, "boosting"))
    await waiting(federation, "job", B)
    with_c = await federation.preview(LABEL_HOLDER, C)
    assert "preview" in with_c.error  # it began, and the policy has its word
    await asyncio.sleep(0.1 * 86_400)
    status = await playing
    assert status.state == "interrupted"
    assert status.error.startswith(f"has waited 0.1 days for people: waiting for approval of {B}; then")
    lines = (tmp_path / COORDINATOR / "journal" / "job.jsonl").read_text().splitlines()
    assert len(lines) == 4  # submitted, attempt, waiting, ended: no line a question
    assert (await federation.jobs.cancel("job")).state == "cancelled"
    assert approvals(federation, B).listed() == []
