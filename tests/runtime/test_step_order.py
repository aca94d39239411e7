"""An order that executes a table of steps, and the pages that show the tables."""

from __future__ import annotations

import pytest

from tests.replay import with_word
from treetap.errors import ConfigError, OutOfOrder
from treetap.party.runtime.step_order import (
    ANY,
    LATER,
    NEXT_ROUND,
    NEXT_STAGE,
    OPENING,
    RESUMED,
    SAME,
    THIS_ROUND,
    Next,
    Outcome,
    StepId,
    StepOrder,
    StepTable,
    role,
    step,
    steps_of,
    table_of,
    without,
)
from treetap.wire.v2 import control_pb2, setup_pb2

TABLE: StepTable = {
    OPENING: (Next("prepare"),),
    "prepare": (Next("aligning"), Next("bin", when="aligned")),
    "aligning": (Next("bin"),),
    "bin": (Next("begin_tree", RESUMED, "odd"), Next("store_tree", RESUMED, "even"), Next("publish")),
    "begin_tree": (Next("choose_splits", THIS_ROUND),),
    "choose_splits": (Next("apply_splits", SAME, "won"), Next("choose_splits", NEXT_STAGE, "deeper")),
    "apply_splits": (Next("store_tree", THIS_ROUND),),
    "store_tree": (Next("begin_tree", NEXT_ROUND, "odd"), Next("store_tree", NEXT_ROUND, "even")),
    "publish": (),
}
STEPS = ("prepare", "blind_ids", "pass_ids", "bin", "begin_tree", "choose_splits", "apply_splits", "store_tree")


def _order(*aligning: StepId) -> StepOrder:
    return StepOrder(TABLE, {"aligning": aligning}, {"odd": lambda t: t % 2 == 1, "even": lambda t: t % 2 == 0})


def _request(name: str, round: int = 0, stage: int = 0) -> control_pb2.StepRequest:
    request = with_word(name)
    request.round, request.stage = round, stage
    return request


def _may_come(order: StepOrder) -> set[StepId]:
    """Steps that the order permits next, of all in the first rounds and stages."""
    found = set()
    for asked in [(name, round, stage) for name in (*STEPS, "publish") for round in range(5) for stage in range(4)]:
        try:
            order.check(_request(*asked))
            found.add(asked)
        except OutOfOrder:
            pass
    return found


def test_rounds_and_stages_follow_from_the_step_that_was_done() -> None:
    """Each place of a table's lines: the same, the next stage, this round's and the next round's beginning."""
    order = _order()
    assert _may_come(order) == {("prepare", 0, 0)}
    order.done(_request("begin_tree", 3))
    assert _may_come(order) == {("choose_splits", 3, 0)}
    order.done(_request("choose_splits", 3, 1), "won")
    assert _may_come(order) == {("apply_splits", 3, 1)}
    order.done(_request("choose_splits", 3, 1), "won", "deeper")
    assert _may_come(order) == {("apply_splits", 3, 1), ("choose_splits", 3, 2)}
    order.done(_request("apply_splits", 3, 2))
    assert _may_come(order) == {("store_tree", 3, 0)}
    order.done(_request("publish"))
    assert _may_come(order) == set()


def test_any_round_and_then_any_later_one() -> None:
    """A party that takes part in some rounds and stages only: an earlier one, or the same once more, is refused."""
    order = StepOrder(
        {OPENING: (Next("prepare"),), "prepare": (Next("bin", ANY), Next("publish")), "bin": (Next("bin", LATER),)}
    )
    order.done(_request("prepare"))
    assert _may_come(order) == {("publish", 0, 0), *(("bin", t, stage) for t in range(5) for stage in range(4))}
    with pytest.raises(OutOfOrder, match=r"^prepare of round 0, stage 0 cannot come now; expected bin or publish of"):
        order.check(_request("prepare"))
    order.done(_request("bin", 3, 1))
    assert _may_come(order) == {("bin", 3, 2), ("bin", 3, 3), *(("bin", 4, stage) for stage in range(4))}
    with pytest.raises(OutOfOrder, match=r"^bin of round 3, stage 1 .* expected bin after round 3, stage 1$"):
        order.check(_request("bin", 3, 1))


def test_a_refusal_names_what_was_expected() -> None:
    """A refused step changes nothing of what may come."""
    order = _order()
    order.done(_request("choose_splits", 3, 1), "won", "deeper")
    for _ in range(2):
        with pytest.raises(OutOfOrder) as caught:
            order.check(_request("prepare"))
        assert str(caught.value) == (
            "prepare of round 0, stage 0 cannot come now; "
            "expected apply_splits of round 3, stage 1 or choose_splits of round 3, stage 2"
        )
    order.done(_request("publish"))
    with pytest.raises(OutOfOrder, match=r"expected nothing$"):
        order.check(_request("apply_splits", 3, 1))


def test_conditions_are_asked_of_the_next_round() -> None:
    """A line with a condition lets its step come in rounds in which that holds; a resumed job may have several."""
    order = _order()
    for t, name in ((0, "begin_tree"), (1, "store_tree")):
        order.done(_request("store_tree", t))
        assert _may_come(order) == {(name, t + 1, 0)}
    order.first_rounds = range(3)
    order.done(_request("bin"))
    assert _may_come(order) == {("store_tree", 0, 0), ("begin_tree", 1, 0), ("store_tree", 2, 0), ("publish", 0, 0)}


def test_a_phase_is_a_sequence_of_steps() -> None:
    """Its first step comes where the table names the phase, then one after another, then the phase's own row."""
    order = _order(("blind_ids", 0, 0), ("pass_ids", 0, 1), ("pass_ids", 0, 3))
    order.done(_request("prepare"))
    assert _may_come(order) == {("blind_ids", 0, 0)}
    order.done(_request("blind_ids"))
    assert _may_come(order) == {("pass_ids", 0, 1)}
    order.done(_request("pass_ids", stage=1))
    assert _may_come(order) == {("pass_ids", 0, 3)}
    order.done(_request("pass_ids", stage=3))
    assert _may_come(order) == {("bin", 0, 0)}
    order.done(_request("prepare"), "aligned")
    assert _may_come(order) == {("blind_ids", 0, 0), ("bin", 0, 0)}


def test_a_phase_without_steps_is_passed_over() -> None:
    """The step after the phase comes in its place."""
    order = _order()
    order.done(_request("prepare"))
    assert _may_come(order) == {("bin", 0, 0)}


def test_an_outcome_that_the_row_does_not_know_is_a_defect() -> None:
    """A role cannot report what its table does not have."""
    with pytest.raises(ValueError, match="apply_splits has no outcome won"):
        _order().done(_request("apply_splits"), "won")


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
