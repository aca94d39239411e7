"""A share of the campaign with every run of all tests, and every plan that has failed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.crash_points import points
from tests.campaign.plans import Plan, drawn
from tests.campaign.schedule import carry_out
from tests.campaign.stages import playable

pytestmark = pytest.mark.second_tier

FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))
#: Schedules of each test, and how many tests of them there are.
EACH, TESTS = 5, 15


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_plan_that_has_failed_once(path: Path, tmp_path: Path) -> None:
    """It does not any more."""
    assert carry_out(Plan.read(path), tmp_path / "x").findings == []


@pytest.mark.parametrize("part", range(TESTS))
def test_schedules(part: int, tmp_path: Path) -> None:
    """Whatever breaks: the oracle's model and scores, every stop named, nothing left, no key on any disk."""
    for seed in range(part * EACH, (part + 1) * EACH):
        plan = drawn(seed)
        if not playable(plan.stage):
            continue
        assert carry_out(plan, tmp_path / str(seed)).findings == [], plan.to_json()


def test_crash_points(tmp_path: Path) -> None:
    """One crash each, spread over all processes, their file operations and ways to crash."""
    for plan in points(24):
        assert carry_out(plan, tmp_path / str(plan.seed)).findings == [], plan.to_json()
