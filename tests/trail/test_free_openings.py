"""Openings that cost nothing: a coordinator has 1,000 in 24 hours, and no more lines of them come into the trail."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from party.config import PartyConfig
from party.runtime.ledger import Charge, Occasion, ledger_of
from party.runtime.ledger import Kind as Charged
from party.trail import jobs
from party.trail.jobs import TrailedJobs
from treetap.errors import Refused

NOW, HOUR = 1e9, 3600.0


class Party:
    """A party's trail, at a time that the test sets."""

    def __init__(self, folder: Path) -> None:
        config = PartyConfig(name="bank", state=folder, insecure=True)
        own: Any = None
        self.now, self.trailed, self._state = NOW, TrailedJobs(config, own, own), folder
        self.trailed.trail._clock = lambda: self.now

    def open(self, job: str, coordinator: str = "coordinator") -> None:
        """Open an attempt, unless it is refused."""
        approvals: Any = SimpleNamespace(digests=dict, operator=lambda _: "")
        self.trailed.check(approvals, coordinator)
        context = SimpleNamespace(job=job, attempt=1, digest=b"d")
        session: Any = SimpleNamespace(context=context, coordinator=coordinator, peers=("telco",))
        self.trailed.open(session, approvals)

    def charge(self, coordinator: str, at: float) -> None:
        """Charge an attempt."""
        occasion = Occasion("loans", ("telco",), coordinator, "job", 1)
        ledger_of(self._state).enter(Charge(Charged.TRAINING, occasion, seconds=at))


def test_openings_without_a_charge_are_so_many_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one coordinator; one that was charged makes room, so does time, and a refused one adds no line."""
    monkeypatch.setattr(jobs, "MOST_FREE", 3)
    party = Party(tmp_path)
    for number in range(3):
        party.open(f"job-{number}")
        party.now += HOUR
    before = party.trailed.trail.head
    refusal = (
        "bank opens no job for coordinator: in 24 hours 3 opened for it, all but 0 without a charge, and 3 may; the "
        r"next may open after 2001-09-10 01:46:40 UTC"
    )
    with pytest.raises(Refused, match=refusal):
        party.open("job-3")
    assert party.trailed.trail.head == before
    party.open("job-3", "another")
    party.charge("another", party.now)
    with pytest.raises(Refused):
        party.open("job-3")
    party.charge("coordinator", party.now)
    party.open("job-3")
    with pytest.raises(Refused, match=r"all but 1 .* after 2001-09-10 01:46:40"):
        party.open("job-4")
    party.now = NOW + 24 * HOUR + 1
    party.open("job-4")


def test_a_clock_that_was_set_back_gives_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Openings of the future count; a party that starts again knows them from its trail."""
    monkeypatch.setattr(jobs, "MOST_FREE", 2)
    party = Party(tmp_path)
    party.open("job-0")
    party.open("job-1")
    again = Party(tmp_path)
    again.now = NOW - 48 * HOUR
    with pytest.raises(Refused, match="in 24 hours 2 opened for it"):
        again.open("job-2")
