"""Connections over a slow line, or to a busy host: a handshake that takes its time is no failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from treetap.wire import rpc
from treetap.wire.ports import Address
from treetap.wire.tls import Insecure
from treetap.wire.v2 import jobs_pb2, jobs_pb2_grpc

DELAY_S = 0.15


class _Jobs(jobs_pb2_grpc.JobsServicer):
    async def Status(self, request: jobs_pb2.StatusRequest, context: object) -> AsyncIterator[jobs_pb2.StatusReply]:
        yield jobs_pb2.StatusReply(jobs=[jobs_pb2.JobStatus(job=request.job)])


async def _slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(65536):
        await asyncio.sleep(DELAY_S)
        writer.write(block)
    writer.close()


@pytest.mark.second_tier
@pytest.mark.real_time
async def test_the_first_call_over_a_slow_line_is_answered() -> None:
    """Each way takes 0.15 s: gRPC's first frame comes later than the first pause between attempts (0.1 s) would end."""
    server = grpc.aio.server()
    jobs_pb2_grpc.add_JobsServicer_to_server(_Jobs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    lines: list[asyncio.Task[None]] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        lines.extend(asyncio.ensure_future(_slow(*way)) for way in ((reader, far_writer), (far_reader, writer)))

    listener = await asyncio.start_server(relay, "127.0.0.1", 0)
    dialer = rpc.GrpcDialer(Insecure("operator"))
    to = Address("coordinator", f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    try:
        async with dialer.jobs(to) as stub:
            pages = [page async for page in stub.Status(jobs_pb2.StatusRequest(job="slow"), timeout=20)]
            assert pages[0].jobs[0].job == "slow"
    finally:
        await dialer.close()
        listener.close()
        await asyncio.wait_for(asyncio.gather(*lines), 10)
        await server.stop(None)
