"""A served model under load: latency and throughput of single-record requests from many clients at once.

    python benchmarks/serving.py [--protocol interactive] [--way grpc] [--concurrent 200] [--each 50] [--repeat 3]

Needs TREETAP_DATA (the folder with credit_default.parquet). The model is that of benchmarks/eini.py, with 20 trees of
depth 4 and 5 columns at the label holder; a federation of real processes serves the 6,000 test rows over mutual TLS.
`--concurrent` clients, each with a connection of its own, ask about one record at a time, `--each` times one after the
other, the record at random. They run in this process, on the same processors. Each first asks once, which has the
handshakes in it and is reported apart, and then `--warm-up` times. A time is from a client's call to its answer. Of
`--repeat` runs the one with the most requests a second is reported, and the rates of all. Scores are compared with
those of the centralised model.

`--protocol` is any that `treetap serve --protocol` takes. `--window-ms` is the label holder's, and `--decision-days`
the retention of its decision log; 0: it keeps none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import numpy as np
from rich.table import Table
from shards import HOLDER, JOB, Model, Setting, serving

from treetap import terminal
from treetap.commands.certs.authority import issue
from treetap.commands.jobs import progress_view
from treetap.lab.local_federation import LocalFederation
from treetap.protocols.prediction import predict_request
from treetap.usage import measure
from treetap.wire.ports import Identity, Role
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import jobs_pb2, serving_pb2, serving_pb2_grpc

RECORDS = 6000
CLIENT = "app"
#: Seconds after which the label holder has told the coordinator of the last round.
TOLD_S = 8.0
#: Id → raw score.
Ask = Callable[[str], Awaitable[float]]


async def over_grpc(address: str, files: TlsFiles, clients: int, stack: AsyncExitStack) -> list[Ask]:
    """Clients with a channel each."""
    ca, certificate, key = files.read()
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    options = [
        ("grpc.ssl_target_name_override", Identity(HOLDER, Role.PARTY).dns),
        ("grpc.use_local_subchannel_pool", 1),
    ]

    async def client() -> Ask:
        channel = await stack.enter_async_context(grpc.aio.secure_channel(address, credentials, options=options))
        stub = serving_pb2_grpc.ServingStub(channel)

        async def ask(record: str) -> float:
            answer = await stub.Predict(serving_pb2.PredictRecords(ids=[record]), timeout=60)
            return float(answer.predictions[0].scores[0])

        return ask

    return [await client() for _ in range(clients)]


async def over_http(address: str, files: TlsFiles, clients: int, stack: AsyncExitStack) -> list[Ask]:
    """Clients of one session, with a connection each."""
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(files.certificate, files.key)
    connector = aiohttp.TCPConnector(ssl=context, limit=clients)
    session = await stack.enter_async_context(aiohttp.ClientSession(f"https://{address}", connector=connector))

    async def ask(record: str) -> float:
        async with session.post("/v1/predict", json={"ids": [record]}) as answer:
            found = await answer.json()
            if answer.status != 200:
                sys.exit(f"serving: {found['detail']}")
            return float(found["predictions"][0]["score"])

    return [ask] * clients


WAYS = {"grpc": over_grpc, "http": over_http}


async def load(asks: Sequence[Ask], each: int, expected: np.ndarray[Any, Any]) -> tuple[list[list[float]], float]:
    """Have every client ask so many times; returns seconds by client and wave, and the largest difference."""
    drawn = random.Random(0)
    rows = [[drawn.randrange(RECORDS) for _ in range(each)] for _ in asks]
    worst = 0.0

    async def client(ask: Ask, wanted: list[int]) -> list[float]:
        nonlocal worst
        times = []
        for row in wanted:
            began = time.perf_counter()
            score = await ask(f"r{row:06d}")
            times.append(time.perf_counter() - began)
            worst = max(worst, abs(score - float(expected[row])))
        return times

    return list(await asyncio.gather(*map(client, asks, rows))), worst


def figures(federation: LocalFederation, job: str) -> jobs_pb2.JobStatus:
    """The job's own account of itself, once it is up to date."""
    time.sleep(TOLD_S)
    (status,) = federation.operator.status(job)
    return status


def cpu(status: jobs_pb2.JobStatus) -> dict[str, float]:
    """CPU seconds of each party's processes since the job began."""
    return {each.party: sum(used.amount for used in each.account.cpu_seconds) for each in status.accounts}


def run(given: argparse.Namespace, workdir: Path) -> dict[str, Any]:
    """Serve, ask, and cancel."""
    model = Model(workdir, Setting(others=given.parties - 1, trees=given.trees))
    tables = {RECORDS: model.write_tables(workdir, RECORDS)}
    table = {
        "clients": [CLIENT],
        "listen": "127.0.0.1:0",
        "gateway": "gateway",
        "window_ms": given.window_ms,
        "decision_days": given.decision_days,
        "deadline_s": 60.0,
    }
    with serving(model, tables, given.key_bits, 0.0, more={"serve": table}) as federation:
        files = issue(federation.folder / "certs", CLIENT, Role.CLIENT, days=2)
        operator = federation.operator
        bits = given.key_bits if given.protocol == "eini" else 0
        asked = predict_request(given.protocol, key_bits=bits, model=JOB, table=f"rows-{RECORDS}", serve=True)
        job = operator.predict(asked)
        with progress_view.live(job) as update:
            status = operator.watch(job, update, until=lambda now: now.phase == "serve" and now.HasField("serving"))
        if status.state != "running":
            sys.exit(f"serving: {status.error}")
        ready_s = status.seconds

        async def measured(asks: Sequence[Ask], each: int) -> dict[str, Any]:
            before = await asyncio.to_thread(figures, federation, job)
            began, own = time.perf_counter(), measure().cpu_seconds
            waves, worst = await load(asks, each, model.expected)
            seconds, own = time.perf_counter() - began, measure().cpu_seconds - own
            after = await asyncio.to_thread(figures, federation, job)
            return summary(waves, seconds, before, after, own) | {"max_difference": worst}

        async def main() -> tuple[dict[str, Any], list[dict[str, Any]]]:
            async with AsyncExitStack() as stack:
                address = status.serving.grpc
                if given.way == "http":
                    address = await asyncio.to_thread(federation.start_gateway, HOLDER)
                asks = await WAYS[given.way](address, files, given.concurrent, stack)
                first = await measured(asks, 1)
                if given.warm_up:
                    await load(asks, given.warm_up, model.expected)
                return first, [await measured(asks, given.each) for _ in range(given.repeat)]

        first, runs = asyncio.run(main())
        operator.cancel(job)
    best = max(runs, key=lambda run: float(run["requests_per_s"]))
    return {
        "protocol": given.protocol,
        "way": given.way,
        "trees": given.trees,
        "concurrent": given.concurrent,
        "prepared_s": ready_s,
        "first_asked_p99_s": first["p99_s"],
        "all_requests_per_s": [round(run["requests_per_s"]) for run in runs],
        **best,
    }


def summary(
    waves: list[list[float]], seconds: float, before: jobs_pb2.JobStatus, after: jobs_pb2.JobStatus, own: float
) -> dict[str, Any]:
    """Figures of one run; `own`: CPU seconds of the clients."""
    times = np.array(waves).ravel()
    rounds = after.serving.rounds - before.serving.rounds
    used, earlier = cpu(after), cpu(before)
    spent = {party: amount - earlier.get(party, 0.0) for party, amount in used.items()}
    return {
        "requests": len(times),
        "p50_s": float(np.quantile(times, 0.5)),
        "p95_s": float(np.quantile(times, 0.95)),
        "p99_s": float(np.quantile(times, 0.99)),
        "max_s": float(times.max()),
        "requests_per_s": len(times) / seconds,
        "rounds": rounds,
        "records_per_round": (after.serving.records - before.serving.records) / rounds,
        "parties_cpu_ms_per_request": 1000 * sum(spent.values()) / len(times),
        "cpu_s": spent | {"clients": own},
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="interactive")
    parser.add_argument("--way", choices=list(WAYS), default="grpc")
    parser.add_argument("--concurrent", type=int, default=200)
    parser.add_argument("--each", type=int, default=50)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--parties", type=int, default=2)
    parser.add_argument("--key-bits", type=int, default=2048)
    parser.add_argument("--window-ms", type=float, default=200.0)
    parser.add_argument("--decision-days", type=int, default=0)
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "treetap-serving")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("serving: set TREETAP_DATA to the folder with credit_default.parquet")
    given.workdir.mkdir(parents=True, exist_ok=True)
    found = run(given, given.workdir.resolve())
    if given.as_json:
        print(json.dumps(found, indent=1))
        return
    table = Table("", "")
    for name, value in found.items():
        shown = ", ".join(f"{k} {v:.1f}" for k, v in value.items()) if isinstance(value, dict) else value
        table.add_row(name, f"{shown:.4g}" if isinstance(shown, float) else str(shown))
    terminal.out.print(table)


if __name__ == "__main__":
    main()
