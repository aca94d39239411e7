"""`python -m tests.campaign`: faults, crashes, damage, attacks, sockets, a soak, drawn cases; status 1 at a finding."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.campaign import batteries, corruption, security, soak, sockets
from tests.campaign.campaign import Summary, conduct, schedules
from tests.campaign.crash_points import points
from tests.campaign.kills import STAGES, sample
from tests.campaign.plans import Plan
from tests.campaign.pools import workplace
from tests.campaign.schedule import carry_out
from treetap.native import arithmetic


def main() -> int:
    """The command; returns its status."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/campaign"), help="where summaries and failing plans go")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    kinds = parser.add_subparsers(dest="kind", required=True)
    plans = kinds.add_parser("schedules", help="plans drawn from seeds")
    plans.add_argument("--count", type=int, default=10_000)
    plans.add_argument("--first", type=int, default=0, help="the first seed")
    crashes = kinds.add_parser("crash-points", help="one crash at a file operation each")
    crashes.add_argument("--count", type=int, default=640)
    killed = kinds.add_parser("kills", help="every process killed at every message of a training")
    killed.add_argument("--count", type=int, default=0, help="so many of them, spread evenly; 0: all")
    damage = kinds.add_parser("corruptions", help="one file damaged each")
    damage.add_argument("--count", type=int, default=3_000)
    damage.add_argument("--first", type=int, default=0, help="the first seed")
    one = kinds.add_parser("plan", help="one plan from a file, once more")
    one.add_argument("file", type=Path)
    real = kinds.add_parser("sockets", help="real processes: suspended, killed, and slow lines")
    real.add_argument("--seed", type=int, default=0)
    long = kinds.add_parser("soak", help="jobs for half an hour: what grows")
    long.add_argument("--minutes", type=float, default=30.0)
    for name, cases in (("xgboost", 2_000), ("table-pairs", 5_000), ("features", 1_000)):
        battery = kinds.add_parser(name, help=f"{batteries.BATTERIES[name]}: drawn cases, one from each seed")
        battery.add_argument("--count", type=int, default=cases)
        battery.add_argument("--first", type=int, default=0, help="the first seed")
    security.add(kinds)
    given = parser.parse_args()
    arithmetic.use(arithmetic.choose("auto").name)  # as a party does; proofs of alignments need kernels
    if given.kind in _TIMED:
        return _timed(given, _TIMED[given.kind])
    if given.kind == "plan":
        with workplace() as folder:
            outcome = carry_out(Plan.read(given.file), folder / "plan")
        print("\n".join(outcome.findings) or "nothing found")
        return 1 if outcome.findings else 0
    if given.kind == "schedules":
        summary = schedules(given.count, given.first, given.workers, given.out)
    elif given.kind == "kills":
        one_each = sample(given.count, STAGES)
        summary = conduct(Summary("kills"), one_each, len(one_each), given.workers, given.out)
    else:
        summary = conduct(Summary("crash-points"), points(given.count), given.count, given.workers, given.out)
    print(json.dumps(summary.as_json(), indent=1))
    for path in summary.failing:
        print(f"failing plan: {path}; once more: python -m tests.campaign plan {path}", file=sys.stderr)
    return 1 if summary.failing else 0


def _corruptions(given: argparse.Namespace) -> dict[str, Any]:
    found = corruption.conduct(given.count, given.workers, given.first)
    return {**vars(found), "cases": given.count, "failing": found.findings, "findings": len(found.findings)}


def _sockets(given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return sockets.conduct(Path(folder), given.seed, _tell)


def _soak(given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return soak.conduct(Path(folder), given.minutes, _tell)


def _battery(given: argparse.Namespace) -> dict[str, Any]:
    return batteries.conduct(given.kind, given.count, given.first, given.workers, given.out)


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


_TIMED: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "corruptions": _corruptions,
    "sockets": _sockets,
    "soak": _soak,
    **dict.fromkeys(batteries.BATTERIES, _battery),
    **security.COMMANDS,
}


def _timed(given: argparse.Namespace, conduct: Callable[[argparse.Namespace], dict[str, Any]]) -> int:
    """Carry a campaign out, write and print its summary; returns the status.

    `cpu_s` is the processor time of this process and of all that it has started and seen end.
    """
    begun, begun_cpu = time.monotonic(), sum(os.times()[:4])
    found = conduct(given)
    cpu_s, wall_s = round(sum(os.times()[:4]) - begun_cpu, 1), round(time.monotonic() - begun, 1)
    given.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"name": given.kind, **found, "cpu_s": cpu_s, "wall_s": wall_s}, indent=1)
    (given.out / f"{given.kind}.json").write_text(text)
    print(text)
    return 1 if found["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
