"""Calls of a warm training: messages and steps over gRPC, kernels and other work, fsyncs, bytes, by process.

    python benchmarks/calls.py [--scheme lattice paillier] [--trees 5] [--names] [--json]

The job of credit.py, after one of one tree on a hundredth of the records, by real processes (`counted_party.py`) whose
package is that of PYTHONPATH. Counts are exact, and those of two runs are equal but for what repeats after a failure.
Of kernels and other work, "loop" is done where it is asked for; what is left is handed to threads.
--names: calls by the name of the message, step, kernel or function, besides. Needs TREETAP_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counted_party import COUNTS, FOLDER, serve
from credit import experiment
from measured_trainings import forced
from rich.table import Table

from treetap import terminal
from treetap.lab import local_federation
from treetap.lab.experiment.joined_table import read_table, split
from treetap.lab.experiment.party_tables import write_tables
from treetap.native import arithmetic
from treetap.protocols.key_options import LATTICE, PAILLIER, SCHEMES
from treetap.wire.v2 import jobs_pb2

#: Seconds within which a process writes what it has counted.
LONGEST_S = 30.0
#: Process → kind → name → number.
Counts = dict[str, dict[str, Counter[str]]]


def trained(federation: local_federation.LocalFederation, spec: Any, name: str, folder: Path) -> Counts:
    """What all processes have counted by the end of a training."""
    asked = jobs_pb2.SubmitRequest(job=name, spec=spec)
    status = federation.operator.watch(federation.operator.submit(asked), lambda _: None)
    assert status.state == "finished", status.error
    found, deadline = {}, time.monotonic() + LONGEST_S
    for process in federation.addresses:
        os.kill(federation.pid(process), signal.SIGUSR1)
        path = folder / f"{federation.pid(process)}.json"
        while not path.exists():
            assert time.monotonic() < deadline, f"{process} has not written its counts within {LONGEST_S:g} s"
            time.sleep(0.01)
        found[process] = {kind: Counter(counts) for kind, counts in json.loads(path.read_text()).items()}
        path.unlink()
    return found


def measured(scheme: str, trees: int, folder: Path) -> Counts:
    """The counts of a warm training."""
    setting = forced(experiment("short-exponent", 2048, scheme), arithmetic.choose("auto").name)
    setting = setting.model_copy(update={"job": setting.job.model_copy(update={"n_estimators": trees})})
    table = read_table(setting, Path())
    settings = write_tables(setting, table, split(setting, table, 0), folder / "tables")
    first = setting.job.model_copy(update={"n_estimators": 1, "subsample": 0.01})
    os.environ[FOLDER] = str(folder)
    with local_federation.LocalFederation(folder / "federation", settings) as federation:
        before = trained(federation, setting.spec(first), "first", folder)
        after = trained(federation, setting.spec(setting.job), "warm", folder)
    return {name: {kind: after[name][kind] - before[name][kind] for kind in COUNTS} for name in after}


def report(runs: Mapping[str, Counts], trees: int, *, names: bool) -> None:
    """The counts for a person."""
    for scheme, counts in runs.items():
        table = Table("count", *counts, "sum", title=f"{scheme}, {trees} trees")
        for kind in COUNTS:
            rows = {kind: [each[kind].total() for each in counts.values()]}
            for name in sorted({name for each in counts.values() for name in each[kind]}) if names else []:
                rows[f"  {name.removeprefix('treetap.')}"] = [each[kind][name] for each in counts.values()]
            for title, row in rows.items():
                table.add_row(title, *map(str, row), str(sum(row)))
        terminal.out.print(table)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", nargs="+", choices=list(SCHEMES), default=[LATTICE, PAILLIER])
    parser.add_argument("--trees", type=int, default=5)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("calls: set TREETAP_DATA to the folder with credit_default.parquet")
    local_federation.serve = serve
    runs = {}
    for scheme in given.scheme:
        with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
            runs[scheme] = measured(scheme, given.trees, Path(folder).resolve())
    if given.as_json:
        print(json.dumps({"trees": given.trees, "counts": runs}, indent=1))
    else:
        report(runs, given.trees, names=given.names)


if __name__ == "__main__":
    main()
