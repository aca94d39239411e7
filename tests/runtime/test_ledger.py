"""The ledger of a party: charges are on disk before they count, whatever ends the process, and damage is found."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from party.runtime.ledger import EARLIER, LEDGER, Charge, Kind, Ledger, Occasion, ledger_of
from treetap.errors import DataError, Refused
from treetap.models import line_file
from treetap.removed import CHARGED

JOB = Occasion(table="loans", parties=("telco", "shop"), coordinator="coordinator", job="credit", attempt=2)


class PowerCut(BaseException):
    """Stands for the moment at which a process ends."""


def charge(amount: float = 1.0, kind: Kind = Kind.RECORDS) -> Charge:
    return Charge(kind, JOB, amount, {"answer": "count", "measures": ["auc"]}, 1e9)


def test_what_is_entered_is_read_again(tmp_path: Path) -> None:
    """By another process too; numbers are by kind, and neither folder nor file is made by a look."""
    ledger = Ledger(tmp_path / "state")
    assert ledger.charges() == []
    assert not (tmp_path / "state").exists()
    assert [ledger.enter(charge(number)) for number in range(3)] == [0, 1, 2]
    assert ledger.enter(charge(0.25, Kind.NOISED_SUMS)) == 0
    again = Ledger(tmp_path / "state")
    assert again.charges() == ledger.charges()
    assert [one.amount for one in again.charges(Kind.RECORDS)] == [0, 1, 2]
    assert again.charges(Kind.NOISED_SUMS) == [charge(0.25, Kind.NOISED_SUMS)]
    assert again.charges()[0].at == "2001-09-09 01:46:40 UTC"
    assert again.charges()[0].occasion.partners == ("telco", "shop", "coordinator")
    ledger.enter(charge(9))
    assert again.charges()[-1].amount == 9


def test_a_charge_without_room_is_not_entered(tmp_path: Path) -> None:
    """The look and the charge are one, for threads of one process: of eight, three find room."""
    ledger = ledger_of(tmp_path)

    def check() -> None:
        if len(ledger.charges()) >= 3:
            raise Refused("full")

    def enter(number: int) -> bool:
        try:
            ledger.enter(charge(number), check)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(enter, range(8))) == 3
    assert len(Ledger(tmp_path).charges()) == 3
    assert ledger_of(tmp_path) is ledger


@pytest.mark.parametrize("first", [False, True], ids=["a further line", "the first line"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_kill_at_a_write_leaves_the_charge_or_none(
    call: str, after: bool, first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole or not at all, and the process that goes on and the next one agree; a charge that was returned is there."""
    ledger = Ledger(tmp_path)
    if not first:
        ledger.enter(charge(1))
    target = (os, "fsync") if call == "sync" else (line_file, "write_whole" if first else "append")
    real = getattr(*target)

    def killed(*given: object) -> None:
        if after:
            real(*given)
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(*target, killed)
        with pytest.raises(PowerCut):
            ledger.enter(charge(2))
    held = [one.amount for one in Ledger(tmp_path).charges()]
    assert held in ([] if first else [1], [2] if first else [1, 2])
    assert [one.amount for one in ledger.charges()] == held
    ledger.enter(charge(3))
    assert [one.amount for one in Ledger(tmp_path).charges()] == [*held, 3]


def test_a_torn_line_does_not_count(tmp_path: Path) -> None:
    """It was not on disk whole, so nothing was sent for it; the next charge takes its place."""
    for cut in (1, 40, 200):
        state = tmp_path / str(cut)
        Ledger(state).enter(charge(1))
        whole = (state / LEDGER).read_bytes()
        Ledger(state).enter(charge(2))
        torn = (state / LEDGER).read_bytes()[: len(whole) + cut]
        (state / LEDGER).write_bytes(torn)
        assert [one.amount for one in Ledger(state).charges()] == [1]
        Ledger(state).enter(charge(3))
        assert [one.amount for one in Ledger(state).charges()] == [1, 3]


@pytest.mark.parametrize("line", [1, 2])
def test_damage_is_found_before_anything_is_charged(line: int, tmp_path: Path) -> None:
    """Also by the process that wrote the file and has not ended since."""
    ledger = Ledger(tmp_path)
    for amount in (1.0, 2.0, 3.0):
        ledger.enter(charge(amount))
    path = tmp_path / LEDGER
    path.write_bytes(path.read_bytes().replace(b'"amount":%d.0' % line, b'"amount":0.0'))
    held = path.read_bytes()
    for reader in (ledger, Ledger(tmp_path)):
        with pytest.raises(DataError, match=rf"{LEDGER}: line {line} is damaged; bring a back-up"):
            reader.enter(charge(4))
    assert path.read_bytes() == held


def test_a_line_taken_out_of_the_middle_is_found(tmp_path: Path) -> None:
    """As is one of another version; the last ones of a file that was cut at a line's end are not missed."""
    ledger = Ledger(tmp_path)
    for amount in (1.0, 2.0, 3.0):
        ledger.enter(charge(amount))
    path = tmp_path / LEDGER
    first, _, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + third)
    with pytest.raises(DataError, match="line 2 is damaged"):
        Ledger(tmp_path).charges()
    path.unlink()
    foreign = replace(charge(), details={})
    line_file.LineFile(path, lambda: "ledger").put({**foreign.plain(), "kind": "another"}, 0)
    with pytest.raises(DataError, match=f"{LEDGER}: is damaged"):
        Ledger(tmp_path).charges()


@pytest.mark.parametrize("kind", CHARGED)
def test_charges_of_earlier_versions_are_read(kind: str, tmp_path: Path) -> None:
    """A line of a kind that is charged no more stays what it was, beside those of today."""
    before = replace(charge(), kind=kind, details={"label_holder": "telco"})
    Ledger(tmp_path).enter(before)
    ledger = Ledger(tmp_path)
    assert ledger.enter(charge()) == 0
    assert Ledger(tmp_path).charges() == ledger.charges() == [before, charge()]
    assert before.partners == ("telco",)


@pytest.mark.parametrize("name", EARLIER)
def test_a_ledger_of_an_earlier_version_is_refused(name: str, tmp_path: Path) -> None:
    """Its charges would be forgotten; the error says which file it is."""
    (tmp_path / name).write_text("{}\n")
    with pytest.raises(DataError, match=f"{name}: is a ledger of an earlier version.* move the file away"):
        Ledger(tmp_path).enter(charge())
    assert not (tmp_path / LEDGER).exists()
