"""`python -m tests.campaign`: faults, crashes, damage, attacks, sockets, a soak; status 1 at any finding."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.campaign import corruption, security, soak, sockets
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
    damage = kinds.add_parser("corruptions", help="one file damaged each")
    damage.add_argument("--count", type=int, default=3_000)
    damage.add_argument("--first", type=int, default=0, help="the first seed")
    one = kinds.add_parser("plan", help="one plan from a file, once more")
    one.add_argument("file", type=Path)
    real = kinds.add_parser("sockets", help="real processes: suspended, killed, with hung workers and slow lines")
    real.add_argument("--seed", type=int, default=0)
    long = kinds.add_parser("soak", help="jobs for half an hour: what grows")
    long.add_argument("--minutes", type=float, default=30.0)
    security.add(kinds)
    given = parser.parse_args()
    if given.kind in ("sockets", "soak"):
        return _on_sockets(given)
    if given.kind in security.COMMANDS:
        return security.carry_out(given)
    if given.kind == "corruptions":
        return _corruptions(given)
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


def _corruptions(given: argparse.Namespace) -> int:
    begun = time.monotonic()
    found = corruption.conduct(given.count, given.workers, given.first)
    wall = round(time.monotonic() - begun, 1)
    return _told(given, {**vars(found), "failing": found.findings, "findings": len(found.findings), "wall_s": wall})


def _on_sockets(given: argparse.Namespace) -> int:
    def tell(line: str) -> None:
        print(f"{given.kind}: {line}", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        if given.kind == "sockets":
            found = sockets.conduct(Path(folder), given.seed, tell)
        else:
            found = soak.conduct(Path(folder), given.minutes, tell)
    return _told(given, found)


def _told(given: argparse.Namespace, found: dict[str, Any]) -> int:
    """Write and print a summary; returns the status."""
    given.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**found, "name": given.kind}, indent=1)
    (given.out / f"{given.kind}.json").write_text(text)
    print(text)
    return 1 if found["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
