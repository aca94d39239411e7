"""An order that executes a table of steps, and the pages that show the tables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.replay import with_word
from treetap.errors import ConfigError, Conflict, DataError, Interrupted, Malformed, OutOfOrder, TreetapError
from treetap.party.runtime import steps
from treetap.party.runtime.step_order import (
    ANY,
    LATER,
    OPENING,
    RESUMED,
    SAME,
    Next,
    Outcome,
    StepId,
    StepOrder,
    StepTable,
    describe,
    role,
    step,
    steps_of,
    table_of,
    without,
)
from treetap.party.runtime.steps import HEARTBEAT_S, StepCache, follow
from treetap.wire.frame import filled
from treetap.wire.v2 import control_pb2, growth_pb2, setup_pb2


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


# ---- Steps: done once, answered again as before, refused out of order, alive while they run, at an end when one fai


STEP = ("choose_splits", 2, 1)
NEXT = ("relay_children", 2, 1)


def _node_request(*nodes: int) -> control_pb2.StepRequest:
    return filled(control_pb2.StepRequest(job="job"), "build_histograms", growth_pb2.BuildHistograms(nodes=nodes))


def _named(step: StepId) -> control_pb2.StepRequest:
    request = with_word(step[0])
    request.round, request.stage = step[1:]
    return request


class Work:
    """A step's work that counts how often it is begun, takes a while, and fails as often as it is told."""

    def __init__(self, seconds: float = 0.0, failures: tuple[BaseException, ...] = ()) -> None:
        self.seconds, self.failures, self.begun, self.ended = seconds, list(failures), 0, 0

    async def __call__(self) -> control_pb2.StepResult:
        self.begun += 1
        await asyncio.sleep(self.seconds)
        if self.failures:
            raise self.failures.pop(0)
        self.ended += 1
        return control_pb2.StepResult(bytes=self.begun)


def _start(
    book: StepCache, work: Callable[[], Awaitable[control_pb2.StepResult]], *nodes: int
) -> asyncio.Task[control_pb2.StepResult]:
    return book.start(STEP, _node_request(*nodes), work)


async def test_a_step_is_done_once() -> None:
    """Asked twice while it runs and again when it is done, a step does its work once and answers the same."""

    book, work = StepCache(), Work(1.0)
    first, second = _start(book, work), _start(book, work)
    await asyncio.sleep(2.0)
    third = _start(book, work)
    assert [(await task).bytes for task in (first, second, third)] == [1, 1, 1]
    assert work.begun == 1


async def test_other_content_for_the_same_step() -> None:
    """A repeat that asks for something else is refused, while the step runs and after it."""

    book, work = StepCache(), Work(1.0)
    task = _start(book, work, 1, 2)
    for _ in range(2):
        with pytest.raises(Conflict, match="choose_splits of round 2, stage 1 came again with other content"):
            _start(book, work, 1, 3)
        await task


async def test_one_step_at_a_time() -> None:
    """Another step while one is under way is the coordinator's error; afterwards it may come."""

    book, work = StepCache(), Work(1.0)
    task = _start(book, work)
    with pytest.raises(OutOfOrder, match="came while choose_splits of round 2, stage 1 is under way"):
        book.start(NEXT, _node_request(), work)
    await task
    assert (await book.start(NEXT, _node_request(), work)).bytes == 2


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (Malformed("gradients of c are too short"), "failed: gradients of c are too short"),
        (DataError("table.csv: has no rows"), "failed: table.csv: has no rows"),
        (RuntimeError("income 71000"), r"failed \(RuntimeError\)"),
    ],
    ids=["malformed", "bad-input", "defect"],
)
async def test_a_failed_step_ends_the_attempt(failure: Exception, why: str) -> None:
    """Its repeat gets the same error and does nothing; other steps, and itself with other content, are refused.

    The refusal names the step that failed and its cause, of a defect only the kind, and that a resume helps.
    """

    book, work = StepCache(), Work(1.0, (failure,))
    for _ in range(2):
        with pytest.raises(type(failure), match=str(failure)):
            await _start(book, work, 1)
    ended = f"choose_splits of round 2, stage 1 {why}; resume the job for a new one$"
    with pytest.raises(Interrupted, match=f"^the attempt has ended before choose_splits of round 2, stage 1: {ended}"):
        _start(book, work, 2)
    with pytest.raises(Interrupted, match=f"^the attempt has ended before relay_children of .*: {ended}"):
        book.start(NEXT, _node_request(), work)
    assert (work.begun, book.busy) == (1, False)
    assert (await _start(StepCache(), work, 1)).bytes == 2


async def test_what_was_done_before_a_failure_is_answered_as_before() -> None:
    """The repeat of an earlier step asks for nothing new."""

    book = StepCache()
    assert (await _start(book, Work())).bytes == 1
    with pytest.raises(Malformed):
        await book.start(NEXT, _node_request(), Work(0.0, (Malformed("bad"),)))
    assert (await _start(book, Work())).bytes == 1


async def test_a_full_disk_interrupts() -> None:
    """An error of the operating system ends the attempt, not the job, with the file's name."""

    book, work = StepCache(), Work(0.0, (OSError(28, "No space left on device", "trees.jsonl"),))
    for _ in range(2):
        with pytest.raises(Interrupted, match=r"stage 1: No space left on device: trees\.jsonl$"):
            await _start(book, work)
    with pytest.raises(Interrupted, match=r"stage 1: No space left on device: trees\.jsonl; resume the job"):
        book.start(NEXT, _node_request(), work)
    assert work.begun == 1


@pytest.mark.parametrize("peers", [False, True])
async def test_only_what_was_never_begun_is_out_of_order(peers: bool) -> None:
    """A step that its own order refuses leaves the attempt as it was; a peer's refusal in the midst of it does not."""

    book = StepCache()
    order = StepOrder({OPENING: (Next(NEXT[0]),), NEXT[0]: (Next(STEP[0], SAME),)})

    async def work() -> control_pb2.StepResult:
        if peers:
            raise OutOfOrder("attempt 1 of job job is over")
        order.check(_named(STEP))
        return control_pb2.StepResult()

    with pytest.raises(OutOfOrder) as caught:
        await _start(book, work)
    assert type(caught.value) is OutOfOrder  # the name that a caller over a socket knows
    if peers:
        with pytest.raises(Interrupted, match="stage 1 failed: attempt 1 of job job is over"):
            book.start(NEXT, _node_request(), Work())
    else:
        assert (await book.start(NEXT, _node_request(), Work())).bytes == 1
        order.done(_named(NEXT))
        assert (await _start(book, work)).bytes == 0


async def test_a_step_survives_its_caller() -> None:
    """A caller that goes away while it listens does not end the work; the next one hears the result."""

    book, work = StepCache(), Work(3.0)

    async def listen() -> None:
        async for _ in follow("b", _start(book, work)):
            pass

    caller = asyncio.ensure_future(listen())
    await asyncio.sleep(1.5)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert (await _start(book, work)).bytes == 1
    assert (work.begun, work.ended) == (1, 1)


async def test_a_running_step_gives_signs_of_life() -> None:
    """Progress comes at every heartbeat with the figures of the moment, until the step has ended."""

    clock = asyncio.get_running_loop().time
    started = clock()
    heard = []
    task = _start(StepCache(), Work(3.5 * HEARTBEAT_S))
    async for event in follow("b", task, lambda: control_pb2.Progress(done=round(clock() - started))):
        heard.append((event.WhichOneof("event"), event.progress.done, clock() - started))
    assert [kind for kind, _, _ in heard] == ["progress"] * 3
    assert [done for _, done, _ in heard] == [1, 2, 3]
    assert [at for _, _, at in heard] == pytest.approx([1.0, 2.0, 3.0])
    assert clock() - started == pytest.approx(3.5)
    assert task.result().bytes == 1


async def test_a_failure_reaches_who_follows() -> None:
    """The step's own error is raised, not a second-hand one."""

    with pytest.raises(Malformed, match="bad"):
        async for _ in follow("b", _start(StepCache(), Work(1.5, (Malformed("bad"),)))):
            pass


@pytest.mark.parametrize("after", [0.0, 1.5])
async def test_leaving_ends_the_step(after: float) -> None:
    """Closing the book ends what runs, begun or not, and tells who follows that the job was left."""
    book, work = StepCache(), Work(10.0)
    task = _start(book, work)
    heard: list[TreetapError] = []

    async def listen() -> None:
        try:
            async for _ in follow("b", task):
                pass
        except TreetapError as error:
            heard.append(error)

    listening = asyncio.ensure_future(listen())
    if after:
        await asyncio.sleep(after)
    await book.close()
    assert task.cancelled()
    await listening
    assert [type(error) for error in heard] == [Interrupted]
    assert work.ended == 0


def test_steps_have_names_for_people() -> None:
    """Messages name a step with its round and stage."""
    assert describe(STEP) == "choose_splits of round 2, stage 1"


async def test_steps_without_end_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones are answered as before; one that was forgotten is done anew, and its role sees to the order."""
    monkeypatch.setattr(steps, "MOST_STEPS", 3)

    book, work = StepCache(), Work(0.0)
    for level in range(6):
        request = control_pb2.StepRequest(stage=level)
        await book.start(("await_requests", 0, level), request, work)
    done = await book.start(("await_requests", 0, 5), control_pb2.StepRequest(stage=5), work)
    assert done.bytes == 6
    assert (await book.start(("await_requests", 0, 0), control_pb2.StepRequest(stage=0), work)).bytes == 7
    assert len(book._tasks) == 3
