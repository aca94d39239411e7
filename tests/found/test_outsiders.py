"""What callers without a certificate take from others, by whose name a request asks, and what silence tells."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.relay.hellos import real
from tests.relay.rig import deliver, first_bytes, message, relaying
from treetap.errors import Interrupted, Silent, Unreachable
from treetap.metrics import _asked_near
from treetap.names import host_of
from treetap.ops.gateway.http_connections import Waiting
from treetap.ops.relay.meeting import Bounds, Relay, _Arrival
from treetap.party.policy import Policy
from treetap.party.runtime.context import Outbox
from treetap.party.runtime.metrics import CostAccount
from treetap.party.runtime.transcript_recorder import Recorders
from treetap.wire.ports import Address, Identity, Role, Timeouts
from treetap.wire.relay.splicing import MOST_DEBT_S, MOST_UNPROVEN, MOST_UNPROVEN_S, End, Share

# ---- the relay


class _Line(asyncio.Transport):
    """A connection on which so many bytes come as often as they are read, as long as some are left."""

    def __init__(self, size: int = 0, left: float = float("inf")) -> None:
        super().__init__()
        self.end, self._size, self._left = End(), size, left
        self._reads = self.closed = False
        self.taken = list[tuple[float, int]]()  # when, bytes
        self.end.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.taken.append((asyncio.get_running_loop().time(), len(data)))

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        if not self._reads:
            self._reads = True
            asyncio.get_running_loop().call_soon(self._come)

    def _come(self) -> None:
        size = int(min(self._size, self._left))
        if self._reads and size and not self.closed:
            self._left -= size
            self.end.data_received(bytes(size))
            asyncio.get_running_loop().call_soon(self._come)

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.end.connection_lost, None)

    close = abort


def _joined(share: Share, size: int, left: float = float("inf")) -> tuple[_Line, _Line]:
    """Two lines whose ends are joined; of the first comes what is said."""
    line, other = _Line(size, left), _Line()
    line.end.join(other.end, share, 60.0)
    line.resume_reading()
    return line, other


@pytest.mark.parametrize(("bytes_s", "debt_s"), [(1_000_000, MOST_DEBT_S), (100_000, MOST_UNPROVEN_S)])
@pytest.mark.parametrize("connections", [1, 5, 64, 128])
async def test_a_share_holds_over_any_number_of_connections(connections: int, bytes_s: int, debt_s: float) -> None:
    """It is spent, no more than that, and each has as much of it; who is proven has a turn every `debt_s` seconds."""
    share = Share(bytes_s, debt_s)
    lines = [_joined(share, 262_144) for _ in range(connections)]
    if debt_s == MOST_DEBT_S:
        for line, _ in lines:
            line.end.spend(share)
    await asyncio.sleep(10.0)
    carried = [sum(size for _, size in other.taken) for _, other in lines]
    assert sum(carried) == share.carried
    assert 9.9 * bytes_s <= share.carried <= (1.1 * 10 + 1) * bytes_s
    assert min(carried[1:], default=0) >= 0.7 * max(carried[1:], default=0)  # the first has had the burst
    for _, other in lines:
        gaps = [after - before for (before, _), (after, _) in pairwise(other.taken)]
        assert max(gaps, default=0.0) <= debt_s or debt_s == MOST_UNPROVEN_S
    for line, _ in lines:
        line.abort()


@pytest.mark.parametrize("debt_s", [MOST_DEBT_S, MOST_UNPROVEN_S])
@pytest.mark.parametrize("size", [2_000, 16_384, 262_144, 10**7])
async def test_no_share_is_spent_further_ahead(size: int, debt_s: float) -> None:
    """Whatever came before; what has ended is forgotten within that time, and whoever comes anew is heard as soon."""
    loop, share = asyncio.get_running_loop(), Share(1_000_000, debt_s)
    lines = [_joined(share, size, 1000 * size) for _ in range(20)]
    for _ in range(2):
        await asyncio.sleep(1.1)
        began = loop.time()
        _, other = _joined(share, 1000, 1000)
        await asyncio.sleep(debt_s * 1.01)
        assert sum(taken for _, taken in other.taken) == 1000
        assert other.taken[-1][0] - began <= debt_s
        for line, _ in lines:
            line.abort()


@pytest.mark.parametrize("way", ["closed", "lost", "ended", "its other lost"])
async def test_who_waits_and_closes_waits_no_longer(way: str) -> None:
    """What it has sent is charged to nobody, and the others have its turns."""
    share = Share(100_000, MOST_UNPROVEN_S)
    (line, other), (_, stays) = _joined(share, 262_144), _joined(share, 262_144)
    await asyncio.sleep(2.0)
    assert line.end in share._waiting
    match way:
        case "closed":
            line.end.close()
        case "lost":
            line.end.connection_lost(ConnectionResetError())
        case "ended":
            assert not line.end.eof_received()
        case _:
            other.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert list(share._waiting) == [stays.end.other]
    had, taken, all_of_it = sum(size for _, size in other.taken), len(stays.taken), share.carried
    await asyncio.sleep(5.0)
    assert sum(size for _, size in other.taken) == had
    assert sum(size for _, size in stays.taken[taken:]) == share.carried - all_of_it > 400_000
    stays.abort()


@pytest.mark.real_time
async def test_who_shows_no_certificate_spends_nothing_of_who_does(tmp_path: Path) -> None:
    """Junk behind hellos, by many addresses: it is not charged to the name, and later callers are answered at once."""
    async with relaying(tmp_path, Bounds(bytes_s=100_000, hello_s=5.0)) as rig:
        bank = await rig.served("bank")
        await rig.forward("bank", bank.address, silent_s=60.0)
        telco, to = rig.certs.files("telco"), rig.address("bank")
        hello, junk = real("bank.party.treetap.internal"), b"\x17\x03\x03\x40\x00" + bytes(16_384)
        (name,) = rig.relay.names.values()
        loop = asyncio.get_running_loop()
        began = loop.time()
        stop, writers = loop.time() + 0.8, list[asyncio.StreamWriter]()
        while loop.time() < stop:
            _, writer = await first_bytes(rig.at, hello + junk * 6)
            writers.append(writer)
            await asyncio.sleep(0.02)
        assert rig.relay.turned_away["share"] > 0  # that have sent more than anybody does
        for _ in range(20):  # as many as pass unseen
            _, writer = await first_bytes(rig.at, hello + junk[:3000])
            writers.append(writer)
            await asyncio.sleep(0.02)
        assert 0 < name.unproven_share.carried <= (loop.time() - began + 2.0) * MOST_UNPROVEN  # and a burst
        assert name.share.carried == 0
        for writer in writers:
            writer.close()
        began = loop.time()
        await deliver(telco, to, message(20_000))
        assert loop.time() - began < 2.5
        assert name.share.carried > 0
        (_, content) = bank.got[-1]
        assert content == message(20_000)


# ---- hosts

HOSTS = {
    "127.0.0.1": "127.0.0.1",
    "LOCALHOST:8437": "localhost",
    "telco.example.:1": "telco.example",
    "[::1]": "::1",
    "[2001:DB8::1]:8437": "2001:db8::1",
    "127.0.0.1:": "127.0.0.1",
    "[127.0.0.1]x.evil": "",
    "[127.0.0.1].evil:8437": "",
    "[127.0.0.1]:8437x": "",
    "[127.0.0.1]8437": "",
    "[[127.0.0.1]]": "",
    "[127.0.0.1": "",
    "127.0.0.1]": "",
    "127.0.0.1:8437@evil.example": "",
    "127.0.0.1:8437.evil.example": "",
    "127.0.0.1:80:evil": "",
    "::1": "",
    "": "",
    ":8437": "",
}


@pytest.mark.parametrize("header", HOSTS)
def test_behind_the_name_of_a_host_stands_a_port_or_nothing(header: str) -> None:
    """One function reads a Host header, for consoles, for clients' HTTP and for metrics."""
    assert host_of(header) == HOSTS[header]
    told: list[str] = []
    _asked_near(lambda *_: told.extend(["answered"]))({"HTTP_HOST": header}, lambda status, _: told.append(status))
    assert (told == ["answered"]) == (HOSTS[header] in ("127.0.0.1", "localhost", "::1"))


class _Caller(_Line):
    """A caller's connection of an address."""

    def __init__(self, address: str, relay: Relay) -> None:
        self._address = address
        super().__init__()
        self.end = _Arrival(relay)
        self.end.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 7) if name == "peername" else default


@pytest.mark.parametrize(
    ("flood", "other"),
    [
        ("2001:db8::{0:x}", "2001:db8:0:1::7"),
        ("fe80::{0:x}%eth0", "192.0.2.7"),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8"),
    ],
)
async def test_a_host_has_one_share_whatever_its_addresses(flood: str, other: str) -> None:
    """Of IPv6 it has all of a network of 64 bits: silent connections of it give way to each other, at the relay too."""
    flooding, ended, waiting = [flood.format(number) for number in range(1, 9)], list[str](), Waiting(4)
    relay = Relay(Identity("relay", Role.RELAY), Any, Any, Bounds())  # type: ignore[arg-type] # no handshake comes
    with ExitStack() as held:
        for address in (other, *flooding):
            held.enter_context(waiting.one(address, partial(ended.append, address)))
            held.callback(_Caller(address, relay).abort)
        assert ended == flooding[:4]
        assert sorted(relay._arriving.values()) == [1, 8]


# ---- what a coordinator hears


@pytest.mark.parametrize("silence_s", [5.0, 30.0, 60.0])
async def test_an_address_that_says_nothing_is_as_one_that_is_closed(
    silence_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """One sentence after one time, whether there is nobody, or somebody who accepts and is silent, or hangs up late."""

    async def told(takes: float, failure: Exception) -> tuple[type[Exception], str, float]:
        class Dialer:
            async def deliver(self, *_: Any) -> None:
                await asyncio.sleep(takes)
                raise failure

        costs, recorder = CostAccount("bank", {}), Recorders(Path("none"), "off").of("job")
        peers, policy = {"shop": Address("shop", "10.0.0.7:22")}, Policy(people={"label_holders": ["shop"]})
        timeouts = Timeouts(silence_s)
        outbox = Outbox("job", 1, b"", peers, Dialer(), costs, recorder, policy, timeouts)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(Interrupted) as caught:
            await outbox.send("shop", "record_digest", [])
        return type(caught.value), str(caught.value), round(loop.time() - began, 3)

    faults = [Unreachable("closed"), Silent("shop did not answer in time")]
    told_of = {await told(takes, fault) for fault in faults for takes in (0.0, 1.0, silence_s * 0.7, 1e9)}
    assert [kind for kind, _, _ in told_of] == [Interrupted]
    assert "no answer of shop to record_digest in time" in caplog.text
