"""Cost of a journal of many jobs, and the jobs that it may forget."""

from __future__ import annotations

import asyncio
import os
import re
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.opens import opened_to_read
from tests.replay import HERE, JOB
from tests.simulator import COORDINATOR, Federation
from treetap.coordinator import retention
from treetap.coordinator.runtime.job_record import LISTED_ERROR, to_base64
from treetap.coordinator.runtime.journal import HELD_BYTES, Journal
from treetap.errors import BadInput, Conflict, Interrupted, UnknownJob
from treetap.protocols.prediction import predict_request
from treetap.version import PROTOCOL_VERSION
from treetap.wire.v2 import jobs_pb2, setup_pb2

DAY_S = 86_400


def _end(journal: Journal, job: str, kind: str, state: str, *, bad_input: bool = False, rows: int = 0) -> None:
    """A job that has ended, with rows of traffic."""
    spec = setup_pb2.JobSpec(table="train", aggregator="a", feature_parties=["b"])
    journal.write_submitted(job, "train", spec, "1") if kind == "train" else journal.write(
        job, "submitted", kind=kind, opening="", submission="1", wire=PROTOCOL_VERSION
    )
    journal.write(job, "attempt", number=1)
    if state == "cut off":
        return
    status = jobs_pb2.JobStatus(job=job, kind=kind, state=state, attempt=1, error="why", bad_input=bad_input)
    account = status.accounts.add(party="a").account
    for number in range(rows):
        account.traffic.add(to="b", step=f"step_{number}", disclosure="CONTROL", bytes=number, messages=1)
    journal.write(job, "ended", attempt=1, status=to_base64(status))


@pytest.mark.second_tier
def test_a_job_that_is_over_costs_little(tmp_path: Path) -> None:
    """Of many jobs memory keeps less than 2 kB each, beside the last ones; a list opens no file, and has no costs."""
    journal = Journal(tmp_path)
    held = []
    tracemalloc.start()
    try:
        for number in range(600):
            _end(journal, f"job-{number}", "train", "finished", rows=60)
            if number >= 399:  # memory is full of the last ones
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert 400 * (tmp_path / "job-0.jsonl").stat().st_size > HELD_BYTES
    assert held[-1] - held[0] < 200 * 2000
    with opened_to_read(tmp_path) as opened:
        listed = list(journal.listed())
    assert opened == []
    assert [status.job for status in listed] == [f"job-{number}" for number in range(600)]
    assert all(status.state == "finished" and not status.accounts for status in listed)
    assert len(journal.status("job-599").accounts) == 1
    assert list(Journal(tmp_path).listed()) == listed


def test_a_long_error_is_cut_in_a_list(tmp_path: Path) -> None:
    """Its beginning stands there, with where the rest is."""
    journal = Journal(tmp_path)
    _end(journal, "job", "train", "cut off")
    status = jobs_pb2.JobStatus(job="job", kind="train", state="failed", attempt=1, error="x" * 5000)
    journal.write("job", "ended", attempt=1, status=to_base64(status))
    (listed,) = journal.listed()
    assert listed.error == "x" * LISTED_ERROR + " …; see: treetap status job"
    assert journal.status("job").error == "x" * 5000


#: Job → kind, state, whether its input was bad, and how it may be forgotten.
ENDS = {
    "model": ("train", "finished", False, "by name"),
    "scores": ("predict", "finished", False, "by age"),
    "served": ("serve", "cancelled", False, "by age"),
    "cancelled": ("train", "cancelled", False, "by age"),
    "wrong": ("predict", "failed", True, "by age"),
    "failed": ("train", "failed", False, "never"),
    "interrupted": ("train", "interrupted", False, "never"),
    "cut-off": ("train", "cut off", False, "never"),
    "damaged": ("train", "finished", False, "by name"),
}


def _all(folder: Path) -> Journal:
    journal = Journal(folder)
    for job, (kind, state, bad_input, _) in ENDS.items():
        _end(journal, job, kind, state, bad_input=bad_input)
    (folder / "damaged.jsonl").write_bytes(b"?\n")
    return journal


def test_jobs_that_nothing_needs_are_forgotten_by_age(tmp_path: Path) -> None:
    """Neither models, nor what can be resumed, nor what runs, nor what is damaged; and none that has just ended."""
    journal = _all(tmp_path)
    assert retention.old(journal, (), days=1) == []
    for job in ENDS:
        os.utime(tmp_path / f"{job}.jsonl", times=(time.time() - 2 * DAY_S,) * 2)
    by_age = [job for job, end in ENDS.items() if end[3] == "by age"]
    assert [status.job for status in retention.old(journal, (), days=1)] == by_age
    assert retention.old(journal, (), days=3) == []
    assert [status.job for status in retention.old(journal, by_age[1:], days=1)] == by_age[:1]


@pytest.mark.parametrize("days", [-1.0, -1e300, float("-inf"), float("nan")])
def test_an_age_is_not_negative(days: float, tmp_path: Path) -> None:
    """It would reach jobs that end tomorrow; and a job that is named twice is forgotten once."""
    journal = _all(tmp_path)
    with pytest.raises(BadInput, match=re.escape(f"days = {days:g}: jobs end 0 or more")):
        retention.old(journal, (), days)
    assert retention.old(journal, (), float("inf")) == []
    done = next(job for job, end in ENDS.items() if end[3] == "by age")
    assert [status.job for status in retention.named(journal, (), [done, done])] == [done]


@pytest.mark.parametrize("job", ENDS)
def test_jobs_are_forgotten_by_name(job: str, tmp_path: Path) -> None:
    """Also models and damaged ones, but nothing of which parties hold files; the message says what to do first."""
    journal = _all(tmp_path)
    if ENDS[job][3] == "never":
        with pytest.raises(Conflict, match=f"its parties hold files of it: treetap cancel {job} first"):
            retention.named(journal, (), ["scores", job])
        return
    assert [status.job for status in retention.named(journal, (), [job])] == [job]
    with pytest.raises(Conflict, match=f"job {job} is running: treetap cancel {job} ends it"):
        retention.named(journal, (job,), [job])
    with pytest.raises(UnknownJob, match="there is no job 'other'"):
        retention.named(journal, (), [job, "other"])


async def test_what_is_forgotten_is_gone(tmp_path: Path) -> None:
    """From the list, the disk and the metrics, and its name is free; a dry run deletes nothing; a model stays."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(JOB)).state == "finished"
    assert (await federation.predict(predict_request(model="job", job="scores"))).state == "finished"
    jobs = federation.jobs
    value = jobs._metrics.registry.get_sample_value
    for dry_run in (True, False):
        assert [status.job for status in jobs.status("")] == ["job", "scores"]
        assert jobs.prune((), 0, dry_run=dry_run) == ["scores"]
    assert [status.job for status in jobs.status("")] == ["job"]
    assert value("treetap_jobs", {"state": "finished"}) == 1
    assert [path.name for path in (tmp_path / COORDINATOR / "journal").iterdir()] == ["job.jsonl"]
    with pytest.raises(UnknownJob):
        jobs.status("scores")
    assert (await federation.predict(predict_request(model="job", job="scores"))).state == "finished"
    assert jobs.prune(["job", "scores"], 0, dry_run=False) == ["job", "scores"]
    assert jobs.status("") == []


async def test_a_coordinator_forgets_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """At its start and every hour, as long as it runs; a disk that refuses it is logged, and asked again."""
    outcomes: list[list[str] | Interrupted] = [
        ["one", "two"],
        [],
        Interrupted("the coordinator cannot delete x"),
        ["three"],
    ]
    asked: list[float] = []

    def prune() -> list[str]:
        asked.append(asyncio.get_running_loop().time())
        found = outcomes[len(asked) - 1]
        if isinstance(found, Interrupted):
            raise found
        return found

    with caplog.at_level("INFO"):
        keeping = asyncio.ensure_future(retention.keep_for(prune, 7))
        await asyncio.sleep(3.5 * retention.LOOK_S)
        keeping.cancel()
    assert asked == [0, retention.LOOK_S, 2 * retention.LOOK_S, 3 * retention.LOOK_S]
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "the journal keeps jobs for 7 days; it has forgotten one, two",
        "jobs that are over stay in the journal: the coordinator cannot delete x",
        "the journal keeps jobs for 7 days; it has forgotten three",
    ]
