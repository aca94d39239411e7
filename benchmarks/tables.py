"""Memory and time for reading and binning a party's table of generated records: in a stream, or whole.

    python benchmarks/tables.py --records 1000000 --columns 50 --folder FOLDER [--way streamed] [--max-bin 32] [--json]

The table is written to the folder unless it is there. Each way runs in a process of its own, on all records, as a
party does it at the beginning of a training: read the table and check each cell, make its fingerprint, then bins and
codes. `whole` holds all numbers at once, as every table of other formats does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generated_tables import ID, LABEL, LABEL_HOLDER, Plan, write

from tests.library.trees.rank_error import rank_error
from treetap.party.setup.steps import fingerprint
from treetap.tables.binned import bin_columns
from treetap.tables.config import TableConfig
from treetap.tables.features import Streamed
from treetap.tables.reading import read_table
from treetap.usage import measure

WAYS = ("streamed", "whole")
_DEADLINE_S = 3600.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the ways one after the other, or, in a process of its own, one."""
    given = _parsed(arguments)
    plan = Plan(given.records, given.columns, parties=1)
    path = given.folder / f"{LABEL_HOLDER}.parquet"
    if not path.exists():
        write(plan, given.folder)
    if given.inside:
        print(json.dumps(_measured(path, plan, given.way[0], given.max_bin)))
        return
    found = [_apart(given, way) for way in given.way]
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for each in found:
        print(
            f"{each['way']:>9}: {each['records']:,} x {each['columns']}: peak {each['peak_mib']:.0f} MiB "
            f"({each['start_mib']:.0f} before), read {each['read_s']:.1f} s, bins and codes {each['bin_s']:.1f} s, "
            f"processor {each['cpu_s']:.1f} s, codes {each['codes_mib']:.0f} MiB, rank error {each['rank_error']:.1e}"
        )


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--way", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--max-bin", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _apart(given: argparse.Namespace, way: str) -> dict[str, Any]:
    own = ("--records", "--columns", "--folder", "--max-bin")
    values = (given.records, given.columns, given.folder, given.max_bin)
    line = [text for name, value in zip(own, values, strict=True) for text in (name, str(value))]
    command = [sys.executable, __file__, *line, "--way", way, "--inside"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DEADLINE_S)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _measured(path: Path, plan: Plan, way: str, max_bin: int) -> dict[str, Any]:
    config = TableConfig(path=path, id=ID, columns=plan.columns_of()[LABEL_HOLDER], label=LABEL)
    before, start = measure(), time.perf_counter()
    table = read_table(config, with_label=True, missing=None, streams=way == "streamed")
    if isinstance(table.values, Streamed) != (way == "streamed"):
        sys.exit(f"{plan.records} records of {plan.columns} columns are too few to be streamed")
    fingerprint(table)
    read = time.perf_counter()
    binned = bin_columns(table, max_bin, None)
    used = measure()
    return {
        "way": way,
        "records": plan.records,
        "columns": plan.columns,
        "start_mib": before.peak_rss_mb,
        "peak_mib": used.peak_rss_mb,
        "read_s": read - start,
        "bin_s": time.perf_counter() - read,
        "cpu_s": used.cpu_seconds - before.cpu_seconds,
        "codes_mib": binned.codes.nbytes / 2**20,
        "code_bytes": binned.codes.itemsize,
        "rank_error": rank_error(plan.records) if plan.records > 10**6 else 0.0,
    }


if __name__ == "__main__":
    main()
