"""Two joined ends: whatever becomes of one side, the other ends within bounds."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.relay.rig import until
from treetap.wire.relay import splicing
from treetap.wire.relay.splicing import End, Share

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(20)]


async def _connected() -> tuple[End, socket.socket]:
    """An end, and the other side of its connection."""
    near, far = socket.socketpair()
    far.setblocking(False)
    _, end = await asyncio.get_running_loop().connect_accepted_socket(End, near)
    return end, far


async def test_what_nobody_takes_does_not_keep_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who closes its half after the other side has, and reads nothing, holds its connection for `LINGER_S` at most."""
    monkeypatch.setattr(splicing, "LINGER_S", 0.1)

    loop, lost = asyncio.get_running_loop(), list[str]()
    (process, speaks), (caller, never_reads) = await _connected(), await _connected()
    process.on_lost(lambda: lost.append("process"))
    caller.on_lost(lambda: lost.append("caller"))
    process.join(caller, Share(), 60.0)
    sending = asyncio.ensure_future(loop.sock_sendall(speaks, bytes(400_000)))
    transport = caller.transport
    assert transport is not None
    await until(lambda: sending.done() and transport.get_write_buffer_size() > 0, "bytes that wait")
    speaks.shutdown(socket.SHUT_WR)
    await until(lambda: process._ended, "the end of the process's half")
    never_reads.shutdown(socket.SHUT_WR)
    await until(lambda: sorted(lost) == ["caller", "process"], "the end of both", 1.0)
    for side in (speaks, never_reads):
        side.close()


@pytest.mark.parametrize("first", ["own", "data"])
async def test_an_end_that_is_lost_already_is_not_waited_for(first: str) -> None:
    """It would never say again that it has ended: joined with it, the other ends at once."""
    (own, own_side), (data, data_side) = await _connected(), await _connected()
    lost = list[str]()
    own.on_lost(lambda: lost.append("own"))
    data.on_lost(lambda: lost.append("data"))
    (own_side if first == "own" else data_side).close()
    await until(lambda: lost == [first], "the first")
    data.join(own, Share(), 60.0, b"early")
    await until(lambda: sorted(lost) == ["data", "own"], "the other", 1.0)
