"""An empty call: between processes, the least that a message costs, and from a loop to its threads and back.

    python benchmarks/empty_call.py [--calls 2000] [--repeat 3]

Client and server share one process and its event loop, so that the processor time is that of both ends; they connect
over loopback. `gRPC`: an empty unary method of a bare server. `with admission`: the same on a server of ours, which
looks at the caller's certificate and share first (`treetap.wire.admission`). `thread` and `loop`: a kernel that does
nothing, handed to a worker's thread, or run in the loop (`treetap.workers.engines.SMALL_US`). Of the repeats, which
alternate, the one with the least processor time is reported.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np

from treetap import terminal
from treetap.commands.certs.authority import create_authority, issue
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.ports import Role
from treetap.wire.tls import TlsFiles
from treetap.workers.engines import ThreadEngine

SERVICE, METHOD = "benchmark.Empty", "Call"
WARM_UP = 200


async def _answer(request: bytes, _context: object) -> bytes:
    return request


async def measured(admitted: bool, server_files: TlsFiles, client_files: TlsFiles, calls: int) -> dict[str, float]:
    """Median milliseconds of a call, and milliseconds of processor time of both ends for one."""
    server, credentials = rpc.server(Callers("there", server_files))
    if not admitted:
        server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(_answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    address = rpc.bind(server, credentials, "127.0.0.1:0")
    await server.start()
    ca, certificate, key = client_files.read()
    channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate))
    try:
        call: Any = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        return await _timed(lambda: call(b""), calls)
    finally:
        await channel.close()
        await server.stop(None)


async def handed(us: float, calls: int) -> dict[str, float]:
    """The same of a kernel that does nothing and says that it takes `us` microseconds."""
    engine = ThreadEngine(1, 60.0, print)
    try:
        return await _timed(lambda: engine.call(0, bytes, us=us), calls)
    finally:
        await engine.close()


async def _timed(call: Callable[[], Awaitable[object]], calls: int) -> dict[str, float]:
    for _ in range(WARM_UP):
        await call()
    times, began = [], time.process_time()
    for _ in range(calls):
        start = time.perf_counter()
        await call()
        times.append(time.perf_counter() - start)
    used = time.process_time() - began
    return {"p50_ms": 1000 * float(np.median(times)), "cpu_ms": 1000 * used / calls}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        create_authority(Path(folder))
        there, here = (issue(Path(folder), name, Role.PARTY, hosts=["127.0.0.1"], days=2) for name in ("there", "here"))
        for _ in range(given.repeat):
            for name, admitted in {"gRPC": False, "with admission": True}.items():
                runs[name].append(asyncio.run(measured(admitted, there, here, given.calls)))
            for name, us in {"thread": math.inf, "loop": 0.0}.items():
                runs[name].append(asyncio.run(handed(us, given.calls)))
    best = {name: min(of_way, key=lambda run: run["cpu_ms"]) for name, of_way in runs.items()}
    if given.as_json:
        print(json.dumps(best, indent=1))
        return
    for name, run in best.items():
        terminal.out.print(f"{name}: p50 {run['p50_ms']:.3f} ms, {run['cpu_ms']:.3f} ms of CPU")


if __name__ == "__main__":
    main()
