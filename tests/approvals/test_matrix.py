"""Approvals, limits and the ledger together: every protocol of the registry, every key of a partner's limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from tests.approvals.people import LABEL_HOLDER, MANUAL, B, C, approve, begin, waiting
from tests.campaign import small_jobs
from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, TRAININGS, UNTIED, play, trained, training_of, wrong
from tests.replay import HERE, asked
from tests.simulator import COORDINATOR, Federation, run
from tests.splitnn.small_job import INSTALLED
from treetap.errors import Interrupted, OutOfOrder, Refused, UnknownJob
from treetap.party.runtime.attempts import Attempts
from treetap.party.runtime.job_ledger import DAILY
from treetap.party.runtime.ledger import Charge, Kind, Ledger, ledger_of
from treetap.protocols.limits import Partner
from treetap.protocols.registry import PREDICTION, TRAINING
from treetap.wire.frame import name_of
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2

#: Kind of a job and its protocol → a story of it. A preview has no protocol.
STORIES: Mapping[tuple[Kind, str], str] = {
    **{(Kind.TRAINING, name): name for name in ("boosting", "forest", "pivodl", "splitnn")},
    **{(Kind.PREDICTION, name): name for name in ("interactive", "eini", "eini-lattice", "masked")},
    (Kind.PREDICTION, "splitnn"): "network",
    (Kind.PREVIEW, ""): "preview of records",
}
JOBS = [(Kind.TRAINING, name) for name in TRAINING] + [(Kind.PREDICTION, name) for name in PREDICTION]
JOBS.append((Kind.PREVIEW, ""))
NEURAL = [pytest.mark.skipif(not INSTALLED, reason="needs treetap[neural]"), pytest.mark.second_tier]
FIRST = [(Kind.TRAINING, "boosting"), (Kind.PREDICTION, "interactive")]


def _marked(job: tuple[Kind, str]) -> Any:
    marks = NEURAL if "splitnn" in job else [] if job in FIRST else [pytest.mark.second_tier]
    return pytest.param(*job, marks=marks, id="-".join(filter(None, job)))


def _attempts(federation: Federation, party: str, kind: Kind) -> list[Charge]:
    """The charges of attempts at jobs of a test, without those of the training before a prediction."""
    return [charge for charge in ledger_of(federation.state(party)).charges(kind) if charge.amount]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("kind", "protocol"), [_marked(job) for job in JOBS])
async def test_a_job_that_waits_for_people_is_charged_once(
    kind: Kind, protocol: str, tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """At a limit of one: nothing while it waits, at the parties that opened it either; then before anything leaves."""
    story = STORIES[kind, protocol]
    if story not in (*TRAININGS, *PREVIEWS):
        trained(training_of(story))
    limit = {"partners": {COORDINATOR: Partner.model_validate({DAILY[kind]: 1})}}

    federation = begin(tmp_path, story, certificates, {LABEL_HOLDER: limit, B: {**MANUAL, **limit}, C: limit})

    def look(sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        own = Ledger(federation.state(sender)).charges(kind)  # as another process reads it
        assert parcel.attempt in [one.occasion.attempt for one in own if one.occasion.job == parcel.job]
        return parcel

    federation.tamper = look
    playing = asyncio.ensure_future(play(federation, story))
    name = "job" if story in TRAININGS else "p" if story in PREVIEWS else "new"
    await waiting(federation, name, B)
    assert [party for party in federation.configs if _attempts(federation, party, kind)] == []
    approve(federation, B)
    status = await playing
    assert (status.state, status.error) == ("finished", "")
    assert wrong(federation, story) == ""
    for party in federation.configs:
        assert [one.occasion.job for one in _attempts(federation, party, kind)] == [name]
    refused = await _play(federation, story, "again")
    assert f"takes no part: the {DAILY[kind]} of its policy are used up" in refused.error


def test_every_protocol_has_a_row() -> None:
    assert set(STORIES) == set(JOBS)
    assert {story for story in STORIES.values() if story != "network" and story not in PREVIEWS} <= {
        *TRAININGS,
        *PREDICTIONS,
        "splitnn",
    }


async def _play(federation: Federation, story: str, name: str) -> jobs_pb2.JobStatus:
    """Carry out a story under a name of its own."""
    if story in PREVIEWS:
        return await federation.preview(answer=PREVIEWS[story], job=name)
    if story in TRAININGS:
        return await federation.train(TRAININGS[story][1], name)
    return await federation.predict(asked(name, **{"protocol": story, **PREDICTIONS[story]}))


async def _asked(federation: Federation, party: str, request: control_pb2.StepRequest) -> None:
    async for _ in federation.node(party).step(COORDINATOR, request):
        pass


def _request(step: control_pb2.StepRequest, attempt: int) -> control_pb2.StepRequest:
    """The same step of another attempt."""
    request = control_pb2.StepRequest()
    request.CopyFrom(step)
    request.attempt = attempt
    return request


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("which", [1, 2, -2, -1])
async def test_whatever_is_asked_after_the_opening_is_charged_first(which: int, tmp_path: Path) -> None:
    """So openings give no attempt for nothing: they tell what a check tells."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(TRAININGS["boosting"][1])).state == "finished"
    *steps, left = [request for when, party, request in federation.conducted if (when, party) == ("begin", B)]
    named = [name_of(step) for step in (steps[0], *steps[-2:], left)]
    assert named == ["prepare", "publish", "account", "leave"]
    await federation.close()
    other = Federation(tmp_path / "other", HERE.tables)
    ledger = ledger_of(other.state(B))
    for attempt in (1, 1, 2, 3):
        await _asked(other, B, _request(steps[0], attempt))
        assert ledger.charges() == []
    for _ in range(2):
        with suppress(Interrupted, OutOfOrder, UnknownJob):  # the others are not in it; the charge comes first
            await _asked(other, B, _request(steps[which], 3))
        assert [charge.occasion.attempt for charge in ledger.charges()] == [3]


async def test_two_jobs_that_open_at_once_find_room_for_one(tmp_path: Path) -> None:
    """Each opens, as none has been charged; of their next steps one is refused, and again when it is repeated."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(TRAININGS["boosting"][1])).state == "finished"
    steps = {name_of(request): request for _, party, request in federation.conducted if party == B}
    await federation.close()
    limit = {"partners": {COORDINATOR: {"jobs_per_day": 1}}}
    other = Federation(tmp_path / "other", HERE.tables, policies={B: limit})
    jobs = {name: {word: _request(steps[word], 1) for word in ("prepare", "account")} for name in ("one", "two")}
    for word in ("prepare", "account"):
        for name, own in jobs.items():
            own[word].job = name
            if (name, word) != ("two", "account"):
                await _asked(other, B, own[word])
    for _ in range(2):
        with pytest.raises(Refused, match="takes no part: the jobs_per_day of its policy are used up"):
            await _asked(other, B, jobs["two"]["account"])
    assert [charge.occasion.job for charge in ledger_of(other.state(B)).charges()] == ["one"]


async def test_an_opening_that_tells_of_labels_is_charged(tmp_path: Path) -> None:
    """The label holder's answer has the metrics of a model that is published; a feature party's has none."""
    federation = Federation(tmp_path, HERE.tables)
    with mock.patch.object(Attempts, "left"):  # it was published, and interrupted before its end
        assert (await federation.train(TRAININGS["boosting"][1])).state == "finished"
    openings = {party: request for _, party, request in federation.conducted if name_of(request) == "prepare"}
    for party, attempts in ((LABEL_HOLDER, [1, 2]), (B, [1])):
        await _asked(federation, party, _request(openings[party], 2))
        charges = ledger_of(federation.state(party)).charges(Kind.TRAINING)
        assert [charge.occasion.attempt for charge in charges] == attempts


class Row(NamedTuple):
    """A key of `[partners.NAME]` in a story.

    Attributes:
        kept: the closest value that one job keeps.
        broken: the closest that it breaks; None: there is none.
        says: what the refusal has.
        never: words of B's messages of which none leaves once it refuses.
        counts: a second job breaks what the first one kept.
    """

    story: str
    kept: Any
    broken: Any
    says: str
    never: frozenset[str] = frozenset()
    counts: bool = True


SUMS = frozenset({"candidate_sums", "children"})
N = len(HERE.y)
USED_UP = "takes no part: the {} of its policy are used up"
KEYS: Mapping[str, Row] = {
    "tables": Row("boosting", ["train"], ["loans"], "uses table 'train': its policy says tables", counts=False),
    "protocols": Row("boosting", ["boosting"], ["forest"], "uses protocol 'boosting': its policy says", counts=False),
    "jobs_per_day": Row("boosting", 1, 0, USED_UP.format("jobs_per_day")),
    "predictions_per_day": Row("interactive", 1, 0, USED_UP.format("predictions_per_day")),
    "previews_per_day": Row("preview of a count", 1, 0, USED_UP.format("previews_per_day")),
    "records_per_day": Row("boosting", N, N - 1, USED_UP.format("records_per_day"), SUMS),
    "largest_list": Row(
        "psi",
        len(UNTIED.y),
        len(UNTIED.y) - 1,
        f"does not raise a list of {LABEL_HOLDER} with more than",
        SUMS | {"raised_ids"},
        counts=False,
    ),
    "queries_per_record": Row(
        "interactive", 1, None, f"answers {LABEL_HOLDER} no more about", frozenset({"route_answers"})
    ),
}


def _limited(folder: Path, story: str, key: str, value: Any) -> Federation:
    """The federation of a story with a limit of B's on the label holder."""
    federation = small_jobs.begin(folder, story)
    config = federation.configs[B]
    partners = {LABEL_HOLDER: Partner.model_validate({key: value})}
    federation.configs[B] = config.under(config.policy.with_lines({"partners": partners}))
    federation.restart(B)
    return federation


@pytest.mark.second_tier(but=1)
# a served model goes on without look-ups: tests/serving/test_new_records.py
@pytest.mark.parametrize("key", [key for key in Partner.model_fields if key != "look_ups_per_day"])
def test_a_partners_limit_at_its_edge_and_over_two_jobs(key: str, tmp_path: Path) -> None:
    """One job keeps it; the second, or one with the next value, is refused before anything of value leaves."""
    row = KEYS[key]
    if row.story not in (*TRAININGS, *PREVIEWS):
        trained(training_of(row.story))

    async def main() -> None:
        federation = _limited(tmp_path / "kept", row.story, key, row.kept)
        assert (await _play(federation, row.story, "one")).error == ""
        await _ended(federation, "two", refused=row.counts)
        await federation.close()
        if row.broken is not None:
            federation = _limited(tmp_path / "broken", row.story, key, row.broken)
            await _ended(federation, "three", refused=True)
            await federation.close()

    async def _ended(federation: Federation, name: str, *, refused: bool) -> None:
        before = len(federation.log)
        status = await _play(federation, row.story, name)
        assert (status.state == "failed") is refused, status.error
        if refused:
            assert f"{B} {row.says}" in status.error or row.says in status.error
            sent = {message.word for message in federation.log[before:] if message.sender == B}
            assert not sent & row.never if row.never else sent == set()

    run(main())
