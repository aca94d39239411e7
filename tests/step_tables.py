"""Roles' tables of steps, read once more and independently of the order that executes them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from treetap.party.prediction.steps import NAMES
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, StepTable, table_in

Asked = tuple[str, int, int]


class Line(NamedTuple):
    """A statement of a table on one step after another, wherever it stands."""

    done: str
    step: str
    place: str
    when: str | None


def table_at(module: str) -> StepTable:
    """The table of the role in a module below `party`."""
    return table_in(importlib.import_module(f"treetap.party.{module}"))


def lines_of(table: StepTable) -> set[Line]:
    """Every line of a table."""
    return {Line(done, each.step, each.place.name, each.when) for done, row in table.items() for each in row}


class TableReader:
    """A role's table in jobs whose records are aligned by the single step `aligning`.

    `resumes`: trees with which the party may go on; `naming`: the step of the names in an explained prediction.
    """

    #: The first blocks and levels.
    FIRST = tuple((block, level) for block in range(6) for level in range(12))

    def __init__(
        self, table: StepTable, aligning: str, resumes: Sequence[int] = (0,), naming: str | None = None
    ) -> None:
        self._table, self._resumes = table, resumes
        self._phases = {ALIGNMENT: aligning, NAMES: naming}

    def after(self, done: Asked | None) -> dict[Asked, Line]:
        """The steps that may come next, or at first, whatever the outcomes, with the line that allows each."""
        name, t, level = done or (OPENING, 0, 0)
        name = next((phase for phase, step in self._phases.items() if step == name), name)
        found = {}
        for each in self._table[name]:
            if each.step == NAMES and self._phases[NAMES] is None:
                found |= self.after((NAMES, 0, 0))
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
                step = self._phases.get(each.step) or each.step
                found[step, round, stage] = Line(name, each.step, each.place.name, each.when)
        return found


def taken(reader: TableReader, steps: Iterable[Asked]) -> set[Line]:
    """The lines that let the steps of an attempt come, one after another; `AssertionError` for one that none lets."""
    found = set()
    before = None
    for step in steps:
        allowed = reader.after(before)
        assert step in allowed, f"{step} came after {before}, where the table has {sorted(allowed)}"
        found.add(allowed[step])
        before = step
    return found
