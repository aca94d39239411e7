"""The coordinator's journal: what memory holds of its files, and which jobs it may forget."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
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
from treetap.coordinator.runtime.job_record import LISTED_ERROR, attempts, to_base64
from treetap.coordinator.runtime.journal import Journal
from treetap.errors import BadInput, Conflict, DataError, Interrupted, UnknownJob
from treetap.models.line_file import LineFile
from treetap.models.line_file import first as seeded
from treetap.protocols.prediction import predict_request
from treetap.version import PROTOCOL_VERSION
from treetap.wire.v2 import jobs_pb2, setup_pb2

SUBMITTED = {"kind": "train", "spec": "", "submission": "1", "wire": PROTOCOL_VERSION}


def _journal(folder: Path, jobs: int = 1) -> Journal:
    """A journal with jobs of one attempt."""
    journal = Journal(folder)
    for number in range(jobs):
        journal.write(f"job{number}", "submitted", **SUBMITTED)
        journal.write(f"job{number}", "attempt", number=1)
    return journal


def _line(number: int) -> bytes:
    return json.dumps({"event": "attempt", "number": number}).encode() + b"\n"


def _tick(folder: Path) -> None:
    """Return as soon as a file that changes is of a later time than now."""
    now, clock = time.time_ns(), folder / "clock"
    clock.touch()
    while clock.stat().st_ctime_ns <= now:
        clock.touch()


async def test_a_whole_job_reads_no_file(tmp_path: Path) -> None:
    """From submission to its end, with questions for its state, a coordinator does not read what it wrote."""
    federation = Federation(tmp_path, HERE.tables)
    with opened_to_read(tmp_path / COORDINATOR / "journal") as opened:
        assert (await federation.train(JOB)).state == "finished"
        assert [status.state for status in federation.jobs.status("")] == ["finished"]
    assert opened == []
    federation.restart(COORDINATOR)
    assert [status.state for status in federation.jobs.status("")] == ["finished"]


def test_what_others_do_to_a_file_counts(tmp_path: Path) -> None:
    """A file that was added to, taken away, replaced by a folder or brought back is as the disk has it."""
    journal, path = _journal(tmp_path), tmp_path / "job0.jsonl"
    whole = path.read_bytes()
    for number in (2, 3):
        path.write_bytes(whole)
        Journal(tmp_path).write("job0", "attempt", number=number)
        assert attempts(journal.read("job0")) == number
    path.unlink()
    assert not journal.has("job0")
    assert journal.jobs() == []
    for ask in (journal.read, journal.submitted, journal.status, journal.cancelled):
        with pytest.raises(UnknownJob, match="there is no job 'job0'"):
            ask("job0")
    path.mkdir()
    assert not journal.has("job0")
    assert journal.jobs() == []
    path.rmdir()
    path.write_bytes(whole)
    assert journal.jobs() == ["job0"]
    assert attempts(journal.read("job0")) == 1


@pytest.mark.parametrize(
    "line",
    [
        {"event": "ended", "attempt": 1, "status": "bm8gc3RhdHVz"},
        {"event": "ended", "attempt": 1, "status": "not base64"},
        {"event": "ended", "attempt": 1},
        {"event": "ended"},
        {"event": "attempt"},
        {"event": "attempt", "number": "one"},
        {"number": 1},
    ],
    ids=str,
)
def test_lines_that_say_nothing(line: dict[str, object], tmp_path: Path) -> None:
    """With checksums that fit; the job is a damaged one, and the other jobs are listed."""
    _journal(tmp_path, jobs=2)
    path = tmp_path / "job1.jsonl"
    LineFile(path, lambda: "journal of job1").put(line, 2)
    journal = Journal(tmp_path)
    assert {status.job: status.state for status in journal.listed()} == {"job0": "interrupted", "job1": "damaged"}
    assert "has a line that says nothing; bring a back-up of the file back" in journal.status("job1").error


@pytest.mark.parametrize("number", [1, 2, PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_jobs_of_every_other_version_are_refused_by_its_number(number: int, tmp_path: Path) -> None:
    """Lower or higher: file, both numbers and the remedy; such a job is kept, not gone on with, and others are."""
    _journal(tmp_path)
    submitted = {"event": "submitted", "unix_nanos": 5, **SUBMITTED, "wire": number}
    path = tmp_path / "other.jsonl"
    LineFile(path, lambda: "journal of other").fill([submitted, {"event": "attempt", "number": 1}])
    lines = path.read_bytes()
    journal = Journal(tmp_path)
    said = (
        f"{path}: was begun in version {number} of the protocol, and this release reads version {PROTOCOL_VERSION} "
        "alone: install the release that began it"
    )
    for ask in (journal.submitted, journal.read, journal.cancelled, lambda job: journal.write(job, "cancelled")):
        with pytest.raises(DataError) as refusal:
            ask("other")
        assert str(refusal.value) == said
    assert journal.status("other").error == f"{said}; or give the job up: treetap prune other"
    assert {status.job: status.state for status in journal.listed()} == {"job0": "interrupted", "other": "damaged"}
    assert journal.cut_off("train") == ["job0"]
    assert path.read_bytes() == lines


@pytest.mark.parametrize(("checked", "fault"), [(False, "line 1 is damaged"), (True, "is damaged")])
def test_nesting_too_deep_for_a_reader_damages_its_own_job_only(checked: bool, fault: str, tmp_path: Path) -> None:
    """Such a line, also with a checksum that fits, does not end the list of all jobs."""
    _journal(tmp_path)
    line = b"[" * 200_000 + b"\n"
    if checked:
        body = b'{"event":' + line[:-1] + b"}"
        digest = hashlib.sha256(seeded("journal of deep").encode() + body).hexdigest()
        line = body[:-1] + b',"sha256":"' + digest.encode() + b'"}\n'
    (tmp_path / "deep.jsonl").write_bytes(line)
    found = {status.job: status for status in Journal(tmp_path).listed()}
    assert {job: status.state for job, status in found.items()} == {"job0": "interrupted", "deep": "damaged"}
    remedy = "bring a back-up of the file back; or give the job up: treetap prune deep"
    assert found["deep"].error.endswith(f"deep.jsonl: {fault}; {remedy}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails is an interruption that names the file, and is over when the disk is back."""
    _journal(tmp_path)
    journal = Journal(tmp_path)

    def broken(_: Path) -> bytes:
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", broken)
        for ask in (journal.submitted, journal.read, journal.status):
            with pytest.raises(
                Interrupted, match=r"job0\.jsonl: cannot be read by the coordinator: Input/output error"
            ):
                ask("job0")
        (listed,) = journal.listed()
        assert (listed.state, "cannot be read" in listed.error) == ("damaged", True)
    assert journal.status("job0").attempt == 1
    assert [each.state for each in journal.listed()] == ["interrupted"]


def test_a_job_that_is_asked_for_again_is_not_read_again(tmp_path: Path) -> None:
    """Memory has the events of one job: the last that was read or written."""
    journal = _journal(tmp_path, jobs=2)
    for asked, reads in (("job1", 0), ("job0", 1), ("job0", 0), ("job1", 1)):
        with opened_to_read(tmp_path) as opened:
            assert attempts(journal.read(asked)) == 1
        assert len(opened) == reads, asked


def test_jobs_come_in_the_order_of_their_submission(tmp_path: Path) -> None:
    """Whatever is written later, before and after a restart; a damaged file counts by its last change."""
    order = ["zoo", "bank", "lab", "ant"]
    journal = Journal(tmp_path)
    for job in order:
        journal.write(job, "submitted", **SUBMITTED)
    for number in (1, 2):
        for job in sorted(order):
            journal.write(job, "attempt", number=number)
        assert journal.jobs() == Journal(tmp_path).jobs() == order
    _tick(tmp_path)
    for job in ("changed", "unchanged"):
        (tmp_path / f"{job}.jsonl").write_bytes(b"{}\n")
    _tick(tmp_path)
    (tmp_path / "changed.jsonl").write_bytes(b"{}\n{}\n")
    journal.write("ant", "attempt", number=3)
    journal.write("new", "submitted", **SUBMITTED)
    assert journal.jobs() == Journal(tmp_path).jobs() == [*order, "unchanged", "changed", "new"]


# ---- Cost of a journal of many jobs, and the jobs that it may forget


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
    """Of many jobs memory keeps less than 2 kB each; a list opens no file, and has no costs."""
    journal = Journal(tmp_path)
    held = []
    tracemalloc.start()
    try:
        for number in range(600):
            _end(journal, f"job-{number}", "train", "finished", rows=60)
            if number in (399, 599):
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
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
