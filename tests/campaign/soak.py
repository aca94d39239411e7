"""Half an hour of jobs on real processes: what grows with them, and what must not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.federations import ended, settings
from tests.worlds import PARTIES, spec, world
from treetap.lab.local_federation import LocalFederation
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

HERE = world(40, (1, 1, 1), seed=25)
PARAMS = BoostingParams(n_estimators=1, max_depth=2, max_bin=3)
#: Share of the time after which processes have reached their size; growth is measured from there.
WARM = 0.2
#: Most bytes that the coordinator may grow by a job, and a party in all; most descriptors and threads.
MOST_PER_JOB, MOST_OF_PARTY, MOST_MORE = 2_000, 10_000_000, 4


@dataclass(frozen=True)
class Size:
    """A process at one moment."""

    bytes: int
    descriptors: int
    threads: int


def _size(pid: int) -> Size:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return Size(int(status["RssAnon"].split()[0]) * 1024, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]))


def conduct(folder: Path, minutes: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Train, predict and cancel until the time is over; returns a summary."""
    end = time.monotonic() + 60 * minutes
    warm, told = time.monotonic() + 60 * minutes * WARM, 0.0
    findings: list[str] = []
    begun: dict[str, Size] = {}
    jobs = counted = 0
    processes = (*PARTIES, "coordinator")
    with LocalFederation(folder, settings(folder, {"train": HERE})) as federation:
        federation.operator.submit(jobs_pb2.SubmitRequest(job="model", spec=spec(PARAMS)))
        assert ended(federation, "model").state == "finished"
        while time.monotonic() < end:
            jobs += 3
            federation.operator.submit(jobs_pb2.SubmitRequest(job=f"t{jobs}", spec=spec(PARAMS)))
            if (status := ended(federation, f"t{jobs}")).state != "finished":
                findings.append(f"t{jobs}: {status.state}: {status.error}")
            protocol = ("interactive", "eini")[jobs % 2]
            more: dict[str, Any] = {"key_bits": 1024} if protocol == "eini" else {}
            federation.operator.predict(
                predict_request(protocol, model="model", job=f"p{jobs}", table="train-new", **more)
            )
            if (status := ended(federation, f"p{jobs}")).state != "finished":
                findings.append(f"p{jobs}: {status.state}: {status.error}")
            federation.operator.submit(
                jobs_pb2.SubmitRequest(job=f"c{jobs}", spec=spec(BoostingParams(n_estimators=500, max_depth=2)))
            )
            federation.operator.cancel(f"c{jobs}")
            if not begun and time.monotonic() > warm:
                begun, counted = {name: _size(federation.pid(name)) for name in processes}, jobs
            if time.monotonic() - told > 30:
                told = time.monotonic()
                sizes = ", ".join(f"{name} {_size(federation.pid(name)).bytes >> 20} MiB" for name in processes)
                tell(f"{jobs} jobs; {sizes}")
        ended_with = {name: _size(federation.pid(name)) for name in processes}
    grown = {name: ended_with[name].bytes - begun[name].bytes for name in processes}
    per_job = grown["coordinator"] / (jobs - counted)
    if per_job > MOST_PER_JOB:
        findings.append(f"the coordinator grew by {per_job:.0f} bytes a job")
    findings += [f"{name} grew by {grown[name]} bytes" for name in PARTIES if grown[name] > MOST_OF_PARTY]
    for name in processes:
        for what in ("descriptors", "threads"):
            before, after = getattr(begun[name], what), getattr(ended_with[name], what)
            if after > before + MOST_MORE:
                findings.append(f"{name} has {after} {what} instead of {before}")
    return {
        "jobs": jobs,
        "measured_jobs": jobs - counted,
        "minutes": minutes,
        "coordinator_bytes_per_job": round(per_job),
        "grown_bytes": grown,
        "descriptors": {name: [begun[name].descriptors, ended_with[name].descriptors] for name in processes},
        "threads": {name: [begun[name].threads, ended_with[name].threads] for name in processes},
        "findings": len(findings),
        "failing": findings,
    }
