"""`python -m tests.campaign`: fault schedules, crash points, corruptions; status 1 at any finding."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tests.campaign.campaign import conduct, plans, workplace
from tests.campaign.crash_points import points
from tests.campaign.plans import Plan
from tests.campaign.schedule import carry_out


def main() -> int:
    """The command; returns its status."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/campaign"), help="where summaries and failing plans go")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    kinds = parser.add_subparsers(dest="kind", required=True)
    schedules = kinds.add_parser("schedules", help="plans drawn from seeds")
    schedules.add_argument("--count", type=int, default=10_000)
    schedules.add_argument("--first", type=int, default=0, help="the first seed")
    crashes = kinds.add_parser("crash-points", help="one crash at a file operation each")
    crashes.add_argument("--count", type=int, default=640)
    one = kinds.add_parser("plan", help="one plan from a file, once more")
    one.add_argument("file", type=Path)
    given = parser.parse_args()
    if given.kind == "plan":
        outcome = carry_out(Plan.read(given.file), workplace() / "plan")
        print("\n".join(outcome.findings) or "nothing found")
        return 1 if outcome.findings else 0
    if given.kind == "schedules":
        seeds = range(given.first, given.first + given.count)
        summary = conduct("schedules", plans(seeds), given.count, given.workers, given.out)
    else:
        summary = conduct("crash-points", points(given.count), given.count, given.workers, given.out)
    print(json.dumps(summary.as_json(), indent=1))
    for path in summary.failing:
        print(f"failing plan: {path}; once more: python -m tests.campaign plan {path}", file=sys.stderr)
    return 1 if summary.failing else 0


if __name__ == "__main__":
    sys.exit(main())
