"""Ids of many records aligned and their columns binned by real processes: seconds, and the largest memory of each.

    python benchmarks/large_alignment.py [--records 1000000] [--columns 20] [--alignment psi] [--common 1.0] [--json]

Two parties with two workers each and a coordinator. A party's table is a Parquet file of these records, their ids
in an order of its own; the share `--common` of them is in both tables. The job is a training by boosting, which ends as
soon as its columns are binned. A process's memory is its high-water mark (VmHWM) by then.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from treetap.commands.jobs.job_file import JobTable
from treetap.lab.local_federation import LocalFederation
from treetap.native import arithmetic, library
from treetap.usage import measure_process
from treetap.wire.v2 import jobs_pb2

PARTIES = ("party-0", "party-1")
#: Rows of a row group.
GROUP = 1 << 17
#: Phases of a training until its columns are binned.
PHASES = ("prepare", "align", "bin")


def write_table(path: Path, place: int, given: argparse.Namespace) -> None:
    """A table, written a row group at a time: ids as of patients, random numbers, and the label at the first party."""
    draws = np.random.default_rng([given.seed, place])
    numbers = draws.permutation(given.records)
    names = [f"x{column}" for column in range(given.columns)]
    kinds = [
        ("id", pa.string()),
        *((name, pa.float64()) for name in names),
        *([("y", pa.int8())] if place == 0 else []),
    ]
    with pq.ParquetWriter(path, pa.schema(kinds)) as file:
        for first in range(0, given.records, GROUP):
            part = numbers[first : first + GROUP]
            kind = pa.array(np.where(part < given.common * given.records, "common-", f"only-{place}-"))
            padded = pc.utf8_lpad(pa.array(part).cast(pa.string()), 9, "0")
            cells: list[Any] = [pc.binary_join_element_wise(kind, padded, "")]
            cells += [draws.normal(size=len(part)) for _ in names]
            cells += [draws.integers(0, 2, size=len(part))] if place == 0 else []
            file.write_table(pa.table(dict(zip((name for name, _ in kinds), cells, strict=True)), pa.schema(kinds)))


def settings_of(path: Path, place: int, given: argparse.Namespace) -> dict[str, Any]:
    """The configuration of a party."""
    table = {"path": str(path), "id": "id", "columns": [f"x{column}" for column in range(given.columns)]}
    return {
        "tables": {"train": table | ({"label": "y"} if place == 0 else {})},
        "policy": {"keys": {"min_key_bits": 1024}},
        "silence_s": 600.0,
        "arithmetic": given.arithmetic,
    }


def peaks(federation: LocalFederation) -> dict[str, float]:
    """The largest memory of every process so far, in MiB."""
    return {name: measure_process(federation.pid(name)).peak_rss_mb for name in (*PARTIES, "coordinator")}


def measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One training up to its bins."""
    begun = time.monotonic()
    settings = {}
    for place, name in enumerate(PARTIES):
        path = folder / f"{name}.parquet"
        write_table(path, place, given)
        settings[name] = settings_of(path, place, given)
    written, job = (
        time.monotonic(),
        JobTable.model_validate(
            {"alignment": given.alignment, "key_bits": 1024, "n_estimators": 1, "max_depth": 1, "max_bin": 32}
        ),
    )
    with LocalFederation(folder / "federation", settings) as federation:
        operator = federation.operator
        operator.submit(jobs_pb2.SubmitRequest(job="aligned", spec=job.spec(PARTIES[0], [PARTIES[1]], "train")))
        status = operator.watch("aligned", lambda _: None, lambda each: each.phase not in ("", *PHASES))
        if status.state != "running":
            raise SystemExit(f"aligned: {status.state}: {status.error}")
        reached = time.monotonic()
        memory = peaks(federation)
        operator.cancel("aligned")
    seconds = {row.name: row.amount for row in status.phases}
    return {
        "records": given.records,
        "columns": given.columns,
        "alignment": given.alignment,
        "common": given.common,
        "processor": library.processor(),
        "arithmetic": arithmetic.choose(given.arithmetic).name,
        "written_s": written - begun,
        "reached_s": reached - written,
        **{f"{name}_s": seconds.get(name) for name in PHASES},
        "largest_process_mib": max(memory.values()),
        "peak_rss_mib": memory,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="of each party (default 1,000,000)")
    parser.add_argument("--columns", type=int, default=20, help="of each party (default 20)")
    parser.add_argument("--alignment", choices=("psi", "sorted-ids"), default="psi", help="(default psi)")
    parser.add_argument("--common", type=float, default=1.0, help="share of the records in both tables (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="of ids and numbers (default 0)")
    parser.add_argument("--folder", type=Path, default=None, help="tables and state go below it (default temporary)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    parser.add_argument(
        "--arithmetic", choices=arithmetic.CHOICES, default="auto", help="of all parties (default auto)"
    )
    show(parser.parse_args(), measure)


def show(given: argparse.Namespace, measure: Callable[[argparse.Namespace, Path], dict[str, Any]]) -> None:
    """Measure in a temporary folder, and print the figures."""
    with tempfile.TemporaryDirectory(prefix="treetap-large-", dir=given.folder) as name:
        found = measure(given, Path(name))
    if given.as_json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.pop("peak_rss_mib").items():
        found[f"{name} MiB"] = value
    for name, value in found.items():
        print(f"{name:<28} {format(value, '.1f') if isinstance(value, float) else value}")


if __name__ == "__main__":
    main()
