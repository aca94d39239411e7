"""All deadlines follow from the longest silence of a peer."""

from __future__ import annotations

import asyncio

import pytest

from tests.virtual_time import run
from treetap.wire.ports import Reconnects, Timeouts
from treetap.wire.rpc import IDLE_S, channel_options


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
