"""Many altered messages on all cores: the summary of `python -m tests.campaign fuzz`."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.campaign.fuzz import STORIES, Case, Outcome, carry_out, cases, drawn

#: Findings that a summary lists.
_MOST_LISTED = 50
_numbers = itertools.count()


def _one(work: tuple[Case, str]) -> tuple[Case, Outcome]:
    case, folder = work
    return case, carry_out(case, Path(folder) / f"{os.getpid()}-{next(_numbers)}")


def _begin(folder: str) -> None:
    """A process of the pool is ended without its clean-up: what it makes lies below the pool's folder."""
    tempfile.tempdir = folder


def told(case: Case, outcome: Outcome) -> str:
    """A finding in a line."""
    place, change = case
    where = f"{place.story}: {place.word} ({place.way} {place.nth}) from {place.sender} to {place.to}"
    return f"{where}, {'.'.join(map(str, change.path))} {change.what}: {outcome.says}"


def conduct(count: int, workers: int, seed: int = 0, stories: tuple[str, ...] = STORIES) -> dict[str, Any]:
    """Cases by chance from a seed, on several processes; the figures as a file holds them."""
    began = time.monotonic()
    kinds: Counter[str] = Counter()
    findings: list[str] = []
    cpu_s, missed, done = 0.0, 0, 0
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        multiprocessing.get_context("spawn").Pool(workers, _begin, (folder,)) as pool,
    ):
        work = [(case, folder) for case in drawn(count, seed, stories)]
        for case, outcome in pool.imap_unordered(_one, work, chunksize=4):
            kinds[f"{case.place.way}, {outcome.kind}"] += 1
            cpu_s, missed, done = cpu_s + outcome.cpu_s, missed + (not outcome.hit), done + 1
            if outcome.kind == "finding":
                findings.append(told(case, outcome))
                print(f"FINDING {findings[-1][:600]}", file=sys.stderr, flush=True)
            if done % 500 == 0:
                print(f"{done} of {len(work)}, {len(findings)} findings", file=sys.stderr, flush=True)
    return {
        "name": "fuzz",
        "cases": done,
        "of": sum(len(cases(story)) for story in stories),
        "seed": seed,
        "kinds": dict(sorted(kinds.items())),
        "not_altered": missed,
        "findings": len(findings),
        "failing": findings[:_MOST_LISTED],
        "cpu_s": round(cpu_s, 1),
        "wall_s": round(time.monotonic() - began, 1),
    }
