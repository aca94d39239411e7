"""An order that executes a table of steps, and the pages that show the tables."""

from __future__ import annotations

import pytest

from tests.replay import with_word
from treetap.errors import ConfigError, OutOfOrder
from treetap.party.runtime.step_order import (
    ANY,
    LATER,
    OPENING,
    RESUMED,
    Next,
    Outcome,
    StepOrder,
    StepTable,
    role,
    step,
    steps_of,
    table_of,
    without,
)
from treetap.wire.v2 import control_pb2, setup_pb2


def _request(name: str, round: int = 0, stage: int = 0) -> control_pb2.StepRequest:
    request = with_word(name)
    request.round, request.stage = round, stage
    return request


def test_any_round_and_then_any_later_one() -> None:
    """A party that takes part in some rounds and stages only: an earlier one, or the same once more, is refused."""
    order = StepOrder(
        {OPENING: (Next("prepare"),), "prepare": (Next("bin", ANY), Next("publish")), "bin": (Next("bin", LATER),)}
    )
    order.done(_request("prepare"))
    order.check(_request("publish"))
    order.check(_request("bin"))
    with pytest.raises(OutOfOrder, match=r"^prepare of round 0, stage 0 cannot come now; expected bin or publish of"):
        order.check(_request("prepare"))
    order.done(_request("bin", 3, 1))
    for later in ((3, 2), (4, 0)):
        order.check(_request("bin", *later))
    for name, *earlier in (("bin", 3, 1), ("bin", 2, 3), ("publish", 0, 0)):
        with pytest.raises(OutOfOrder, match=r"expected bin after round 3, stage 1$"):
            order.check(_request(name, *earlier))


def test_an_outcome_that_the_row_does_not_know_is_a_defect() -> None:
    """A role cannot report what its table does not have."""
    with pytest.raises(ValueError, match="apply_splits has no outcome won"):
        StepOrder({OPENING: (), "apply_splits": ()}).done(_request("apply_splits"), "won")


class _Part:
    """A part of the role below."""

    @step()
    async def publish(self) -> setup_pb2.PublishedModel:
        return setup_pb2.PublishedModel(trees=3)


@role({OPENING: (Next("prepare"),)}, _Part)
class _Role:
    """A role whose steps report in every way that there is."""

    def __init__(self) -> None:
        self.done, self.fails = list[str](), True
        self.steps = steps_of(self, _Part())

    @step(Next("bin", RESUMED, "stored"), Next("prepare", when="not stored"))
    async def prepare(self) -> Outcome:
        self.done.append("prepare")
        return Outcome("stored", answer=setup_pb2.Prepared(stored_rounds=2), first_rounds=(2,))

    @step(Next("publish"))
    async def bin(self, request: control_pb2.StepRequest) -> None:
        if self.fails:
            raise ConfigError(f"round {request.round} fails")


@pytest.mark.real_time
async def test_a_step_is_checked_before_it_runs_and_moves_the_order_once_it_has_succeeded() -> None:
    """One out of order has no effect, one that fails changes nothing of what may come; answers are those reported."""
    made = _Role()

    with pytest.raises(OutOfOrder, match=r"^bin of round 0, stage 0 cannot come now"):
        await made.steps["bin"](_request("bin"))
    assert (await made.steps["prepare"](_request("prepare"))).setup.prepared.stored_rounds == 2
    with pytest.raises(OutOfOrder, match=r"expected bin of round 2, stage 0$"):
        await made.steps["prepare"](_request("prepare"))
    assert made.done == ["prepare"]
    with pytest.raises(ConfigError, match="round 2 fails"):
        await made.steps["bin"](_request("bin", 2))
    made.fails = False
    assert (await made.steps["bin"](_request("bin", 2))).setup.HasField("done")
    assert (await made.steps["publish"](_request("publish"))).setup.published_model.trees == 3


def test_a_table_has_the_rows_of_parts_in_the_order_in_which_they_may_come() -> None:
    """`table_of` has each step once, behind one after which it may come."""
    assert list(table_of(_Role)) == [OPENING, "prepare", "bin", "publish"]
    assert table_of(_Role)["bin"] == (Next("publish"),)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ({OPENING: (Next("publish"),), "publish": ()}, "has two steps publish"),
        ({OPENING: (Next("publish"), Next("bin"))}, "has no row of bin, which may come"),
        ({OPENING: ()}, "publish may never come"),
    ],
)
def test_a_role_whose_steps_do_not_fit_is_refused(rows: StepTable, fault: str) -> None:
    """When its class is made, not when a job meets the step."""
    with pytest.raises(ValueError, match=fault):
        role(rows, _Part)(type("Fourth", (), {}))


def test_a_table_without_a_condition_has_no_step_that_never_comes() -> None:
    """What follows in the other case follows always."""
    rows: StepTable = {
        OPENING: (Next("bin", when="asked"), Next("publish", when="not asked")),
        "bin": (Next("publish"),),
        "publish": (),
    }
    assert without(rows, "asked", "not asked") == {OPENING: [Next("publish")], "publish": []}
