"""Many altered messages on all cores: the summary of `python -m tests.campaign fuzz`."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from tests.campaign.fuzz import Outcome, carry_out
from tests.campaign.fuzz_cases import STORIES, Case, cases, drawn
from tests.campaign.pools import processes

#: Findings that a summary lists.
_MOST_LISTED = 50


def _one(work: tuple[int, Case], folder: Path) -> tuple[Case, Outcome]:
    number, case = work
    return case, carry_out(case, folder / f"{number}")


def told(case: Case, outcome: Outcome) -> str:
    """A finding in a line."""
    place, change = case
    where = f"{place.story}: {place.word} ({place.way} {place.nth}) from {place.sender} to {place.to}"
    return f"{where}, {'.'.join(map(str, change.path))} {change.what}: {outcome.says}"


def conduct(count: int, workers: int, seed: int = 0, stories: tuple[str, ...] = STORIES) -> dict[str, Any]:
    """Cases by chance from a seed, on several processes; the figures as a file holds them."""
    kinds: Counter[str] = Counter()
    findings: list[str] = []
    missed, done = 0, 0
    work = drawn(count, seed, stories)
    with processes(workers) as (pool, folder):
        for case, outcome in pool.imap_unordered(partial(_one, folder=folder), enumerate(work), chunksize=4):
            kinds[f"{case.place.way}, {outcome.kind}"] += 1
            missed, done = missed + (not outcome.hit), done + 1
            if outcome.kind == "finding":
                findings.append(told(case, outcome))
                print(f"FINDING {findings[-1][:600]}", file=sys.stderr, flush=True)
            if done % 500 == 0:
                print(f"{done} of {len(work)}, {len(findings)} findings", file=sys.stderr, flush=True)
    return {
        "cases": done,
        "of": sum(len(cases(story)) for story in stories),
        "seed": seed,
        "kinds": dict(sorted(kinds.items())),
        "not_altered": missed,
        "findings": len(findings),
        "failing": findings[:_MOST_LISTED],
    }
