"""A prediction of many records by real processes: seconds, and the largest memory of each process.

    python benchmarks/large_predictions.py [--records 1000000] [--columns 20] [--protocol interactive] [--json]

Two parties with two workers each and a coordinator train on 2,000 records, then start again and predict those of large
Parquet files, in which every record is common. A process's memory is its high-water mark (VmHWM) once the predictions
are written.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from large_alignment import PARTIES, peaks, settings_of, show, write_table

from treetap.commands.jobs.job_file import JobTable
from treetap.lab.local_federation import LocalFederation
from treetap.native import arithmetic
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import jobs_pb2

TRAINED = 2_000


def measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One prediction."""
    settings = {}
    for place, name in enumerate(PARTIES):
        tables = {}
        for table, records in (("train", TRAINED), ("predict", given.records)):
            path = folder / f"{name}-{table}.parquet"
            write_table(path, place, argparse.Namespace(**{**vars(given), "records": records}))
            tables[table] = settings_of(path, place, given)["tables"]["train"]
        settings[name] = {**settings_of(folder, place, given), "tables": tables}
    job = JobTable.model_validate(
        {"alignment": given.alignment, "key_bits": 1024, "n_estimators": 5, "max_depth": 3, "max_bin": 32}
    )
    with LocalFederation(folder / "federation", settings) as federation:
        operator = federation.operator
        operator.submit(jobs_pb2.SubmitRequest(job="trained", spec=job.spec(PARTIES[0], [PARTIES[1]], "train")))
        trained = operator.watch("trained", lambda _: None)
        for name in PARTIES:
            federation.kill(name)
            federation.restart(name)
        begun = time.monotonic()
        name = operator.predict(predict_request(model="trained", table="predict", protocol=given.protocol))
        status = operator.watch(name, lambda _: None)
        if (trained.state, status.state) != ("finished", "finished"):
            raise SystemExit(f"{trained.state}: {trained.error}; {status.state}: {status.error}")
        return {
            "records": given.records,
            "columns": given.columns,
            "protocol": given.protocol,
            "alignment": given.alignment,
            "predicted_s": time.monotonic() - begun,
            **{f"{row.name}_s": row.amount for row in status.phases},
            "file_mib": Path(status.predictions).stat().st_size / 2**20,
            "cpu_s": sum(row.amount for each in status.accounts for row in each.account.cpu_seconds),
            "peak_rss_mib": peaks(federation),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="to predict (default 1,000,000)")
    parser.add_argument("--columns", type=int, default=20, help="of each party (default 20)")
    parser.add_argument("--protocol", default="interactive", help="of the prediction (default interactive)")
    parser.add_argument("--alignment", choices=("psi", "sorted-ids"), default="sorted-ids", help="(default sorted-ids)")
    parser.add_argument("--folder", type=Path, default=None, help="tables and state go below it (default temporary)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    parser.set_defaults(common=1.0, seed=0, arithmetic=arithmetic.CHOICES[0])
    show(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
