"""Processor time of a training whose processes export spans beside the same one without, in pairs.

    python benchmarks/spans.py [--pairs 9]

Needs TREETAP_DATA and the extra `telemetry`. The training is that of `relay.py`: 24,000 records, three parties, 5 trees
of depth 3, 123 MB. Two federations stay up and train in turn; CPU is of all their processes, not of the collector, a
stand-in here that takes everything. A job of each before the first pair is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from backends import print_machine
from relay import settings, train

from tests.telemetry.collecting import taking
from treetap import logs, terminal
from treetap.commands.local_federation import LocalFederation

WAYS = ("without", "exported")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9, help="trainings by each way (default 9)")
    pairs = parser.parse_args().pairs
    logs.quiet_grpc()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treetap-spans-")))
        tables, collector = settings(folder), stack.enter_context(taking())
        keys = {"telemetry": {"endpoint": collector.endpoint}}
        exporting = {party: {**own, **keys} for party, own in tables.items()}
        without = stack.enter_context(LocalFederation(folder / "without", tables))
        exported = stack.enter_context(LocalFederation(folder / "exported", exporting, keys))
        federations = dict(zip(WAYS, (without, exported), strict=True))
        cpu: dict[str, list[float]] = {way: [] for way in WAYS}
        for pair in range(-1, pairs):
            for way in WAYS if pair % 2 == 0 else WAYS[::-1]:
                seconds = train(federations[way], f"job-{pair + 1}", None)["cpu_s"]
                cpu[way] += [seconds] if pair >= 0 else []
    print_machine(["auto"])
    ratios = [b / a for a, b in zip(*cpu.values(), strict=True)]
    for way, took in cpu.items():
        terminal.out.print(f"{way}: {statistics.median(took):.2f} s CPU, median of {pairs}")
    spans, size = len(collector.spans), sum(map(len, collector.bodies))
    terminal.out.print(f"exported to without: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    terminal.out.print(f"{spans / (pairs + 1):.0f} spans and {size / (pairs + 1) / 1e3:.0f} kB a job")


if __name__ == "__main__":
    main()
