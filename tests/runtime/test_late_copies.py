"""Copies of requests that arrive after their time: nothing that is over begins anew, and nothing published goes."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB, ORACLE, Conducted, Replay, ask, with_word
from tests.simulator import Faults, Federation, Message
from tests.worlds import PARTIES, assert_oracles_model
from treetap.errors import ConfigError, DataError, OutOfOrder
from treetap.models.durable import document
from treetap.party.protocols import role_for_training
from treetap.party.runtime.attempts import MOST, Attempts
from treetap.party.runtime.context import Role
from treetap.party.runtime.ledger import ATTEMPTS, ATTEMPTS_SEED, Ledger
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import control_pb2, jobs_pb2, setup_pb2

VICTIM = PARTIES[1]
#: Longer than any copy is late.
LATER_S = 200.0


def _asked(federation: Federation, party: str, kind: str) -> list[control_pb2.StepRequest]:
    """Steps of a kind that the coordinator has requested of a party so far."""
    return [
        request for when, to, request in federation.conducted if (when, to, name_of(request)) == ("begin", party, kind)
    ]


def _left_on_disk(federation: Federation) -> set[str]:
    """Jobs with files of their progress at any party."""
    return {path.name for state in federation.states.values() for path in (state / "jobs").iterdir()}


def _leave(submission: str, attempt: int, *, discard: bool) -> control_pb2.StepRequest:
    request = control_pb2.StepRequest(job="job", attempt=attempt)
    return filled(request, "leave", setup_pb2.Leave(discard=discard, submission=submission))


async def _begun_until(federation: Federation, word: str, *, resume: bool = False) -> None:
    """Submit or resume the job and return when a message of this kind is sent."""
    came = asyncio.Event()

    def look(message: Message) -> None:
        if message.word == word:
            came.set()

    federation.hook = look
    if resume:
        federation.jobs.resume("job")
    else:
        federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    await came.wait()
    federation.hook = None


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_late_prepare_does_not_begin_a_cancelled_job_again(restarted: bool, tmp_path: Path) -> None:
    """Neither at once nor after the party was started again; no file of the job comes back."""
    federation = Federation(tmp_path, HERE.tables)
    await _begun_until(federation, "store_tree")
    assert (await federation.jobs.cancel("job")).state == "cancelled"
    assert _left_on_disk(federation) == set()
    if restarted:
        federation.restart(VICTIM)
    (prepare,) = _asked(federation, VICTIM, "prepare")
    with pytest.raises(OutOfOrder, match="attempt 1 of job job is over: this party has left it"):
        await ask(federation, VICTIM, prepare)
    assert _left_on_disk(federation) == set()
    assert federation.node(VICTIM)._sessions == {}


async def test_a_late_discard_takes_no_model(tmp_path: Path) -> None:
    """A request to delete the job's files that arrives after the publication, of any attempt."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(JOB)).state == "finished"
    submission = _asked(federation, VICTIM, "prepare")[0].setup.prepare.submission
    for party in PARTIES:
        for attempt in (1, 2):
            await ask(federation, party, _leave(submission, attempt, discard=True))
    assert_oracles_model(federation.states, ORACLE)


async def test_a_late_discard_of_an_earlier_attempt_takes_no_progress(tmp_path: Path) -> None:
    """A job that failed at its first attempt is discarded; a copy of that request does not reach the next attempt."""
    federation = Federation(tmp_path, HERE.tables)
    path = federation.configs[VICTIM].tables["train"].path
    away = path.rename(path.with_suffix(".away"))
    assert (await federation.train(JOB)).state == "failed"
    (leave,) = _asked(federation, VICTIM, "leave")
    assert leave.setup.leave.discard
    away.rename(path)

    async def copies() -> None:
        while True:
            await ask(federation, VICTIM, leave)
            await asyncio.sleep(0.01)

    late = asyncio.ensure_future(copies())
    federation.faults.delay_s = 0.05
    assert (await federation.resume()).state == "finished"
    late.cancel()
    assert_oracles_model(federation.states, ORACLE)


async def test_another_submission_neither_ends_nor_takes_over_a_job(tmp_path: Path) -> None:
    """A coordinator that has lost its journal may use the name of a job again: the first job goes on."""
    federation = Federation(tmp_path, HERE.tables)
    await _begun_until(federation, "choose_splits")
    for party in PARTIES:
        for discard in (False, True):
            await ask(federation, party, _leave("another", 9, discard=discard))
        (prepare,) = _asked(federation, party, "prepare")
        other = control_pb2.StepRequest()
        other.CopyFrom(prepare)
        other.attempt, other.setup.prepare.submission = 2, "another"
        with pytest.raises(ConfigError, match="another job of the name 'job' is under way here"):
            await ask(federation, party, other)
    assert (await federation.jobs.wait("job")).state == "finished"
    assert_oracles_model(federation.states, ORACLE)


async def test_an_opening_that_comes_twice_opens_once(
    jobs: tuple[Conducted, Conducted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies of an attempt's first step, while the last attempt's session is being closed, find one session."""
    opened = []

    def counted(*args: Any) -> Role:
        opened.append(args)
        return role_for_training(*args)

    monkeypatch.setattr("treetap.party.opening.role_for_training", counted)

    federation = Federation(tmp_path, HERE.tables)
    await Replay(federation, jobs[0]).to(before="make_keys")
    waiting = asyncio.ensure_future(ask(federation, VICTIM, with_word("take_key")))
    await asyncio.sleep(0.1)
    opened.clear()
    prepare = with_word("prepare", attempt=2)
    first, second = await asyncio.gather(*(ask(federation, VICTIM, prepare) for _ in range(2)))
    assert first == second
    assert len(opened) == 1
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_new_attempt_ends_the_old_one(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """A step that waits is ended by the next attempt's opening, and the party works for the new attempt alone."""
    federation = Federation(tmp_path, HERE.tables)
    replay = Replay(federation, jobs[0])
    await replay.to(before="make_keys")
    take = with_word("take_key")
    waiting = asyncio.ensure_future(ask(federation, VICTIM, take))
    await asyncio.sleep(0.1)
    prepared = await ask(federation, VICTIM, with_word("prepare", attempt=2))
    assert prepared.setup.prepared == setup_pb2.Prepared(aligned_attempt=1)
    (ended,) = await asyncio.gather(waiting, return_exceptions=True)
    assert "feature-b left the job or was stopped while this step was under way" in str(ended)
    with pytest.raises(OutOfOrder, match="attempt 1 of job job is over: attempt 2 has begun"):
        await ask(federation, VICTIM, take)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("cancelled", [False, True])
async def test_every_request_comes_again_much_later(cancelled: bool, tmp_path: Path) -> None:
    """A copy of each message of two attempts, up to two minutes late: the same model, or no trace of the job."""
    federation = Federation(tmp_path, HERE.tables, faults=Faults(double=1.0, late_s=120.0, seed=3))
    path = federation.configs[VICTIM].tables["train"].path
    away = path.rename(path.with_suffix(".away"))
    assert (await federation.train(JOB)).state == "failed"
    away.rename(path)
    if cancelled:
        await _begun_until(federation, "store_tree", resume=True)
        await federation.jobs.cancel("job")
    else:
        assert (await federation.resume()).state == "finished"
    await asyncio.sleep(LATER_S)
    assert _left_on_disk(federation) == set()
    assert all(federation.node(party)._sessions == {} for party in PARTIES)
    if cancelled:
        assert [path for state in federation.states.values() for path in (state / "models").iterdir()] == []
    else:
        assert_oracles_model(federation.states, ORACLE)


@pytest.mark.second_tier
def test_the_memory_of_attempts_is_bounded_and_durable(tmp_path: Path) -> None:
    """The last submissions are kept, those that changed last; a damaged file is named."""
    path, ledger = tmp_path / ATTEMPTS, Ledger(tmp_path)
    attempts = Attempts(ledger)
    for number in range(MOST + 2):
        attempts.opened(f"job-{number}", "one", 1, "d")
        if number == MOST:
            attempts.left("job-0", "one", 3)
    (tmp_path / "made-up").mkdir()
    made_up = Attempts(Ledger(tmp_path / "made-up"))
    made_up.opened("job", "one", 1, "d")
    for number in range(MOST + 2):
        made_up.left(f"made-up-{number}", "one", 1)
    with pytest.raises(ConfigError, match="is not the one that its first attempt began"):
        made_up.check("job", "one", 2, "e")
    again = Attempts(ledger)
    with pytest.raises(OutOfOrder, match="attempt 3 of job job-0 is over: this party has left it"):
        again.check("job-0", "one", 3, "d")
    with pytest.raises(OutOfOrder, match="attempt 2 of job job-0 is over: attempt 3 has begun"):
        again.check("job-0", "one", 2, "d")
    again.check("job-0", "one", 4, "d")
    again.check("job-0", "another", 1, "d")
    with pytest.raises(ConfigError, match=r"job job-5 is not the one that its first attempt began \(digest d, now e\)"):
        again.check("job-5", "one", 2, "e")
    again.check(f"job-{MOST}", "one", 1, "d")  # opened here: a repeat after a restart begins it anew
    assert again.later_begun("job-0", "one", 2)
    assert not again.later_begun("job-1", "one", 0)  # forgotten
    assert path.read_text().count("job-") == MOST + 1  # one was left only
    whole = path.read_text()
    earlier = document({"job/one": [1, True]}, ATTEMPTS_SEED).decode()
    for damaged in ("{", "[" * 100_000, whole.replace("job-9", "job-8", 1), earlier):
        path.write_text(damaged)
        with pytest.raises(DataError, match=r"attempts\.json: is damaged; remove it; late copies of requests"):
            Attempts(ledger)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", _unreadable)
        with pytest.raises(DataError, match=r"attempts\.json: cannot be read: Input/output error; start this party"):
            Attempts(ledger)
    path.unlink()
    Attempts(ledger).check("job-0", "one", 2, "d")


def _unreadable(_path: Path, **_options: object) -> str:
    raise OSError(errno.EIO, os.strerror(errno.EIO))
