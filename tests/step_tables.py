"""Roles' tables of steps, read once more and independently of the order that executes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from party.alignment.steps import ALIGNED, ALIGNMENT
from party.growth.feature_party import SITS_OUT, TAKES_PART
from party.growth.label_holder import NONE_SPLITS, NONE_SPLITTABLE, OTHERS_WON, OWN_WON, SPLITTABLE
from party.prediction.feature_names import NAMES
from party.runtime.step_order import OPENING, StepTable
from party.setup.steps import PUBLISHED, UNPUBLISHED
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2

Asked = tuple[str, int, int]
Answered = tuple[control_pb2.StepRequest, control_pb2.StepResult]


class Line(NamedTuple):
    """A statement of a table on one step after another, wherever it stands."""

    done: str
    step: str
    place: str
    when: str | None


def lines_of(table: StepTable) -> set[Line]:
    """Every line of a table."""
    return {Line(done, each.step, each.place.name, each.when) for done, row in table.items() for each in row}


class TableReader:
    """A role's table in jobs whose records are aligned by the single step `aligning`.

    `resumes`: trees with which the party may go on; `takes_part`: whether it takes part in a tree; `naming`: the
    step of the names in an explained prediction.
    """

    #: The first blocks and levels.
    FIRST = tuple((block, level) for block in range(6) for level in range(12))

    def __init__(
        self,
        table: StepTable,
        aligning: str,
        resumes: Sequence[int] = (0,),
        takes_part: Callable[[int], bool] = lambda t: True,
        naming: str | None = None,
    ) -> None:
        self._table, self._resumes, self._takes_part = table, resumes, takes_part
        self._phases = {ALIGNMENT: aligning, NAMES: naming}

    def after(self, done: Asked | None, outcomes: Collection[str] | None) -> dict[Asked, Line]:
        """The steps that may come next, or at first, with the line that allows each; without outcomes, after any."""
        name, t, level = done or (OPENING, 0, 0)
        name = next((phase for phase, step in self._phases.items() if step == name), name)
        found = {}
        for each in self._table[name]:
            if each.step == NAMES and self._phases[NAMES] is None:
                found |= self.after((NAMES, 0, 0), outcomes)
                continue
            for round, stage in {
                "ONCE": [(0, 0)],
                "SAME": [(t, level)],
                "NEXT_STAGE": [(t, level + 1)],
                "THIS_ROUND": [(t, 0)],
                "NEXT_ROUND": [(t + 1, 0)],
                "RESUMED": [(round, 0) for round in self._resumes],
                "ANY": self.FIRST,
                "LATER": [place for place in self.FIRST if place > (t, level)],
            }[each.place.name]:
                known = {TAKES_PART if self._takes_part(round) else SITS_OUT, *(outcomes or ())}
                if outcomes is None or each.when is None or each.when in known:
                    step = self._phases.get(each.step) or each.step
                    found[step, round, stage] = Line(name, each.step, each.place.name, each.when)
        return found


def outcomes_of(answered: Answered, label_holder: str, me: str) -> set[str]:
    """The outcomes of a step of growing trees that can be seen in its answer."""
    request, result = answered
    step = name_of(request)
    if step == "prepare":
        prepared = result.setup.prepared
        found = {ALIGNED} if prepared.aligned_attempt else set()
        return found if me == label_holder else found | {PUBLISHED if prepared.published else UNPUBLISHED}
    if step == "choose_splits":
        winners = {decision.owner for decision in result.growth.chosen_splits.decisions}
        return {OWN_WON if me in winners else OTHERS_WON if winners else NONE_SPLITS}
    if step == "relay_children":
        return {SPLITTABLE if result.growth.relayed_children.build else NONE_SPLITTABLE}
    return set()


def id_of(request: control_pb2.StepRequest) -> Asked:
    """Name, round and stage of a step."""
    return name_of(request), request.round, request.stage


def taken(reader: TableReader, steps: Iterable[Asked]) -> set[Line]:
    """The lines that let the steps of an attempt come, one after another; `AssertionError` for one that none lets."""
    found = set()
    before = None
    for step in steps:
        allowed = reader.after(before, None)
        assert step in allowed, f"{step} came after {before}, where the table has {sorted(allowed)}"
        found.add(allowed[step])
        before = step
    return found
