"""The coordinator's journal: what memory holds of its files, and that the files have the last word."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from coordinator.runtime import journal as journal_module
from coordinator.runtime.journal import Journal, attempts
from tests.opens import opened_to_read
from tests.replay import HERE, JOB
from tests.simulator import COORDINATOR, Federation, run
from treetap.errors import Interrupted, UnknownJob

SUBMITTED = {"kind": "train", "spec": "", "word": "1"}


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


def test_a_file_is_read_once(tmp_path: Path) -> None:
    """Whoever wrote a file reads it never; the next coordinator reads each once, whatever is asked and written."""
    for reads, first, journal in ((0, 2, _journal(tmp_path, jobs=3)), (1, 12, Journal(tmp_path))):
        with opened_to_read(tmp_path) as opened:
            for number in range(first, first + 10):
                for job in journal.jobs():
                    journal.write(job, "attempt", number=number)
                    assert journal.status(job).attempt == number
                    assert not journal.cancelled(job)
                assert sorted(journal.cut_off("train")) == ["job0", "job1", "job2"]
        assert sorted(path.name for path in opened) == sorted(f"job{k}.jsonl" for k in range(3)) * reads
    assert [attempts(Journal(tmp_path).read(job)) for job in ("job0", "job1", "job2")] == [21, 21, 21]


def test_a_whole_job_reads_no_file(tmp_path: Path) -> None:
    """From submission to its end, with questions for its state, a coordinator does not read what it wrote."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        with opened_to_read(tmp_path / COORDINATOR / "journal") as opened:
            assert (await federation.train(JOB)).state == "finished"
            assert [status.state for status in federation.jobs.status("")] == ["finished"]
        assert opened == []
        federation.kill(COORDINATOR)
        federation.start(COORDINATOR)
        assert [status.state for status in federation.jobs.status("")] == ["finished"]
        await federation.close()

    run(main())


def test_what_others_do_to_a_file_counts(tmp_path: Path) -> None:
    """A file that was mended, torn, taken away, replaced by a folder or brought back is as the disk has it."""
    journal, path = _journal(tmp_path), tmp_path / "job0.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + _line(2))
    assert attempts(journal.read("job0")) == 2
    path.write_bytes(whole + _line(3))  # of the same length
    assert attempts(journal.read("job0")) == 3
    path.write_bytes(whole + _line(2)[:-9])
    assert attempts(journal.read("job0")) == 1
    journal.write("job0", "attempt", number=4)
    assert (
        path.read_bytes()
        == whole
        + _line(2)[:-9]
        + b"\n"
        + json.dumps({"event": "attempt", "number": 4}, separators=(",", ":")).encode()
        + b"\n"
    )
    assert attempts(journal.read("job0")) == attempts(Journal(tmp_path).read("job0")) == 4
    path.unlink()
    assert not journal.has("job0")
    assert journal.jobs() == []
    for ask in (journal.read, journal.submitted, journal.status, journal.cancelled):
        with pytest.raises(UnknownJob, match="there is no job 'job0'"):
            ask("job0")
    path.mkdir()
    assert not journal.has("job0")
    path.rmdir()
    path.write_bytes(whole)
    (tmp_path / "another.jsonl").write_bytes(whole)
    assert sorted(journal.jobs()) == ["another", "job0"]
    assert attempts(journal.read("job0")) == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails is an interruption that names the file, and is over when the disk is back."""
    _journal(tmp_path)
    journal = Journal(tmp_path)

    def broken(_: Path) -> bytes:
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", broken)
        for ask in (journal.has, journal.read, journal.status):
            with pytest.raises(Interrupted, match=r"cannot read .*job0\.jsonl: Input/output error"):
                ask("job0")
    assert journal.status("job0").attempt == 1


@pytest.mark.parametrize("torn", [True, False])
def test_a_line_that_was_not_written_does_not_count(
    torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a full disk the file says what has happened, be it with a torn line; the next line stands by itself."""
    journal, path = _journal(tmp_path), tmp_path / "job0.jsonl"
    before = path.read_bytes()

    def full(_: int) -> None:
        path.write_bytes(before + (b'{"event":"att' if torn else b""))
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr("treetap.models.durable.os.fsync", full)
        with pytest.raises(Interrupted, match=r"cannot write .*job0\.jsonl: No space left"):
            journal.write("job0", "attempt", number=2)
    assert attempts(journal.read("job0")) == 1
    journal.write("job0", "attempt", number=2)
    assert attempts(journal.read("job0")) == attempts(Journal(tmp_path).read("job0")) == 2


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


def test_what_is_read_is_the_readers_own(tmp_path: Path) -> None:
    """A list that a caller changes is not the journal's."""
    journal = _journal(tmp_path)
    journal.read("job0").clear()
    assert journal.has("job0")


def test_jobs_come_in_the_order_of_their_submission(tmp_path: Path) -> None:
    """Whatever is written later, before and after a restart; a file that does not tell counts by its last change."""
    order = ["zoo", "bank", "lab", "ant"]
    journal = Journal(tmp_path)
    for job in order:
        journal.write(job, "submitted", **SUBMITTED)
    for number in (1, 2):
        for job in sorted(order):
            journal.write(job, "attempt", number=number)
        assert journal.jobs() == Journal(tmp_path).jobs() == order
    old = json.dumps({"event": "submitted", **SUBMITTED}).encode() + b"\n"
    _tick(tmp_path)
    for job in ("changed", "unchanged"):
        (tmp_path / f"{job}.jsonl").write_bytes(old)
    _tick(tmp_path)
    journal.write("changed", "attempt", number=1)
    journal.write("ant", "attempt", number=3)
    journal.write("new", "submitted", **SUBMITTED)
    assert journal.jobs() == Journal(tmp_path).jobs() == [*order, "unchanged", "changed", "new"]
