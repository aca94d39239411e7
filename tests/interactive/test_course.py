"""The coordinator's course of a served model: which party is asked what, block after block."""

from __future__ import annotations

from typing import Any

import pytest

from tests.virtual_time import run
from treetap.coordinator.interactive import PREDICTION, Opened
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster
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
        self.stages: dict[str, list[int]] = {}  # of the owners' last step for a whole block

    async def ask(self, party: str, step: str, body: Any, round: int = 0, stage: int = 0) -> control_pb2.StepResult:
        self.done.append((party, step, round, stage))
        if step == "answer_block":
            self.stages[party] = list(body.stages)
        if step == "route_block":
            stages = [interactive_pb2.StageOwners(asked=each) for each in self.owners]
            return result(interactive_pb2.RoutedBlock(stages=stages, blocks=round + 1))
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
    return run(PREDICTION.score(rosters, opening, opened, block, progress))  # type: ignore[arg-type]


def test_every_owner_is_asked_at_every_level_of_every_block() -> None:
    """The first block shows them stage by stage; in later ones each party has one step with the same stages."""
    roster, opened = FakeRoster(OWNERS), Opened(64)
    assert scored(roster, opened, 0) == 1
    assert opened.owners == OWNERS
    for party, asked in ((A, [0]), (B, [0, 1])):
        assert [done[1:] for done in roster.done if done[0] == party] == [("answer_directions", 0, at) for at in asked]
    for block in (1, 2):
        roster.done.clear()
        assert scored(roster, opened, block) == block + 1
        steps = [(HOLDER, "route_block"), (A, "answer_block"), (B, "answer_block")]
        assert sorted(roster.done) == sorted((party, step, block, 0) for party, step in steps)
        assert roster.stages == {A: [0], B: [0, 1]}


@pytest.mark.parametrize("others", [[[A, B]], [[A], [B]], [[A, B], [B], [A]]])
def test_a_label_holder_that_asks_others_than_before_is_refused(others: list[list[str]]) -> None:
    """Owners follow from the trees, so a block that asks fewer, others or at more levels is a fault."""
    roster, opened = FakeRoster(OWNERS), Opened(64)
    scored(roster, opened, 0)
    roster.owners = others
    with pytest.raises(ProtocolError, match="than in earlier blocks"):
        scored(roster, opened, 1)
