"""What callers without a certificate take from others, by whose name a request asks, and what silence tells."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from party.policy import Policy
from party.runtime.metrics import CostAccount
from party.runtime.outbox import Outbox
from party.runtime.transcript_recorder import Recorders
from tests.relay.hellos import real
from tests.relay.rig import carried_out, deliver, first_bytes, message, relaying
from treetap.errors import Interrupted, Silent, Unreachable
from treetap.metrics import _asked_near
from treetap.names import host_of
from treetap.wire.ports import Address
from treetap.wire.relay.meeting import Bounds
from treetap.wire.relay.splicing import MOST_DEBT_S, MOST_UNPROVEN_S, Share
from treetap.wire.timeouts import Timeouts

# ---- the relay


@pytest.mark.parametrize("debt_s", [MOST_DEBT_S, MOST_UNPROVEN_S])
@pytest.mark.parametrize("size", [1, 16_384, 262_144, 10**9])
def test_no_share_is_spent_further_ahead(size: int, debt_s: float) -> None:
    """Whatever came before; what has ended is forgotten within that time."""
    share = Share(1_000_000, debt_s)
    waits = [share.take(size, now / 1000) for now in range(200)]
    assert max(waits) <= debt_s <= 2.0
    assert share.take(0, 0.2 + debt_s) == 0.0


def test_who_shows_no_certificate_spends_nothing_of_who_does(tmp_path: Path) -> None:
    """Junk behind hellos, by many addresses: it is not charged to the name, and later callers are answered at once."""

    async def main() -> None:
        async with relaying(tmp_path, Bounds(bytes_s=100_000, hello_s=5.0)) as rig:
            bank = await rig.served("bank")
            await rig.forward("bank", bank.address, silent_s=60.0)
            telco, to = rig.certs.files("telco"), rig.address("bank")
            hello, junk = real("bank.party.treetap.internal"), b"\x17\x03\x03\x40\x00" + bytes(16_384)
            (name,) = rig.relay.names.values()
            loop = asyncio.get_running_loop()
            until, writers = loop.time() + 0.8, list[asyncio.StreamWriter]()
            while loop.time() < until:
                _, writer = await first_bytes(rig.at, hello + junk * 6)
                writers.append(writer)
                await asyncio.sleep(0.02)
            assert name.unproven_share.carried > 200_000
            assert name.share.carried == 0
            for writer in writers:
                writer.close()
            began = loop.time()
            await deliver(telco, to, message(20_000))
            assert loop.time() - began < 2.5
            assert name.share.carried > 0
            (_, content) = bank.got[-1]
            assert content == message(20_000)

    carried_out(main)


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
        peers, policy = {"shop": Address("shop", "10.0.0.7:22")}, Policy(label_holders=["shop"])
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
