"""A failing plan made small: faults and options that do not matter are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.campaign.plans import Plan

#: Most runs that shrinking one plan takes.
MOST_RUNS = 60


def shrunk(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """The smallest plan found that fails still; `fails` carries a plan out. `plan` fails."""
    runs = 0
    smaller = True
    while smaller and runs < MOST_RUNS:
        smaller = False
        for candidate in _smaller(plan):
            runs += 1
            if runs > MOST_RUNS:
                break
            if fails(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    for index in range(len(plan.faults)):
        yield plan.without(index)
    if plan.real:
        yield replace(plan, real=False)
    if plan.record:
        yield replace(plan, record=False)
    if plan.stage != "boosting":
        yield replace(plan, stage="boosting")
    for index, fault in enumerate(plan.faults):
        for key in ("back_s", "for_s", "drop", "lose_reply", "double", "delay_s"):
            if fault.get(key):
                rest = {**fault, key: 0.0}
                yield replace(plan, faults=(*plan.faults[:index], rest, *plan.faults[index + 1 :]))
