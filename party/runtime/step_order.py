"""The order of steps: each step declares what may come after it, its role conducts that, its protocol's page shows it.

A step is a method, of a role or of a part that it is composed of, whose name is the step's on the wire:

    @step(Next("choose_splits", NEXT_STAGE, when=SPLITTABLE), Next("store_tree", THIS_ROUND, when=NONE_SPLITTABLE))
    async def relay_children(self, request: control_pb2.StepRequest) -> Outcome: ...

These rows make the table of a role (`@role`, `table_of`), by which `steps_of` checks each step before it runs and moves
on after it has succeeded.

Two kinds of rows are no steps' and stand beside the role's class. `OPENING` is the row of the first steps. A phase,
such as the alignment, stands for a sequence of steps that depends on the job; its row lists the steps that may come
after the last one of the sequence.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import ModuleType
from typing import Protocol, TypeAlias, TypeVar

from google.protobuf.message import Message

from treetap.errors import OutOfOrder
from treetap.wire.frame import name_of, result
from treetap.wire.v2 import control_pb2, setup_pb2

StepId = tuple[str, int, int]
#: A step that a party conducts.
Step = Callable[[control_pb2.StepRequest], Awaitable[control_pb2.StepResult]]

#: The row of the steps that may come first.
OPENING = "opening"
#: The name of the alignment as a phase of a role's step table.
ALIGNMENT = "alignment"
#: Outcome of `prepare`, the step before the alignment.
ALIGNED = "the records are aligned already"


def describe(step: StepId) -> str:
    """`choose_splits of round 2, stage 1`."""
    kind, round, stage = step
    return f"{kind} of round {round}, stage {stage}"


class Untimely(OutOfOrder):
    """A step that is refused before it has any effect; the attempt continues.

    Callers get `OutOfOrder`, the error class defined on the wire.
    """


class Place(Enum):
    """Round and stage of the next step; t and l are those of the step before it."""

    ONCE = "0, 0"
    SAME = "t, l"
    NEXT_STAGE = "t, l+1"
    THIS_ROUND = "t, 0"
    NEXT_ROUND = "t+1, 0"
    RESUMED = "t, 0 for each of the order's first rounds t"
    ANY = "any round, any stage"
    LATER = "a later round, or a later stage of round t"


ONCE, SAME, NEXT_STAGE, THIS_ROUND, NEXT_ROUND, RESUMED, ANY, LATER = Place


@dataclass(frozen=True)
class Next:
    """A step or phase that may come next, with its place.

    `when`: an outcome of the step before it, or a condition on the round of the next one; None: always.
    """

    step: str
    place: Place = ONCE
    when: str | None = None


#: Step, phase or `OPENING` → the steps and phases that may come after it.
StepTable = Mapping[str, Sequence[Next]]
#: Phase → its steps at one party, in order; there may be none.
Phases = Mapping[str, Sequence[StepId]]
#: Text of a condition → its predicate on a round.
Conditions = Mapping[str, Callable[[int], bool]]


def id_of(request: control_pb2.StepRequest) -> StepId:
    """Name, round and stage of a step."""
    return name_of(request), request.round, request.stage


@dataclass(frozen=True)
class _After:
    """A step that may come in any round and stage after `last`; None: in any at all."""

    kind: str
    last: tuple[int, int] | None

    def __contains__(self, step: StepId) -> bool:
        return step[0] == self.kind and (self.last is None or step[1:] > self.last)

    def __str__(self) -> str:
        return self.kind if self.last is None else f"{self.kind} after round {self.last[0]}, stage {self.last[1]}"


class StepOrder:
    """The steps that may come next by a role's table; everything else is the caller's error.

    Attributes:
        first_rounds: rounds at which this attempt may continue; an earlier attempt may have stored some.
    """

    def __init__(self, table: StepTable, phases: Phases | None = None, conditions: Conditions | None = None) -> None:
        self._table, self._phases, self._conditions = table, phases or {}, conditions or {}
        self.first_rounds: Sequence[int] = (0,)
        self._next = set(self._after(OPENING, 0, 0, ()))

    def check(self, request: control_pb2.StepRequest) -> None:
        """`Untimely` unless the step may come now."""
        step = id_of(request)
        if not any(step in coming if isinstance(coming, _After) else step == coming for coming in self._next):
            names = sorted(str(coming) if isinstance(coming, _After) else describe(coming) for coming in self._next)
            raise Untimely(f"{describe(step)} cannot come now; expected {' or '.join(names) or 'nothing'}")

    def done(self, request: control_pb2.StepRequest, *outcomes: str) -> None:
        """Advance after a step has succeeded, with its outcomes.

        Raises:
            ValueError: the step's row has no such outcome.
        """
        step = id_of(request)
        for phase, sequence in self._phases.items():
            if step in sequence:
                later = sequence[sequence.index(step) + 1 :]
                self._next = set(later[:1] or self._after(phase, 0, 0, outcomes))
                return
        kind, t, stage = step
        self._next = set(self._after(kind, t, stage, outcomes))

    def _after(self, done: str, t: int, stage: int, outcomes: Sequence[str]) -> Iterator[StepId | _After]:
        row = self._table[done]
        if unknown := set(outcomes) - {following.when for following in row}:
            raise ValueError(f"{done} has no outcome {', '.join(sorted(unknown))}")
        for following in row:
            if following.place in (ANY, LATER):
                yield _After(following.step, (t, stage) if following.place is LATER else None)
                continue
            for round, next_stage in self._places(following.place, t, stage):
                condition = self._conditions.get(following.when) if following.when else None
                if not (following.when is None or following.when in outcomes or (condition and condition(round))):
                    continue
                # a phase stands for its steps at this party; one without any, for what may come after it
                sequence = self._phases.get(following.step)
                if sequence is None:
                    yield following.step, round, next_stage
                elif sequence:
                    yield sequence[0]
                else:
                    yield from self._after(following.step, 0, 0, ())

    def _places(self, place: Place, t: int, stage: int) -> list[tuple[int, int]]:
        if place is RESUMED:
            return [(round, 0) for round in self.first_rounds]
        return [
            {ONCE: (0, 0), SAME: (t, stage), NEXT_STAGE: (t, stage + 1), THIS_ROUND: (t, 0), NEXT_ROUND: (t + 1, 0)}[
                place
            ]
        ]


class Outcome:
    """The report of a step that has succeeded.

    Attributes:
        says: outcomes of its row, by which some steps may come and others not.
        answer: the body of its answer; None: an empty one.
        first_rounds: those of the order from now on; None: as they were.
    """

    def __init__(self, *says: str, answer: Message | None = None, first_rounds: Sequence[int] | None = None) -> None:
        self.says, self.answer, self.first_rounds = says, answer, first_rounds


#: What a step's method returns: an outcome, the body of its answer, or None for an empty one.
Reported: TypeAlias = Outcome | Message | None
#: A step's method, which takes the request if it needs that.
Method = TypeVar("Method", bound=Callable[..., Awaitable[Reported]])
Declaring = TypeVar("Declaring", bound=type)
_ROW = "_steps_after"
_TABLES: dict[type, StepTable] = {}


class Phase(Protocol):
    """A part whose steps follow one after another as the job has it."""

    @property
    def sequence(self) -> Sequence[StepId]:
        """Its steps at one party, in order; there may be none."""
        ...


def step(*following: Next) -> Callable[[Method], Method]:
    """Declare a method as the step of its name, with the steps that may come after it; none after one of a phase."""

    def declare(method: Method) -> Method:
        setattr(method, _ROW, following)
        return method

    return declare


def role(rows: StepTable, *parts: type) -> Callable[[Declaring], Declaring]:
    """Declare a class as a role, which has the steps of its own and of its parts.

    `rows`: those that are no steps', of `OPENING` and of phases, and those of steps that say nothing themselves of what
    may follow, as a part of several roles cannot.

    Raises:
        ValueError: two steps have one name, one that may come has no row, or a row is never reached.
    """

    def declare(declaring: Declaring) -> Declaring:
        table, whole = dict(rows), tuple[type, ...]((declaring, *parts))
        for part in whole:
            for name, following in declared_steps(part).items():
                if rows.get(name) and not following:
                    continue
                if name in table:
                    raise ValueError(f"{declaring.__name__} has two steps {name}")
                table[name] = following
        _TABLES[declaring] = _in_order(declaring.__name__, table)
        if never := sorted(set(table) - set(_TABLES[declaring])):
            raise ValueError(f"{declaring.__name__}: {', '.join(never)} may never come")
        return declaring

    return declare


def table_of(declared: type) -> StepTable:
    """The table of a role, its rows in the order in which their steps may come."""
    return _TABLES[declared]


def without(table: StepTable, never: str, always: str) -> StepTable:
    """What of a table may come where the condition `never` is never met, and the condition `always` always is."""
    rows = {
        done: [replace(following, when=None) if following.when == always else following for following in row]
        for done, row in table.items()
    }
    return _in_order(
        "", {done: [following for following in row if following.when != never] for done, row in rows.items()}
    )


def table_in(module: ModuleType) -> StepTable:
    """The table of the one role that a module has."""
    (declared,) = (table for kind, table in _TABLES.items() if kind.__module__ == module.__name__)
    return declared


def steps_of(
    own: object, *parts: object, phases: Mapping[str, Phase] | None = None, conditions: Conditions | None = None
) -> Mapping[str, Step]:
    """The steps of a role by name: those of its own, of its parts and of its phases."""
    phases = phases or {}
    order = StepOrder(table_of(type(own)), {name: phase.sequence for name, phase in phases.items()}, conditions)
    steps: dict[str, Step] = {}
    for part in (own, *parts):
        steps |= {name: _conducted(order, part, name) for name in declared_steps(type(part))}
    for phase in phases.values():
        steps |= {name: _conducted(order, phase, name) for name, _, _ in phase.sequence}
    return steps


def declared_steps(part: type) -> dict[str, Sequence[Next]]:
    """The steps of a class with their rows."""
    methods = ((name, getattr(part, name)) for name in dir(part) if not name.startswith("__"))
    return {name: getattr(method, _ROW) for name, method in methods if hasattr(method, _ROW)}


def _conducted(order: StepOrder, part: object, name: str) -> Step:
    """A step that comes in order only, and moves the order once it has succeeded."""
    method: Callable[..., Awaitable[Reported]] = getattr(part, name)
    takes_request = bool(inspect.signature(method).parameters)

    async def conduct(request: control_pb2.StepRequest) -> control_pb2.StepResult:
        order.check(request)
        reported = await (method(request) if takes_request else method())
        outcome = reported if isinstance(reported, Outcome) else Outcome(answer=reported)
        answer = result(setup_pb2.Done() if outcome.answer is None else outcome.answer)
        if outcome.first_rounds is not None:
            order.first_rounds = outcome.first_rounds
        order.done(request, *outcome.says)
        return answer

    return conduct


def _in_order(declaring: str, table: StepTable) -> StepTable:
    """The rows that are reached, in the order in which their steps may come, depth first."""
    reached: dict[str, Sequence[Next]] = {}

    def visit(name: str) -> None:
        if name not in table:
            raise ValueError(f"{declaring} has no row of {name}, which may come")
        if name not in reached:
            reached[name] = table[name]
            for following in table[name]:
                visit(following.step)

    visit(OPENING)
    return reached
