"""The cost of trails: jobs with the exchange of heads and without it, in pairs.

    python benchmarks/trail.py [--jobs 10] [--repeat 5] [--folder FOLDER]

A federation of three parties under certificates, by the simulator of the tests, counts common records of tables with 16
records; the network takes no time, so that what is left of the wall time is arithmetic and the disk of FOLDER. Printed
are the processor and the wall time of a job, of all parties and the coordinator in one process: the least of the
repeats, which alternate, with and without trails, and the bytes that a job adds to a party's trail.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from party.trail.jobs import TrailedJobs
from party.trail.journal import TRAIL
from tests.approvals.people import certify
from tests.simulator import run
from tests.trail.previews import B, federation_of, previewed
from treetap import terminal
from treetap.wire.tls import TlsFiles


async def _nothing(*_: Any, **__: Any) -> None:
    """Exchange no heads."""


def measured(folder: Path, certificates: dict[str, TlsFiles], jobs: int, *, trails: bool) -> tuple[float, float, float]:
    """Processor seconds, wall seconds, and bytes of one party's trail, each for a job."""

    async def main() -> tuple[float, float]:
        federation = federation_of(folder, certificates)
        await previewed(federation, "first")
        used, began = time.process_time(), time.perf_counter()
        await previewed(federation, *(f"p{number}" for number in range(jobs)))
        spent = time.process_time() - used, time.perf_counter() - began
        await federation.close()
        return spent

    with ExitStack() as stack:
        for name in () if trails else ("check", "open", "received", "before", "end", "leave", "close"):
            waits = name in ("before", "end", "leave")
            stack.enter_context(patch.object(TrailedJobs, name, _nothing if waits else lambda *_: None))
        used, wall = run(main())
    trail = folder / B / "state" / TRAIL
    return used / jobs, wall / jobs, trail.stat().st_size / (jobs + 1) if trail.is_file() else 0.0


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="without it, one for temporary files")
    given = parser.parse_args()
    table = terminal.table("trails", "CPU ms a job", "wall ms a job", "bytes a job")
    with tempfile.TemporaryDirectory(dir=given.folder) as held:
        certificates = certify(Path(held) / "certificates")
        runs: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
        for number in range(given.repeat):
            for trails, rows in runs.items():
                rows.append(measured(Path(held) / f"{number}{trails}", certificates, given.jobs, trails=trails))
    for trails, rows in runs.items():
        used, wall, size = (min(column) for column in zip(*rows, strict=True))
        table.add_row("yes" if trails else "no", f"{1000 * used:.1f}", f"{1000 * wall:.1f}", f"{size:.0f}")
    terminal.out.print(table)


if __name__ == "__main__":
    main()
