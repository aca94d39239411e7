"""A relay that replays, reorders, repeats, alters, cuts or delivers elsewhere: TLS ends it, by name, and nothing of it
reaches a service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.relay.hostile import Alter, Hostile
from tests.relay.rig import Certs, Served, deliver, first_bytes, message, serving
from treetap.errors import Incompatible, Interrupted
from treetap.wire.ports import Address
from treetap.wire.probe import examine

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(20)]

#: TLS records of the caller that are let pass: its handshake, and some of its message.
HONEST = 8


def _honest(_number: int, record: bytes) -> list[bytes]:
    return [record]


def _cut(number: int, record: bytes) -> list[bytes]:
    if number >= HONEST:
        raise EOFError
    return [record]


def _flip(number: int, record: bytes) -> list[bytes]:
    return [record if number < HONEST else record[:-1] + bytes([record[-1] ^ 1])]


def _repeat(number: int, record: bytes) -> list[bytes]:
    return [record] * (1 if number != HONEST else 2)


def _drop(number: int, record: bytes) -> list[bytes]:
    return [] if number == HONEST else [record]


class _Swap:
    """Sends a record after the one that follows it."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def __call__(self, number: int, record: bytes) -> list[bytes]:
        if number == HONEST:
            self._kept.append(record)
            return []
        return [record, *(self._kept.pop() for _ in self._kept[:])]


@asynccontextmanager
async def hostile(folder: Path, alter: Alter) -> AsyncIterator[tuple[Hostile, Certs, dict[str, Served]]]:
    """Two servers, of which one is reached through a hostile relay."""
    certs = Certs(folder)
    async with serving(certs.files("bank"), "bank") as bank, serving(certs.files("shop"), "shop") as shop:
        way = Hostile(alter)
        server = await asyncio.start_server(way.carry, "127.0.0.1", 0)
        way.at, way.leads_to = f"127.0.0.1:{server.sockets[0].getsockname()[1]}", bank.address
        yield way, certs, {"bank": bank, "shop": shop}
        server.close()


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize(
    "alter", [_cut, _flip, _repeat, _drop, _Swap()], ids=["cut", "altered", "repeated", "dropped", "reordered"]
)
async def test_records_that_are_changed(alter: Alter, tmp_path: Path) -> None:
    """The call fails with the process and the relay's address in its error; the service gets no message."""
    async with hostile(tmp_path, alter) as (way, certs, servers):
        with pytest.raises(Interrupted, match=f"bank at {way.at}"):
            await deliver(certs.files("telco"), Address("bank", way.at), message(400_000))
        assert servers["bank"].got == []


async def test_an_honest_way_in_the_same_place(tmp_path: Path) -> None:
    """The tests above change nothing but the records: unchanged, the message arrives."""
    async with hostile(tmp_path, _honest) as (way, certs, servers):
        await deliver(certs.files("telco"), Address("bank", way.at), message(400_000))
        assert servers["bank"].got == [("telco", message(400_000))]


async def test_a_connection_that_is_replayed(tmp_path: Path) -> None:
    """All that a caller has sent, sent once more to the same server, is no second message, nor any to another."""
    async with hostile(tmp_path, _honest) as (way, certs, servers):
        await deliver(certs.files("telco"), Address("bank", way.at), message(5))
        recorded = max(way.recorded, key=len)
        for server in servers.values():
            reader, writer = await first_bytes(server.address, recorded)
            with suppress(ConnectionError):
                async with asyncio.timeout(5):
                    await reader.read()
            writer.close()
        assert [len(server.got) for server in servers.values()] == [1, 0]


async def test_a_caller_that_is_led_to_another(tmp_path: Path) -> None:
    """The certificate there is not that of the name which was called: nothing is said, and the error names both."""
    async with hostile(tmp_path, _honest) as (way, certs, servers):
        way.leads_to = servers["shop"].address
        telco, to = certs.files("telco"), Address("bank", way.at)
        with pytest.raises(Incompatible, match="the certificate is that of 'shop', not of 'bank'"):
            await deliver(telco, to, message())
        diagnosis = await asyncio.to_thread(examine, to, telco, 3)
        assert diagnosis.lasting
        assert [server.got for server in servers.values()] == [[], []]
