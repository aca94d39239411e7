"""The coordinator's course of a served model: which party is asked what, block after block."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.interactive import COURSE, Opened
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from tests.virtual_time import run
from treetap.errors import ProtocolError
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, interactive_pb2, prediction_pb2

HOLDER, A, B = "holder", "a", "b"
#: Owners that each level asks.
OWNERS = [[A, B], [B]]


class FakeRoster:
    """A label holder that asks these owners, level by level, and owners that answer."""

    def __init__(self, owners: list[list[str]]) -> None:
        self.owners, self.done = owners, list[tuple[str, str, int, int]]()

    async def ask(self, party: str, step: str, _body: Any, round: int = 0, stage: int = 0) -> control_pb2.StepResult:
        self.done.append((party, step, round, stage))
        asked = self.owners[stage] if stage < len(self.owners) else []
        return result(interactive_pb2.AskedDirections(asked=asked, blocks=round + 1))

    async def ask_all(self, parties: Any, step: str, body: Any, round: int = 0, stage: int = 0) -> None:
        for party in parties:
            await self.ask(party, step, body, round, stage)


class NoProgress:
    """Progress that is not shown."""

    def stage(self, _level: int) -> None:
        """Do nothing."""

    def records(self, _done: int, _total: int) -> None:
        """Do nothing."""


def scored(roster: FakeRoster, opened: Opened, block: int) -> int:
    """One block of a served model."""
    opening = prediction_pb2.OpenModel(recipient=HOLDER, serve=True)
    asked: tuple[Any, Any] = roster, NoProgress()
    rosters: Roster = asked[0]
    progress: Progress = asked[1]
    return run(COURSE.score(rosters, opening, opened, block, progress))  # type: ignore[arg-type]


def test_every_owner_is_asked_at_every_level_of_every_block() -> None:
    """Parties have the same steps in the same order whether or not the coordinator knows the owners beforehand."""
    roster, opened = FakeRoster(OWNERS), Opened(64)
    assert [scored(roster, opened, block) for block in range(3)] == [1, 2, 3]
    assert opened.owners == OWNERS
    for party in (HOLDER, A, B):
        steps = [[(step, stage) for who, step, at, stage in roster.done if (who, at) == (party, k)] for k in range(3)]
        assert steps[0] == steps[1] == steps[2]
    assert [(step, stage) for who, step, at, stage in roster.done if (who, at) == (B, 2)] == [
        ("answer_directions", 0),
        ("answer_directions", 1),
    ]


@pytest.mark.parametrize("others", [[[A, B]], [[A], [B]], [[A, B], [B], [A]]])
def test_a_label_holder_that_asks_others_than_before_is_refused(others: list[list[str]]) -> None:
    """Owners follow from the trees, so a block that asks fewer, others or at more levels is a fault."""
    roster, opened = FakeRoster(OWNERS), Opened(64)
    scored(roster, opened, 0)
    roster.owners = others
    with pytest.raises(ProtocolError, match="than in earlier blocks"):
        scored(roster, opened, 1)
