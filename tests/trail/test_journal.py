"""The trail as a file: lines are there whole or not at all whatever ends the process, and damage is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from party.runtime.ledger import Charge, Ledger, Occasion
from party.runtime.ledger import Kind as Charged
from party.trail.journal import TRAIL, Kind, Trail
from treetap.errors import DataError
from treetap.models import line_file
from treetap.models.line_file import Line

EMPTY = Ledger(Path("nowhere")).head()


class PowerCut(BaseException):
    """Stands for the moment at which a process ends."""


def begun(state: Path) -> Trail:
    """A trail with two lines."""
    trail = Trail("bank", state, lambda: 1e9)
    trail.begin(EMPTY, {})
    trail.note(Kind.ENDED, job="credit", attempt=1)
    return trail


def _write(trail: Trail, *, first: bool) -> None:
    if first:
        trail.begin(EMPTY, {})
    else:
        trail.note(Kind.ENDED, job="scores", attempt=1)


def test_a_trail_begins_with_the_first_job_alone(tmp_path: Path) -> None:
    """A look makes no file, nor does a decision; the first line has random bytes of the operating system."""
    trail = Trail("bank", tmp_path / "state")
    assert (trail.head, trail.began, trail.lines(), trail.text()) == ("", 0, [], "")
    trail.decided("ab", "cd")
    assert not (tmp_path / "state").exists()
    trail.begin(EMPTY, {"ab": "cd"})
    trail.begin(EMPTY, {"ab": "cd"})
    ((first, head),) = trail.lines()
    assert (first["approvals"], len(bytes.fromhex(first["salt"]))) == ({"ab": "cd"}, 32)
    assert trail.has(head)
    other = Trail("bank", tmp_path / "other")
    other.begin(EMPTY, {"ab": "cd"})
    assert other.head != head


@pytest.mark.parametrize("first", [False, True], ids=["a further line", "the first line"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_kill_at_a_write_leaves_the_line_or_none(
    call: str, after: bool, first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that goes on and the next one agree, and a head that was returned is there for ever."""
    trail = Trail("bank", tmp_path) if first else begun(tmp_path)
    before = trail.head
    target = (os, "fsync") if call == "sync" else (line_file, "write_whole" if first else "append")
    real = getattr(*target)

    def killed(*given: object) -> None:
        if after:
            real(*given)
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(*target, killed)
        with pytest.raises(PowerCut):
            _write(trail, first=first)
    again = Trail("bank", tmp_path)
    assert [head for _, head in trail.lines()] == [head for _, head in again.lines()]
    assert len(again.lines()) in ((0, 1) if first else (2, 3))
    assert first or again.has(before)
    trail.begin(EMPTY, {})
    trail.note(Kind.ENDED, job="last", attempt=1)
    assert Trail("bank", tmp_path).head == trail.head
    assert Trail("bank", tmp_path).lines()[-1][0]["job"] == "last"


def test_a_torn_line_does_not_count(tmp_path: Path) -> None:
    """No head that covers it has left the party."""
    trail = begun(tmp_path)
    whole = (tmp_path / TRAIL).read_bytes()
    trail.note(Kind.ENDED, job="scores", attempt=1)
    (tmp_path / TRAIL).write_bytes((tmp_path / TRAIL).read_bytes()[: len(whole) + 30])
    again = Trail("bank", tmp_path)
    assert [line["kind"] for line, _ in again.lines()] == ["began", "ended"]
    assert again.text().encode() == whole
    again.note(Kind.ENDED, job="scores", attempt=2)
    assert [line.get("attempt") for line, _ in Trail("bank", tmp_path).lines()] == [None, 1, 2]


@pytest.mark.parametrize("line", [0, 1])
def test_a_changed_line_is_found_by_its_checksum(line: int, tmp_path: Path) -> None:
    """Also by the process that wrote it; nothing is added behind it."""
    trail = begun(tmp_path)
    lines = (tmp_path / TRAIL).read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"seconds":1000000000.0', b'"seconds":2000000000.0')
    (tmp_path / TRAIL).write_bytes(b"".join(lines))
    for reader in (trail, Trail("bank", tmp_path)):
        with pytest.raises(DataError, match=rf"{TRAIL}: line {line + 1} is damaged"):
            reader.note(Kind.ENDED, job="scores", attempt=1)


def test_a_line_of_another_version_is_named(tmp_path: Path) -> None:
    """Its checksum fits."""
    trail = begun(tmp_path)
    trail._file.fill([{"kind": "unheard of", "seconds": 1.0}])
    with pytest.raises(DataError, match=rf"{TRAIL}: is damaged; bring the newer state back"):
        Trail("bank", tmp_path).lines()


def test_the_ledger_is_compared_up_to_its_last_head(tmp_path: Path) -> None:
    """Charges may follow; fewer or other ones are named with the job that knew them, until people acknowledge it."""
    job = Occasion("loans", ("telco",), "coordinator", "credit", 1)
    ledger, other = Ledger(tmp_path), Ledger(tmp_path / "other")
    ledger.enter(Charge(Charged.TRAINING, job, 1, {}, 1e9))
    trail = Trail("bank", tmp_path, lambda: 1e9)
    trail.begin(ledger.head(), {})
    trail.note(Kind.OPENED, job="credit", attempt=1, coordinator="coordinator", parties=["telco"], ledger=ledger.head())
    ledger.enter(Charge(Charged.RECORDS, job, 450, {}, 1e9))
    trail.check(ledger, {})
    other.enter(Charge(Charged.TRAINING, job, 1, {}, 2e9))
    for wrong in (other, Ledger(tmp_path / "none")):
        says = r"ledger\.jsonl: is an older state than trail\.jsonl knows, which has 1 of its lines on 2001-09-09"
        with pytest.raises(DataError, match=says + r" 01:46:40 UTC \(job credit with telco\)"):
            trail.check(wrong, {})
    trail.restore(other.head(), {}, "a disk broke")
    trail.check(other, {})
    with pytest.raises(DataError, match="is an older state"):
        trail.check(ledger, {})


def test_decisions_are_compared_with_those_that_were_noted(tmp_path: Path) -> None:
    """The last one counts; one that was forgotten is not missed, one that is not in the trail is newer."""
    trail = begun(tmp_path)
    ledger = Ledger(tmp_path)
    trail.decided("job", "first")
    trail.decided("job", "second")
    trail.check(ledger, {"job": "second"})
    trail.check(ledger, {"job": "third", "further": "one"})
    for older in ({"job": "first"}, {}):
        with pytest.raises(DataError, match="approvals: is an older state than trail"):
            trail.check(ledger, older)
    trail.decided("job", "")
    trail.check(ledger, {})


def test_the_same_decision_twice_is_no_older_state(tmp_path: Path) -> None:
    """Two people who revoke one standing approval sign the same words; the one before is older all the same."""
    trail, ledger = begun(tmp_path), Ledger(tmp_path)
    for digest in ("stands", "revoked", "revoked"):
        trail.decided("standing-weekly", digest)
    trail.check(ledger, {"standing-weekly": "revoked"})
    with pytest.raises(DataError, match="approvals: is an older state than trail"):
        trail.check(ledger, {"standing-weekly": "stands"})


def test_lines_are_read_while_the_party_adds_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command reads beside the party."""
    party, reader = begun(tmp_path), Trail("bank", tmp_path)
    real = reader._file.read

    def read() -> list[Line]:
        lines = real()
        party.note(Kind.ENDED, job="scores", attempt=len(lines))
        return lines

    monkeypatch.setattr(reader._file, "read", read)
    lines = reader.lines()
    assert len(lines) >= 2
    assert lines == party.lines()[: len(lines)]


def test_a_damaged_trail_is_moved_away_and_said_why(tmp_path: Path) -> None:
    """The error says so where there is no newer state; the reason is what partners hear."""
    begun(tmp_path)
    (tmp_path / TRAIL).write_bytes(b"{}\n")
    trail = Trail("bank", tmp_path)
    for act in (lambda: trail.head, lambda: trail.restore(EMPTY, {}, "a disk broke")):
        with pytest.raises(
            DataError, match=r"line 1 is damaged; .* without one move the file away, and stop the party"
        ):
            act()
    (tmp_path / TRAIL).unlink()
    trail.restore(EMPTY, {}, "a disk broke")
    assert trail.restored("telco") == "a disk broke"


def test_a_partner_hears_why_until_it_holds_a_head_of_this_trail(tmp_path: Path) -> None:
    """One that was killed before it noted the head of the first job hears it again, and its older head is no alarm."""
    trail = begun(tmp_path)
    trail.restore(EMPTY, {}, "a disk broke")

    def met(held: str) -> None:
        trail.note(Kind.HEADS, came={"telco": {"head": "00" * 32, "signed": "", "held": held}})

    met("11" * 32)
    assert trail.restored("telco") == "a disk broke"
    head = trail.head
    assert trail.restored("telco", head) == ""
    met(head)
    assert trail.restored("telco") == Trail("bank", tmp_path).restored("telco") == ""
