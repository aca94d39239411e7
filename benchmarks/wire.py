"""Throughput of messages of 1 MiB over loopback under mutual TLS, one at a time and several at once.

    python benchmarks/wire.py [--mebibytes 512] [--json]

The transport is that of every federation: same channel, same call, same credentials; only what answers it, which
throws away what it gets, is the benchmark's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from treetap.commands.certs.authority import create_authority, issue
from treetap.process.lifecycle import serve_until_stopped
from treetap.wire.callers import Callers
from treetap.wire.frame import serialised
from treetap.wire.ports import Address, Role
from treetap.wire.rpc import GrpcDialer, bind, serve_exchange, server
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import boosting_pb2, exchange_pb2

MIB = 1024 * 1024
IN_FLIGHT = (1, 2, 4)


async def sink(request: tuple[exchange_pb2.PeerMessage, bytes], context: object) -> exchange_pb2.Receipt:
    """Takes every message and keeps nothing."""
    del request, context
    return exchange_pb2.Receipt()


async def serve(tls: TlsFiles) -> None:
    """The receiving process."""
    grpc_server, credentials = server(Callers("receiver", tls))
    serve_exchange(grpc_server, sink)
    address = bind(grpc_server, credentials, "127.0.0.1:0")
    await grpc_server.start()
    await serve_until_stopped("party", {"name": "receiver", "address": address}, until_stdin_closes=True)
    await grpc_server.stop(1)


async def send(tls: TlsFiles, to: Address, mebibytes: int, in_flight: int) -> float:
    """Seconds for that many messages of 1 MiB, that many of them under way at any time."""
    dialer = GrpcDialer(tls)
    body = boosting_pb2.Gradients(ciphertexts=bytes(MIB)).SerializeToString()
    messages = [
        serialised(exchange_pb2.PeerMessage(job="wire", attempt=1, part=part), "gradients", body)
        for part in range(in_flight)
    ]
    await dialer.deliver(to, messages[0])  # the handshake is not what is measured

    async def worker(message: bytes) -> None:
        for _ in range(mebibytes // in_flight):
            await dialer.deliver(to, message)

    start = time.perf_counter()
    await asyncio.gather(*(worker(message) for message in messages))
    seconds = time.perf_counter() - start
    await dialer.close()
    return seconds


def measure(mebibytes: int) -> dict[str, float]:
    """Parcels in flight → GB/s."""
    with tempfile.TemporaryDirectory(prefix="treetap-wire-") as folder:
        create_authority(Path(folder))
        sender, receiver = (issue(Path(folder), name, Role.PARTY) for name in ("sender", "receiver"))
        files = [str(path) for path in (receiver.ca, receiver.certificate, receiver.key)]
        command = [sys.executable, __file__, "--serve", *files]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            to = Address("receiver", json.loads(process.stdout.readline())["address"])
            found = {
                str(count): mebibytes * MIB / asyncio.run(send(sender, to, mebibytes, count)) / 1e9
                for count in IN_FLIGHT
            }
            process.stdin.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=512, help="how much to send per figure (default 512)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    parser.add_argument("--serve", nargs=3, metavar=("CA", "CERTIFICATE", "KEY"), type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(TlsFiles(*given.serve)))
    elif given.as_json:
        print(json.dumps({"gigabytes_per_second_by_messages_in_flight": measure(given.mebibytes)}))
    else:
        for count, rate in measure(given.mebibytes).items():
            print(f"{count} in flight  {rate:.2f} GB/s")


if __name__ == "__main__":
    main()
