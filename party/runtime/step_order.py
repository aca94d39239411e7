"""The order of steps: each role declares it as a table, executes that, and its protocol's page shows it.

A table has one row per step, which lists the steps that may come after it:

    "relay_children": (Next("choose_splits", NEXT_STAGE, when=SPLITTABLE), Next("finish_tree", THIS_ROUND, when=ENDS))

Two kinds of names are not steps. `OPENING` is the row of the first steps. A phase, such as the alignment, stands for a
sequence of steps that depends on the job; its row lists the steps that may come after the last one of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from party.runtime.steps import StepId, Untimely, describe
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2

#: The row of the steps that may come first.
OPENING = "opening"


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
        if not any(step in each if isinstance(each, _After) else step == each for each in self._next):
            names = sorted(str(each) if isinstance(each, _After) else describe(each) for each in self._next)
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
        if unknown := set(outcomes) - {each.when for each in row}:
            raise ValueError(f"{done} has no outcome {', '.join(sorted(unknown))}")
        for each in row:
            if each.place in (ANY, LATER):
                yield _After(each.step, (t, stage) if each.place is LATER else None)
                continue
            for round, next_stage in self._places(each.place, t, stage):
                condition = self._conditions.get(each.when) if each.when else None
                if not (each.when is None or each.when in outcomes or (condition and condition(round))):
                    continue
                sequence = self._phases.get(each.step)
                if sequence is None:
                    yield each.step, round, next_stage
                elif sequence:
                    yield sequence[0]
                else:
                    yield from self._after(each.step, 0, 0, ())

    def _places(self, place: Place, t: int, stage: int) -> list[tuple[int, int]]:
        if place is RESUMED:
            return [(round, 0) for round in self.first_rounds]
        return [
            {ONCE: (0, 0), SAME: (t, stage), NEXT_STAGE: (t, stage + 1), THIS_ROUND: (t, 0), NEXT_ROUND: (t + 1, 0)}[
                place
            ]
        ]
