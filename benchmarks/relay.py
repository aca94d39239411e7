"""A training through a relay beside the same one without: wall time in pairs, and the time of a small call.

    python benchmarks/relay.py [--pairs 5] [--calls 300] [--json]

Needs TREETAP_DATA. The training is that of `credit.py` with Paillier, which sends 123 MB: 24,000 records, three
parties, 5 trees of depth 3. Two federations stay up, one whose processes call each other directly and one whose
processes meet at a relay of this machine, and train in turn. Wall: prepare, bin, train, publish; CPU: all processes,
the relay included, for the whole job. A small call is a status of a job that the coordinator does not have, over one
connection. A job before the first pair is not counted. Where others use the machine, CPU says more than wall.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from backends import print_machine
from credit import COLUMNS, experiment
from measured_trainings import TRAINING
from watched_processes import Watched

from tests.relay.processes import RelayedFederation
from treetap import logs, terminal
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import Interrupted, TreetapError
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.joint_model import traffic
from treetap.lab.local_federation import LocalFederation
from treetap.wire.ports import Address, Role
from treetap.wire.rpc import GrpcDialer
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import jobs_pb2

WAYS = ("direct", "relayed")
RECORDS = 24_000
HOLDER, *FEATURES = COLUMNS


def settings(folder: Path) -> dict[str, dict[str, Any]]:
    """The parties' configurations; their tables are written below `folder`."""
    setting = experiment("short-exponent", 2048)
    table, label = read_table(setting, Path()).slice(0, RECORDS), setting.data.label
    ids = pa.array([f"c{number:05}" for number in range(table.num_rows)])
    configured = {}
    for party, columns in COLUMNS.items():
        names = [*columns, label] if party == "label-holder" else columns
        path = folder / f"{party}.parquet"
        pq.write_table(table.select(names).append_column("id", ids), path)
        own = {"path": str(path), "id": "id", "columns": columns} | ({"label": label} if label in names else {})
        configured[party] = {"workers": 1, "policy": {"people": {"record": "off"}}, "tables": {"train": own}}
    return configured


def train(federation: LocalFederation, name: str, relay: int | None) -> dict[str, float]:
    """Wall and CPU seconds, and MB of messages, of one job. `relay`: the process id of the relay, if there is one."""
    pids = {name: federation.pid(name) for name in (*COLUMNS, "coordinator")} | ({"relay": relay} if relay else {})
    before = _cpu_s(pids)
    spec = JobTable.model_validate(dict(experiment("short-exponent", 2048).job)).spec(HOLDER, FEATURES, "train")
    job = federation.operator.submit(jobs_pb2.SubmitRequest(job=name, spec=spec))
    status = federation.operator.watch(job, lambda _: None)
    if status.state != "finished":
        raise Interrupted(status.error or status.state)
    after, phases = _cpu_s(pids), {row.name: row.amount for row in status.phases}
    return {
        "wall_s": sum(phases[phase] for phase in TRAINING),
        "cpu_s": sum(after.values()) - sum(before.values()),
        "relay_s": after.get("relay", 0.0) - before.get("relay", 0.0),
        "mb": sum(row.bytes for row in traffic([status])) / 1e6,
    }


def _cpu_s(pids: dict[str, int]) -> dict[str, float]:
    watched = Watched(pids)
    watched.read()
    return {name: used.cpu_seconds for name, used in watched.used.items()}


async def call_us(federation: LocalFederation, calls: int) -> float:
    """Median microseconds of a status."""
    certs = federation.folder / "certs"
    dialer = GrpcDialer(TlsFiles(certs / "ca.crt", certs / "operator.crt", certs / "operator.key"))
    to, took = Address("coordinator", federation.addresses["coordinator"], Role.COORDINATOR), []
    try:
        for _ in range(calls):
            began = time.perf_counter()
            try:
                async with dialer.jobs(to) as stub:
                    async for _ in stub.Status(jobs_pb2.StatusRequest(job="none"), timeout=10):
                        pass
            except TreetapError:
                pass  # there is no such job, as meant
            took.append(time.perf_counter() - began)
    finally:
        await dialer.close()
    return 1e6 * float(np.median(took[calls // 10 :]))


def measure(pairs: int, calls: int) -> dict[str, Any]:
    """All figures, by way."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treetap-relay-")))
        tables = settings(folder)
        direct = stack.enter_context(LocalFederation(folder / "direct", tables))
        relayed = stack.enter_context(RelayedFederation(folder / "relayed", tables))
        relayed.await_registered(len(tables) + 1)
        federations = dict(zip(WAYS, (direct, relayed.federation), strict=True))
        relays = {"direct": None, "relayed": relayed.pid}
        for way in WAYS:
            train(federations[way], "first", relays[way])
        rows = []
        for pair in range(pairs):
            order = WAYS if pair % 2 == 0 else WAYS[::-1]
            made = {way: train(federations[way], f"job-{pair}", relays[way]) for way in order}
            rows.append({way: made[way] for way in WAYS})
        seconds = {way: asyncio.run(call_us(federations[way], calls)) for way in WAYS}
    ratios = {
        figure: statistics.median(row["relayed"][figure] / row["direct"][figure] for row in rows)
        for figure in ("wall_s", "cpu_s")
    }
    relay_s = statistics.median(row["relayed"]["relay_s"] for row in rows)
    return {"pairs": rows, "ratios": ratios, "call_us": seconds, "relay_s": relay_s}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="trainings by each way (default 5)")
    parser.add_argument("--calls", type=int, default=300, help="small calls by each way (default 300)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    given = parser.parse_args()
    logs.quiet_grpc()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("relay: set TREETAP_DATA to the folder with credit_default.parquet")
    measured = measure(given.pairs, given.calls)
    if given.as_json:
        print(json.dumps(measured, indent=1))
        return
    print_machine(["auto"])
    for row in measured["pairs"]:
        direct, relayed = (row[way] for way in WAYS)
        figures = (f"{what} {direct[what]:.2f}, {relayed[what]:.2f}" for what in ("wall_s", "cpu_s"))
        terminal.out.print(f"{direct['mb']:.0f} MB; direct, relayed: {'; '.join(figures)}")
    wall, cpu = measured["ratios"].values()
    terminal.out.print(f"relayed to direct, medians: wall {wall:.3f}, CPU {cpu:.3f}")
    calls = ", ".join(f"{way} {us:.0f} µs" for way, us in measured["call_us"].items())
    terminal.out.print(f"a small call: {calls}; CPU of the relay itself: {measured['relay_s']:.2f} s a job")


if __name__ == "__main__":
    main()
