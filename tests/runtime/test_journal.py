"""The coordinator's journal: what memory holds of its files, and that the files have the last word."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from tests.opens import opened_to_read
from tests.replay import HERE, JOB
from tests.simulator import COORDINATOR, Federation
from treetap.coordinator.runtime import journal as journal_module
from treetap.coordinator.runtime.job_record import attempts
from treetap.coordinator.runtime.journal import Journal
from treetap.errors import DataError, Interrupted, UnknownJob
from treetap.models.line_file import LineFile
from treetap.models.line_file import first as seeded
from treetap.version import PROTOCOL_VERSION

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
            with pytest.raises(Interrupted, match=r"cannot read .*job0\.jsonl: Input/output error"):
                ask("job0")
        (listed,) = journal.listed()
        assert (listed.state, "cannot read" in listed.error) == ("damaged", True)
    assert journal.status("job0").attempt == 1
    assert [each.state for each in journal.listed()] == ["interrupted"]


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the job that was used longest ago is read again; a job larger than the bound is still known."""
    _journal(tmp_path / "one")
    size = (tmp_path / "one" / "job0.jsonl").stat().st_size
    monkeypatch.setattr(journal_module, "HELD_BYTES", 2 * size)
    journal = _journal(tmp_path / "all", jobs=3)
    for asked, reads in (("job1", 0), ("job2", 0), ("job0", 1), ("job0", 0), ("job2", 0), ("job1", 1)):
        with opened_to_read(tmp_path) as opened:
            assert attempts(journal.read(asked)) == 1
        assert len(opened) == reads, asked
    journal.write("job1", "attempt", number=2, why="x" * 3 * size)
    with opened_to_read(tmp_path) as opened:
        assert attempts(journal.read("job1")) == 2
    assert opened == []


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
