"""Cost of thousands of ended jobs at a coordinator: memory, the time of its start and of `treetap status`.

A journal grows in one process to the given number of jobs, as a coordinator writes it for predictions of three parties.
Then `treetap coordinator` starts on it, and an operator asks for the status of all jobs, over loopback.

    python benchmarks/many_jobs.py [--jobs 5000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from treetap.commands.jobs.client import Operator, OperatorConfig
from treetap.coordinator.runtime.job_record import to_base64
from treetap.coordinator.runtime.journal import Journal
from treetap.wire.v2 import jobs_pb2, setup_pb2

PARTIES = ("bank", "shop", "telco")
#: Jobs after which the growth of memory is measured: by then a process has what it needs for any number.
FIRST = 300


def _resident(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _ended(job: str) -> jobs_pb2.JobStatus:
    """The status of a finished prediction with the costs of three parties: 5 kB."""
    status = jobs_pb2.JobStatus(job=job, kind="train", state="finished", attempt=1, seconds=3.2, bytes=1_234_567)
    for party in (*PARTIES, "coordinator"):
        account = status.accounts.add(party=party).account
        for number in range(25):
            row = account.traffic.add(to="bank", step=f"step_{number}", disclosure="CONTROL", bytes=number, messages=1)
            setattr(row, "from", party)
    for name in ("train_auc", "train_logloss"):
        status.metrics.add(name=name, value=0.5)
    return status


def _write(journal: Journal, number: int) -> None:
    job = f"job-{number:06d}"
    spec = setup_pb2.JobSpec(table="train", aggregator=PARTIES[0], feature_parties=PARTIES[1:], key_bits=2048)
    journal.write_submitted(job, "train", spec, str(number))
    journal.write(job, "attempt", number=1)
    journal.write(job, "ended", attempt=1, status=to_base64(_ended(job)))


def grow(folder: Path, jobs: int) -> dict[str, float]:
    """Write the journal; bytes of memory and of disk for each job, and seconds of a list afterwards."""
    journal = Journal(folder)
    for number in range(FIRST):
        _write(journal, number)
    list(journal.listed())
    before = _resident(os.getpid())
    for number in range(FIRST, jobs):
        _write(journal, number)
    began = time.monotonic()
    listed = sum(1 for _ in journal.listed())
    seconds = time.monotonic() - began
    assert listed == jobs
    return {
        "memory_bytes_per_job": (_resident(os.getpid()) - before) / (jobs - FIRST),
        "disk_bytes_per_job": sum(path.stat().st_size for path in folder.iterdir()) / jobs,
        "list_s": seconds,
    }


def serve(folder: Path) -> dict[str, float]:
    """Start a coordinator on the journal; seconds until it serves, and of `status`, the median of five."""
    parties = "".join(f'{party} = "127.0.0.1:{9 + k}"\n' for k, party in enumerate(PARTIES))
    config = folder / "coordinator.toml"
    config.write_text(f'state = "state"\ninsecure = true\n[parties]\n{parties}', encoding="utf-8")
    command = [sys.executable, "-m", "treetap", "coordinator", "--config", str(config), "--until-stdin-closes"]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        started = time.monotonic() - began
        operator = folder / "operator.toml"
        operator.write_text(f'coordinator = "{address}"\ninsecure = true\n', encoding="utf-8")
        client, took = Operator(OperatorConfig.from_file(operator)), []
        for _ in range(5):
            began = time.monotonic()
            client.status()
            took.append(time.monotonic() - began)
        resident = _resident(process.pid)
        process.stdin.close()
    return {"start_s": started, "status_s": statistics.median(took), "resident_mib": resident / 2**20}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        found: dict[str, Any] = {"jobs": given.jobs, **grow(folder / "state" / "journal", given.jobs)}
        found |= serve(folder)
        found["start_of_an_empty_journal_s"] = serve(folder / "empty")["start_s"]
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for key, value in found.items():
        print(f"{key:30} {value:12.3f}")


if __name__ == "__main__":
    main()
