"""Many schedules on all cores, with progress, a summary, and a small failing plan for every finding."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.campaign.plans import Plan, drawn
from tests.campaign.pools import processes, workplace
from tests.campaign.schedule import Outcome, carry_out
from tests.campaign.shrink import shrunk

#: Plans that are made small, of those that fail: each takes up to a minute.
MOST_SHRUNK = 5
#: Findings that are told while the campaign runs; files have all.
MOST_TOLD = 20
#: Seconds between lines of progress.
_TELL_S = 15.0


@dataclass
class Summary:
    """Outcome of a campaign."""

    name: str
    first: int = 0  #: the first seed
    schedules: int = 0
    faults: int = 0
    crashes: int = 0
    real: int = 0
    virtual_h: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    stories: Counter[str] = field(default_factory=Counter)
    failing: list[str] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)

    def add(self, plan: Plan, outcome: Outcome) -> None:
        """Count one schedule."""
        self.schedules += 1
        self.faults += outcome.hits
        self.crashes += outcome.killed
        self.real += plan.real
        self.virtual_h += outcome.virtual_s / 3600
        self.cpu_s += outcome.cpu_s
        self.stories[plan.story] += 1
        for finding in outcome.findings:
            self.findings[finding.splitlines()[0][:160]] += 1

    def as_json(self) -> dict[str, Any]:
        """The figures, as a file holds them."""
        found: dict[str, Any] = {key: value for key, value in vars(self).items() if key != "findings"}
        return found | {
            "virtual_h": round(self.virtual_h, 1),
            "cpu_s": round(self.cpu_s, 1),
            "stories": dict(self.stories),
            "findings": sum(self.findings.values()),
            "cpu_s_per_schedule": round(self.cpu_s / max(1, self.schedules), 4),
        }


def _one(plan: Plan, folder: Path) -> tuple[Plan, Outcome]:
    return plan, carry_out(plan, folder / f"{plan.seed}")


def fails(plan: Plan) -> bool:
    """True if a plan, carried out here and now, has findings."""
    with workplace() as folder:
        return bool(carry_out(plan, folder / "plan").findings)


def schedules(count: int, first: int, workers: int, out: Path) -> Summary:
    """Carry out the plans of `count` seeds; see `conduct`."""
    return conduct(Summary("schedules", first), map(drawn, range(first, first + count)), count, workers, out)


def conduct(summary: Summary, plans: Iterable[Plan], total: int, workers: int, out: Path) -> Summary:
    """Carry plans out, write `out/NAME.json` and a file of every failing plan; tells its progress on standard error."""
    begun = told = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    failing: list[tuple[Plan, Outcome]] = []
    with processes(workers) as (pool, folder):
        for plan, outcome in pool.imap_unordered(partial(_one, folder=folder), plans, chunksize=4):
            summary.add(plan, outcome)
            if outcome.findings:
                failing.append((plan, outcome))
                if len(failing) <= MOST_TOLD:
                    print(f"FINDING in plan {plan.seed} ({plan.story}): {outcome.findings[0][:300]}", file=sys.stderr)
            if time.monotonic() - told > _TELL_S:
                told = time.monotonic()
                each = summary.cpu_s / summary.schedules
                print(
                    f"{summary.name}: {summary.schedules} of {total}, {summary.crashes} crashes, "
                    f"{len(failing)} with findings, {each:.3f} CPU s each",
                    file=sys.stderr,
                )
    for number, (plan, outcome) in enumerate(failing):
        small = shrunk(plan, fails) if number < MOST_SHRUNK else plan
        path = out / f"{summary.name}-{plan.seed}.json"
        path.write_text(small.to_json())
        (out / f"{summary.name}-{plan.seed}.txt").write_text("\n".join(outcome.findings))
        summary.failing.append(str(path))
    summary.wall_s = round(time.monotonic() - begun, 1)
    (out / f"{summary.name}.json").write_text(json.dumps(summary.as_json(), indent=1))
    return summary
