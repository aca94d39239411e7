"""All deadlines follow from the longest silence of a peer; a handshake over a slow line is no failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from tests.virtual_time import run
from treetap.wire import rpc
from treetap.wire.ports import Address, Reconnects, Timeouts
from treetap.wire.rpc import IDLE_S, channel_options
from treetap.wire.tls import Insecure
from treetap.wire.v2 import jobs_pb2, jobs_pb2_grpc


@pytest.mark.parametrize(
    ("silence_s", "connect_s", "retry_s", "diagnosis_s"),
    [(1, 3, 1, 1), (5, 5, 5, 5), (10, 10, 10, 5), (30, 20, 10, 5), (600, 20, 10, 5)],
)
def test_deadlines_follow_from_the_silence(
    silence_s: float, connect_s: float, retry_s: float, diagnosis_s: float
) -> None:
    """An attempt to connect has at least 3 s, and at most 20; no other deadline exceeds the silence."""
    found = Timeouts(silence_s)
    assert (found.connect_s, found.retry_s, found.diagnosis_s) == (connect_s, retry_s, diagnosis_s)
    options = dict(channel_options(found))
    assert options["grpc.min_reconnect_backoff_ms"] == 1000 * connect_s  # gRPC's own deadline of an attempt
    assert int(options["grpc.keepalive_time_ms"]) >= 10_000  # servers refuse more frequent ones
    assert int(options["grpc.client_idle_timeout_ms"]) <= 1000 * (IDLE_S - 0.5)  # before the server


async def _repeats(timeouts: Timeouts, answers: int) -> tuple[int, float]:
    """Repeats of a call that always breaks after `answers` answers, and the virtual seconds that they took."""
    loop = asyncio.get_running_loop()
    reconnects, began, count = Reconnects(timeouts), loop.time(), 0
    while await reconnects.again():
        count += 1
        if count <= answers:
            reconnects.heard()
    return count, loop.time() - began


@pytest.mark.parametrize(("silence_s", "longest"), [(3, 3), (60, 10)])
def test_a_broken_call_is_repeated_for_a_bounded_time(silence_s: float, longest: float) -> None:
    """For 10 s and never beyond the silence; each answer begins the time anew."""
    count, took = run(_repeats(Timeouts(silence_s), 0))
    assert count >= 4
    assert longest - 1.1 <= took <= longest
    more, later = run(_repeats(Timeouts(silence_s), 20))
    assert more == count + 20
    assert later == pytest.approx(took + 20 * 0.1)


# ---- Connections over a slow line, or to a busy host: a handshake that takes its time is no failure


DELAY_S = 0.15


class _Jobs(jobs_pb2_grpc.JobsServicer):
    async def Status(self, request: jobs_pb2.StatusRequest, context: object) -> AsyncIterator[jobs_pb2.StatusReply]:
        yield jobs_pb2.StatusReply(jobs=[jobs_pb2.JobStatus(job=request.job)])


async def _slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(65536):
        await asyncio.sleep(DELAY_S)
        writer.write(block)
    writer.close()


async def _main() -> str:
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
            return pages[0].jobs[0].job
    finally:
        await dialer.close()
        listener.close()
        await asyncio.wait_for(asyncio.gather(*lines), 10)
        await server.stop(None)


@pytest.mark.second_tier
def test_the_first_call_over_a_slow_line_is_answered() -> None:
    """Each way takes 0.15 s: gRPC's first frame comes later than the first pause between attempts (0.1 s) would end."""
    assert asyncio.run(_main()) == "slow"
