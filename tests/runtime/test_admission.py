"""Who may ask what of which job: strangers, other coordinators, unknown jobs and attempts, words of another role."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.replay import HERE, Conducted, Replay, ask, with_word
from tests.simulator import COORDINATOR, Federation
from tests.worlds import PARTIES
from treetap import logs
from treetap.errors import ConfigError, DataError, Malformed, OutOfOrder, Refused, UnknownJob
from treetap.party.opening import KINDS
from treetap.wire import frame
from treetap.wire.v2 import control_pb2, exchange_pb2, growth_pb2

FEATURE = PARTIES[1]
WORDS = sorted(frame.PATHS[control_pb2.StepRequest])


@pytest.mark.second_tier(but=10)
@pytest.mark.parametrize("name", WORDS)
async def test_who_asks_for_which_job_is_checked_for_every_word(
    name: str, jobs: tuple[Conducted, Conducted], tmp_path: Path
) -> None:
    """Strangers, other coordinators, unknown jobs, attempts that are over or to come, names that are no names."""

    policy = {"people": {"coordinators": [COORDINATOR, "second"]}}
    federation = Federation(tmp_path, HERE.tables, policies=dict.fromkeys(PARTIES, policy))
    await Replay(federation, jobs[0]).to(before="bin")
    for number, party in enumerate(PARTIES):
        request = with_word(name)
        for stranger in (PARTIES[number - 1], "operator", ""):
            with pytest.raises(Refused, match=f"{stranger} is not a coordinator that {party} obeys"):
                await ask(federation, party, request, caller=stranger)
        with pytest.raises(Malformed, match="not a name of a job: names have lower-case letters"):
            await ask(federation, party, with_word(name, job="../up"))
        if name == "check_job":  # which needs no attempt: it is refused as the opening would be
            with pytest.raises(Refused, match="job job belongs to coordinator coordinator, not to second"):
                await ask(federation, party, request, caller="second")
            with pytest.raises(Refused, match=f"{party} is not a party of job other"):
                await ask(federation, party, with_word(name, job="other"), caller="second")
            continue
        for attempt in (1, 2):
            request = with_word(name, attempt=attempt)
            if name in (*KINDS, "leave"):  # the latter of the same submission
                with pytest.raises(Refused, match="job job belongs to coordinator coordinator, not to second"):
                    await ask(federation, party, request, caller="second")
            else:  # as of a job that is not there
                with pytest.raises(UnknownJob, match="holds no job 'job'; was it restarted"):
                    await ask(federation, party, request, caller="second")
        if name == "leave":
            assert frame.name_of(await ask(federation, party, with_word(name, job="other"))) == "done"
            continue
        if name in ("open_model", "open_preview"):
            with pytest.raises(ConfigError, match="another job of the name 'job' is under way here"):
                await ask(federation, party, with_word(name, attempt=0))
        else:
            with pytest.raises(OutOfOrder, match="attempt 0 of job job is over: attempt 1 has begun"):
                await ask(federation, party, with_word(name, attempt=0))
        if name == "open_model":
            with pytest.raises(DataError, match="there is no model 'nothing'"):
                await ask(federation, party, with_word(name, job="other"))
        elif name == "open_preview":
            with pytest.raises(ConfigError, match=f"{party}: answer = '': must be one of count, records"):
                await ask(federation, party, with_word(name, job="other"))
        elif name != "prepare":
            with pytest.raises(UnknownJob, match="holds no job 'other'; was it restarted"):
                await ask(federation, party, with_word(name, job="other"))
            with pytest.raises(UnknownJob, match="attempt 2 of job job has not been prepared here"):
                await ask(federation, party, with_word(name, attempt=2))


async def test_what_is_no_name_of_a_job_is_not_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither to the caller nor in the log, where it would take the time of the loop: in a step and in a message."""
    job = "\U0001f600" * 500_000

    with caplog.at_level(logging.INFO):
        caplog.handler.setFormatter(logs.TextLines())
        federation = Federation(tmp_path, HERE.tables)
        for name in (job, "../up", ""):
            with pytest.raises(Malformed, match="not a name of a job") as step:
                await ask(federation, FEATURE, with_word("bin", job=name))
            message = frame.filled(exchange_pb2.PeerMessage(job=name, attempt=1), "children", growth_pb2.Children())
            with pytest.raises(Malformed, match="not a name of a job") as told:
                await federation.node(FEATURE).deliver(PARTIES[0], message)
            assert max(len(str(step.value)), len(str(told.value))) < 200
        logging.getLogger("treetap.test").warning("after")
        await federation.close()
    assert "after" in caplog.text
    assert len(caplog.text) < 5000
    assert "job=" not in caplog.text


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", PARTIES[:2])
async def test_a_word_of_another_role_is_refused(party: str, jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """Whatever is no word of the party's role in this kind of job is out of order, in trainings and predictions."""

    federation = Federation(tmp_path, HERE.tables)
    for events, job in ((jobs[0], "job"), (jobs[1], "predict")):
        replay = Replay(federation, events)
        own = {*map(frame.name_of, replay.vocabulary(party)), "leave", "check_job", "account", *KINDS}
        await replay.to(before="ask_directions")
        for name in set(WORDS) - own:
            with pytest.raises(OutOfOrder, match=f"{party} does not do {name} in job {job}"):
                await ask(federation, party, with_word(name, job=job))


async def test_a_step_without_content_and_a_job_of_others_are_refused(tmp_path: Path) -> None:
    """A request of an unknown kind is malformed; a job that does not name the party is not its business."""
    federation = Federation(tmp_path, HERE.tables)
    with pytest.raises(Malformed, match="a step without content; is the coordinator of another version"):
        await ask(federation, FEATURE, control_pb2.StepRequest(job="job", attempt=1))
    request = with_word("prepare")
    del request.setup.prepare.spec.feature_parties[:]
    request.setup.prepare.spec.feature_parties.append(PARTIES[2])
    with pytest.raises(Refused, match=f"{FEATURE} is not a party of job job"):
        await ask(federation, FEATURE, request)
