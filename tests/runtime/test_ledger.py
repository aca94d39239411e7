"""The ledger of a party: charges are on disk before they count, whatever ends the process, and damage is found."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.replay import HERE
from tests.simulator import Federation
from tests.worlds import PARTIES
from treetap.errors import DataError, Refused
from treetap.models import durable
from treetap.models.line_file import LineFile
from treetap.party.runtime.attempts import Attempts
from treetap.party.runtime.ledger import (
    ATTEMPTS,
    LEDGER,
    Charge,
    Kind,
    Ledger,
    Occasion,
    ledger_of,
)

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


def test_a_line_of_another_version_is_damage(tmp_path: Path) -> None:
    """Its kind of charge is none of ours, though its checksum fits."""
    foreign = replace(charge(), details={})
    LineFile(tmp_path / LEDGER, lambda: "ledger").put({**foreign.plain(), "kind": "another"}, 0)
    with pytest.raises(DataError, match=f"{LEDGER}: is damaged"):
        Ledger(tmp_path).charges()


# ---- beside the attempts, which know how much there was


def _known(state: Path, amounts: tuple[float, ...] = (1.0, 2.0, 3.0)) -> Ledger:
    """A ledger with these charges, of which the attempts know."""
    ledger = Ledger(state)
    known = Attempts(ledger)
    for amount in amounts:
        ledger.enter(charge(amount))
    known.opened("credit", "one", 1, "d")
    return ledger


def _cut(lines: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def _another(path: Path) -> None:
    """The ledger of another history, of as many lines."""
    _known(path.parent / "another", (1.0, 2.0, 4.0))
    path.write_bytes((path.parent / "another" / LEDGER).read_bytes())


@pytest.mark.parametrize(
    "change", [Path.unlink, _cut(0), _cut(2), _another], ids=["missing", "emptied", "shorter", "another"]
)
def test_a_ledger_that_lacks_lines_is_refused(change: Callable[[Path], None], tmp_path: Path) -> None:
    """By the party that runs, at its start, and by a command; the error names both files and both ways on."""
    running = _known(tmp_path)
    known = Attempts(running)
    path, newest = tmp_path / LEDGER, (tmp_path / LEDGER).read_bytes()
    change(path)
    says = rf"{LEDGER}: lacks charges: .*{ATTEMPTS} knows of 3 lines .* back-up .* move {ATTEMPTS} away"
    for refused in (
        lambda: known.check("credit", "one", 1, "d"),
        lambda: known.opened("credit", "two", 1, "d"),
        lambda: running.enter(charge(4)),
        lambda: Attempts(Ledger(tmp_path)),
        Ledger(tmp_path).charges,
    ):
        with pytest.raises(DataError, match=says):
            refused()
    path.write_bytes(newest)
    known.opened("credit", "two", 1, "d")
    Attempts(Ledger(tmp_path)).check("credit", "two", 1, "d")
    (tmp_path / ATTEMPTS).unlink()
    _cut(0)(path)
    assert Ledger(tmp_path).charges() == []


def test_a_ledger_that_grows_is_not_refused(tmp_path: Path) -> None:
    """Charges after an opening come before the attempts know of them; once it is left they do."""
    ledger = _known(tmp_path)
    known = Attempts(ledger)
    ledger.enter(charge(4))
    whole = (tmp_path / LEDGER).read_bytes()
    _cut(3)(tmp_path / LEDGER)
    Attempts(Ledger(tmp_path))
    (tmp_path / LEDGER).write_bytes(whole)
    Attempts(Ledger(tmp_path))
    known.left("credit", "one", 1)
    _cut(3)(tmp_path / LEDGER)
    with pytest.raises(DataError, match="knows of 4 lines of it, and here are 3"):
        Attempts(Ledger(tmp_path))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_between_ledger_and_attempts_loses_neither(
    after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the attempts know of is on disk before them: the next start finds either both or the charge alone."""
    ledger = _known(tmp_path)
    known, real = Attempts(ledger), durable.write_whole
    ledger.enter(charge(4))

    def killed(path: Path, content: bytes, **_: bool) -> None:
        if after:
            real(path, content)
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_whole", killed)
        with pytest.raises(PowerCut):
            known.left("credit", "one", 1)
    again = Ledger(tmp_path)
    Attempts(again).opened("credit", "one", 2, "d")
    assert [one.amount for one in again.charges()] == [1, 2, 3, 4]


def test_a_ledger_without_attempts_counts_as_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The party goes on and says so by file, until it has written them anew; a fresh one has nothing to say."""
    Attempts(Ledger(tmp_path / "fresh"))
    assert caplog.text == ""
    Ledger(tmp_path).enter(charge())
    path = tmp_path / ATTEMPTS
    known = Attempts(Ledger(tmp_path))
    assert f"{path}: is missing, and does not say how many lines {tmp_path / LEDGER} had" in caplog.text
    known.opened("scores", "two", 1, "d")
    caplog.clear()
    Attempts(Ledger(tmp_path))
    assert caplog.text == ""
    (tmp_path / LEDGER).unlink()
    with pytest.raises(DataError, match="knows of 1 lines"):
        Attempts(Ledger(tmp_path))


async def test_a_party_does_not_start_beside_a_ledger_that_lacks_lines(tmp_path: Path) -> None:
    """After a job, of which the charges are gone."""
    policies = {name: {"columns": {"preview": "count"}} for name in PARTIES}
    federation = Federation(tmp_path, HERE.tables, policies=policies)
    assert (await federation.preview(*PARTIES, job="count")).state == "finished"
    federation.restart(PARTIES[0])
    federation.kill(PARTIES[0])
    (federation.state(PARTIES[0]) / LEDGER).unlink()
    with pytest.raises(DataError, match=f"{LEDGER}: lacks charges"):
        federation.start(PARTIES[0])
