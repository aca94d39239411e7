"""Batteries of drawn cases, one from each seed, on all cores: the fate of each, and a file for each finding."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.campaign.pools import processes

#: Seconds between lines of progress.
_TELL_S = 15.0
#: Battery → the module that has its `outcome(seed)`: a word for the fate, and what is to be said of a finding.
BATTERIES = {
    "xgboost": "benchmarks.against_xgboost",
    "table-pairs": "tests.campaign.table_pairs",
    "features": "tests.campaign.drawn_features",
}


def fate(case: tuple[str, int]) -> tuple[int, str, Any]:
    """A seed's case; any exception is a finding."""
    from importlib import import_module

    battery, seed = case
    outcome: Callable[[int], tuple[str, Any]] = import_module(BATTERIES[battery]).outcome
    try:
        return seed, *outcome(seed)
    except Exception as failure:  # noqa: BLE001 - that is the finding
        return seed, "finding", f"{type(failure).__name__}: {failure}"


def conduct(name: str, count: int, first: int, workers: int, out: Path) -> dict[str, Any]:
    """The cases of `count` seeds from `first` on; writes `out/NAME-SEED.json` for each finding."""
    begun = told = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    fates, failing = Counter[str](), list[int]()
    with processes(workers) as (pool, _):
        cases = ((name, seed) for seed in range(first, first + count))
        for seed, word, said in pool.imap_unordered(fate, cases, chunksize=4):
            fates[word] += 1
            if word == "finding":
                failing.append(seed)
                (out / f"{name}-{seed}.json").write_text(json.dumps(said, indent=1))
                print(f"FINDING in {name} {seed}: {json.dumps(said)[:300]}", file=sys.stderr)
            if time.monotonic() - told > _TELL_S:
                told = time.monotonic()
                print(f"{name}: {fates.total()} of {count}, {len(failing)} findings", file=sys.stderr)
    each = (time.monotonic() - begun) / max(1, count)
    return {
        "cases": count, "first": first, "fates": dict(fates), "findings": len(failing), "failing": sorted(failing)[:50],
        "s_per_case": round(each, 4), "processes": workers, "cores": os.cpu_count(),
    }  # fmt: skip
